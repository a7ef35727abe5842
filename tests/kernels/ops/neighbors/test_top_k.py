"""The top-k of points: the same as a stable sort, whichever distances are equal, infinite or absent."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from triton_regressors.kernels.ops.neighbors.top_k import NONE, bound_of, next_least, ranked, take_nearest

INFINITE = float("inf")


@triton.jit
def take_kernel(
    distance, index, best, chosen, ROWS: tl.constexpr, COUNT: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr
):
    place = tl.arange(0, ROWS)[:, None] * COUNT + tl.arange(0, COUNT)[None, :]
    found, which = take_nearest(tl.load(distance + place), tl.load(index + place), NEIGHBORS=K, SLOTS=SLOTS)
    slot = tl.arange(0, ROWS)[:, None] * SLOTS + tl.arange(0, SLOTS)[None, :]
    tl.store(best + slot, found)
    tl.store(chosen + slot, which)


@triton.jit
def least_kernel(bounds, at, left, PLACES: tl.constexpr, COUNT: tl.constexpr, SLOTS: tl.constexpr):
    place = tl.arange(0, PLACES)[None, :]
    ranks = ranked(tl.load(bounds + place), place < PLACES - 1)
    found, ranks = next_least(ranks, COUNT=COUNT, SLOTS=SLOTS)
    tl.store(at + tl.arange(0, SLOTS)[:, None], found)
    tl.store(left + place, bound_of(ranks, PLACES))


def taken(distance: np.ndarray, index: np.ndarray, k: int, slots: int, device: torch.device) -> tuple[np.ndarray, ...]:
    best = torch.empty(len(distance), slots, dtype=torch.float64, device=device)
    chosen = torch.empty(len(distance), slots, dtype=torch.int32, device=device)
    given = [torch.from_numpy(array).to(device) for array in (distance, index)]
    take_kernel[(1,)](
        *given, best, chosen, ROWS=len(distance), COUNT=distance.shape[1], K=k, SLOTS=slots, num_warps=1
    )  # fmt: skip
    return best.cpu().numpy(), chosen.cpu().numpy()


@pytest.mark.parametrize(("k", "slots"), [(1, 1), (5, 8), (32, 32)])
def test_the_nearest_are_taken_in_order(device: torch.device, k: int, slots: int) -> None:
    rng = np.random.default_rng(k)
    distance = rng.choice([0.0, 5e-324, 1.0, 1 + 2.0**-52, 1 + 2.0**-21, 1e300, INFINITE], (4, 64))
    distance[1] = rng.random(64)
    distance[2] = INFINITE
    index = np.stack([rng.permutation(1000)[:64] for _ in range(4)]).astype(np.int32)
    best, chosen = taken(distance, index, k, slots, device)
    for row in range(4):
        order = np.lexsort((index[row], distance[row]))[:k]
        np.testing.assert_array_equal(chosen[row, :k], index[row, order])
        np.testing.assert_array_equal(best[row, :k], distance[row, order])
    assert (chosen[:, k:] == -1).all()
    assert (best[:, k:] == -INFINITE).all()


def test_slots_without_candidates_stay_apart(device: torch.device) -> None:
    distance, index = np.full((1, 32), INFINITE), np.full((1, 32), NONE.value, dtype=np.int32)
    distance[0, 7], index[0, 7] = 2.0, 3
    best, chosen = taken(distance, index, 3, 4, device)
    assert best[0].tolist() == [2.0, INFINITE, INFINITE, -INFINITE]
    assert chosen[0].tolist() == [3, NONE.value - 1, NONE.value - 2, -1]


def test_the_least_bounds_are_taken_once_and_rounded_down(device: torch.device) -> None:
    bounds = np.full(64, np.inf, dtype=np.float32)
    bounds[[40, 3, 9, 60, 5, 63]] = [0.0, 1.0, 1.0, 3e38, 1e-30, 0.5]  # the last place does not count
    at = torch.empty(8, dtype=torch.int32, device=device)
    left = torch.empty(64, dtype=torch.float32, device=device)
    given = torch.from_numpy(bounds).to(device)
    least_kernel[(1,)](given, at, left, PLACES=64, COUNT=4, SLOTS=8, num_warps=1)
    assert at.tolist() == [40, 5, 3, 9, *[NONE.value] * 4]
    assert left.isfinite().nonzero()[:, 0].tolist() == [60]
    assert 3e38 * (1 - 2.0**-17) < left[60] <= np.float32(3e38)
    least_kernel[(1,)](given, at, left, PLACES=64, COUNT=8, SLOTS=8, num_warps=1)
    assert at.tolist() == [40, 5, 3, 9, 60, *[NONE.value] * 3]
