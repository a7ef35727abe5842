"""Pooling, the dot product and softmax: any shape and type, NaN and infinity, and the order of sums."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gallery.kernels.dot import EXHIBIT, atomic_dot, dot
from gallery.kernels.pooling import KINDS, pooling, reference
from gallery.kernels.softmax import LONGEST, softmax, softmax_backward
from tests.gallery.drawing import DEVICE, TYPES, assert_near, tensors

FEW = settings(max_examples=25)


def in_fours(length: int, window: int, stride: int, padding: int) -> bool:
    """Return whether both a row of x and one of the answer are in fours, for which the kernel takes another path."""
    return length % 4 == 0 and ((length + 2 * padding - window) // stride + 1) % 4 == 0


@st.composite
def poolings(draw: st.DrawFn) -> tuple[torch.Tensor, list[int], list[int], list[int], str]:
    """Return a pooling's arguments: one or two dimensions, each with a window that fits; half of them in fours."""
    dimensions = draw(st.integers(1, 2))
    window = [draw(st.integers(1, 5)) for _ in range(dimensions)]
    stride = [draw(st.integers(1, 6)) for _ in range(dimensions)]
    padding = [draw(st.integers(0, size - 1)) for size in window]
    lengths = [
        draw(st.integers(max(size - 2 * pad, 1), size + (40 if place else 12)))
        for place, (size, pad) in enumerate(zip(window, padding, strict=True))
    ]
    last = lengths[-1], window[-1], stride[-1], padding[-1]
    fours = [length for length in range(last[0], last[0] + 30) if in_fours(length, *last[1:])]
    if fours and draw(st.booleans()):
        lengths[-1] = draw(st.sampled_from(fours))
    before = draw(st.lists(st.integers(0, 3), max_size=2))
    x = draw(tensors(shape=(*before, *lengths)))
    return x.reshape(*before, *lengths), window, stride, padding, draw(st.sampled_from(KINDS))


@FEW
@given(poolings())
def test_pooling(arguments: tuple[torch.Tensor, list[int], list[int], list[int], str]) -> None:
    x, *others = arguments
    assert_near(pooling(x, *others), reference(x.double(), *others), float(x.abs().max()) if x.numel() else 0.0)


@pytest.mark.parametrize("width", [20, 21])
@pytest.mark.parametrize("kind", KINDS)
def test_nan_is_every_windows_that_has_one(kind: str, width: int) -> None:
    x = torch.randn(2, 9, width, device=DEVICE)
    x[0, 4, 7] = math.nan
    y = pooling(x, [3, 3], [1, 1], [1, 1], kind)
    assert y.isnan().sum() == 9
    assert y[0, 3:6, 6:9].isnan().all()


def test_pooling_of_fours_that_begin_at_no_address_of_four() -> None:
    x = torch.randn(3 * 8 * 1100 + 1, device=DEVICE)[1:].view(3, 8, 1100)
    assert x.is_contiguous()
    arguments = [3, 3], [1, 1], [1, 1], "maximum"
    assert torch.equal(pooling(x, *arguments), reference(x, *arguments))


@FEW
@given(x=tensors(), y_seed=st.integers(0, 9))
def test_dot(x: torch.Tensor, y_seed: int) -> None:
    x = x.flatten().abs()
    y = torch.rand(len(x), generator=torch.Generator().manual_seed(y_seed)).to(DEVICE, x.dtype)
    x = x / max(len(x), 1) ** 0.5  # so that the sum of many stays within float16
    for way in (dot, atomic_dot):
        assert_near(way(x, y), (x.double() * y.double()).sum())


@pytest.mark.gpu
def test_two_stages_give_the_same_bits_in_every_call() -> None:
    """In the interpreter programs end in one order, so that even atomic additions give the same bits."""
    x, y = (torch.randn(2**24, device=DEVICE) for _ in range(2))
    assert len({float(dot(x, y)) for _ in range(200)}) == 1


