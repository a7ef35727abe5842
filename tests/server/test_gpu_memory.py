"""Rows that a GPU reads in place: in shared memory, or in its own memory, where answers may go too."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from tests.server.conftest import Unload
from tests.server.models import Model, models, rows
from triton_regressors.clients.client.admin_key import key_headers
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.server.triton_server import TritonServer

pytestmark = [pytest.mark.server, pytest.mark.gpu]

MANY = 8000
WIDTH = 8
Ask = Callable[[int, int], np.ndarray]


@pytest.fixture(scope="module", params=["default", "in place"])
def entry(request: pytest.FixtureRequest, repository: Path, client: Client, unload: Unload) -> Iterator[str]:
    """An entry that gets rows in CPU memory alone, and one for which the server leaves them in place."""
    name = f"gpu_memory_{request.param.replace(' ', '_')}"
    options = {"max_batch_size": MANY, "instance_kind": "gpu", "gpu_inputs": request.param == "in place"}
    Model(name, models()["ridge"].estimator, {}, options).export(repository)
    client.load(name)
    yield name
    unload(name)


@pytest.fixture(scope="module", name="X")
def all_rows() -> np.ndarray:
    return rows(MANY, seed=7)


@pytest.fixture(scope="module")
def expected(entry: str, client: Client, X: np.ndarray) -> np.ndarray:
    """The right answers, from requests whose rows are staged."""
    parts = [client.infer(entry, X[start : start + 500])["y"] for start in range(0, MANY, 500)]
    found: np.ndarray = np.concatenate(parts)
    np.testing.assert_allclose(found, models()["ridge"].expected(X)["y"], rtol=1e-6)
    return found


@pytest.fixture(scope="module")
def ask(entry: str, server: TritonServer, X: np.ndarray) -> Iterator[Ask]:
    """ask(start, stop) sends rows in a GPU's memory, and gets the answers there too."""
    memory = pytest.importorskip("tritonclient.utils.cuda_shared_memory", exc_type=RuntimeError)
    headers = key_headers("grpc", server.admin_key)
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as connected:
        regions = {
            f"{entry}_{name}": memory.create_shared_memory_region(f"{entry}_{name}", size, 0)
            for name, size in (("rows", X.nbytes), ("answers", MANY * 4))
        }
        given, taken = regions
        memory.set_shared_memory_region(regions[given], [X])
        for (name, region), size in zip(regions.items(), (X.nbytes, MANY * 4), strict=True):
            connected.register_cuda_shared_memory(name, memory.get_raw_handle(region), 0, size, headers=headers)

        def asked(start: int, stop: int) -> np.ndarray:
            count = stop - start
            tensor: Any = tritonclient.grpc.InferInput("X", [count, WIDTH], "FP32")
            tensor.set_shared_memory(given, count * WIDTH * 4, start * WIDTH * 4)
            wanted = tritonclient.grpc.InferRequestedOutput("y")
            wanted.set_shared_memory(taken, count * 4, start * 4)
            connected.infer(entry, [tensor], outputs=[wanted])
            everything: np.ndarray = memory.get_contents_as_numpy(regions[taken], np.float32, [MANY, 1])
            return everything[start:stop]

        yield asked
        connected.unregister_cuda_shared_memory(headers=headers)
        for region in regions.values():
            memory.destroy_shared_memory_region(region)


@pytest.mark.parametrize("count", [4096, 4097, MANY])
def test_large_requests_have_the_bits_of_small_ones(
    entry: str, client: Client, X: np.ndarray, expected: np.ndarray, count: int
) -> None:
    assert client.infer(entry, X[:count])["y"].tobytes() == expected[:count].tobytes()


def test_many_large_requests_at_once(entry: str, server: TritonServer, X: np.ndarray, expected: np.ndarray) -> None:
    """The server enlarges its shared memory while requests are in flight."""

    def infer(start: int) -> bytes:
        with Client(server.grpc_url) as own:
            return own.infer(entry, X[start : start + 4500])["y"].tobytes()

    starts = [37 * number for number in range(48)]
    with ThreadPoolExecutor(16) as pool:
        for start, answer in zip(starts, pool.map(infer, starts), strict=True):
            assert answer == expected[start : start + 4500].tobytes()


def test_a_large_request_with_nan_is_refused(entry: str, client: Client, X: np.ndarray, expected: np.ndarray) -> None:
    wrong = X.copy()
    wrong[4001, 3] = np.nan
    with pytest.raises(Exception, match=r"X must be finite: row 4001, column 3 is nan"):
        client.infer(entry, wrong)
    assert client.infer(entry, X)["y"].tobytes() == expected.tobytes()


@pytest.mark.parametrize("place", [(0, 1), (5, 105), (0, 4000), (123, MANY)])
def test_rows_and_answers_in_the_memory_of_a_gpu(ask: Ask, expected: np.ndarray, place: tuple[int, int]) -> None:
    assert ask(*place).tobytes() == expected[slice(*place)].tobytes()


def test_requests_from_either_memory_in_one_batch(
    entry: str, server: TritonServer, ask: Ask, X: np.ndarray, expected: np.ndarray
) -> None:
    def infer(number: int) -> bytes:
        start = 100 * number
        if number % 2:
            return ask(start, start + 100).tobytes()
        with Client(server.grpc_url) as own:
            return own.infer(entry, X[start : start + 100])["y"].tobytes()

    with ThreadPoolExecutor(16) as pool:
        for number, answer in enumerate(pool.map(infer, range(64))):
            assert answer == expected[100 * number : 100 * number + 100].tobytes()


def test_nan_in_the_memory_of_a_gpu_is_refused(
    entry: str, server: TritonServer, ask: Ask, X: np.ndarray, expected: np.ndarray
) -> None:
    memory = pytest.importorskip("tritonclient.utils.cuda_shared_memory", exc_type=RuntimeError)
    wrong = X[:300].copy()
    wrong[299, 7] = np.inf
    headers, name = key_headers("grpc", server.admin_key), f"{entry}_wrong"
    region = memory.create_shared_memory_region(name, wrong.nbytes, 0)
    memory.set_shared_memory_region(region, [wrong])
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as connected:
        connected.register_cuda_shared_memory(name, memory.get_raw_handle(region), 0, wrong.nbytes, headers=headers)
        tensor: Any = tritonclient.grpc.InferInput("X", list(wrong.shape), "FP32")
        tensor.set_shared_memory(name, wrong.nbytes)
        with pytest.raises(InferenceServerException, match=r"X must be finite: row 299, column 7 is inf"):
            connected.infer(entry, [tensor])
        connected.unregister_cuda_shared_memory(name, headers=headers)
    memory.destroy_shared_memory_region(region)
    assert ask(0, 300).tobytes() == expected[:300].tobytes()
