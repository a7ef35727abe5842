"""docker/probe.py: its reports of alive and ready, on a real Triton server with several entries."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

from tests.docker.process import Process, started
from tests.documents import golden_of
from tests.exporter.catalogue.cases import CASES
from tests.processes import processes_with, running
from triton_regressors import export
from triton_regressors.kernels.entry import read_document, write_document

DOCKER = Path(__file__).resolve().parents[2] / "docker"
OPTIONS = (
    *("--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false", "--strict-readiness=false"),
    *("--disable-auto-complete-config", "--exit-timeout-secs=2"),
)
HELD = """
import time
from pathlib import Path

import torch
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        while Path(__file__).with_name("gate").exists():
            time.sleep(0.05)
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "X")) for request in requests]

    def answer(self, X):
        y = torch.from_dlpack(X.to_dlpack())[:, :1].float().contiguous()
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", y)])
"""


HANGING = """
import time
from pathlib import Path

from .kernels.backend import TritonPythonModel as OfEntries

GATE = Path(__file__).with_name(".gate")


class TritonPythonModel(OfEntries):
    def _launch(self, *given):
        try:
            GATE.rename(GATE.with_name(".taken"))
        except FileNotFoundError:
            return super()._launch(*given)
        while GATE.with_name(".taken").exists():
            time.sleep(0.05)
        return super()._launch(*given)
"""


@pytest.fixture(scope="module")
def module() -> Any:
    spec = importlib.util.spec_from_file_location("probe", DOCKER / "probe.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules["probe"] = found  # dataclasses looks there
    try:
        spec.loader.exec_module(found)
        yield found
    finally:
        sys.modules.pop("probe", None)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of three entries: ridge, which can be held, two with two processes, and knn."""
    folder = tmp_path_factory.mktemp("probe") / "models"
    X, y = load_diabetes(return_X_y=True)
    version = export(Ridge().fit(X, y), folder, name="ridge").entry.directory / "1"
    (version / "model.py").write_text(HELD)
    export(Ridge(alpha=2).fit(X, y), folder, name="two", instances=2)
    export(KNeighborsRegressor().fit(X, y), folder, name="knn")
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Process]:
    with started(models, models.parent / "server", *OPTIONS) as running:
        yield running


def control(server: Process, entry: str, step: str) -> None:
    request = urllib.request.Request(f"{server.url}/v2/repository/models/{entry}/{step}", b"")
    with urllib.request.urlopen(request, timeout=60):
        pass


def write_model(version: Path, code: str) -> None:
    """Give a version another model.py, as if it had been exported with it."""
    document = read_document(version)
    (version / "model.py").write_text(code)
    write_document(version, document)


def processes(models: Path, entry: str) -> list[int]:
    """The processes of an entry."""
    return processes_with(str(models / entry / "1" / "model.py"))


@contextmanager
def held(models: Path) -> Iterator[None]:
    """The entry ridge does not answer within this context."""
    gate = models / "ridge" / "1" / "gate"
    gate.touch()
    try:
        yield
    finally:
        gate.unlink(missing_ok=True)


@pytest.mark.server
@pytest.mark.parametrize("question", ["live", "ready"])
def test_a_server_whose_entries_answer_is_alive_and_ready(
    module: Any, models: Path, server: Process, question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert module.main(server.url, str(models), question) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.server
@pytest.mark.parametrize("entry", ["knn", "ridge"])
def test_ready_wants_every_entry_of_the_repository_loaded_and_live_does_not(
    module: Any, models: Path, server: Process, entry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    control(server, entry, "unload")
    try:
        assert (module.main(server.url, str(models), "ready"), module.main(server.url, str(models), "live")) == (1, 0)
        assert capsys.readouterr().out.startswith(f"{entry} is not loaded: ")
    finally:
        control(server, entry, "load")


@pytest.mark.server
@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("knn", "knn does not answer its golden row: .*Stub process 'knn_0_0' is not healthy"),
        ("two", "two has 1 of its 2 processes; the others have ended"),
    ],
)
def test_a_dead_process_is_found_by_both(models: Path, server: Process, entry: str, says: str) -> None:
    os.kill(processes(models, entry)[0], signal.SIGKILL)
    try:
        for question in ("live", "ready"):
            command = [sys.executable, str(DOCKER / "probe.py"), server.url, str(models), question]
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            assert (found.returncode, found.stderr) == (1, "")
            assert len(found.stdout.splitlines()) == 1
            assert re.match(says, found.stdout)
    finally:
        control(server, entry, "unload")
        control(server, entry, "load")


