"""The puzzles in Numba CUDA against float64: by Numba's simulator without a GPU, compiled with one."""

from __future__ import annotations

import re
import subprocess
import sys
from math import prod
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gallery.__main__ import make_app
from gallery.catalogue import find
from gallery.errors import GalleryError
from gallery.puzzles import broadcast, dot, map, map_2d, numba_cuda, pooling, zip
from gallery.puzzles.beside import PUZZLES, beside
from gallery.puzzles.terms import TERMS

FEW = settings(max_examples=6, derandomize=True)  # the simulator runs 4,000 threads a second
LENGTHS = st.sampled_from([1, 2, 127, 128, 129, 200, 300]) | st.integers(1, 300)
SIDES = st.integers(1, 40)

ROOT = Path(__file__).parents[2]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def drawn(*shape: int) -> torch.Tensor:
    """Return normal numbers, the same for the same shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE)


def check(found: torch.Tensor, truth: torch.Tensor) -> None:
    assert found.dtype == torch.float32
    assert found.shape == truth.shape
    torch.testing.assert_close(found.double(), truth, rtol=1e-6, atol=1e-5)


@FEW
@given(n=LENGTHS)
def test_map(n: int) -> None:
    x = drawn(n)
    check(map.solve(x, 1.5), find("map").reference(x.double(), 1.5))


@FEW
@given(n=LENGTHS)
def test_zip(n: int) -> None:
    x, y = drawn(n), drawn(n).flip(0)
    check(zip.solve(x, y), find("zip").reference(x.double(), y.double()))


@FEW
@given(rows=SIDES, columns=SIDES, turned=st.booleans())
def test_map_of_a_matrix_of_any_strides(rows: int, columns: int, turned: bool) -> None:
    x = drawn(columns, rows).t() if turned else drawn(rows, columns)
    check(map_2d.solve(x, 1.5), find("map_2d").reference(x.double(), 1.5))


@pytest.mark.parametrize("shape", broadcast.SHAPES)
@settings(FEW, max_examples=3)
@given(rows=SIDES, columns=SIDES)
def test_broadcast(shape: str, rows: int, columns: int) -> None:
    a, b = drawn(rows, 1), drawn(1, columns)
    check(broadcast.solve(a, b, shape), find("broadcast").reference(a.double(), b.double()))


def test_four_launch_shapes_start_these_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    started = {}

    def count(kernel: object, grid: object, block: object, *_: object) -> None:
        sizes = (each if isinstance(each, tuple) else (each,) for each in (grid, block))
        started[shape] = prod(prod(size) for size in sizes)

    for shape in broadcast.SHAPES:
        with monkeypatch.context() as patch:
            patch.setattr(broadcast, "launch", count)
            broadcast.solve(drawn(20, 1), drawn(1, 33), shape)
    assert started == broadcast.threads_of(20, 33)
    assert broadcast.threads_of(2000, 3300)["strided loop"] == 2048 * 128


def test_a_strided_loop_takes_more_than_one_element_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "BLOCKS", 2)
    a, b = drawn(19, 1), drawn(1, 37)
    check(broadcast.solve(a, b, "strided loop"), a.double() + b.double())


@FEW
@given(n=LENGTHS, part=st.floats(0, 1))
def test_pooling(n: int, part: float) -> None:
    x, window = drawn(n), 1 + round(part * (n - 1))
    for way in (pooling.solve, pooling.solve_naively):
        check(way(x, window), find("pooling").reference(x.double(), [window], [1], [0], "sum"))


@pytest.mark.parametrize(("n", "window"), [(1, 1), (128, 128), (300, 9)])
def test_reads_of_global_memory_are_counted(n: int, window: int) -> None:
    """Naively each sum reads its window; a block with shared memory reads its own elements and the overhang, once."""
    sums = n - window + 1
    blocks = [min(128 + window - 1, n - first) for first in range(0, sums, 128)]
    assert pooling.reads_of(drawn(n), window) == (sums * window, sum(blocks))


@FEW
@given(n=LENGTHS)
def test_dot(n: int) -> None:
    x, y = drawn(n), drawn(n).flip(0)
    for way in (dot.solve, dot.solve_atomically):
        check(way(x, y), find("dot").reference(x.double(), y.double()))


def test_a_race_loses_additions() -> None:
    """Of each block the last to write is kept, as all threads of a block have read before; of blocks at once fewer."""
    ones = torch.ones(5 * 128, device=DEVICE)
    assert dot.solve(ones, ones) == dot.solve_atomically(ones, ones) == 640
    assert 1 <= dot.race(ones, ones) <= 5


def test_blocks_that_take_more_than_their_own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dot, "MOST_BLOCKS", 2)
    x, y = drawn(700), drawn(700).flip(0)
    check(dot.solve(x, y), x.double() @ y.double())


def test_nothing_in_is_nothing_out() -> None:
    nothing = drawn(0)
    assert map.solve(nothing, 1.0).shape == zip.solve(nothing, nothing).shape == (0,)
    assert (
        map_2d.solve(nothing.view(0, 3), 1.0).shape == broadcast.solve(nothing.view(0, 1), drawn(1, 3)).shape == (0, 3)
    )
    assert dot.solve(nothing, nothing) == 0


def test_wrong_arguments_are_named() -> None:
    x = drawn(5)
    with pytest.raises(TypeError, match="'x' is float64; accepted are float32"):
        map.solve(x.double(), 1.0)
    with pytest.raises(ValueError, match=r"'y' has shape \[4\]; \[5\] is needed"):
        zip.solve(x, x[:4])
    with pytest.raises(ValueError, match=r"'x' has shape \[5\]; \[any, any\] is needed"):
        map_2d.solve(x, 1.0)
    for window in (0, 6):
        with pytest.raises(ValueError, match=f"'window' is {window}; it must be at least 1 and at most 5"):
            pooling.solve(x, window)


@pytest.mark.gpu
def test_a_gpu_is_used_where_there_is_one() -> None:
    assert not numba_cuda.config.ENABLE_CUDASIM
    x = torch.randn(10**7, device="cuda")
    y = x.flip(0)
    check(map.solve(x, 1.5), x.double() + 1.5)
    for pool in (pooling.solve, pooling.solve_naively):
        check(pool(x, 31), x.double().unfold(0, 31, 1).sum(-1))
    naive, shared = pooling.reads_of(x, 31)
    assert naive == 31 * (10**7 - 30)
    assert 10**7 <= shared < 1.3 * 10**7
    for way in (dot.solve, dot.solve_atomically):
        torch.testing.assert_close(way(x, y).double(), x.double() @ y.double(), rtol=0, atol=0.1)
    assert dot.race(x.abs(), y.abs()) < 0.01 * (x.abs().double() @ y.abs().double())
    a, b = torch.randn(3000, 1, device="cuda"), torch.randn(1, 2000, device="cuda")
    for shape in broadcast.SHAPES:
        check(broadcast.solve(a, b, shape), a.double() + b.double())


def test_the_command_compares_each_with_the_kernel_beside_it() -> None:
    done = CliRunner().invoke(make_app(), ["puzzles"], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert done.exit_code == 0
    ways = [way for name in PUZZLES for way in beside(name).ways]
    assert re.findall(r"^│ ((?:Triton|Numba)[ \w,-]+?) +│", done.stdout, re.MULTILINE) == ways
    assert len(PUZZLES) == 6
    for words in (
        "2,628 times naively",
        "316 times with shared memory",
        "strided loop, 768",
        "Atomic additions kept 384",
    ):
        assert words in done.stdout
    for line in TERMS:
        assert all(cell.replace("`", "") in done.stdout for cell in line)
    with pytest.raises(
        GalleryError, match="There is no puzzle softmax; there are map, zip, map_2d, broadcast, pooling, d"
    ):
        CliRunner().invoke(make_app(), ["puzzles", "softmax"], catch_exceptions=False)


def test_without_numba_a_sentence_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.modules['numba'] = None; sys.argv[1:] = ['puzzles']; from gallery.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: The puzzles need Numba; `pip install 'triton-regressors[gallery]'` brings it.\n"
