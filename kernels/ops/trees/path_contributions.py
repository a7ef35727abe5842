"""Path-dependent Shapley values of trees whose leaves have many players, by quadrature for each row.

`x`: `[rows, features]`; `out`: `[rows, targets · (columns + 1)]`, target after target, the last column of each being
`base`; both float32 or float64. Players are the columns of the user's table, and `leaf_patterns.py` says which of them
meet the conditions of a leaf: `aᵢ` is 1 for these, else 0. A player that is not as in the row meets them with the
probability `rᵢ`, its `share`, whatever the others do. What a leaf of the value v gives to player k is

    v ∫₀¹ (aₖ − rₖ) Πᵢ (t · aᵢ + (1 − t) · rᵢ) / (t · aₖ + (1 − t) · rₖ) dt

which is a polynomial of degree d − 1 in t for d players. The Gauss–Legendre rule with n ≥ d / 2 points is exact for it.
Tables of all patterns (`tree_contributions.py`) take less time for few players.

A first kernel writes the patterns, a second one the weighted product of each leaf, row and point, and a third one adds
up what each output is given: its terms are rounded to multiples of one unit, a power of two, such that the largest
possible sum is below 2⁵¹. Their sums are exact in any order, and neither tiling nor device can change an answer.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.ordered_sum import add_in_order
from ...format.errors import PlanError
from ...plan.plan import Parameters
from .integer_sum import answer
from .launch import contributions_tile
from .leaf_patterns import LeafPatterns

LARGEST_SCRATCH = 2**28
"""The most bytes of products that the second kernel writes before the third reads them."""

ROWS, LARGEST_TILE = 16, 2**21
"""The most rows, and the most answers to their terms, that plain torch has at a time."""

NUMBERS_AT_ONCE = 2**15
"""The products that plain torch holds at a time."""

ROUND = tl.constexpr(1.5 * 2.0**52)
"""A smaller number plus this one, minus it, is the nearest whole number."""


@triton.jit
def products_kernel(
    patterns,  # uint8, int16 or int64 [blocks of rows, LEAVES, TOGETHER]
    points,  # float64 [POINTS]
    weights,  # float64 [POINTS]
    shares,  # float64 [players, LEAVES]
    depths,  # int32 [LEAVES], of players
    products,  # float64 [blocks of rows, POINTS, LEAVES, TOGETHER]
    LEAVES: tl.constexpr,
    POINTS: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK_LEAVES: tl.constexpr,
):
    """Multiply the factors of all players. A program makes the products of `BLOCK_LEAVES` leaves at one point."""
    leaf = tl.program_id(0) * BLOCK_LEAVES + tl.arange(0, BLOCK_LEAVES)
    block = tl.program_id(1).to(tl.int64)
    point = tl.program_id(2)
    place = tl.arange(0, TOGETHER)
    known = leaf < LEAVES
    at = leaf.to(tl.int64)[:, None] * TOGETHER + place[None, :]
    pattern = tl.load(patterns + block * LEAVES * TOGETHER + at, mask=known[:, None], other=0).to(tl.int64)
    depth = tl.load(depths + leaf, mask=known, other=0)
    t = tl.load(points + point)
    product = tl.full([BLOCK_LEAVES, TOGETHER], 0.0, tl.float64) + tl.load(weights + point)
    for slot in tl.range(0, tl.max(depth, axis=0)):
        share = tl.load(shares + slot * LEAVES + leaf, mask=slot < depth, other=0.0)[:, None]
        unmet = (1.0 - t) * share
        factor = tl.where((pattern >> slot) & 1 != 0, unmet, t + unmet)
        product = tl.where((slot < depth)[:, None], product * factor, product)
    tl.store(products + (block * POINTS + point) * LEAVES * TOGETHER + at, product, mask=known[:, None])


@triton.jit(do_not_specialize=["rows"])
def path_sums_kernel(
    patterns,  # uint8, int16 or int64 [blocks of rows, LEAVES, TOGETHER]
    products,  # float64 [blocks of rows, POINTS, LEAVES, TOGETHER]
    points,  # float64 [POINTS]
    entries,  # int64 [entries], a leaf, and 6 bits for the place of a player
    share,  # float64 [entries]
    held,  # float64 [entries], the leaf's value in units of the output
    first_entry,  # int32 [OUTPUTS + 1], of each output, then the number of entries
    unit,  # float64 [OUTPUTS]
    baseline,  # float64 [OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    LEAVES: tl.constexpr,
    OUTPUTS: tl.constexpr,
    POINTS: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK_ENTRIES: tl.constexpr,
):
    """Add up what an output is given by its leaves. A program makes one output of `TOGETHER` rows."""
    block = tl.program_id(0).to(tl.int64)
    output = tl.program_id(1)
    place = tl.arange(0, TOGETHER)
    patterns += block * LEAVES * TOGETHER
    products += block * POINTS * LEAVES * TOGETHER
    total = tl.zeros([BLOCK_ENTRIES, TOGETHER], tl.int64)
    end = tl.load(first_entry + output + 1)
    for start in tl.range(tl.load(first_entry + output), end, BLOCK_ENTRIES):
        entry = start + tl.arange(0, BLOCK_ENTRIES)
        inside = (entry < end)[:, None]
        word = tl.load(entries + entry, mask=entry < end, other=0)[:, None]
        at = (word >> 6) * TOGETHER + place[None, :]
        unmet = (tl.load(patterns + at, mask=inside, other=0).to(tl.int64) >> (word & 63)) & 1 != 0
        own = tl.load(share + entry, mask=entry < end, other=1.0)[:, None]
        value = tl.zeros([BLOCK_ENTRIES, TOGETHER], tl.float64)
        for point in tl.range(0, POINTS):
            t = tl.load(points + point)
            rest = tl.load(products + point * LEAVES * TOGETHER + at, mask=inside, other=0.0)
            value += rest * tl.where(unmet, -1.0 / (1.0 - t), (1.0 - own) / (t + (1.0 - t) * own))
        value = value * tl.load(held + entry, mask=entry < end, other=0.0)[:, None]
        total += ((value + ROUND) - ROUND).to(tl.int64)
    row = block * TOGETHER + place
    y = answer(tl.sum(total, axis=0), unit + output + 0 * row, baseline + output + 0 * row, row < rows, 1.0, "identity")
    tl.store(out + row * OUTPUTS + output, y.to(out.dtype.element_ty), mask=row < rows)


@dataclass(frozen=True, eq=False)
class PathContributions(LeafPatterns):
    """Shapley values of the columns of a table, by the share of the training weight that meets a player's conditions.

    A part is a leaf, and has one condition for each of its players, in their order.
    """

    MOST: ClassVar[int] = 63

    values: np.ndarray  # float64 [leaves, targets]
    share: np.ndarray  # float64 [leaves, most players], of each of `players`
    points: np.ndarray  # float64 [n], between 0 and 1, of the Gauss–Legendre rule on that interval
    weights: np.ndarray  # float64 [n]

    def check(self, *widths: int) -> None:
        super().check(*widths)
        if self.values.dtype != np.float64 or not np.isfinite(self.values).all():
            raise PlanError("path_contributions: values must be finite float64.")
        if self.values.shape != (len(self.asked), len(self.base)):
            raise PlanError("path_contributions: values must be [leaves, targets].")
        if ((self.players < self.columns) != (self.asked >= 0)).any():
            raise PlanError("path_contributions: a leaf must have a condition for each of its players.")
        if self.share.dtype != np.float64 or self.share.shape != self.players.shape:
            raise PlanError("path_contributions: share must be float64 and of the shape of players.")
        if not ((self.share >= 0) & (self.share <= 1)).all():
            raise PlanError("path_contributions: share must lie in [0, 1].")
        rule = {(array.dtype, array.shape) for array in (self.points, self.weights)}
        if rule != {(np.dtype(np.float64), (len(self.points),))} or 2 * len(self.points) < self.players.shape[1]:
            raise PlanError("path_contributions: points and weights must be float64, one for each two players.")
        if not ((self.points > 0) & (self.points < 1)).all():
            raise PlanError("path_contributions: points must lie between 0 and 1.")

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the terms and shares of each leaf, and each output's list of leaves."""
        outputs, words, shares, held = [], [], [], []
        for depth, _, own in self.groups:
            output = self.outputs_of(own, depth)
            leaf = np.arange(own.start, own.stop)[:, None]
            outputs.append(output.ravel())
            words.append(np.broadcast_to(leaf << 6 | np.arange(depth), output.shape).ravel())
            shares.append(np.broadcast_to(self.share[own, :depth], output.shape).ravel())
            held.append(self._in_units(own, depth).ravel())
        ends = [np.zeros(0, dtype=np.int64), np.zeros(0)]
        output, word = (np.concatenate([ends[0], *each]) for each in (outputs, words))
        share, value = (np.concatenate([ends[1], *each]) for each in (shares, held))
        order = np.argsort(output, kind="stable")
        return {
            **self.pattern_parameters(),
            "shares": np.ascontiguousarray(self.share.T),
            "depths": self.depth.astype(np.int32),
            "entries": word[order],
            "share": share[order],
            "held": value[order],
            "first_entry": np.append(0, np.bincount(output, minlength=self.output_width()).cumsum()).astype(np.int32),
            **self.plain_parameters(),
        }

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the rule, and the unit and the constant of each output."""
        return {
            "points": self.points,
            "weights": self.weights,
            "unit": np.ldexp(1.0, self._exponent).ravel(),
            "baseline": self.baseline(),
        }

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        pattern = self.patterns(inputs[0].to(self.terms.upper.dtype)).long()  # [leaves, rows]
        found = torch.zeros(pattern.shape[1], len(self.base), self.columns + 1, dtype=torch.float64)
        found[:, :, -1] = torch.from_numpy(self.base)
        t = torch.from_numpy(self.points)
        for leaf, depth in enumerate(self.depth):
            met = 1 - (pattern[leaf][:, None] >> torch.arange(depth) & 1)  # [rows, players]
            share = torch.from_numpy(self.share[leaf, :depth])
            factor = t[:, None, None] * met + (1 - t[:, None, None]) * share  # [points, rows, players]
            for place, player in enumerate(self.players[leaf, :depth]):
                others = torch.cat([factor[:, :, :place], factor[:, :, place + 1 :]], dim=2).prod(2)
                mean = (torch.from_numpy(self.weights)[:, None] * others).sum(0)
                shapley = (met[:, place] - share[place]) * mean
                found[:, :, player] += shapley[:, None] * torch.from_numpy(self.values[leaf])
        return found.flatten(1)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        sums = np.zeros((len(x), self.output_width()))
        rows = min(max(LARGEST_TILE // max(len(self.feature), 1), 1), ROWS)
        for part, out in zip(x.split(rows), np.split(sums, range(rows, len(x), rows)), strict=True):
            pattern = self.patterns(part.to(self.terms.upper.dtype)).T.contiguous().numpy()
            at_once = max(NUMBERS_AT_ONCE // (len(self.points) * len(part)), 1)
            for depth, _, own in self.groups:
                for start in range(own.start, own.stop, at_once):
                    some = slice(start, min(start + at_once, own.stop))
                    self._add_up(pattern[:, some], depth, some, out)
        return parameters["baseline"] + torch.from_numpy(sums) * parameters["unit"]

    def _add_up(self, pattern: np.ndarray, depth: int, leaves: slice, sums: np.ndarray) -> None:
        """Add to `[rows, outputs]` what leaves of one number of players give, for patterns `[rows, leaves]`."""
        missed = [pattern >> place & 1 == 1 for place in range(depth)]
        t, shares = self.points[:, None, None], self.share[leaves, :depth].T.copy()
        products, room = np.empty((2, len(t), *pattern.shape))
        products[:] = self.weights[:, None, None]
        factors = []  # of a player that meets its conditions, [points, 1, leaves]
        for unmet, share in zip(missed, shares, strict=True):
            factor = (1.0 - t) * share
            factors.append(t + factor)
            np.multiply(t, 1.0 - unmet, out=room)  # t where conditions are met, or 0
            products *= np.add(room, factor, out=room)
        of_unmet = _added(np.multiply(products, -1.0 / (1.0 - t), out=room)).copy()
        values, outputs = self._in_units(leaves, depth), self.outputs_of(leaves, depth)
        row = sums.shape[1] * np.arange(len(pattern))[:, None]
        for place, (unmet, share, factor) in enumerate(zip(missed, shares, factors, strict=True)):
            given = np.where(unmet, of_unmet, _added(np.multiply(products, (1.0 - share) / factor, out=room)))
            for value, output in zip(values[:, :, place], outputs[:, :, place], strict=True):
                added = np.bincount((output + row).ravel(), np.rint(given * value).ravel(), sums.size)
                sums += added.reshape(sums.shape)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), leaves, points = inputs, max(len(self.values), 1), len(self.points)
        tile = contributions_tile(rows)
        most = max(LARGEST_SCRATCH // (8 * points * leaves * tile.together), 1) * tile.together
        for start in range(0, rows, most):
            count = min(most, rows - start)
            blocks = triton.cdiv(count, tile.together)
            patterns = self.launch_patterns(parameters, x[start:], count, tile)
            products = torch.empty(blocks, points, leaves, tile.together, dtype=torch.float64, device=x.device)
            shape = {"LEAVES": leaves, "POINTS": points, "TOGETHER": tile.together}
            if len(self.values):
                products_kernel[(triton.cdiv(leaves, tile.block_parts), blocks, points)](
                    patterns=patterns,
                    **{name: parameters[name] for name in ("points", "weights", "shares", "depths")},
                    products=products,
                    **shape,
                    BLOCK_LEAVES=tile.block_parts,
                    num_warps=4,
                    enable_fp_fusion=False,  # so that a product is rounded before the sum, as in plain torch
                )
            path_sums_kernel[(blocks, output.shape[1])](
                patterns=patterns,
                products=products,
                **{name: parameters[name] for name in ("points", "entries", "share", "held", "first_entry")},
                **{name: parameters[name] for name in ("unit", "baseline")},
                out=output[start:],
                rows=count,
                OUTPUTS=output.shape[1],
                **shape,
                BLOCK_ENTRIES=tile.block_entries,
                num_warps=4,
                enable_fp_fusion=False,
            )

    def launches(self, inputs: int) -> int:
        return 4

    def describe(self) -> str:
        return f"{super().describe()}, {len(self.points)} points"

    def _in_units(self, leaves: slice, depth: int) -> np.ndarray:
        """Return the values of leaves in units of the outputs to which they add, float64 `[targets, leaves, depth]`."""
        exponent = self._exponent[:, self.players[leaves, :depth]]
        found: np.ndarray = np.ldexp(self.values[leaves].T[:, :, None], -exponent)
        return found

    @functools.cached_property
    def _exponent(self) -> np.ndarray:
        """Return the exponents of the outputs' units, int `[targets, columns + 1]`; a leaf gives at most its value."""
        largest = np.zeros((len(self.base), self.columns + 1))
        for depth, _, own in self.groups:
            for total, each in zip(largest, np.abs(self.values[own].T), strict=True):
                np.add.at(total, self.players[own, :depth], each[:, None])
        return np.maximum(np.frexp(largest)[1], -900) - 51  # so that the unit itself is a normal number


def _added(terms: np.ndarray) -> np.ndarray:
    """Return the sums of `[points, rows, leaves]` over the points, one after the other."""
    found: np.ndarray = add_in_order(torch.from_numpy(terms)).numpy()
    return found