def test_additions_to_one_number_need_the_bound_of_atomics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of 4,096 programs in any order, as atomic additions come: worse than partial sums may be."""
    monkeypatch.setattr("gallery.kernels.dot.ATOMIC_PROGRAMS", 4096)
    sums = np.random.RandomState(0).rand(4096).astype(np.float32)
    truth = sums.sum(dtype=np.float64)
    orders = [np.random.RandomState(seed).permutation(sums) for seed in range(100)]
    worst = max(abs(np.cumsum(order)[-1] - truth) / truth for order in orders)  # cumsum adds one after the other
    of_partial_sums, of_atomics = (EXHIBIT.allowed(way, (2**24,), torch.float32) for way in ("two stages", "atomics"))
    assert of_partial_sums < worst < of_atomics < 3e-4


@FEW
@given(tensors())
def test_softmax(x: torch.Tensor) -> None:
    if not x.dim():
        x = x[None]
    assert_near(softmax(x * 9), torch.softmax((x * 9).double(), -1))


@settings(max_examples=4)
@given(st.integers(LONGEST - 2, LONGEST + 9000), st.sampled_from(TYPES), st.integers(0, 9))
@example(16_384, torch.float32, 0)
@example(LONGEST, torch.float16, 0)
@example(LONGEST, torch.float32, 0)
@example(LONGEST + 1, torch.bfloat16, 0)
def test_softmax_of_rows_that_fit_and_that_do_not(columns: int, dtype: torch.dtype, seed: int) -> None:
    x, g = torch.randn(2, 2, columns, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)
    y, truth = softmax(x), torch.softmax(x.double(), -1)
    assert_near(y, truth)
    shared = (y.double() * g.double()).sum(-1, keepdim=True)
    assert_near(softmax_backward(y, g), y.double() * (g.double() - shared))


@pytest.mark.parametrize("columns", [5, 16_384 + 5, LONGEST + 5])
def test_infinite_and_no_numbers_in_rows_are_torchs(columns: int) -> None:
    x = torch.randn(5, columns, device=DEVICE)
    x[0] = -math.inf
    x[1, : columns - 2] = -math.inf
    x[2, 3] = math.inf
    x[3, 3] = math.nan
    x[4] = 1e38
    torch.testing.assert_close(softmax(x), torch.softmax(x, -1), equal_nan=True, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: pooling(torch.zeros(9), [3], [1], [0], "mean"), "'kind' is 'mean'; it is one of sum, maximum"),
        (lambda: pooling(torch.zeros(9), [3, 3], [1, 1], [0, 0], "sum"), "and 'x' 1 dimensions"),
        (lambda: pooling(torch.zeros(9), [3], [1, 1], [0], "sum"), "'window' has 1 numbers, 'stride' 2"),
        (lambda: pooling(torch.zeros(9), [3], [0], [0], "sum"), "window and stride are 1 at least"),
        (lambda: pooling(torch.zeros(9), [3], [1], [3], "sum"), "a padding is smaller than its window"),
        (lambda: pooling(torch.zeros(2), [3], [1], [0], "sum"), "'window' 3 finds no place in the 2 elements of 'x'"),
        (lambda: pooling(torch.zeros(0), [3], [1], [2], "maximum"), "finds no place in the 0 elements"),
        (lambda: dot(torch.zeros(2, 2), torch.zeros(2, 2)), r"'x' has shape \[2, 2\]; \[any\] is needed"),
        (lambda: atomic_dot(torch.zeros(2), torch.zeros(3)), r"'y' has shape \[3\]; \[2\] is needed"),
        (lambda: softmax(torch.zeros(())), "'x' has no dimension"),
        (lambda: softmax(torch.zeros(3, dtype=torch.int64)), "'x' is int64"),
        (lambda: softmax_backward(torch.zeros(3), torch.zeros(2)), r"'gradient' has shape \[2\]; \[3\] is needed"),
    ],
)
def test_refusals(call: object, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        call()  # type: ignore[operator]
