"""Tests of the watcher beside a running server: dying model processes, and new, changed and removed entries."""

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.servers import triton_server
from tests.waiting import wait_for
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import InferenceError
from triton_regressors.clients.server import watch
from triton_regressors.clients.server.triton_server import TritonServer, readable_log_line
from triton_regressors.clients.server.watch import children

pytestmark = pytest.mark.server
WriteModel = Callable[..., Path]
ROWS = np.array([[1, 2, 3]], np.float32)
TWICE = 2 * ROWS.sum()


def processes(server: TritonServer, model: str) -> list[int]:
    """The living processes of a model."""
    return [pid for pid, ended, arguments in children(server.pid) if not ended and f"/{model}/" in "".join(arguments)]


def said(server: TritonServer) -> list[str]:
    """Return the watcher's messages in the log."""
    return [readable_log_line(line).message for line in server.log.splitlines() if "triton_regressors]" in line]


@pytest.fixture(scope="module")
def polled(tmp_path_factory: pytest.TempPathFactory, write_model: WriteModel) -> Iterator[TritonServer]:
    """Serves `sums` in two processes, and `spare`, and looks for changes."""
    repository = tmp_path_factory.mktemp("watched [x]") / "repository"
    write_model(repository, "sums", instances=2)
    write_model(repository, "spare")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "TICK_S", 0.2)
        with triton_server([repository], poll_s=1) as running:
            running._watcher._poll_s = 0.2
            yield running


@pytest.fixture(scope="module")
def client(polled: TritonServer) -> Iterator[Client]:
    with Client(polled.grpc_url) as connected:
        yield connected


def answers(client: Client, model: str) -> bool:
    try:
        return client.predict(model, ROWS) == TWICE
    except InferenceError:
        return False


def test_a_process_that_dies_is_replaced_though_nobody_asks(polled: TritonServer, client: Client) -> None:
    before = processes(polled, "sums")
    assert len(before) == 2
    already = len(said(polled))
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: len(said(polled)) == already + 2)
    assert said(polled)[already:] == [
        "A process of 'sums', version 1, has ended; the model is loaded again.",
        "'sums' answers again.",
    ]
    for _ in range(8):  # by both processes
        assert client.predict("sums", ROWS) == TWICE
    wait_for(lambda: len(processes(polled, "sums")) == 2)
    assert client.predict("spare", ROWS) == TWICE


def test_loading_and_unloading_are_no_deaths(polled: TritonServer, client: Client) -> None:
    already = len(said(polled))
    client.unload("spare")
    client.load("spare")
    client.load("spare", restart=True)
    time.sleep(1)  # five looks
    assert said(polled)[already:] == []
    assert answers(client, "spare")


def test_restart_mends_what_a_load_alone_leaves(polled: TritonServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand, as on a server without this watcher."""
    monkeypatch.setattr(polled._watcher, "_mend", lambda: None)
    wait_for(lambda: len(processes(polled, "spare")) == 1)  # one that was replaced may still be ending
    (before,) = processes(polled, "spare")
    os.kill(before, signal.SIGKILL)

    with Client(polled.http_url, "http") as client:
        assert not answers(client, "spare")
        client.load("spare")
        assert client.ready("spare")
        assert not answers(client, "spare")
        client.load("spare", restart=True)
        assert answers(client, "spare")
        assert before not in processes(polled, "spare")[-1:]


def test_entries_come_change_and_go(polled: TritonServer, client: Client, write_model: WriteModel) -> None:
    (repository,) = polled.repositories
    beside = write_model(repository.parent, "later")
    beside.rename(repository / "later")
    wait_for(lambda: answers(client, "later"))
    model = repository / "later" / "1" / "model.py"
    model.write_text(model.read_text().replace("2 * x.sum", "3 * x.sum"))
    wait_for(lambda: client.predict("later", ROWS) == 1.5 * TWICE)
    client.load("sums")  # which a server in its own mode poll refuses
    (repository / "later").rename(repository.parent / "gone")
    wait_for(lambda: not answers(client, "later"))
    assert answers(client, "sums")


def test_an_entry_that_does_not_change_is_loaded_once(tmp_path: Path, write_model: WriteModel) -> None:
    """Neither at the first look, nor because another one comes or changes."""
    write_model(tmp_path / "repository", "sums")
    with triton_server([tmp_path / "repository"], poll_s=1) as server, Client(server.grpc_url) as client:
        write_model(tmp_path, "later").rename(tmp_path / "repository" / "later")
        wait_for(lambda: answers(client, "later"))
        model = tmp_path / "repository" / "later" / "1" / "model.py"
        model.write_text(model.read_text().replace("2 * x.sum", "3 * x.sum"))
        wait_for(lambda: client.predict("later", ROWS) == 1.5 * TWICE)
        loads = re.findall(r"loading: (\w+):1", server.log)
    assert loads == ["sums", "later", "later"]


def test_a_version_that_is_being_copied_is_left_until_it_is_whole(
    polled: TritonServer, client: Client, write_model: WriteModel
) -> None:
    (repository,) = polled.repositories
    (repository / "spare" / "2").mkdir()
    (repository / "spare" / "2" / "weights").write_text("half")
    sentence = "'spare' is not loaded: version 2 has no model.py, as during a copy; it is loaded when it is complete."
    wait_for(lambda: sentence in said(polled))
    other = write_model(repository.parent, "other")  # the rest goes on
    other.rename(repository / "other")
    wait_for(lambda: answers(client, "other"))
    assert answers(client, "spare")
    code = (repository / "spare" / "1" / "model.py").read_text()
    (repository / "spare" / "2" / "model.py").write_text(code.replace("2 * x.sum", "4 * x.sum"))
    wait_for(lambda: client.predict("spare", ROWS) == 2 * TWICE)
    assert said(polled).count(sentence) == 1


def test_an_entry_that_does_not_load_is_told_once(
    polled: TritonServer, client: Client, write_model: WriteModel
) -> None:
    (repository,) = polled.repositories
    write_model(repository.parent, "bad", code="import no_such_package").rename(repository / "bad")
    sentence = re.compile(r"^'bad' did not load: .*No module named 'no_such_package'\.$")
    wait_for(lambda: any(sentence.match(line) for line in said(polled)))
    time.sleep(1.5)
    assert len([line for line in said(polled) if sentence.match(line)]) == 1
    assert answers(client, "sums")


def test_nothing_is_written_into_the_entries(polled: TritonServer) -> None:
    """Python's caches would be changes, for which a polling server loads an entry twice."""
    (repository,) = polled.repositories
    assert list(repository.rglob("__pycache__")) == []


def test_a_load_that_hangs_is_named(polled: TritonServer, client: Client, write_model: WriteModel) -> None:
    """Asked for by hand, an entry without its model.py: the server never comes back from it. It serves the rest."""
    (repository,) = polled.repositories
    half = write_model(repository.parent, "half")
    (half / "1" / "model.py").unlink()
    half.rename(repository / "half")

    def load() -> None:
        with contextlib.suppress(InferenceError), Client(polled.grpc_url) as another:
            another.load("half")

    threading.Thread(target=load, daemon=True).start()
    wait_for(lambda: any(line.startswith("'half' has no 1/model.py: its load hangs") for line in said(polled)))
    assert answers(client, "sums")
