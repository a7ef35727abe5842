"""Stacked operations, each with the members' own operations behind it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.kernels.operations_dense import dense_layers, ordered_affine
from tests.kernels.operations_expression import CHOSEN, CLIPPED, RATIO, expression
from tests.kernels.operations_lookup import FIRST, impute, lookup
from tests.kernels.operations_neighbors import neighbors, tree_neighbors
from tests.kernels.operations_pairwise import pairwise, pairwise_affine, squared_norm
from tests.kernels.operations_piecewise import piecewise, piecewise_affine
from tests.kernels.operations_polynomial import polynomial, polynomial_affine, quadratic
from tests.kernels.operations_trees import grouped, linear_leaves, ordered_ensemble, symmetric_trees, tree_ensemble
from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.power import Power
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.columns.weighted_median import WeightedMedian
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.networks.dense_layers import DenseLayers
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import Operation
from triton_regressors.kernels.plan.stacked import Stacked, stacked_class

Ragged = tuple[Sequence[Operation], Sequence[Operation], int]


def affine(features: int, seed: int, function: str = "identity", targets: int = 1, unused: int = 3) -> Affine:
    """Return a drawn map; every third, or each by this number, has a feature without weight."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((features, targets))
    if features > 1 and seed % unused == 0:
        weight[seed % features] = 0.0
    return Affine(weight, rng.standard_normal(targets), function)


def imputes(missing: float | None, columns: int, indicators: int) -> list[Operation]:
    """Return members that impute other columns, and hold other numbers."""
    return [impute(5, columns, indicators, missing, seed) for seed in range(4)]


def lookups(counts: Sequence[Sequence[int]], targets: int = 0, function: str = "identity") -> list[Operation]:
    """Return members with these numbers of keys, of the same columns."""
    columns = np.random.default_rng(0).integers(0, 4, len(counts[0]))
    members = [lookup(4, list(each), targets, seed, function) for seed, each in enumerate(counts)]
    return [dataclasses.replace(each, columns=columns) for each in members]


def drawn_lookups() -> list[Operation]:
    """Return members that find numbers which tests draw, all of them or each third, in one column."""
    tables = [FIRST[1::3], FIRST[1::3][::3], FIRST[1:2]]
    return [
        Lookup(np.array([1]), np.array([0, len(keys)]), np.sort(keys), np.arange(len(keys) + 2.0)[:, None] + seed)
        for seed, keys in enumerate(tables)
    ]


def pieces(sizes: Sequence[tuple[int, int]], width: int, degree: int, *, nan_is_zero: bool = False) -> list[Operation]:
    """Return members with these numbers of functions and knots of the same columns."""
    source = np.random.default_rng(0).integers(0, width, sizes[0][0]).astype(np.int32)
    members = [piecewise(width, *each, degree, seed, nan_is_zero) for seed, each in enumerate(sizes)]
    return [dataclasses.replace(each, source=source) for each in members]


def additive(
    sizes: Sequence[tuple[int, int]],
    width: int,
    degree: int,
    targets: int = 1,
    function: str = "identity",
    nan_is_zero: bool = False,
) -> list[Operation]:
    """Return generalised additive models of all columns with these numbers of functions and knots."""
    found: list[Operation] = []
    for seed, (outputs, knots) in enumerate(sizes):
        member = piecewise_affine(width, outputs, knots, degree, targets, seed, function)
        source = np.arange(outputs, dtype=np.int32) % width
        found.append(dataclasses.replace(member, source=source, nan_is_zero=nan_is_zero))
    return found


def scales(form: str, single: bool) -> list[Operation]:
    """Return members that scale in one of the forms."""
    found: list[Operation] = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        shift, factor, last = rng.standard_normal(11), rng.uniform(0.5, 2, 11), rng.uniform(0.5, 2, 11)
        found.append(Scale(shift, factor, form, last if form != "factor" else np.zeros(0), single))
    return found


