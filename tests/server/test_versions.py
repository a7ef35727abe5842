"""Versions come and go under load: no request fails, and every answer is one version's own."""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from tests.server.conftest import Unload
from tests.server.models import FEATURES, ROUNDING, ridge, rows
from tests.servers import triton_server
from tests.waiting import PATIENCE_S, wait_for
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import InferenceError
from triton_regressors.clients.server.triton_server import TritonServer, readable_log_line
from triton_regressors.kernels.entry import find_entry
from triton_regressors.kernels.format.parity import measure, units

pytestmark = pytest.mark.server

POLL_S = 1
VERSIONS: dict[int, Ridge] = {1: ridge(1), 2: ridge(2)}


@dataclass(frozen=True)
class Answer:
    """The version that answered a request, and the times of sending and answering."""

    version: int | None
    sent_s: float
    answered_s: float


class Load:
    """Clients over both protocols that ask for no particular version, all the time, and check every answer."""

    def __init__(self, server: TritonServer, model: str) -> None:
        self._model = model
        self._X = rows(64, seed=7)
        self._expected = {
            version: estimator.predict(self._X.astype(np.float64)).reshape(-1, 1)
            for version, estimator in VERSIONS.items()
        }
        self.answers: list[Answer] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        clients = [Client(server.grpc_url), Client(server.http_url, "http")] * 2
        self._threads = [threading.Thread(target=self._ask, args=job) for job in enumerate(clients)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, version: int) -> None:
        """Wait until requests that are sent from now on are answered by this version."""
        began, deadline = time.monotonic(), time.monotonic() + PATIENCE_S
        while not any(a.version == version and a.sent_s > began for a in self.answers[-40:]):
            assert not self.errors, self.errors[0]
            assert time.monotonic() < deadline, f"version {version} does not answer"
            time.sleep(0.02)

    def sent_after(self, moment_s: float) -> set[int | None]:
        """Return the versions that answered the requests sent after a moment."""
        return {answer.version for answer in self.answers if answer.sent_s > moment_s}

    def check(self) -> None:
        """No request failed, and none was answered by anything but one of the versions."""
        assert self.errors == []
        assert self.answers
        assert None not in {answer.version for answer in self.answers}

    def _ask(self, seed: int, client: Client) -> None:
        random = np.random.default_rng(seed)
        while not self._stop.is_set():
            first, size = int(random.integers(48)), int(random.integers(1, 17))
            chosen = slice(first, first + size)
            sent_s = time.monotonic()
            try:
                found = client.infer(self._model, self._X[chosen])["y"]
            except InferenceError as error:
                self.errors.append(f"{type(error).__name__}: {error}")
            else:
                self.answers.append(Answer(self._version(found, chosen), sent_s, time.monotonic()))
            time.sleep(0.005)

    def _version(self, found: np.ndarray, chosen: slice) -> int | None:
        """Return the version whose answer this is, to the float32 ulp."""
        for version, expected in self._expected.items():
            if measure(found, expected[chosen], units(expected)).excess <= ROUNDING:
                return version
        return None


def remove_version(entry: Path, version: int) -> None:
    """Take a version away at once, as a rollback does."""
    gone = entry.parent.parent / f"removed-{entry.name}-{version}"
    os.rename(entry / str(version), gone)
    shutil.rmtree(gone)


@contextmanager
def no_complaints(server: TritonServer) -> Iterator[None]:
    """The server logs no error meanwhile."""
    before = len(server.log.splitlines())
    yield
    lines = server.log.splitlines()[before:]
    assert lines  # loading is logged, so errors would be
    assert [line for line in lines if readable_log_line(line).level in ("error", "fatal")] == []


def test_load_on_request(server: TritonServer, client: Client, repository: Path) -> None:
    entry = export(VERSIONS[1], repository, name="updated", max_batch_size=16).entry.directory
    client.load("updated")
    with no_complaints(server), Load(server, "updated") as load:
        load.wait_for(1)

        export(VERSIONS[2], repository, name="updated")
        time.sleep(0.3)
        exported_s = time.monotonic()
        load.wait_for(1)  # nothing changes until it is loaded
        client.load("updated")
        loaded_s = time.monotonic()
        load.wait_for(2)
        assert load.sent_after(loaded_s) == {2}
        assert load.sent_after(exported_s) == {1, 2}

        policy = client.config("updated")  # back to version 1, whose files and version 2's stay as they are
        policy.version_policy.specific.versions.append(1)
        client.load("updated", config=policy)
        loaded_s = time.monotonic()
        load.wait_for(1)
        assert load.sent_after(loaded_s) == {1}

        remove_version(entry, 2)  # and for good
        policy.version_policy.latest.num_versions = 1
        client.load("updated", config=policy)
        loaded_s = time.monotonic()
        load.wait_for(1)
        assert load.sent_after(loaded_s) == {1}
    load.check()
    assert server.running


def test_two_versions_side_by_side(client: Client, repository: Path, unload: Unload) -> None:
    for estimator in VERSIONS.values():
        export(estimator, repository, name="both", max_batch_size=16, versions=2)
    client.load("both")
    X = rows(5)
    for version, estimator in VERSIONS.items():
        expected = estimator.predict(X.astype(np.float64)).reshape(-1, 1)
        assert measure(client.infer("both", X, version=version)["y"], expected, units(expected)).max_ulp <= 1
    np.testing.assert_array_equal(client.predict("both", X), client.predict("both", X, version=2))
    unload("both")


