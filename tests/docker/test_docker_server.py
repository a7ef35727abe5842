"""The options of docker/compose.yaml on a real Triton server: the embedded one, started by hand with just these."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import yaml
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from tritonclient.utils import InferenceServerException

from tests.processes import processes_with
from tests.waiting import PATIENCE_S, wait_for
from triton_regressors import export
from triton_regressors.clients.server.installation import find_installation, prepare

pytestmark = pytest.mark.server

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
DOCKERFILE = re.sub(r"\\\n\s*", "", (DOCKER / "Dockerfile").read_text())  # continued lines joined
SERVER: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]["triton-server"]
DASHBOARD = json.loads((DOCKER / "grafana/dashboards/triton-regressors.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
KEY = "0123456789abcdef" * 4

# Exported only where there is a GPU; named in NVIDIA's docs/user_guide/metrics.md under "GPU Metrics".
GPU_METRICS = {"nv_gpu_utilization", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes", "nv_gpu_power_usage"}


def metric_names(text: str) -> set[str]:
    return set(re.findall(r"\bnv_[a-z_]+", text))


MODEL = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        if any(request.request_id() == "break" for request in requests):
            raise RuntimeError("broken on purpose")
        return [self.answer(request) for request in requests]

    def answer(self, request):
        if request.request_id() == "refuse":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("refused", pb_utils.TritonError.INVALID_ARG))
        X = pb_utils.get_input_tensor_by_name(request, "X")
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", X.to_dlpack())])
"""
CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "X" data_type: TYPE_FP32 dims: [2] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [2] }]
dynamic_batching {}
instance_group [{ kind: KIND_CPU count: 1 }]
"""


class Server(NamedTuple):
    """A running Triton server: its endpoints as 'host:port', and the repository it serves."""

    http: str
    grpc: str
    metrics: str
    repository: Path

    def request(self, path: str, body: bytes | None = None, key: str | None = None) -> tuple[int, str]:
        """Send a GET, or a POST if there is a body; return the status and the text."""
        headers = {"triton-admin-key": key} if key else {}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"http://{self.http}{path}", body, headers), timeout=30
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics_page(self) -> str:
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=30) as answer:
            return str(answer.read(), "utf-8")

    def version_that_answers(self) -> str:
        body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]}
        status, text = self.request("/v2/models/tiny/infer", json.dumps(body).encode())
        assert status == 200, text
        answer = json.loads(text)
        assert answer["outputs"][0]["data"] == [1.0, 2.0]
        return str(answer["model_version"])


def server_options() -> list[str]:
    """The options of docker/compose.yaml for the container, without the model repository."""
    starter, *command = (word.replace("$$", "$") for word in SERVER["command"][1:])
    (folder,) = re.findall(r"(?m)^COPY clients/private_arguments\.py (\S+)$", DOCKERFILE)
    assert (SERVER["command"][0], starter) == ("python3", f"{folder}private_arguments.py")
    assert command[:2] == ["tritonserver", "--model-repository=/models"]
    return command[2:]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("docker")
    (root / "scratch").mkdir()
    runtime = prepare(find_installation(root), None, {}, root / "scratch")
    version = root / "models" / "tiny" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL)
    (version.parent / "config.pbtxt").write_text(CONFIG)
    export(Ridge().fit(*load_diabetes(return_X_y=True)), root / "models", name="ridge")
    # In a checkout this file lies beside the entries.
    shutil.copy(ROOT / "model_repository" / "README.md", root / "models")

    http, grpc, metrics = free_ports(3)
    command = [sys.executable, str(ROOT / "clients" / "private_arguments.py"), str(runtime.executable)]
    command += [*server_options(), f"--model-repository={root / 'models'}"]
    command += [f"--backend-directory={runtime.backends}", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1"]
    command += ["--exit-timeout-secs=5"]  # a request to a dead process counts as in flight until then
    shared_memory = f"test-docker-{http}-"  # a killed process leaves its own behind
    command += [f"--backend-config=python,shm-region-prefix-name={shared_memory}"]
    command += [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"]
    log = root / "server.log"
    environment = {**runtime.environment, "TRITON_ADMIN_KEY": KEY}
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    running = Server(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}", f"127.0.0.1:{metrics}", root / "models")

    def started() -> bool:
        assert process.poll() is None, log.read_text()
        return ready(running)

    try:
        wait_for(started)
        yield running
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=PATIENCE_S)
        finally:
            process.kill()
            for leftover in Path("/dev/shm").glob(f"{shared_memory}*"):
                leftover.unlink()


def ready(server: Server) -> bool:
    try:
        return server.request("/v2/health/ready")[0] == 200
    except OSError:
        return False


def test_every_option_and_restricted_api_is_spelled_as_the_server_spells_it(tmp_path: Path) -> None:
    runtime = prepare(find_installation(tmp_path), None, {}, tmp_path)
    command = [str(runtime.executable), "--help"]
    text = subprocess.run(command, env=runtime.environment, capture_output=True, text=True, check=False)
    usage = " ".join((text.stdout + text.stderr).split())
    known = set(re.findall(r"--[a-z][a-z-]+", usage))
    *_, default = re.findall(r"(?m)^CMD (\[.*\])$", DOCKERFILE)  # the last stage's, which a plain build makes
    assert json.loads(default)[0] == "tritonserver"
    used = {option.partition("=")[0] for option in json.loads(default)[1:] + server_options()}
    assert used <= known
    for option in server_options():
        if "restricted" in option:
            apis = option.partition("=")[2].partition(":")[0].split(",")
            (allowed,) = re.findall(rf"{option.partition('=')[0]} .*?Allowed \w+: ([a-z, -]+?) (?:\w+:|--)", usage)
            assert set(apis) <= set(allowed.split(", "))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/repository/index", b""),
        ("/v2/repository/models/tiny/load", b""),
        ("/v2/logging", None),
        ("/v2/trace/setting", None),
        ("/v2/systemsharedmemory/status", None),
    ],
)
def test_management_over_http_needs_the_key(server: Server, path: str, body: bytes | None) -> None:
    for key in (None, "wrong"):
        status, text = server.request(path, body, key)
        assert status == 403
        assert "triton-admin-key" in text
    assert server.request(path, body, KEY)[0] == 200


def test_management_over_grpc_needs_the_key(server: Server) -> None:
    with grpc_client.InferenceServerClient(server.grpc) as client:
        for headers in (None, {"triton-grpc-protocol-admin-key": "wrong"}):
            with pytest.raises(InferenceServerException, match="triton-grpc-protocol-admin-key"):
                client.load_model("tiny", headers=headers)
        client.load_model("tiny", headers={"triton-grpc-protocol-admin-key": KEY})


def test_no_process_shows_the_key(server: Server) -> None:
    """Every user of the host can read command lines. Keys from before the start: tests/clients/client/test_admin_key.py."""
    shown = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            shown.append(path.read_text(errors="replace"))
    ours = [line for line in shown if str(server.repository) in line]
    assert len([line for line in ours if "$TRITON_ADMIN_KEY" in line]) == 2  # the server and what started it
    assert not [line for line in ours if KEY in line]


def test_queries_need_no_key(server: Server) -> None:
    assert server.version_that_answers() == "1"
    for path in ("/v2", "/v2/health/live", "/v2/models/tiny", "/v2/models/tiny/ready", "/v2/models/tiny/stats"):
        assert server.request(path)[0] == 200


def test_every_metric_of_the_dashboard_is_exported(server: Server) -> None:
    page = server.metrics_page()
    exported = metric_names(re.sub(r"(?m)^#.*$", "", page))
    assert metric_names(" ".join(QUERIES)) - GPU_METRICS <= exported
    assert metric_names((DOCKER / "alerts.yaml").read_text()) - GPU_METRICS <= exported
    variables = [variable["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"]
    assert metric_names(json.dumps(variables)) <= exported
    for quantile in ("0.5", "0.99"):
        labels = f'{{model="tiny",version="1",quantile="{quantile}"}}'
        assert f"nv_inference_request_summary_us{labels}" in page


def test_only_a_broken_batch_counts_as_failed(server: Server) -> None:
    """An entry's refusal of one request counts as answered, as docker/README.md says of the failure panels."""

    def counts() -> dict[str, int]:
        page = server.metrics_page()
        failures = re.findall(r'nv_inference_request_failure\{model="tiny",reason="(\w+)",version="1"\} (\d+)', page)
        answered = re.findall(r'(nv_inference_request_success)\{model="tiny",version="1"\} (\d+)', page)
        return {name: int(value) for name, value in failures + answered}

    before = counts()
    (panel,) = [panel for panel in PANELS if panel["title"] == "Failures per second by reason"]
    assert set(re.findall(r"\b([A-Z]{5,}):", panel["description"])) == set(before) - {"nv_inference_request_success"}

    X = grpc_client.InferInput("X", [1, 2], "FP32")
    X.set_data_from_numpy(np.ones((1, 2), np.float32))
    with grpc_client.InferenceServerClient(server.grpc) as client:
        client.infer("tiny", [X])
        with pytest.raises(InferenceServerException, match="refused"):
            client.infer("tiny", [X], request_id="refuse")
        with pytest.raises(InferenceServerException, match="broken on purpose"):
            client.infer("tiny", [X], request_id="break")
    expected = {**before, "BACKEND": before["BACKEND"] + 1}
    expected["nv_inference_request_success"] += 2
    wait_for(lambda: counts() == expected)  # the server counts after it has answered


