"""The fixtures of all tests; without a GPU the kernels run through the Triton language's interpreter."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from tests.processes import guard_descendants
from triton_regressors.clients.server.numpy1 import NEWEST_PYTHON

# With a deadline, each drawn example would depend on the machine's load.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

GPU = torch.cuda.is_available()
if not GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before any test imports one
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # read when Numba is imported, as shap does before the gallery's tests
    from tests.interpreter import spare_repeated_work

    spare_repeated_work()

# A shell starts what runs in the background with SIGINT ignored, nohup with SIGHUP, and processes inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


collect_ignore = ["exporter/estimators/test_skrub.py"] if sys.version_info < (3, 11) else []  # which skrub needs


def pytest_configure(config: pytest.Config) -> None:
    """End everything that tests start with this process, even if it is killed."""
    guard_descendants()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let Python not look again and again for what could be given back among all modules and tests, which stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not GPU:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and torch finds none"))


@pytest.hookimpl(optionalhook=True)  # pytest-xdist need not be installed
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.scheduling import ByFile

    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(params=["interpret", pytest.param("triton", marks=pytest.mark.gpu)])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine that runs kernels: through the interpreter without a GPU, on the GPU with one."""
    if request.param == "interpret" and GPU:
        pytest.skip("with a GPU this process compiles kernels; the interpreter needs one without")
    return request.param


@pytest.fixture
def device(engine: str) -> torch.device:
    """Return the device of the engine's tensors."""
    return torch.device("cuda" if engine == "triton" else "cpu")


@pytest.fixture(scope="session")
def numpy1() -> None:
    """Skip if numpy 1, which the embedded Triton server needs to read strings, is not available."""
    if sys.version_info[:2] > NEWEST_PYTHON and np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        pytest.skip("numpy 1 has no wheel for this Python")
