"""A real Triton server's metrics of the rows that a model saw."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.metrics import Server
from tests.server.conftest import Unload
from tests.server.in_process import loaded
from tests.server.models import models, rows
from tests.waiting import wait_for
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.kernels.format.row_profile import read_profile
from triton_regressors.scoring.backend_stub import Tensor

NAME = "bayes_observed"
REASONS = {
    "not_finite": 2,
    "unknown_category": 3,
    "missing": 1,
    "too_long": 2,
    "empty": 1,
    "wrong_columns": 4,
    "cancelled": 5,
    "failed": 6,
}
LINE = re.compile(r"triton_regressors_(\w+)\{(.*)\} (\S+)")


@pytest.fixture(scope="module")
def observed(repository: Path, client: Client, unload: Unload) -> Iterator[Path]:
    """The directory of a served version with a profile, which observes every row."""
    options = {"sample": rows(400), "observe": "on", "out_of_range": True}
    entry = export(models()["bayes"].estimator, repository, name=NAME, **options).entry
    client.load(NAME)
    yield entry.version_directory
    unload(NAME)


def metrics(server: TritonServer) -> dict[tuple[str, str], float]:
    """Return the entry's metrics by name and by their labels beyond the model."""
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = {}
    for name, labels, value in (match.groups() for match in map(LINE.fullmatch, lines) if match):
        told = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        process = told.pop("process")
        if (told.pop("model"), told.pop("version")) == (NAME, "1") and process.isdigit():
            found[name, ",".join(told[label] for label in sorted(told, reverse=True))] = float(value)
    return found


@pytest.mark.server
def test_the_servers_metrics_say_what_was_seen(server: TritonServer, client: Client, observed: Path) -> None:
    profile = read_profile(observed)
    assert profile is not None
    X = rows(900, seed=3)
    X[:7, 2] = 1e6
    X[:5, 4] = -1e6
    y = client.infer(NAME, X[:500], outputs=("y", "std"))["y"]
    y = np.concatenate([y, *(client.infer(NAME, X[i : i + 1], outputs=("y",))["y"] for i in range(500, 520))])
    y = np.concatenate([y, client.infer(NAME, X[520:], outputs=("y",))["y"]])
    broken = X[:3].copy()
    broken[1, 1] = np.nan
    for wrong in (broken, X[:0]):
        with pytest.raises(InvalidRequest):
            client.infer(NAME, wrong)

    def answered(output: str) -> float:
        found = metrics(server)
        return sum(found["answers_total", f"{output},{number}"] for number in range(10))

    wait_for(lambda: (answered("y"), answered("std")) == (900, 500))  # these are told last
    wait_for(lambda: metrics(server)["refused_rows_total", "not_finite"] == 3)
    found = metrics(server)
    assert found["rows_total", ""] == found["seen_rows_total", ""] == 900
    wait_for(lambda: f"{NAME} version 1 refused" in server.log)
    below, above = (profile.low > X).sum(axis=0), (profile.high < X).sum(axis=0)
    assert below[4] >= 5
    assert above[2] >= 7
    for column in range(X.shape[1]):
        assert found["below_range_total", str(column)] == below[column]
        assert found["above_range_total", str(column)] == above[column]
    answers = profile.answers["y"]
    bins = np.bincount(np.searchsorted(answers.edges, y[:, 0]), minlength=10)
    assert [found["answers_total", f"y,{number}"] for number in range(10)] == bins.tolist()
    assert [found["expected_share", f"y,{number}"] for number in range(10)] == pytest.approx(answers.shares)
    assert not any(name == "nan_total" for name, _ in found)  # the model takes none
    asked = client.infer(NAME, X, outputs=("out_of_range", "y"))
    np.testing.assert_array_equal(asked["out_of_range"], profile.outside(X))
    assert asked["y"].tobytes() == y.tobytes()


class Request:
    """A request of a column of numbers and one of strings."""

    def __init__(self, numbers: list[float], shops: list[str], cancelled: bool = False, **parameters: str) -> None:
        strings = np.array([shop.encode() for shop in shops], dtype=object)[:, None]
        self._tensors = {"X": np.array(numbers, np.float32)[:, None], "onehotencoder": strings}
        self._cancelled, self._parameters = cancelled, parameters

    def inputs(self) -> list[Tensor]:
        return list(map(Tensor, self._tensors, self._tensors.values()))

    def parameters(self) -> str:
        return json.dumps(self._parameters, separators=(",", ":"))

    def is_cancelled(self) -> bool:
        return self._cancelled


def test_refused_rows_are_counted_by_their_reason(tmp_path: Path) -> None:
    table = pd.DataFrame({"size": np.arange(30.0), "shop": ["x", "y", "z"] * 10})
    columns = make_column_transformer((StandardScaler(), ["size"]), (OneHotEncoder(), ["shop"]))
    model = make_pipeline(columns, Ridge()).fit(table, table["size"])
    entry = export(model, tmp_path, name="shops", sample=table, max_batch_size=64).entry
    server = Server()
    with loaded(entry.directory, **vars(server.utils())) as served:
        served.large_rows = 5
        good = Request([1.0, 2.0], ["x", "y"])
        assert served.execute([good])[0].error is None
        answers = served.execute(
            [
                Request([1.0, np.nan], ["x", "y"]),
                Request([1.0, 2.0, 3.0], ["x", "q", "y"]),
                Request([1.0], [""]),
                Request([1.0, 2.0], ["x", 5000 * "x"]),
                Request([], []),
                Request([1.0] * 4, ["x"] * 4, columns_digest="another"),
                Request([1.0] * 5, ["x"] * 5, cancelled=True),
                good,
            ]
        )
        assert [answer.error is None for answer in answers] == [False] * 7 + [True]
        assert served.observer.counts.rows == 4
        run, served.runner = served.runner, None
        assert all(answer.error.code == "INTERNAL" for answer in served.execute([good] * 3))
        served.runner = run
        assert served.observer.counts.refused == REASONS
        assert served.observer.counts.rows == 4
        served.observer.hand_over()
        refused = {reason: server.numbers["refused_rows_total", reason] for reason in REASONS}
        assert (refused, server.numbers["seen_rows_total", ""]) == (REASONS, 4)


@pytest.mark.parametrize(("mode", "observed"), [("off", False), ("on", True)])
def test_observing_is_a_parameter_of_the_configuration(tmp_path: Path, mode: str, observed: bool) -> None:
    entry = export(Ridge().fit(rows(20), np.arange(20)), tmp_path, name="ridge").entry
    config = entry.directory / "config.pbtxt"
    given = config.read_text()
    assert given.count('"sampled"') == 1
    config.write_text(given.replace('"sampled"', f'"{mode}"'))
    with loaded(entry.directory, **vars(Server().utils())) as served:
        assert hasattr(served.observer, "counts") == observed
    config.write_text(given.replace('"sampled"', '"sometimes"'))
    refusal = "parameter observe must be one of off, sampled, on, not 'sometimes'"
    with pytest.raises(ValueError, match=refusal), loaded(entry.directory):
        pass
