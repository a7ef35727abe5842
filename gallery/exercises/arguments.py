"""Cases that several exercises are judged by."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from gallery.exercises.exercise import Case
from gallery.exhibit import Arguments, Size

Sample = Callable[[Size, torch.dtype, torch.device], Arguments]

FORMULA = "The formula is another: compare the first places by hand."
ENDS = "What does not fill a block is wrong: look at the last block, and at arrays smaller than a block."
LARGE = "Small arrays are right and a large one is not: a loop, the number of programs or a block is too small."
STRIDES = (
    "Strides are ignored: an element is at the sum of its indices times their strides, which the launch gives you."
)
SIXTEEN = (
    "float32 is right and float16 is not: sums are kept in 16 bits; convert to float32 before you add, and round last."
)
NAN = "NaN is lost or spreads: each element of the answer is NaN exactly if a number that it is made of is NaN."


def many(count: int, what: str) -> str:
    """Return a count with what is counted."""
    return f"{count:,} {what}s" if count > 1 else f"one {what}"


def case(name: str, sample: Sample, size: Size, fault: str, **settings: object) -> Case:
    """Return the case of one size."""
    return Case(name, partial(sample, size), fault, **settings)  # type: ignore[arg-type]


def with_nan(sample: Sample, size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    """Return arguments whose first tensor has NaN in the middle."""
    first, *others = sample(size, dtype, device)
    first[tuple(length // 2 for length in first.shape)] = torch.nan
    return first, *others


def nan_case(sample: Sample, size: Size) -> Case:
    """Return the case of a NaN among the numbers."""
    return Case("a NaN", partial(with_nan, sample, size), NAN, special=True)


def cancelling(size: Size, dtype: torch.dtype, device: torch.device, *, along: int) -> tuple[torch.Tensor, ...]:
    """Return two tensors of a size whose products along a dimension cancel but for few: sums in 16 bits lose these."""
    length = size[along]
    half = length * 15 // 32
    many, few = (
        [count if place == along else n for place, n in enumerate(size)] for count in (half, length - 2 * half)
    )
    a, b = (5 * torch.randn(many, device=device) for _ in range(2))
    c, d = (0.3 * torch.rand(few, device=device) for _ in range(2))
    order = torch.randperm(length, device=device)
    pair = torch.cat([a, a, c], along), torch.cat([b, -b, d], along)
    return pair[0].index_select(along, order).to(dtype), pair[1].index_select(along, order).to(dtype)
