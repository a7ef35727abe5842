"""The buffer of a batch's rows: filling it, and its chunks."""

import warnings

import numpy as np
import pytest

from triton_regressors.kernels.engine.staging import MANY_NUMBERS, Staging, chunk_rows, split

MANY_ROWS = MANY_NUMBERS // 4


def numbers(rows: int) -> np.ndarray:
    return np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)


@pytest.mark.parametrize(
    ("row_bytes", "max_rows", "rows"),
    [
        (256, 65536, 8192),
        (256, 8192, 8192),
        (256, 5000, 5000),
        (257, 65536, 8192),
        (362, 65536, 8192),
        (363, 65536, 4096),
        (12, 65536, 65536),
        (2**22, 100, 16),
    ],
)
def test_a_chunk_is_a_power_of_two_or_everything(row_bytes: int, max_rows: int, rows: int) -> None:
    assert chunk_rows(row_bytes, max_rows) == rows


@pytest.mark.parametrize("cuts", [[], [1], [7, 7, 8], [8], [8, 16], [3, 5, 9, 20, 22]])
@pytest.mark.parametrize("size", [1, 4, 8, 23, 24, 100])
def test_groups_of_rows(cuts: list[int], size: int) -> None:
    X = numbers(23)
    groups = list(split(np.split(X, cuts), size))
    assert all(len(part) for group in groups for part in group)
    assert [sum(map(len, group)) for group in groups] == [size] * (23 // size) + [23 % size] * (23 % size > 0)
    np.testing.assert_array_equal(np.concatenate([part for group in groups for part in group]), X)


def test_no_rows_are_no_groups() -> None:
    assert list(split([numbers(0), numbers(0)], 4)) == []


@pytest.mark.parametrize("rows", [1, 5, MANY_ROWS - 1, MANY_ROWS, MANY_ROWS + 1])
@pytest.mark.parametrize("kind", ["plain", "read-only", "not contiguous", "by columns"])
def test_filling(rows: int, kind: str) -> None:
    X = numbers(2 * rows)[::2] if kind == "not contiguous" else numbers(rows)
    X = np.asfortranarray(X) if kind == "by columns" else X
    X.flags.writeable = kind != "read-only"
    staging = Staging(MANY_ROWS + 4, 4, "float32", pinned=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        staging.fill([X], 3, rows)
    np.testing.assert_array_equal(staging.tensor[3 : 3 + rows], X)
    assert not staging.tensor[:3].any()
    assert not staging.tensor[3 + rows :].any()
    assert X.flags.writeable == (kind != "read-only")


def test_filling_with_several_matrices() -> None:
    X = numbers(9)
    staging = Staging(12, 4, "float32", pinned=False)
    staging.fill([X[:2], X[2:2], X[2:]], 1, 9)
    np.testing.assert_array_equal(staging.tensor[1:10], X)
    np.testing.assert_array_equal(staging.numbers(3), [0] * 4 + list(range(8)))


def test_whole_chunks_are_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triton_regressors.kernels.engine.staging.CHUNK_BYTES", 16 * 16)
    assert [len(Staging(rows, 4, "float32", pinned=False).tensor) for rows in (1, 16, 17, 100)] == [1, 16, 32, 112]
