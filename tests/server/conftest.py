"""One Triton server for all tests of this folder, with real exported entries."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.server.models import Model, models
from tests.servers import triton_server
from tests.waiting import wait_for
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.kernels.format.parity import measure

CheckAnswers = Callable[[Model, np.ndarray, dict[str, np.ndarray]], None]
Unload = Callable[[str], None]


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's model repository; tests may export further entries into it and load them."""
    directory = tmp_path_factory.mktemp("served") / "models"
    for model in models().values():
        model.export(directory)
    return directory


@pytest.fixture(scope="session")
def server(repository: Path) -> Iterator[TritonServer]:
    """Serves `models()`; later entries of the repository are loaded on request."""
    with triton_server([repository], models=list(models())) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: TritonServer) -> Iterator[Client]:
    with Client(server.grpc_url) as connected:
        yield connected


@pytest.fixture(scope="session")
def unload(server: TritonServer, client: Client) -> Unload:
    """unload(name) returns after the model's processes have ended, so that no test takes their end for a crash."""

    def unloaded(name: str) -> None:
        client.unload(name)
        wait_for(lambda: all(row["reason"] == "unloaded" for row in client.index() if row["name"] == name))

    return unloaded


@pytest.fixture(params=["grpc", "http"])
def either(request: pytest.FixtureRequest, server: TritonServer) -> Iterator[Client]:
    """A client over each protocol."""
    url = server.grpc_url if request.param == "grpc" else server.http_url
    with Client(url, request.param) as connected:
        yield connected


@pytest.fixture(scope="session")
def check_answers() -> CheckAnswers:
    """check_answers(model, X, {output: array}): each is scikit-learn's, affine ones to the float32 ulp."""

    def check(model: Model, X: np.ndarray, found: dict[str, np.ndarray]) -> None:
        expected = model.expected(X)
        for name, answers in found.items():
            assert answers.dtype == np.float32
            assert measure(answers, expected[name], model.units[name]).excess <= model.excess[name], name

    return check