def ensembles(trees: Sequence[int], **options: Any) -> list[TreeEnsemble]:
    """Return drawn ensembles of these numbers of trees, of different depths and divisors."""
    return [
        tree_ensemble(5, count, place % 5, seed=place, divisor=1.0 + place, **options)
        for place, count in enumerate(trees)
    ]


def in_groups(sizes: Sequence[int], **options: Any) -> Operation:
    """Return drawn trees in groups of these sizes, whose sums are ordered."""
    starts = np.cumsum([0, *sizes], dtype=np.int32)
    op = ordered_ensemble(5, int(starts[-1]), 3, len(sizes), seed=sizes[0], **options)
    return dataclasses.replace(op, starts=starts)


def expressions(width: int, programs: Sequence[tuple[Any, int]]) -> list[Operation]:
    """Return members that compute the same programs with other constants."""
    first, *others = [expression(width, programs, seed) for seed in range(3)]
    return [first, *(dataclasses.replace(first, constants=each.constants) for each in others)]


def powers(method: str, inverse: bool) -> list[Operation]:
    """Return members with exponents of their own, some of which mean the logarithm."""
    right = np.random.default_rng(0).uniform(-2, 3, (4, 7))
    right[:, 2], right[1:3, 3] = 0.0, 2.0
    return [Power(each, 2 - each, method, inverse) for each in right]


def sums_over_points(
    name: str, features: int, points: Sequence[int], targets: int = 1, parts: int = 1, precision: str = "float64"
) -> list[Operation]:
    """Return sums over these numbers of points, of functions of one kind with other numbers."""
    found: list[Operation] = []
    for seed, count in enumerate(points):
        member = pairwise_affine(name, features, count, targets, parts, seed)
        member = dataclasses.replace(member, gamma=member.gamma * (1 - 0.1 * seed), coef0=member.coef0 * (1 + seed))
        found.append(dataclasses.replace(member, table=pairwise(name, 1, 1).table, precision=precision))
    return found


def functions_of_points(name: str, features: int, precision: str = "float64") -> list[Operation]:
    """Return functions of as many points, of one kind with other numbers."""
    found: list[Operation] = []
    for seed in range(3):
        member = pairwise(name, features, 70, seed)
        fields = {"gamma": member.gamma * (1 - 0.1 * seed), "table": pairwise(name, 1, 1).table}
        found.append(dataclasses.replace(member, **fields, precision=precision))
    return found


def trees_with_linear_leaves() -> Ragged:
    """Return members with other numbers of trees, whose leaves have numbers, and the linear functions of the leaves."""
    trees = ensembles((33, 1, 40, 7), output="each")
    trees = [dataclasses.replace(each, values=np.arange(len(each.values))[:, None] * 1.0) for each in trees]
    return trees, [linear_leaves(5, len(each.values), 1 + place, place) for place, each in enumerate(trees)], 5


def trees_with_medians() -> Ragged:
    """Return members with other numbers of trees, and weights for the median of these; a lone tree has the weight 0."""
    trees = ensembles((5, 1, 9), output="each")
    return trees, [WeightedMedian(np.arange(len(each.roots)) / 7) for each in trees], 5


def norms_of_functions(name: str, features: int, points: Sequence[int], precision: str = "float64") -> Ragged:
    """Return functions of other numbers of points, and the norms of triangular maps of them."""
    functions = [dataclasses.replace(pairwise(name, features, p, p), precision=precision) for p in points]
    return functions, [squared_norm(count, count, count, triangular=True) for count in points], features


def networks(*widths: int, members: int = 3, unused: bool = False, **options: Any) -> list[Operation]:
    """Return networks whose features lie around zero for the first and elsewhere for others; all may ignore one."""
    found = [dense_layers(*widths, seed=seed, shift=1.5 * seed, **options) for seed in range(members)]
    if unused:
        for each in found:
            each.weights[: widths[1]] = 0
    return [*found]


