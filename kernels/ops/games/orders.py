"""Orders: the mean of what each player adds when it joins the players before it, and the standard error of this mean.

    d[r, i, t, p] = ½ · Σ over both orders o of pair i of (worth[r, after[i, o, p], t] − worth[r, before[i, o, p], t])
    mean[r, t, p] = 1/m · Σᵢ d[r, i, t, p],   error[r, t, p] = √(Σᵢ (d[r, i, t, p] − mean[r, t, p])² / (m (m − 1)))

`worth`: `[rows, coalitions · T]`, float64, as `coalitions.py` answers it; `before` and `after`: int32 `[m, 2, P]`, the
numbers of coalitions, −1 for one that is worth 0; `out`: `[rows, 2 · T · P]`, the means and then the errors, float32 or
float64. A pair is one draw, since an order and its reverse depend on each other. Sums start from the first pair's
numbers, so that a player who adds the same in every order has this mean exactly and the error 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .launch import ORDERS_BLOCK


@triton.jit
def _added(worth, before, after, pair, player, inside, PLAYERS: tl.constexpr, TARGETS: tl.constexpr):
    """Return d of a pair for players; `worth` points to the target of each one's row."""
    total = tl.zeros(player.shape, tl.float64)
    for order in tl.static_range(2):
        at = (pair * 2 + order) * PLAYERS + player
        joined = tl.load(after + at, mask=inside, other=-1)
        left = tl.load(before + at, mask=inside, other=-1)
        total += tl.load(worth + joined * TARGETS, mask=joined >= 0, other=0.0)
        total -= tl.load(worth + left * TARGETS, mask=left >= 0, other=0.0)
    return 0.5 * total


@triton.jit(do_not_specialize=["size", "pairs"])
def orders_kernel(
    worth,  # float64 [rows, COALITIONS, TARGETS]
    before,  # int32 [pairs, 2, PLAYERS]
    after,  # int32 [pairs, 2, PLAYERS]
    out,  # float32 or float64 [rows, 2, TARGETS, PLAYERS]
    size,  # rows * TARGETS * PLAYERS
    pairs,
    COALITIONS: tl.constexpr,
    TARGETS: tl.constexpr,
    PLAYERS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write means and errors. A program makes `BLOCK` of each, and adds the pairs one after the other."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    row, place = at // (TARGETS * PLAYERS), at % (TARGETS * PLAYERS)
    player = place % PLAYERS
    own = worth + row * (COALITIONS * TARGETS) + place // PLAYERS
    first = _added(own, before, after, 0, player, inside, PLAYERS, TARGETS)
    total = tl.zeros([BLOCK], tl.float64)
    for pair in tl.range(1, pairs):
        total += _added(own, before, after, pair, player, inside, PLAYERS, TARGETS) - first
    count = pairs.to(tl.float64)
    mean = total / count
    squares = mean * mean
    for pair in tl.range(1, pairs):
        off = _added(own, before, after, pair, player, inside, PLAYERS, TARGETS) - first - mean
        squares += off * off
    error = tl.sqrt(squares / (count * (count - 1.0)))
    mine = out + row * (2 * TARGETS * PLAYERS) + place
    tl.store(mine, (first + mean).to(out.dtype.element_ty), mask=inside)
    tl.store(mine + TARGETS * PLAYERS, error.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class Orders(Operation):
    """The means and the standard errors over pairs of orders, of `targets` worths of each coalition."""

    before: np.ndarray
    after: np.ndarray
    targets: int

    def check(self, *widths: int) -> None:
        (width,) = widths
        if self.targets < 1 or width % self.targets:
            raise PlanError(f"orders: {width} worths are not those of coalitions for {self.targets} targets.")
        for name, array in (("before", self.before), ("after", self.after)):
            if array.dtype != np.int32 or array.ndim != 3 or array.shape[0] < 2 or array.shape[1] != 2:
                raise PlanError(f"orders: {name} must be int32 [2 or more, 2, players], not {array.shape}.")
            if array.shape != self.before.shape or not array.size:
                raise PlanError(f"orders: {name} must be {self.before.shape} with 1 player or more.")
            if array.min() < -1 or array.max() >= width // self.targets:
                raise PlanError(f"orders: {name} must lie in [-1, {width // self.targets}).")

    def output_width(self, *widths: int) -> int:
        return 2 * self.targets * self.before.shape[2]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        worth = inputs[0].double().unflatten(1, (-1, self.targets)).transpose(1, 2)  # [rows, T, coalitions]
        worth = torch.nn.functional.pad(worth, (0, 1))  # number −1 is the last
        pairs = list(zip(parameters["before"].long(), parameters["after"].long(), strict=True))

        def added(pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:  # [rows, T, P]
            there, back = (worth[:, :, after] - worth[:, :, before] for before, after in zip(*pair, strict=True))
            return 0.5 * (there + back)

        first = added(pairs[0])
        mean = torch.zeros_like(first)
        for pair in pairs[1:]:
            mean += added(pair) - first
        mean /= len(pairs)
        squares = mean**2
        for pair in pairs[1:]:
            squares += (added(pair) - first - mean) ** 2
        error = (squares / (len(pairs) * (len(pairs) - 1))).sqrt()
        return torch.stack([first + mean, error], dim=1).flatten(1)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        pairs, _, players = self.before.shape
        size = rows * self.targets * players
        orders_kernel[(triton.cdiv(size, ORDERS_BLOCK),)](
            inputs[0], parameters["before"], parameters["after"], output, size, pairs,
            COALITIONS=inputs[0].shape[1] // self.targets, TARGETS=self.targets, PLAYERS=players, BLOCK=ORDERS_BLOCK,
        )  # fmt: skip

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        pairs, _, players = self.before.shape
        return f"{2 * pairs:,} orders of {players:,} players"
