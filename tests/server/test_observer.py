"""What a real Triton server's metrics say of the rows that a model saw."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.server.conftest import Unload
from tests.server.models import models, rows
from tests.waiting import wait_for
from triton_regressors import export
from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.clients.infer import Client
from triton_regressors.clients.server import TritonServer
from triton_regressors.kernels.row_profile import read_profile

pytestmark = pytest.mark.server

NAME = "bayes_observed"
LINE = re.compile(r"triton_regressors_(\w+)\{(.*)\} (\S+)")


@pytest.fixture(scope="module")
def observed(repository: Path, client: Client, unload: Unload) -> Iterator[Path]:
    """The directory of a served version with a profile, of which every row is looked at."""
    entry = export(models()["bayes"].estimator, repository, name=NAME, sample=rows(400), observe="on").entry
    client.load(NAME)
    yield entry.version_directory
    unload(NAME)


def metrics(server: TritonServer) -> dict[tuple[str, str], float]:
    """Return the entry's metrics by name and by what their labels say beyond the model."""
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = {}
    for name, labels, value in (match.groups() for match in map(LINE.fullmatch, lines) if match):
        told = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        process = told.pop("process")
        if (told.pop("model"), told.pop("version")) == (NAME, "1") and process.isdigit():
            found[name, ",".join(told[label] for label in sorted(told, reverse=True))] = float(value)
    return found


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

    wait_for(lambda: metrics(server)["rows_total", ""] == 900)
    found = metrics(server)
    assert found["seen_rows_total", ""] == 900
    assert found["refused_rows_total", "not_finite"] == 3
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
    assert sum(found["answers_total", f"std,{number}"] for number in range(10)) == 500
    assert not any(name == "nan_total" for name, _ in found)  # the model takes none