def probe(url: str, repository: Path) -> tuple[int, str]:
    """The health check's exit code and output."""
    command = [sys.executable, str(DOCKER / "probe.py"), url, str(repository)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.stderr == ""
    return found.returncode, found.stdout


def test_the_health_check_finds_a_dead_entry_and_the_readme_mends_it(server: Server) -> None:
    url = f"http://{server.http}"
    assert probe(url, server.repository) == (0, "")
    (process,) = processes_with(str(server.repository / "ridge" / "1" / "model.py"))
    os.kill(process, signal.SIGKILL)
    status, text = probe(url, server.repository)
    assert status == 1
    assert re.fullmatch(r"ridge does not answer its golden row: .*Stub process 'ridge_0_0' is not healthy.*\s", text)
    assert server.request("/v2/models/ridge/ready")[0] == 200  # the server's own answer
    counted = 'nv_inference_request_failure{model="ridge",reason="BACKEND",version="1"} 1'  # by the alert EntryDead
    wait_for(lambda: counted in server.metrics_page().splitlines())

    commands = re.findall(r"(?s)## When an entry stops answering\n.*?\n## ", (DOCKER / "README.md").read_text())[0]
    steps = re.findall(r"localhost:8000(/v2/repository/models/)house_prices(/\w+)", commands)
    assert [step for _, step in steps] == ["/unload", "/load"]
    for path, step in steps:
        assert server.request(f"{path}ridge{step}", b"", KEY)[0] == 200
    assert probe(url, server.repository) == (0, "")


def test_the_health_check_finds_a_server_that_does_not_answer(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    status, text = probe(f"http://127.0.0.1:{port}", tmp_path)
    assert status == 1
    assert text.startswith("The Triton server is not live: ")


def test_a_version_is_added_and_rolled_back_and_a_broken_one_changes_nothing(server: Server) -> None:
    """The steps of docker/README.md; the server stays ready through all of them, as its health check needs."""
    load = "/v2/repository/models/tiny/load"
    second = server.repository / "tiny" / "2"
    second.mkdir()
    (second / "model.py").write_text("raise RuntimeError('broken on purpose')")
    status, text = server.request(load, b"", KEY)
    assert status == 400
    assert "broken on purpose" in text
    assert (server.version_that_answers(), ready(server)) == ("1", True)

    (second / "model.py").write_text(MODEL)
    assert server.request(load, b"", KEY)[0] == 200
    assert (server.version_that_answers(), ready(server)) == ("2", True)

    shutil.rmtree(second)
    assert server.request(load, b"", KEY)[0] == 200
    assert (server.version_that_answers(), ready(server)) == ("1", True)
