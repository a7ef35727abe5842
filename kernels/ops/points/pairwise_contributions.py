"""Shapley contributions of a sum of kernel functions, against background rows.

`f(z) = Σᵢ weight[i] · exp(−Σ_c m(z_c, sᵢ_c))` with `z = (x − shift) · factor`; `m(z, s)` is `(z − s)²` for the metric
`squared_euclidean` and `|z − s|` for `manhattan`. Column `c` of `x` is a function of column `players[c]` of the user's
table, which is a player. The game of a row is the mean over the background rows of `f`, where the players of a
coalition have the row's numbers and the others the background row's.

For one point and one background row `f` is a product of factors: let `a_p` be those of the row's numbers, multiplied
over player p's columns, and `e_p` the background row's. The Shapley value is (Owen, Multilinear extensions of games,
1972)

    φ_p = weight · (a_p − e_p) ∫₀¹ Π_{q ≠ p} (t a_q + (1 − t) e_q) dt,

whose integrand has a degree below the number of players, such that a quadrature (`quadrature.py`) misses nothing that
float64 holds. With `τ = 2 t − 1`, `δ = (a − e) / (a + e)` and `P(τ) = Π (1 + τ δ_q)` that is

    φ_p = weight · Π ((a_q + e_q) / 2) · δ_p ∫₋₁¹ P(τ) / (1 + τ δ_p) dτ.

No denominator is near zero, since the nodes are inside the interval, and nodes `τ` and `−τ` share a division:
`P(τ) / (1 + τ δ) + P(−τ) / (1 − τ δ) = (P(τ) + P(−τ) − τ δ (P(τ) − P(−τ))) / (1 − τ² δ²)`.

Kernels divide once for several nodes. With `v = 1 − δ²` the denominators are `1 − τ² + τ² v`. Their product `D(v)` has
the same coefficients for all rows, points and players. The sum over the nodes is `(E(v) − δ O(v)) / D(v)`. All players
of a row, a point and a background row share the coefficients of `E` and `O`: node k adds those of
`D(v) / (1 − τ_k² + τ_k² v)`, none of which is negative, times `P(τ_k) + P(−τ_k)` and `τ_k (P(τ_k) − P(−τ_k))`.

`x`: `[rows, width]`, float32 or float64; `points`: `[P, width]` float64 in the units of `z`; `shift`, `factor`:
`[width]` float64; `weight`: `[P, targets]` float64; `players`: `[width]` int32, below `columns`; `background`:
`[B, width]` float64 in the units of `x`; `out`: `[rows, targets · (columns + 1)]`, target after target. The last number
of a target is its base, the mean of `f` over the background rows. A row's numbers add up to its `f`.

Everything is float64. The sum over the points and background rows is in parts, a block of points, a background row and
a group of nodes each, that depend on the model alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton

from ...cpu.tiles import TILE_ELEMENTS, apply, product
from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .contributions_kernel import parts_of_contributions_kernel, sums_of_contributions_kernel
from .launch import parts_of_a_program, slots
from .quadrature import groups_of_nodes, positive_nodes

METRICS = ("squared_euclidean", "manhattan")
MOST_PLAYERS = 512
"""More players could make a product of `1 + τ δ` larger than float64 allows."""

BLOCK_POINTS = 32
"""Points of a program, one for each thread of a warp."""

TINY = 1e-70
"""The smallest factor of a background row, so that the product of four sums of two factors is not zero."""

AT_ONCE = 2
"""How many times as many warps run at once as `slots` says: a thread takes half of the most registers."""

MOST_SCRATCH = 2**24
"""The most numbers that programs keep, unless fewer programs than run at once do.

