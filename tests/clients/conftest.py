"""One Triton server for all tests of the clients, with a small model whose rows control its behaviour."""

import asyncio
import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers import triton_server
from triton_regressors.clients.client.client import AsyncClient, Client
from triton_regressors.clients.server.triton_server import TritonServer

# y = 2 · (x₀ + x₁ + x₂), std = |x₀|. A negative x₀ is an invalid row, x₀ = 100 an error of the model's own, and
# x₀ = 200 an answer that takes x₁ seconds.
MODEL = """
import sys
import time

import numpy as np
import triton_python_backend_utils as pb_utils

# numpy's DLPack capsules complain, harmlessly, about the name that the Python backend gives them after use.
sys.unraisablehook = lambda unraisable: None


class TritonPythonModel:
    def initialize(self, args):
        pass

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "X"))
        if (x[:, 0] < 0).any():
            row = int(np.flatnonzero(x[:, 0] < 0)[0])
            error = pb_utils.TritonError(f"row {row} of X is negative", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        if (x[:, 0] == 100).any():
            raise ArithmeticError("the sums do not add up")
        if x[0, 0] == 200:
            time.sleep(float(x[0, 1]))
        outputs = {"y": 2 * x.sum(axis=1, keepdims=True, dtype=np.float32), "std": np.abs(x[:, :1])}
        names = request.requested_output_names()
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack(name, outputs[name]) for name in names])
"""

CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 16
input {{ name: "X" data_type: TYPE_FP32 dims: 3 }}
output {{ name: "y" data_type: TYPE_FP32 dims: 1 }}
output {{ name: "std" data_type: TYPE_FP32 dims: 1 }}
dynamic_batching {{}}
instance_group {{ kind: KIND_CPU count: {instances} }}
"""

WriteModel = Callable[..., Path]


@pytest.fixture(scope="session")
def write_model() -> WriteModel:
    """Writes one entry: write_model(repository, name, code=MODEL, config=None, instances=1) → its directory."""

    def write(repository: Path, name: str, *, code: str = MODEL, config: str | None = None, instances: int = 1) -> Path:
        directory = repository / name
        (directory / "1").mkdir(parents=True)
        (directory / "1" / "model.py").write_text(code)
        (directory / "config.pbtxt").write_text(config or CONFIG.format(name=name, instances=instances))
        return directory

    return write


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, write_model: WriteModel) -> Iterator[TritonServer]:
    """Serves `sums`, and `spare` for tests that load and unload."""
    repository = tmp_path_factory.mktemp("repository")
    write_model(repository, "sums", instances=2)
    write_model(repository, "spare")
    with triton_server([repository]) as running:
        yield running
    # The Triton server leaves the files of a load with files behind, if that load failed.
    for directory in set(re.findall(r"/tmp/folder\w{6}(?=/)", running.log)):
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def repository(tmp_path: Path, write_model: WriteModel) -> Path:
    write_model(tmp_path / "repository", "sums")
    return tmp_path / "repository"


@pytest.fixture
def start() -> Iterator[Callable[..., TritonServer]]:
    """start(*arguments of TritonServer): started, and ended after the test."""
    with contextlib.ExitStack() as running:
        yield lambda *args, **kwargs: running.enter_context(triton_server(*args, **kwargs))


class Blocking:
    """An AsyncClient whose coroutines are run to their end, so that one test serves both clients."""

    def __init__(self, url: str, protocol: str, **options: float) -> None:
        self.loop = asyncio.new_event_loop()
        self._client = AsyncClient(url, protocol, **options)

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._client, name)
        return lambda *args, **kwargs: self.loop.run_until_complete(method(*args, **kwargs))

    def close(self) -> None:
        self.loop.run_until_complete(self._client.close())
        self.loop.run_until_complete(asyncio.sleep(0))  # lets the transports finish their closing


@pytest.fixture(params=["grpc", "http", "async grpc", "async http"])
def connect(request: pytest.FixtureRequest, server: TritonServer) -> Iterator[Callable[..., Client]]:
    """Connects over each protocol, with each client: connect(url=the server's, **options)."""
    kind, protocol = request.param.rpartition(" ")[0], request.param.rpartition(" ")[2]
    opened = []

    def connected(url: str | None = None, **options: float) -> Client:
        url = url or (server.grpc_url if protocol == "grpc" else server.http_url)
        opened.append((Blocking if kind else Client)(url, protocol, **options))
        return opened[-1]

    yield connected
    for client in opened:
        client.close()
        if isinstance(client, Blocking):
            client.loop.close()


@pytest.fixture(params=["grpc", "http"])
def operator(request: pytest.FixtureRequest, server: TritonServer) -> Iterator[Client]:
    """A client of each protocol that loads, unloads and lists models, which only `Client` does."""
    url = server.grpc_url if request.param == "grpc" else server.http_url
    with Client(url, request.param) as client:
        yield client


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    """A client of each kind, connected to the server."""
    return connect()
