"""A row's bits do not depend on its batch, its place there, the protocol, or the batching configuration."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.server.conftest import Unload
from tests.server.models import KERNELS, MAX_ROWS, export_families, models, rows
from tests.waiting import wait_for
from triton_regressors.clients.client.client import AsyncClient, Client
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.kernels.format.parity import measure

pytestmark = pytest.mark.server

FAMILIES = ("ridge", "poly", "poisson", "multi")
SIZES = (1, 2, 7, 64, MAX_ROWS)


def _off(config: Any) -> None:
    config.ClearField("dynamic_batching")


def _on(config: Any) -> None:
    config.dynamic_batching.SetInParent()


def _delay(config: Any) -> None:
    config.dynamic_batching.max_queue_delay_microseconds = 2000


def _preferred(config: Any) -> None:
    config.dynamic_batching.max_queue_delay_microseconds = 2000
    config.dynamic_batching.preferred_batch_size.extend([3, 50])


def _instances(config: Any) -> None:
    config.dynamic_batching.SetInParent()
    config.instance_group[0].count = 2


CONFIGURATIONS: dict[str, Callable[[Any], None]] = {
    "none": _off,
    "on": _on,
    "delay": _delay,
    "preferred": _preferred,
    "2 instances": _instances,
}


@pytest.fixture(scope="module", name="X")
def all_rows() -> np.ndarray:
    return rows(MAX_ROWS, seed=5)


@pytest.fixture(scope="module", params=["torch", KERNELS])
def entry(request: pytest.FixtureRequest, repository: Path, client: Client, unload: Unload) -> Iterator[str]:
    """One entry with an output for each family, by engine."""
    name = f"families_{request.param}"
    export_families(repository, name, FAMILIES, request.param)
    client.load(name)
    yield name
    unload(name)


@pytest.fixture(scope="module")
def alone(entry: str, client: Client, X: np.ndarray) -> dict[str, np.ndarray]:
    """The answers to all rows in one request, by family; they are right."""
    found = client.infer(entry, X, outputs=FAMILIES)
    for family, answers in found.items():
        model = models()[family]
        assert measure(answers, model.expected(X)["y"], model.units["y"]).excess <= model.excess["y"]
    return found


def bits(client: Client, model: str, X: np.ndarray, indices: np.ndarray, outputs: tuple[str, ...]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in client.infer(model, X[indices], outputs=outputs).items()}


def same(found: dict[str, bytes], whole: dict[str, np.ndarray], indices: np.ndarray) -> bool:
    return found == {name: whole[name][indices].tobytes() for name in found}


@pytest.mark.parametrize("size", SIZES)
def test_batch_sizes_and_positions(
    either: Client, entry: str, alone: dict[str, np.ndarray], X: np.ndarray, size: int
) -> None:
    random = np.random.default_rng(size)
    for shift in (0, 1, size // 2, size - 1):
        chosen = random.permutation(MAX_ROWS)[:size]
        indices = np.roll(np.concatenate([[17], chosen[chosen != 17]])[:size], shift)  # row 17 in different places
        assert 17 in indices
        assert same(bits(either, entry, X, indices, FAMILIES), alone, indices)


def test_tables_larger_than_a_batch(
    server: TritonServer, entry: str, client: Client, X: np.ndarray, alone: dict[str, np.ndarray]
) -> None:
    order = np.random.default_rng(1).integers(MAX_ROWS, size=4 * MAX_ROWS + 7)

    async def side_by_side() -> dict[str, np.ndarray]:
        async with AsyncClient(server.http_url, "http") as service:
            return await service.infer(entry, X[order], outputs=FAMILIES)

    for found in (client.infer(entry, X[order], outputs=FAMILIES), asyncio.run(side_by_side())):
        for family, answers in found.items():
            assert answers.tobytes() == alone[family][order].tobytes()


@pytest.mark.parametrize("outputs", [(family,) for family in FAMILIES] + [FAMILIES[::-1]], ids="-".join)
def test_sets_of_outputs(
    either: Client, entry: str, alone: dict[str, np.ndarray], X: np.ndarray, outputs: tuple[str, ...]
) -> None:
    indices = np.arange(3, 40)
    assert same(bits(either, entry, X, indices, outputs), alone, indices)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", SIZES)
def test_entries_as_exported(either: Client, family: str, X: np.ndarray, size: int) -> None:
    whole = either.infer(family, X)
    for first in (0, MAX_ROWS - size):
        indices = np.arange(first, first + size)
        assert same(bits(either, family, X, indices, ("y",)), whole, indices)
        assert same(bits(either, family, X, indices[::-1], ("y",)), whole, indices[::-1])


@pytest.mark.parametrize("configuration", list(CONFIGURATIONS))
def test_batching_configurations(
    server: TritonServer, client: Client, entry: str, alone: dict[str, np.ndarray], X: np.ndarray, configuration: str
) -> None:
    config = client.config(entry)
    config.ClearField("dynamic_batching")
    config.ClearField("model_warmup")  # takes longer than the test
    config.instance_group[0].count = 1
    CONFIGURATIONS[configuration](config)
    client.load(entry, config=config)
    loaded = client.config(entry)
    assert loaded.HasField("dynamic_batching") == (configuration != "none")
    assert loaded.instance_group[0].count == (2 if configuration == "2 instances" else 1)
    if configuration in ("delay", "preferred"):
        assert loaded.dynamic_batching.max_queue_delay_microseconds == 2000

    order = np.random.default_rng(0).permutation(MAX_ROWS)
    ends = np.cumsum(np.resize((1, 2, 7, 1, 64, 3), MAX_ROWS))
    chunks = [chunk for chunk in np.split(order, ends[ends < MAX_ROWS]) if len(chunk)]
    with Client(server.http_url, "http") as http, ThreadPoolExecutor(16) as threads:
        clients = np.resize([client, http], len(chunks))
        answers = list(threads.map(lambda by, chunk: bits(by, entry, X, chunk, FAMILIES), clients, chunks))
    assert all(same(found, alone, chunk) for found, chunk in zip(answers, chunks, strict=True))

    def counted() -> tuple[int, int]:
        (stats,) = client.statistics(entry)["model_stats"]
        return stats["execution_count"], stats["inference_stats"]["success"]["count"]

    if configuration == "none":  # the server counts after it has answered
        wait_for(lambda: len(set(counted())) == 1)
    elif configuration in ("delay", "preferred"):  # the others may share batches, and need not
        executions, requests = counted()
        assert executions < requests