def neighbor_members(
    features: int, points: Sequence[int], count: int, outputs: int = 1, **options: Any
) -> list[Operation]:
    """Return searches for so many neighbours among these numbers of points, several of which are equal."""
    return [neighbors(features, each, count, outputs, seed=seed, **options) for seed, each in enumerate(points)]


def stacked(members: Sequence[Operation], start: int = 0) -> Stacked[Any]:
    """Return members' operations as one."""
    kind = stacked_class(members[0])
    assert kind is not None
    assert len({kind.alike(member) for member in members} | {None}) == 2, "they are not alike"
    return kind.of(members, start)


MEMBERS: dict[str, tuple[Sequence[Operation], tuple[int, ...]]] = {
    **{
        f"affine {features}": ([affine(features, seed) for seed in range(7)], (features,))
        for features in (1, 5, 13, 32, 37, 300, 1500)
    },
    "affine 9 then exp": ([affine(9, seed, "exp") for seed in range(3)], (9,)),
    "trees": (ensembles((3, 1, 12, 40, 7, 3)), (5,)),
    "trees then expit": (ensembles((2, 9, 4), outputs=3, function="expit"), (5,)),
    "trees in order": (
        [ordered_ensemble(5, trees, trees % 4, seed=trees, function="expit") for trees in (3, 1, 40, 12)],
        (5,),
    ),
    "trees in order in groups": ([in_groups(sizes) for sizes in ((3, 1), (1, 40), (33, 2))], (5,)),
    "trees of 2 numbers in order in groups": ([in_groups(sizes, outputs=2) for sizes in ((3, 1), (1, 40))], (5,)),
    "trees in groups": (
        [grouped(each, [0, 1, 3, len(each.roots)]) for each in ensembles((5, 40, 4), sets=2, words=3)],
        (5,),
    ),
    "single trees": (ensembles((1, 1, 1, 1), output="each"), (5,)),
    "single trees of 3 outputs": (ensembles((1, 1, 1), outputs=3, output="each"), (5,)),
    "trees side by side": (ensembles((70, 70, 70), outputs=2, output="each", sets=1, words=2), (5,)),
    "trees with categories": (
        [
            tree_ensemble(5, 6 - place, 3, seed=place, sets=sets, words=words)
            for place, (sets, words) in enumerate([(4, 3), (0, 1), (9, 1), (2, 8)])
        ],
        (5,),
    ),
    "trees with categories float64": (
        [tree_ensemble(5, 5, 2, 2, seed, np.float64, sets=seed, rounding="floor") for seed in (6, 1, 2)],
        (5,),
    ),
    **{
        f"affine {features} to {targets}": (
            [affine(features, seed, "identity", targets, 9) for seed in range(1, 6)],
            (features,),
        )
        for features, targets in ((5, 3), (40, 2), (70, 9), (9, 70))
    },
    "affine 9 to 70 with unused features": ([affine(9, seed, "identity", 70, 1) for seed in range(4)], (9,)),
    "affine 9 to 3, then exp": ([affine(9, seed, "exp", 3, 9) for seed in range(1, 5)], (9,)),
    "impute": (imputes(None, 4, 3), (5,)),
    "impute a number": (imputes(FIRST[7], 5, 2), (5,)),
    "impute indicators alone": (imputes(None, 0, 2), (5,)),
    "lookup": (lookups([[3, 0, 40, 1, 7], [0, 9, 1, 5, 100], [2, 2, 2, 2, 2]]), (4,)),
    "lookup without keys": (lookups([[0, 0], [0, 0]]), (4,)),
    "lookup of single keys": (lookups([[1, 1, 0], [0, 1, 1]]), (4,)),
    "lookup then exp": (lookups([[3, 5], [40, 1], [0, 2]], function="exp"), (4,)),
    "lookup of drawn numbers": (drawn_lookups(), (3,)),
    "lookup summed": (lookups([[3, 0, 40, 1, 7], [5, 5, 5, 5, 5]], 1), (4,)),
    "lookup summed to 3, then tanh": (lookups([[5] * 40, [2] * 40, [0] * 40], 3, "tanh"), (4,)),
    "piecewise constant": (pieces([(9, 7), (9, 1), (9, 20)], 4, 0), (4,)),
    "piecewise linear": (pieces([(1, 40), (1, 3)], 1, 1), (1,)),
    "piecewise cubic": (pieces([(14, 6), (14, 9), (14, 6)], 3, 3, nan_is_zero=True), (3,)),
    "piecewise_affine": (additive([(11, 5), (8, 1), (12, 7)], 4, 2), (4,)),
    "piecewise_affine constant to 3": (additive([(7, 4), (3, 9), (3, 1)], 3, 0, 3, "expit"), (3,)),
    "piecewise_affine cubic to 2": (additive([(70, 4), (14, 2)], 7, 3, 2), (7,)),
    "piecewise_affine of many columns": (additive([(150, 2), (70, 3)], 70, 1, nan_is_zero=True), (70,)),
    **{
        f"quadratic of {features} to {targets} in {precision}": (
            [quadratic(features, targets, seed, precision, scaled) for seed in range(3)],
            (features,),
        )
        for features, targets, precision, scaled in (
            (6, 2, "float64", True),
            (9, 1, "float32", False),
            (40, 1, "float64", False),
            (70, 2, "float32", True),
        )
    },
    "nested polynomial": ([polynomial_affine(5, 3, 2, seed) for seed in range(3)], (5,)),
    **{
        f"polynomial of {features}": ([polynomial_affine(features, degree, 1, seed) for seed in range(3)], (features,))
        for features, degree in ((14, 3), (37, 2))
    },
    **{
        f"scale {form}{' in float32' if single else ''}": (scales(form, single), (11,))
        for form in Scale.FORMS
        for single in (False, True)
    },
    "points": (sums_over_points("rbf", 5, (9, 1, 140)), (5,)),
    "points multiplied as matrices": (sums_over_points("rbf", 40, (70, 128, 3)), (40,)),
    "points to 3": (sums_over_points("matern_3_2", 2, (150, 290), 3), (2,)),
    "points by a table": (sums_over_points("table", 3, (9, 40)), (3,)),
    "points to 2 in 3 parts": (sums_over_points("sigmoid", 17, (400, 530), 2, 3), (17,)),
    **{
        f"points {name} of {features} to {targets} in {precision}": (
            sums_over_points(name, features, (150, 256, 129), targets, 2, precision),
            (features,),
        )
        for precision, name, features, targets in (
            ("float32", "rbf", 3, 1),
            ("float32", "matern_5_2", 40, 1),
            ("float32", "laplacian", 9, 1),
            ("float32 pairs", "rbf", 40, 1),
            ("float32 pairs", "matern_1_2", 20, 1),
            ("float32 pairs", "chi2", 9, 1),
            ("ten digits", "rbf", 3, 1),
            ("ten digits", "rbf", 40, 1),
            ("ten digits", "matern_5_2", 20, 3),
            ("ten digits", "chi2", 19, 1),
            ("ten digits", "laplacian", 33, 2),
            ("ten digits", "matern_1_2", 20, 1),
        )
    },
    **{
        f"functions of points{' by products' * by_products}: {name} of {features} in {precision}": (
            functions_of_points(name, features, precision),
            (features,),
        )
        for name, features, precision, by_products in (
            ("rbf", 5, "float64", False),
            ("matern_5_2", 40, "float64", False),
            ("matern_1_2", 9, "float64", False),
            ("rational_quadratic", 40, "float64", True),
            ("rbf", 9, "ten digits", True),
            ("matern_1_2", 40, "ten digits", True),
        )
    },
    "squared norm": ([squared_norm(40, 70, seed) for seed in range(3)], (40,)),
    "squared norm by a triangle": ([squared_norm(70, 50, seed, True) for seed in range(3)], (70,)),
    "expression": (expressions(5, [(CLIPPED, 3), (RATIO, 2), (CHOSEN, 4)]), (5,)),
    "linear leaves": ([linear_leaves(5, leaves, terms, leaves) for leaves, terms in ((3, 2), (9, 5), (1, 1))], (40, 5)),
    "combine": (
        [Combine("product", (1.0 + seed, -0.5), (seed / 3, 2.0), exponent=3.0) for seed in range(3)],
        (1, 5),
    ),
    "combine a sum": (
        [Combine("sum", (0.3, 2.0 + seed, 1.0), (float(seed), 0.0, 0.1)) for seed in range(4)],
        (4, 4, 4),
    ),
    "weighted_median": ([WeightedMedian(np.linspace(1, most, 9)) for most in (0.1, 2, 30)], (9,)),
    **{
        f"power {'inverse ' * inverse}{method}": (powers(method, inverse), (7,))
        for method in Power.METHODS
        for inverse in (False, True)
    },
    "ordered affine": ([ordered_affine(9, seed=seed) for seed in range(5)], (9,)),
    "ordered affine to 3, then expit": ([ordered_affine(37, 3, "expit", seed) for seed in range(3)], (37,)),
    "monomials": ([polynomial(6, 3, seed) for seed in range(4)], (6,)),
    **{
        f"network {'-'.join(map(str, widths))} in {precision}": (
            networks(*widths, precision=precision, **own),
            widths[:1],
        )
        for widths, own in (
            ((5, 9, 1), {"activation": "tanh", "function": "exp"}),
            ((13, 40, 17, 20, 3), {"unused": True}),
        )
        for precision in DenseLayers.PRECISIONS
    },
    "network 9-140-3 in int8": (networks(9, 140, 3, precision="int8"), (9,)),
    "neighbors": (neighbor_members(3, (40, 5, 300, 9), 5), (3,)),
    "neighbors by distance to 2": (neighbor_members(2, (3, 150), 3, 2, weights="distance"), (2,)),
    "neighbors by weighted distance": (neighbor_members(5, (70, 9), 7, weighted=True, weights="distance"), (5,)),
    "neighbors by manhattan": (neighbor_members(2, (33, 1, 130), 1, metric="manhattan"), (2,)),
    "neighbors by chebyshev": (neighbor_members(2, (20, 24), 17, metric="chebyshev", weights="distance"), (2,)),
    "tree_neighbors": (
        [tree_neighbors(2, each, 3, 2, seed=each, numbers=3, weights="distance") for each in (13, 40, 5)],
        (2,),
    ),
    "tree_neighbors in balls": (
        [tree_neighbors(1, each, 2, leaf_size=each // 8, balls=True, seed=3, numbers=9) for each in (16, 70)],
        (1,),
    ),
    "symmetric trees": (
        [
            symmetric_trees(5, [3, 0, 6, 2, 9][: 2 + place] * trees, 2, place, questions=9 + place, function="expit")
            for place, trees in enumerate((1, 20, 3))
        ],
        (5,),
    ),
    "symmetric trees float64": (
        [symmetric_trees(5, [0], dtype=np.float64), symmetric_trees(5, [3] * 9, seed=1, dtype=np.float64)],
        (5,),
    ),
}
"""Members' operations, which are alike, and the widths of their inputs."""

RAGGED = {
    "trees with medians": trees_with_medians(),
    "trees with linear leaves": trees_with_linear_leaves(),
    "norms of rbf": norms_of_functions("rbf", 3, (40, 33, 64)),
    "norms of matern_3_2 of many features": norms_of_functions("matern_3_2", 20, (70, 96)),
    "norms of matern_1_2 in ten digits": norms_of_functions("matern_1_2", 20, (70, 96), "ten digits"),
}
"""Members' operations with other numbers of columns, operations that read these columns, and the width of the rows."""

OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    f"stacked {name}": (stacked(members, 2), (*widths, 1)) for name, (members, widths) in MEMBERS.items()
}
