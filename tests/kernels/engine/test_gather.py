"""Rows that the device reads where the server has put them."""

import mmap
import tempfile
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from triton_regressors.kernels.engine import gather
from triton_regressors.kernels.engine.gather import BLOCK, MOST_PARTS, Gathering, SharedMemory, find_region, on_cpu

DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
F = 24
LEAST_BYTES = 2**16
MAPPED: list[np.ndarray] = []


@pytest.fixture
def shared() -> np.ndarray:
    """Return shared memory like the server's for requests. It stays, since the driver may have registered it."""
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(2**22)
        MAPPED.append(np.memmap(file, np.uint8, "r+"))
        return MAPPED[-1]


@pytest.fixture(autouse=True)
def readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that every address can be read, without a GPU too, and gather half as much as usual."""
    monkeypatch.setattr(gather, "LEAST_BYTES", LEAST_BYTES)
    if DEVICE.type == "cpu":
        monkeypatch.setattr(gather, "_registered", lambda *region: True)
        monkeypatch.setattr(gather, "driver", object())


def cut(shared: np.ndarray, rows: Sequence[int], dtype: str = "float32", between: int = 1) -> list[np.ndarray]:
    """Return parts of these numbers of random rows, each a little after the other and not on a number's boundary."""
    rng, parts, at = np.random.default_rng(0), [], 64 + between
    for count in rows:
        size = count * F * np.dtype(dtype).itemsize
        part = np.frombuffer(shared.data, dtype, count * F, at).reshape(count, F)
        part[:] = rng.standard_normal(part.shape)
        parts.append(part)
        at += size + 104
    return parts


@pytest.mark.parametrize("between", [0, 1, 6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [[1000], [700, 1, 90, 0, 213], [20] * MOST_PARTS, [BLOCK // F + 1] * 6])
def test_parts_lie_one_below_the_other(shared: np.ndarray, rows: list[int], dtype: str, between: int) -> None:
    parts, total = cut(shared, rows, dtype, between), sum(rows)
    expected = np.concatenate(parts)
    gathering = Gathering(F, (), dtype, DEVICE)
    target = torch.full((1024 + 8, F), -7.0, dtype=getattr(torch, dtype), device=DEVICE)
    for first, asked in ((0, 1024), (512, 1024), (0, 100), (300, 101)):
        assert gathering.lay(parts, total)
        target.fill_(-7)
        gathering.launch(target, first, asked)
        count = min(total - first, asked)
        assert target[:count].cpu().numpy().tobytes() == expected[first : first + count].tobytes()
        assert (target[count:] == -7).all()
        assert gathering.allowed()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("nan_columns", [(), (3,), (3, 5)])
def test_numbers_that_are_not_allowed(shared: np.ndarray, wrong: float, nan_columns: tuple[int, ...]) -> None:
    gathering = Gathering(F, nan_columns, "float32", DEVICE)
    target = torch.empty(1024, F, device=DEVICE)
    for place in ((0, 0), (700, 3), (701, 5), (999, F - 1)):
        parts = cut(shared, [701, 299])
        parts[place[0] // 701][place[0] % 701, place[1]] = wrong
        assert gathering.lay(parts, 1000)
        gathering.launch(target, 0, 1024)
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
        assert gathering.allowed() == (bool(np.isnan(wrong)) and place[1] in nan_columns)


def test_what_lies_behind_a_batch_is_not_searched(shared: np.ndarray) -> None:
    gathering = Gathering(F, (), "float32", DEVICE)
    target = torch.full((2048, F), np.nan, device=DEVICE)
    assert gathering.lay(cut(shared, [1000]), 1000)
    gathering.launch(target, 0, 2048)
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    assert gathering.allowed()
    assert target[1000:].isnan().all()


def test_what_is_staged(shared: np.ndarray) -> None:
    gathering = Gathering(F, (), "float32", DEVICE)
    least = -(-LEAST_BYTES // (4 * F))
    (part,) = cut(shared, [least])
    assert gathering.lay([part], least)
    assert not gathering.lay([part[:-1]], least - 1), "few numbers"
    assert not gathering.lay(cut(shared, [40] * (MOST_PARTS + 1)), 40 * (MOST_PARTS + 1)), "many parts"
    assert not gathering.lay([part.copy()], least), "memory of this process alone"
    assert gathering.lay([part], least), "which was registered before"


def test_regions(shared: np.ndarray) -> None:
    address = shared.__array_interface__["data"][0]
    region = find_region(address + 5000)
    assert region is not None
    start, stop = region
    assert start <= address
    assert stop - start >= shared.size
    assert stop % mmap.PAGESIZE == 0
    assert find_region(np.zeros(4).__array_interface__["data"][0]) is None
    assert find_region(0) is None


def test_a_driver_that_refuses_is_asked_once(shared: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(gather, "_registered", lambda *region: bool(asked.append(region)))
    address = shared.__array_interface__["data"][0]
    memory = SharedMemory()
    assert [memory.holds(address), memory.holds(address)] == [False, False]
    assert len(asked) == 1


def test_memory_is_registered_once(shared: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    register = gather._registered
    monkeypatch.setattr(gather, "_registered", lambda *region: (asked.append(region), register(*region))[1])
    address = shared.__array_interface__["data"][0]
    memory = SharedMemory()
    assert all(memory.holds(address + offset) for offset in (0, 100, shared.size - 1))
    assert len(asked) == 1


def test_without_the_driver_nothing_is_read(shared: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "driver", None)
    assert not SharedMemory().holds(shared.__array_interface__["data"][0])


@pytest.mark.gpu
def test_parts_in_the_memory_of_a_gpu(shared: np.ndarray) -> None:
    host, gathering = cut(shared, [3, 4]), Gathering(F, (), "float32", DEVICE)
    parts = [torch.from_numpy(host[0].copy()).to(DEVICE), host[1]]
    target = torch.empty(16, F, device=DEVICE)
    assert gathering.lay(parts, 7), "however few they are"
    gathering.launch(target, 0, 16)
    assert target[:7].cpu().numpy().tobytes() == np.concatenate(host).tobytes()
    assert on_cpu(parts[0]).tobytes() == host[0].tobytes()
