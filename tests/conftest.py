"""What all tests share: without a GPU the kernels run through the Triton language's interpreter."""

import os
from pathlib import Path

import pytest
import torch

from tests.numpy1 import interpreter

GPU = torch.cuda.is_available()
if not GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before any test imports one


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not GPU:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and torch finds none"))


@pytest.fixture(params=["interpret", pytest.param("triton", marks=pytest.mark.gpu)])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine that runs kernels: through the interpreter without a GPU, on the GPU with one."""
    if request.param == "interpret" and GPU:
        pytest.skip("with a GPU this process compiles kernels; the interpreter needs one without")
    return request.param


@pytest.fixture
def device(engine: str) -> torch.device:
    """Where the engine's tensors are."""
    return torch.device("cuda" if engine == "triton" else "cpu")


@pytest.fixture(scope="session")
def numpy1() -> Path:
    """An interpreter with numpy 1, with which alone the embedded Triton server reads strings, and all else as here."""
    python = interpreter()
    if python is None:
        pytest.skip("needs numpy 1, in an environment that `make setup` makes for a Python that numpy 1 has wheels for")
    return python