@pytest.mark.server
def test_a_stuck_process_is_found(
    module: Any, models: Path, server: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    with held(models):
        for question in ("ready", "live"):
            assert module.main(server.url, str(models), question, 2) == 1
    assert capsys.readouterr().out == "ridge does not answer its golden row: no request was finished\n" * 2
    assert module.main(server.url, str(models), "ready") == 0


@pytest.mark.server
def test_one_stuck_process_of_two_is_found_and_a_slow_one_lives(
    module: Any, models: Path, server: Process, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One process of the entry hangs in a batch, and the other one answers the golden row."""
    version = models / "two" / "1"
    taken, before = version / ".taken", (version / "model.py").read_text()
    control(server, "two", "unload")
    write_model(version, HANGING)
    control(server, "two", "load")
    (version / ".gate").touch()
    url = f"{server.url}/v2/models/two"
    (tensor,) = json.loads(module.get(url, time.monotonic() + 60))["inputs"]
    request = module.request(f"{url}/infer", [tensor], {tensor["name"]: np.zeros((1, 10))})
    client = threading.Thread(target=module.get, args=(request, time.monotonic() + 600))
    try:
        client.start()
        while not taken.exists():
            time.sleep(0.05)
        time.sleep(1.1)
        assert [module.main(server.url, str(models), question) for question in ("live", "ready")] == [0, 0]
        monkeypatch.setattr(module, "STUCK_S", 1.0)
        assert [module.main(server.url, str(models), question) for question in ("live", "ready")] == [1, 1]
        said = r"two has a stuck process, which has computed one batch for \d+ s\n"
        assert re.fullmatch(said * 2, capsys.readouterr().out)
        taken.unlink()
        client.join()
        assert module.main(server.url, str(models), "live") == 0
    finally:
        taken.unlink(missing_ok=True)
        client.join()
        control(server, "two", "unload")
        write_model(version, before)
        control(server, "two", "load")


@pytest.mark.server
def test_an_entry_that_answers_after_seconds_is_alive(models: Path, server: Process) -> None:
    command = [sys.executable, str(DOCKER / "probe.py"), server.url, str(models), "live"]
    with held(models), running(command, stdout=subprocess.PIPE) as asked:
        time.sleep(6)
        assert asked.poll() is None
        (models / "ridge" / "1" / "gate").unlink()
        out, _ = asked.communicate()
    assert (asked.returncode, out) == (0, b"")


@pytest.mark.server
def test_a_busy_server_is_alive_and_ready(module: Any, models: Path, server: Process) -> None:
    """Clients send 4,096 rows at a time to one entry, and no request of theirs fails."""
    rows = np.zeros((4096, 10), np.float32).tobytes()
    tensor = {"name": "X", "datatype": "FP32", "shape": [4096, 10], "parameters": {"binary_data_size": len(rows)}}
    header = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(header))}
    request = urllib.request.Request(f"{server.url}/v2/models/knn/infer", header + rows, headers)
    done, statuses = threading.Event(), []

    def client() -> None:
        while not done.is_set():
            with urllib.request.urlopen(request, timeout=600) as answer:
                statuses.append(answer.status)

    clients = [threading.Thread(target=client) for _ in range(16)]
    for each in clients:
        each.start()
    try:
        found = [module.main(server.url, str(models), question) for question in ("live", "ready") * 3]
    finally:
        done.set()
        for each in clients:
            each.join()
    assert found == [0] * 6
    assert set(statuses) == {200}


class Statistics(BaseHTTPRequestHandler):
    """A server whose golden rows wait for ever; other requests are finished, or are not."""

    answered, advances = 0, False

    def do_GET(self) -> None:
        type(self).answered += self.advances
        body = json.dumps({"model_stats": [{"inference_stats": {"success": {"count": self.answered}}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read()  # until the client has left

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("advances", [True, False])
def test_life_does_not_depend_on_the_place_in_the_queue(module: Any, advances: bool) -> None:
    """An entry that finishes others' requests is alive, however long its golden row waits."""
    handler = type("Handler", (Statistics,), {"advances": advances})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v2/models/m/versions/1"
        row = urllib.request.Request(f"{url}/infer", b"row")
        entry = module.Entry("m", url, row, instances=1, running=1)
        found = module.problem(entry, time.monotonic() + 2)
        server.shutdown()
    assert found == (None if advances else "m does not answer its golden row: no request was finished")


def test_golden_rows_are_read_as_the_clients_read_them(module: Any, tmp_path: Path) -> None:
    model, X = CASES["strings-two-groups"].fitted()
    version = export(model, tmp_path, name="houses", sample=X).entry.directory / "1"
    expected = read_document(version).inputs.decode(golden_of(version).X)
    found = module.golden_row(version)
    assert set(found) == set(expected)
    assert len(found) >= 2
    for name, tensor in found.items():
        assert tensor.tolist() == expected[name][:1].tolist()
