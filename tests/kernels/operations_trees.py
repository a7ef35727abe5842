"""Operations of the tree family: ensembles of drawn trees, weighted medians, rounding."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.weighted_median import WeightedMedian
from triton_regressors.kernels.ops.trees.background_contributions import BackgroundContributions
from triton_regressors.kernels.ops.trees.linear_leaves import LinearLeaves
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL, MISSING_LEFT
from triton_regressors.kernels.ops.trees.path_contributions import PathContributions
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_contributions import TreeContributions
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import Operation


def tree_ensemble(
    features: int,
    trees: int,
    depth: int = 5,
    outputs: int = 1,
    seed: int = 0,
    dtype: type = np.float32,
    sets: int = 0,
    stop: float = 0.2,
    words: int = 1,
    **options: object,
) -> TreeEnsemble:
    """Return drawn trees: a node at `depth` is a leaf, and one above it with probability `stop`.

    If there are `sets`, half of the nodes ask for a category, among `32 * words - 1` categories; a standard normal
    number is category 0, category 1 or none of them.
    """
    rng = np.random.default_rng(seed)
    feature, child, roots, leaves = [], [], [], 0
    for _ in range(trees):
        level = [len(feature)]
        roots += level
        for left in range(depth + 1):
            feature += [-1] * len(level)
            child += [0] * len(level)
            below = []
            for node in level:
                if left == depth or rng.random() < stop:
                    child[node], leaves = leaves, leaves + 1
                else:
                    feature[node] = int(rng.integers(features))
                    child[node] = level[-1] + 1 + len(below)
                    below += [child[node], child[node] + 1]
            level = below
    nodes, inner = len(feature), np.array(feature) >= 0
    flags = MISSING_LEFT * rng.integers(0, 2, nodes) * inner
    threshold = rng.standard_normal(nodes)
    if sets:
        categorical = inner & (rng.random(nodes) < 0.5)
        flags += CATEGORICAL * categorical
        threshold = np.where(categorical, rng.integers(0, sets, nodes), threshold)
    return TreeEnsemble(
        np.array(feature, dtype=np.int32),
        threshold.astype(dtype),
        np.array(child, dtype=np.int32),
        flags.astype(np.uint8),
        rng.integers(-(2**31), 2**31, (sets, words)).astype(np.int32),
        np.array(roots, dtype=np.int32),
        rng.standard_normal((leaves, outputs)),
        rng.standard_normal(outputs),
        **options,  # type: ignore[arg-type]
    )


def ordered_ensemble(features: int, trees: int, depth: int = 5, groups: int = 1, **options: Any) -> TreeEnsemble:
    """Return drawn trees whose sums are ordered, in groups of unequal sizes."""
    op = tree_ensemble(features, trees, depth, **options)
    ends = np.sort(np.random.default_rng(trees).integers(0, trees + 1, groups - 1))
    return dataclasses.replace(
        op,
        values=op.values.astype(np.float32),
        baseline=np.tile(op.baseline, groups).astype(np.float32),
        output="ordered",
        starts=np.array([0, *ends, trees], dtype=np.int32),
    )


def grouped(op: Any, starts: Sequence[int]) -> Any:
    """Return the operation, whose trees are summed to one number, with trees in groups that begin at `starts`."""
    baseline = np.arange(len(starts) - 1) + op.baseline
    return dataclasses.replace(op, baseline=baseline, starts=np.array(starts, dtype=np.int32))


def symmetric_trees(
    features: int,
    depths: Sequence[int],
    outputs: int = 1,
    seed: int = 0,
    dtype: type = np.float32,
    questions: int = 40,
    **options: object,
) -> SymmetricTrees:
    """Return drawn symmetric trees of these depths, which ask some of a number of questions."""
    rng, depth = np.random.default_rng(seed), np.array(depths, dtype=np.int32)
    return SymmetricTrees(
        rng.integers(0, features, questions).astype(np.int32),
        rng.standard_normal(questions).astype(dtype),
        rng.integers(0, 2, questions).astype(np.uint8),
        rng.integers(0, max(questions, 1), depth.sum()).astype(np.int32),
        depth,
        rng.standard_normal(((1 << depth).sum(), outputs)),
        rng.standard_normal(outputs),
        **options,  # type: ignore[arg-type]
    )


def linear_leaves(features: int, leaves: int, terms: int, seed: int = 0) -> LinearLeaves:
    """Return drawn leaves with a largest number of terms; each leaf has features of its own."""
    rng = np.random.default_rng(seed)
    feature = rng.permuted(np.tile(np.arange(features, dtype=np.int32), (leaves, 1)), axis=1)[:, :terms]
    held = np.arange(feature.shape[1]) < rng.integers(0, feature.shape[1] + 1, leaves)[:, None]
    coefficient = np.where(held, rng.standard_normal(feature.shape), 0.0)
    constant, value = rng.standard_normal((2, leaves))
    return LinearLeaves(constant, value, np.where(held, feature, -1).astype(np.int32), coefficient)


def parts_of_trees(
    features: int, columns: int, depths: Sequence[int], targets: int = 1, sets: int = 0, dtype: type = np.float32
) -> dict[str, Any]:
    """Return drawn parts of so many conditions each, some of several terms; some terms ask for a category."""
    rng, terms, depths = np.random.default_rng(len(depths)), 5 * columns, np.sort(depths)
    flags = rng.integers(0, 2, terms) + (CATEGORICAL * rng.integers(0, 2, terms) if sets else 0)
    lower, upper = np.sort(1.5 * rng.standard_normal((2, terms)), axis=0).astype(dtype)
    lower[rng.random(terms) < 0.3] = np.nan
    asked = np.full((len(depths), int(depths.max(initial=0))), -1, dtype=np.int32)
    for part, depth in enumerate(depths):
        asked[part, :depth] = rng.integers(0, terms, depth)
    others = [
        [part, rng.integers(depths[part]), rng.integers(terms)] for part in range(len(depths)) for _ in range(part % 3)
    ]
    return {
        "feature": rng.integers(0, features, terms).astype(np.int32),
        "lower": lower,
        "upper": np.where(flags & CATEGORICAL > 0, rng.integers(0, max(sets, 1), terms), upper).astype(dtype),
        "flags": flags.astype(np.uint8),
        "sets": rng.integers(-(2**31), 2**31, (sets, 2)).astype(np.int32),
        "asked": asked,
        "others": np.array(others, dtype=np.int32).reshape(-1, 3),
        "base": rng.standard_normal(targets),
        "columns": columns,
        "rounding": "floor" if sets else "trunc",
    }


def some_players(columns: int, numbers: Sequence[int]) -> np.ndarray:
    """Return drawn columns, so many for each part."""
    rng = np.random.default_rng(columns)
    players = np.array([rng.permutation(columns) for _ in numbers], dtype=np.int32).reshape(len(numbers), columns)
    players[np.arange(columns) >= np.reshape(numbers, (-1, 1))] = columns
    return players[:, : max(numbers, default=0)]


def tree_contributions(features: int, columns: int, depths: Sequence[int], **options: Any) -> TreeContributions:
    """Return the parts of `parts_of_trees` with drawn tables, each with a column more than conditions."""
    parts, depths = parts_of_trees(features, columns, depths, **options), np.sort(depths)
    numbers = [min(depth + 1, columns) for depth in depths.tolist()]
    rng, targets = np.random.default_rng(1), len(parts["base"])
    size = targets * sum(number << depth for number, depth in zip(numbers, depths.tolist(), strict=True))
    table, unit = rng.integers(-(2**30), 2**30, size, np.int32), 2.0 ** rng.integers(-45, -40, targets * (columns + 1))
    shift = rng.integers(0, 13, targets * sum(numbers)).astype(np.uint8)
    return TreeContributions(**parts, players=some_players(columns, numbers), table=table, shift=shift, unit=unit)


def path_contributions(
    features: int, columns: int, trees: int, depth: int, seed: int = 0, rounding: str = "trunc", **options: Any
) -> PathContributions:
    """Return the trees of `tree_ensemble` with drawn players, the last column being a constant too, and shares."""
    drawn, rng = tree_ensemble(features, trees, depth, seed=seed, **options), np.random.default_rng(seed)
    player = rng.integers(0, columns + 1, features)[drawn.feature]
    return PathContributions(
        drawn.feature,
        drawn.threshold,
        drawn.child,
        drawn.flags,
        drawn.sets,
        drawn.roots,
        player=player.astype(np.int32),
        share=rng.uniform(-0.2, 1.2, len(player)).clip(0, 1),
        values=drawn.values,
        base=drawn.baseline,
        columns=columns,
        rounding=rounding,
    )


def background_contributions(
    features: int, columns: int, depths: Sequence[int], **options: Any
) -> BackgroundContributions:
    """Return the parts of `parts_of_trees` as leaves with drawn patterns of background rows, some leaves with none."""
    parts, rng, depths = parts_of_trees(features, columns, depths, **options), np.random.default_rng(0), sorted(depths)
    number = [int(rng.integers(0, 9)) for _ in depths]
    unmet = [rng.integers(0, 2**depth, (2, count)).min(axis=0) for depth, count in zip(depths, number, strict=True)]
    return BackgroundContributions(
        **parts,
        players=some_players(columns, depths),
        values=rng.standard_normal((len(depths), len(parts["base"]))),
        starts=np.cumsum([0, *number]),
        unmet=np.concatenate([np.zeros(0, dtype=np.int64), *unmet]),
        counts=rng.integers(1, 4, sum(number)).astype(np.int32),
        rows=40,
    )


OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    "trees": (tree_ensemble(6, 7, 2, outputs=3, divisor=7.0, function="expit"), (6,)),
    "many trees": (tree_ensemble(5, 12, 4), (5,)),
    "trees with categories": (tree_ensemble(5, 9, 2, sets=6, words=3), (5,)),
    "trees with categories float64": (tree_ensemble(5, 9, 1, sets=6, dtype=np.float64, rounding="floor"), (5,)),
    "trees in groups": (grouped(tree_ensemble(5, 12, 4, divisor=3.0), [0, 1, 8, 12]), (5,)),
    "trees in groups with categories": (grouped(tree_ensemble(5, 5, 2, sets=6, dtype=np.float64), [0, 3, 5]), (5,)),
    "trees side by side": (tree_ensemble(4, 5, 2, output="each"), (4,)),
    "trees in order": (ordered_ensemble(5, 12, 4, function="expit"), (5,)),
    "trees in order in groups": (ordered_ensemble(5, 9, 2, groups=2, outputs=3, sets=6, words=2), (5,)),
    "tree leaves": (tree_ensemble(4, 5, 3, output="leaves"), (4,)),
    "symmetric trees": (symmetric_trees(6, [6] * 12, function="expit"), (6,)),
    "symmetric trees of many depths": (symmetric_trees(5, [3, 0, 8, 1, 9, 12], 3), (5,)),
    "symmetric trees in groups": (grouped(symmetric_trees(5, [3, 0, 8, 1, 6], function="exp"), [0, 2, 5]), (5,)),
    "symmetric trees float64": (symmetric_trees(5, [7] * 5, 1, dtype=np.float64, questions=300), (5,)),
    "weighted_median": (WeightedMedian(np.linspace(0.5, 2, 9)), (9,)),
    "weighted_median of 1": (WeightedMedian(np.ones(1)), (1,)),
    "float32": (Float32(), (3,)),
    "float32 of some columns": (Float32(np.array([1, 0, 1], dtype=np.uint8)), (3,)),
    "tree contributions": (tree_contributions(6, 5, [1, 2, 2, 3, 3, 4, 5], targets=2), (6,)),
    "tree contributions with categories": (tree_contributions(6, 12, [3, 15, 9], sets=3, dtype=np.float64), (6,)),
    "tree contributions of no part": (tree_contributions(3, 2, []), (3,)),
    "path contributions": (path_contributions(6, 5, 3, 4, outputs=2), (6,)),
    "path contributions with categories": (
        path_contributions(9, 20, 1, 5, sets=3, dtype=np.float64, rounding="floor"),
        (9,),
    ),
    "background contributions": (background_contributions(6, 5, [1, 2, 2, 3, 3, 4, 5], targets=2), (6,)),
    "background contributions with categories": (
        background_contributions(6, 20, [18, 3, 11], sets=3, dtype=np.float64),
        (6,),
    ),
    "background contributions of no leaf": (background_contributions(3, 2, []), (3,)),
    "linear leaves": (linear_leaves(4, 3, 3), (40, 4)),
}