def test_a_table_finds_its_columns_in_an_entry_that_was_made_anew(
    client: Client, either: Client, repository: Path, unload: Unload
) -> None:
    table = pd.DataFrame(rows(64).astype(np.float64), columns=FEATURES)
    for columns in (FEATURES, FEATURES[::-1]):  # under one version number, from which no client learns of it
        shutil.rmtree(repository / "anew", ignore_errors=True)
        estimator = Ridge().fit(table[columns], table["age"] + 2 * table["bmi"])
        export(estimator, repository, name="anew", max_batch_size=16)
        client.load("anew")
        assert "checks_columns" in client.config("anew").parameters
        expected = estimator.predict(table[columns]).reshape(-1, 1)
        assert measure(either.infer("anew", table)["y"], expected, units(expected)).excess <= ROUNDING
    unload("anew")


def test_the_server_loads_a_configuration_that_was_edited_among_comments(
    client: Client, repository: Path, unload: Unload
) -> None:
    config = export(VERSIONS[1], repository, name="commented", max_batch_size=16).entry.directory / "config.pbtxt"
    generated = config.read_text()
    start, end = generated.index("instance_group {"), generated.index("parameters {")
    groups = """
instance_group: [  # of a machine with GPUs
  { kind: KIND_GPU, gpus: [0,  # the first
                           1]; count: 1 },  # both
  < kind: KIND_GPU gpus: 2 >  # and the third
]  # no more"""
    config.write_text(f"# ours\n{generated[:start]}{groups}\n{generated[end:]}# the end")
    options = {"instances": 2, "instance_kind": "cpu", "max_queue_delay_us": 50, "preferred_batch_sizes": (4, 8)}
    export(VERSIONS[2], repository, name="commented", **options)
    for comment in ("# ours", "# of a machine with GPUs", "# both", "# and the third", "# no more", "# the end"):
        assert config.read_text().count(comment) == 1
    client.load("commented")
    loaded = client.config("commented")
    assert [(group.count, group.kind, list(group.gpus)) for group in loaded.instance_group] == [
        (2, loaded.instance_group[0].KIND_CPU, [])
    ] * 2
    assert loaded.dynamic_batching.max_queue_delay_microseconds == 50
    assert list(loaded.dynamic_batching.preferred_batch_size) == [4, 8]
    X = rows(5)
    expected = VERSIONS[2].predict(X.astype(np.float64)).reshape(-1, 1)
    assert measure(client.infer("commented", X)["y"], expected, units(expected)).max_ulp <= 1
    unload("commented")


@pytest.fixture(scope="module")
def polled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TritonServer, Path]]:
    """A server that looks for changes every second, and its repository, which holds version 1 of `updated`."""
    repository = tmp_path_factory.mktemp("polled") / "models"
    export(VERSIONS[1], repository, name="updated", max_batch_size=16)
    with triton_server([repository], poll_s=POLL_S) as server:
        yield server, repository


def settle(server: TritonServer) -> None:
    """Wait until the server has found no more changes for a while: only then may a version's files go away."""
    quiet_since, seen = time.monotonic(), 0
    deadline = quiet_since + PATIENCE_S
    while time.monotonic() < quiet_since + 1.6 * POLL_S:
        assert time.monotonic() < deadline, "the server keeps loading"
        log = server.log
        lines = len(log.splitlines())
        if lines != seen or log.count('"loading: ') > log.count('"successfully loaded '):
            quiet_since, seen = time.monotonic(), lines
        time.sleep(0.05)


def test_load_by_polling(polled: tuple[TritonServer, Path]) -> None:
    server, repository = polled
    with no_complaints(server), Load(server, "updated") as load:
        load.wait_for(1)
        export(VERSIONS[2], repository, name="updated")
        load.wait_for(2)
        first_s = next(answer.answered_s for answer in load.answers if answer.version == 2)
        settle(server)
        assert load.sent_after(first_s) == {2}  # version 1 does not come back

        remove_version(repository / "updated", 2)
        load.wait_for(1)
        settle(server)
    load.check()
    assert {answer.version for answer in load.answers} == {1, 2}


def test_many_exports_into_a_polled_repository(polled: tuple[TritonServer, Path]) -> None:
    server, repository = polled
    with Client(server.grpc_url) as client, no_complaints(server):
        for number in range(16):  # over several polls
            export(VERSIONS[1 + number % 2], repository, name="updated", max_batch_size=16 + number % 3)
            export(VERSIONS[1], repository, name="new", max_batch_size=16)
            time.sleep(0.1)
        newest = find_entry(repository / "updated").version
        wait_for(lambda: [s["version"] for s in client.statistics("updated")["model_stats"]][-1:] == [str(newest)])
        wait_for(lambda: client.ready("new"))
        X = rows(3)
        expected = VERSIONS[1 + 15 % 2].predict(X.astype(np.float64)).reshape(-1, 1)
        assert measure(client.infer("updated", X)["y"], expected, units(expected)).max_ulp <= 1
    assert server.running