More programs than that let a GPU give faster multiprocessors more of them.
"""

BLOCK_SUMS, BLOCK_PARTS = 64, 32
MOST_SUMS = 2**25
"""Sums of parts that are in memory at a time; a batch with more takes several launches."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PairwiseContributions(Operation):
    """Write each column's Shapley value of a sum of kernel functions, and the base."""

    points: np.ndarray
    shift: np.ndarray
    factor: np.ndarray
    weight: np.ndarray
    players: np.ndarray
    background: np.ndarray
    columns: int
    metric: str = "squared_euclidean"

    def check(self, *widths: int) -> None:
        (width,) = widths
        kind, columns = self.kind(), self.columns
        shapes = {
            "points": (len(self.points), width),
            "shift": (width,),
            "factor": (width,),
            "weight": (len(self.points), *self.weight.shape[1:2]),
            "players": (width,),
            "background": (len(self.background), width),
        }
        for name, shape in shapes.items():
            found = getattr(self, name).shape
            if found != shape or not all(found):
                raise PlanError(f"{kind}: {name} must be {list(shape)} without zeros, not {list(found)}.")
        if self.weight.ndim != 2:
            raise PlanError(f"{kind}: weight must be [points, targets], not {list(self.weight.shape)}.")
        if self.players.min() < 0 or self.players.max() >= columns:
            raise PlanError(f"{kind}: players must be columns of a table of {columns}, not {self.players.tolist()}.")
        if self.metric not in METRICS:
            raise PlanError(f"{kind}: metric must be one of {', '.join(METRICS)}, not '{self.metric}'.")
        if len(self._columns_of) > MOST_PLAYERS:
            raise PlanError(f"{kind}: there may be {MOST_PLAYERS} players, not {len(self._columns_of)}.")

    def output_width(self, *widths: int) -> int:
        return self.weight.shape[1] * (self.columns + 1)

    def parameters(self) -> dict[str, np.ndarray]:
        column, player_of = np.concatenate(self._columns_of), np.full(self.columns, -1, np.int32)
        player_of[self._players] = np.arange(len(self._players))
        padding = self._padded - len(self._players)  # factors of 1
        return {
            "column": column.astype(np.int32),
            "starts": np.cumsum([0, *map(len, self._columns_of), *[0] * padding]).astype(np.int32),
            "shift": self.shift[column],
            "factor": self.factor[column],
            "points": np.ascontiguousarray(self.points.T[column]),
            "of_background": np.pad(self._of_background.numpy(), ((0, 0), (0, padding), (0, 0)), constant_values=1),
            "quadrature": self._quadrature,
            "weights": np.ldexp(self._mean_weight.numpy(), -self._padded),
            "player_of": player_of,
            "base": self._base.numpy(),
        }

    def plain_parameters(self) -> dict[str, np.ndarray]:
        return {}

    @functools.cached_property
    def _players(self) -> np.ndarray:
        """Return the columns of the table that `f` reads, in order: those that play."""
        return np.unique(self.players)

    @functools.cached_property
    def _columns_of(self) -> tuple[np.ndarray, ...]:
        """Return the columns of `x` of each of them."""
        return tuple(np.flatnonzero(self.players == player) for player in self._players)

    @functools.cached_property
    def _padded(self) -> int:
        """Return the number of players of kernels, which do four at a time."""
        return triton.cdiv(len(self._players), 4) * 4

    @functools.cached_property
    def _nodes(self) -> np.ndarray:
        """Return the positive nodes of the quadrature and their weights, `[2, pairs]`."""
        return positive_nodes(len(self._players) - 1)

    @functools.cached_property
    def _quadrature(self) -> np.ndarray:
        """Return what kernels have of groups of nodes."""
        return groups_of_nodes(self._nodes)

    @functools.cached_property
    def _mean_weight(self) -> torch.Tensor:
        """Return the weights of sums over the background rows."""
        return torch.from_numpy(np.array(self.weight / len(self.background), order="C"))

    @functools.cached_property
    def _of_background(self) -> torch.Tensor:
        """Return the factors of the background rows."""
        return self._factors(torch.from_numpy(self.background)).clamp_(min=TINY)

    @functools.cached_property
    def _base(self) -> torch.Tensor:
        """Return the means of `f` over the background rows, `[targets]`."""
        return self._of_background.prod(dim=1).sum(dim=0) @ self._mean_weight

    def _factors(self, x: torch.Tensor) -> torch.Tensor:
        """Return each player's factor for each row and point, float64 `[rows, players, points]`."""
        z = (x.double() - torch.from_numpy(self.shift)) * torch.from_numpy(self.factor)
        exponent = torch.zeros(x.shape[0], len(self._players), len(self.points), dtype=torch.float64)
        for player, columns in enumerate(self._columns_of):
            for column in columns:
                d = z[:, column, None] - torch.from_numpy(self.points[:, column])
                exponent[:, player] -= d.abs() if self.metric == "manhattan" else d * d
        return apply(torch.Tensor.exp_, exponent)

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        a, e = self._factors(inputs[0])[:, None], self._of_background[None]  # [rows, background, players, points]
        weight, players = torch.from_numpy(self.weight), list(range(len(self._players)))
        nodes, node_weights = np.polynomial.legendre.leggauss(-(-len(players) // 2))
        answer = torch.zeros(a.shape[0], self.weight.shape[1], self.columns + 1, dtype=torch.float64)
        answer[..., -1] = e.prod(dim=2).mean(dim=1) @ weight
        for player in players:
            others = [other for other in players if other != player]
            integral = torch.zeros(a.shape[0], e.shape[1], len(weight), dtype=torch.float64)
            for t, node_weight in zip((nodes + 1) / 2, node_weights / 2, strict=True):
                integral += node_weight * (t * a[:, :, others] + (1 - t) * e[:, :, others]).prod(dim=2)
            gain = (a[:, :, player] - e[:, :, player]) * integral
            answer[..., self._players[player]] = gain.mean(dim=1) @ weight
        return answer.flatten(1)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), (points, targets), players = inputs, self.weight.shape, len(self._players)
        answer = torch.zeros(x.shape[0], targets, self.columns + 1, dtype=torch.float64)
        answer[..., -1] = self._base
        at_once = min(-(-TILE_ELEMENTS // (self._nodes.shape[1] * points)), len(self.background))
        size = max(TILE_ELEMENTS // (self._nodes.shape[1] * points * at_once), 1)
        for start in range(0, x.shape[0], size):  # no bit depends on the number of rows: each operation is of elements
            a = self._factors(x[start : start + size])
            gains = torch.zeros_like(a)
            for some in self._of_background.split(at_once):
                for gain in self._gains(a[:, None], some).unbind(1):
                    gains += gain
            sums = product(gains.view(-1, points), self._mean_weight).view(-1, players, targets)
            answer[start : start + size, :, torch.from_numpy(self._players)] = sums.mT
        return answer.flatten(1)

    def _gains(self, a: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        """Return the Shapley values of each point's function, without its weight, `[rows, B, players, points]`.

        Args:
            a: the rows' factors, `[rows, 1, players, points]`.
            e: those of some background rows, `[B, players, points]`.
        """
        node, node_weight = (torch.from_numpy(each)[:, None, None, None] for each in self._nodes)
        total = a + e
        gains = (a - e).div_(total)
        delta, (half, *others) = gains.unbind(2), total.mul_(0.5).unbind(2)
        for other in others:
            half *= other
        up = torch.ones(len(node), *half.shape, dtype=torch.float64)
        down = torch.ones_like(up)
        for each in delta:
            step = node * each
            up *= 1.0 + step
            down *= 1.0 - step
        even, odd = node_weight * (up + down), node_weight * node * (up - down)
        for each in delta:
            step = node * each
            integral, *more = torch.div(even - odd * each, 1.0 - step * step).unbind(0)
            for other in more:
                integral += other
            each *= integral
            each *= half
        return gains

    def launches(self, inputs: int) -> int:
        return 2

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (points, targets), players = self.weight.shape, self._padded
        parts = triton.cdiv(points, BLOCK_POINTS) * self._parts
        at_once = max(MOST_SUMS // (parts * players * targets) // 4 * 4, 4)  # tensors stay aligned to 16 bytes
        for start in range(0, rows, at_once):
            some = slice(start, start + at_once)
            self._launch_some(parameters, inputs[0][some], output[some], min(rows - start, at_once))

    @property
    def _parts(self) -> int:
        """Return how many parts a block of points has."""
        return len(self.background) * len(self._quadrature)

    def _launch_some(self, parameters: Parameters, x: torch.Tensor, output: torch.Tensor, rows: int) -> None:
        (points, targets), players = self.weight.shape, self._padded
        device, parts = x.device, self._parts
        blocks, most = triton.cdiv(points, BLOCK_POINTS), AT_ONCE * slots(device)
        at_once = parts_of_a_program(rows * blocks, parts, most)
        size = 2 * players * BLOCK_POINTS
        programs = min(rows * blocks * triton.cdiv(parts, at_once), max(MOST_SCRATCH // size, most))
        scratch = torch.empty(programs * size, dtype=torch.float64, device=device)
        sums = torch.empty(rows * blocks * parts * players * targets, dtype=torch.float64, device=device)
        parts_of_contributions_kernel[(programs,)](
            x=x,
            **{name: tensor for name, tensor in parameters.items() if name not in ("player_of", "base")},
            scratch=scratch,
            parts=sums,
            rows=rows,
            at_once=at_once,
            WIDTH=len(self.players),
            POINTS=points,
            PLAYERS=players,
            TARGETS=targets,
            BACKGROUND=len(self.background),
            MANHATTAN=self.metric == "manhattan",
            PAIRS=triton.cdiv(self._nodes.shape[1], len(self._quadrature)),
            GROUPS=len(self._quadrature),
            BLOCK=BLOCK_POINTS,
            num_warps=1,
        )
        sums_of_contributions_kernel[(rows, triton.cdiv(output.shape[1], BLOCK_SUMS))](
            parts=sums,
            player_of=parameters["player_of"],
            base=parameters["base"],
            out=output,
            rows=rows,
            COLUMNS=self.columns,
            PLAYERS=players,
            TARGETS=targets,
            PARTS=blocks * parts,
            BLOCK=BLOCK_SUMS,
            BLOCK_PARTS=BLOCK_PARTS,
        )

    def describe(self) -> str:
        shape = f"{len(self._players)} of {self.columns} columns"
        return f"{shape} by {self.metric.replace('_', ' ')} to {len(self.points)} points"
