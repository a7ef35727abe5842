"""Terms: what the splits of a tree ask of a number, in kernels (`meets`) and in plain torch (`Terms`).

A term asks whether `lower < x[feature] ≤ upper`, where a `lower` of NaN is no bound, or whether the category in
`x[feature]` is in a set, and a flag says whether NaN meets it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from ...numerics.dot import INTERPRETED
from .nodes import CATEGORICAL, MISSING_LEFT

MET_BY_MISSING = MISSING_LEFT
"""Flag of a term: NaN meets it. The other flag is `CATEGORICAL`."""


@triton.jit
def meets(value, least, most, flags, sets, WORDS: tl.constexpr, FLOOR: tl.constexpr, MISSING: tl.constexpr):
    """Return whether numbers meet terms, whose flags are the lowest bits of `flags`."""
    met = (value <= most) & ~(value <= least)
    if WORDS:
        categorical = (flags & 2) != 0
        fits = (value >= 0.0 if FLOOR else value > -1.0) & (value < 32.0 * WORDS - 1.0)
        category = tl.where(fits, value, 32.0 * WORDS - 1.0).to(tl.int32)
        number = tl.where(categorical, most, 0.0).to(tl.int32)
        bits = tl.load(sets + number * WORDS + (category >> 5), mask=categorical, other=0)
        met = tl.where(categorical, ((bits >> (category & 31)) & 1) != 0, met)
    if MISSING:
        met = tl.where(value != value, (flags & 1) != 0, met)
    return met


def _asm(kind: str, missing: bool) -> tl.constexpr:
    """Return PTX for `$0 |= 0 if $2 meets the bounds $3 and $4 else $5`; with `missing`, NaN meets them if $6.

    Every predicate is an operand of the next comparison. Joined by `or.pred`, they and $6 are kept as bits instead, and
    16 instructions are made of what takes four.
    """
    by_missing = f"setp.ne.s32 q, $6, 0; setp.nan.and.{kind} q, $2, $2, q; " if missing else ""
    at_most = f"setp.le.or.{kind} p, $2, $3, q;" if missing else f"setp.le.{kind} p, $2, $3;"
    return tl.constexpr(
        f"{{ .reg .pred p, q; {by_missing}{at_most} setp.gtu.and.{kind} p, $2, $4, p; @!p or.b32 $0, $0, $5; }}"
    )


MISS32, MISS64 = _asm("f32", False), _asm("f64", False)
MISS32_OR_NAN, MISS64_OR_NAN = _asm("f32", True), _asm("f64", True)


@triton.jit
def add_unmet(
    unmet, bit, value, least, most, flags, sets, WORDS: tl.constexpr, FLOOR: tl.constexpr, MISSING: tl.constexpr
):
    """Return `unmet | bit` where numbers do not meet terms, and `unmet` where they do; `meets` says what that is.

    The compiler makes five instructions of the two comparisons and what follows, where a GPU needs three. `$1` is
    `unmet`, in the register of the result.
    """
    if INTERPRETED or WORDS or unmet.dtype == tl.int64:
        unmet |= tl.where(meets(value, least, most, flags, sets, WORDS=WORDS, FLOOR=FLOOR, MISSING=MISSING), 0, bit)
    else:
        given = [unmet, value, most, least, bit, flags & 1]
        if value.dtype == tl.float32:
            single: tl.constexpr = MISS32_OR_NAN if MISSING else MISS32
            unmet = tl.inline_asm_elementwise(single, "=r,0,f,f,f,r,r", given, tl.int32, True, 1)
        else:
            double: tl.constexpr = MISS64_OR_NAN if MISSING else MISS64
            unmet = tl.inline_asm_elementwise(double, "=r,0,d,d,d,r,r", given, tl.int32, True, 1)
    return unmet


class Terms(NamedTuple):
    """The terms as plain torch evaluates them, `[terms]` or `[terms, 1]` each."""

    feature: torch.Tensor
    lower: torch.Tensor
    upper: torch.Tensor
    by_missing: torch.Tensor  # whether NaN meets a term
    categorical: torch.Tensor  # the numbers of the terms that ask for a category
    words: torch.Tensor  # int32 [categorical terms, words], the sets of these
    floor: bool

    @staticmethod
    def of(
        feature: np.ndarray, lower: np.ndarray, upper: np.ndarray, flags: np.ndarray, sets: np.ndarray, rounding: str
    ) -> Terms:
        """Return the terms with these fields of an operation."""
        categorical = np.flatnonzero(flags & CATEGORICAL)
        return Terms(
            torch.from_numpy(feature.astype(np.int64)),
            torch.from_numpy(np.array(lower))[:, None],
            torch.from_numpy(np.array(upper))[:, None],
            torch.from_numpy(flags & MET_BY_MISSING)[:, None],
            torch.from_numpy(categorical),
            torch.from_numpy(sets[upper[categorical].astype(np.int64)]),
            rounding == "floor",
        )

    def met(self, x: torch.Tensor) -> torch.Tensor:
        """Return whether rows meet the terms, uint8 `[terms, rows]`.

        Args:
            x: `[rows, features]`, of the dtype of the bounds.
        """
        columns = x.reshape(-1) if len(x) == 1 else x.T.contiguous()
        value = columns.index_select(0, self.feature).view(len(self.feature), len(x))
        found = (value <= self.upper).view(torch.uint8)
        found &= (value <= self.lower).view(torch.uint8) ^ 1
        if len(self.categorical):
            asked, last = value.index_select(0, self.categorical), 32 * self.words.shape[1] - 1
            known = (asked >= 0 if self.floor else asked > -1) & (asked < last)
            category = torch.where(known, asked, last).long()
            bit = self.words.gather(1, category >> 5) >> (category & 31) & 1
            found.index_copy_(0, self.categorical, bit.to(torch.uint8))
        if x.isnan().any():
            found = torch.where(value.isnan(), self.by_missing, found)
        return found
