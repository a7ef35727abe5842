"""The shape classes that `launch_shapes.py` measures: models of each, batches to time and shapes to try."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from benchmarks.gpu.workloads import in_order
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.exporter.passes.specialise import specialise
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.affine_kernel import affine_narrow_shape, affine_shape
from triton_regressors.kernels.ops.linear.polynomial_affine import PolynomialAffine, polynomial_affine_shape
from triton_regressors.kernels.ops.linear.quadratic import Quadratic, quadratic_shape
from triton_regressors.kernels.ops.trees.launch import MOST_CACHED, MOST_PLAIN, tree_class, tree_ensemble_shape
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.launch_shapes import LaunchShapes, Shape, key
from triton_regressors.kernels.plan.plan import Operation

INPUT_NUMBERS = 2**26
"""The most numbers that the rows of the largest batch have."""


class Model(NamedTuple):
    """An operation and the width of its rows."""

    operation: Operation
    width: int


@dataclass(frozen=True)
class ShapeClass:
    """The launches of one shape: its key's parts, models, the numbers of rows to time, and the shapes to try.

    The first model is timed. The compiler lays a block out by what it knows of addresses. The others, whose rows are
    aligned differently or which compute something more, could therefore change bits even if the first does not.
    """

    shapes: LaunchShapes
    parts: tuple[int | str, ...]
    models: Sequence[Model]
    rows: Sequence[int]
    candidates: Sequence[Shape]

    @property
    def key(self) -> str:
        """Its name in the table, under the operation's."""
        return key(*self.parts)

    @property
    def default(self) -> Shape:
        """The shape if the table has none."""
        return self.shapes.default(*self.parts)


def grid(default: Shape, **values: Sequence[Any]) -> list[Shape]:
    """Return every combination of values except the default, each as its differences from the default."""
    found = []
    for combination in itertools.product(*values.values()):
        changed = {name: v for name, v in zip(values, combination, strict=True) if default[name] != v}
        if changed:
            found.append(changed)
    return found


def linear() -> Iterator[ShapeClass]:
    """Yield linear models of one target: narrow ones, and rows of whole and masked tiles."""
    for slots, widths in ((1, (1,)), (1, (2,)), (1, (3,)), (2, (7, 5, 6)), (4, (13, 9, 10, 11, 14)), (8, (23, 17, 18))):
        parts = (slots, min(widths[0], 4))
        yield tiles(affine_narrow_shape, parts, widths)
    for block in (4, 8, 16, 32, 64, 128, 256, 512, 1024):
        yield tiles(affine_shape, (block, "whole"), (block, 2048) if block == 1024 else (block,))
        if block >= 16:  # below 24 features only multiples of 4 come in tiles
            middle = 3 * block // 4
            widths = (middle,) if block == 16 else (middle + 4, middle + 5, middle + 6)
            yield tiles(affine_shape, (block, "masked"), widths)


def tiles(shapes: LaunchShapes, parts: tuple[int | str, ...], widths: Sequence[int]) -> ShapeClass:
    """Return linear models of these numbers of features, one of them sparse and with a function."""
    default = shapes.default(*parts)
    rows, models = default["BLOCK_ROWS"], []
    for features in widths:
        weight = np.random.default_rng(features).standard_normal((features, 1))
        models.append(Model(Affine(weight, np.zeros(1)), features))
    weight = np.append(weight[:-1], [[0.0]], axis=0)
    models.append(Model(Affine(weight, np.ones(1), "expit"), features))
    candidates = grid(default, BLOCK_ROWS=(max(rows // 2, 1), rows, 2 * rows), num_warps=(1, 2, 4, 8))
    most = min(INPUT_NUMBERS // widths[0], 2**24)
    return ShapeClass(shapes, parts, models, (1, 4096, most), candidates)


def quadratics() -> Iterator[ShapeClass]:
    """Yield polynomials of degree 2 in each precision."""
    for features, precision in itertools.product((16, 32, 64), Quadratic.PRECISIONS):
        default = quadratic_shape.default(features, precision)
        models = []
        for width, targets, shifted in ((0, 1, 1), (0, 1, 0), (-1, 2, 1), (-2, 1, 1), (-4, 1, 1)):
            count = features + width
            rng = np.random.default_rng(count)
            form = np.triu(rng.standard_normal((targets, count, count)))
            shift, line = shifted * rng.standard_normal(count), rng.standard_normal((targets, count))
            operation = Quadratic(shift, np.ones(count), form, line, np.zeros(targets), precision=precision)
            models.append(Model(operation, count))
        stages: dict[str, Sequence[int]] = {"STAGES" if features <= 32 else "num_stages": (2, 3, 4)}
        candidates = grid(default, BLOCK_ROWS=(32, 64, 128), num_warps=(1, 2, 4), **stages)
        yield ShapeClass(quadratic_shape, (features, precision), models, (1, 4096, 2**20), candidates)


def polynomials() -> Iterator[ShapeClass]:
    """Yield polynomials of degree 3 that are too large to nest."""
    for features in (16, 32):
        default = polynomial_affine_shape.default(features, 3)
        models = []
        for width, targets in ((0, 1), (-1, 2), (-2, 1)):
            count = features + width
            rng = np.random.default_rng(count)
            indices = np.array(list(itertools.combinations_with_replacement(range(count + 1), 3)), dtype=np.int32)
            weight = rng.standard_normal((len(indices), targets))
            shift, factor = rng.standard_normal(count), np.ones(count)
            operation = PolynomialAffine(
                indices=indices, shift=shift, factor=factor, weight=weight, intercept=np.zeros(targets)
            )
            models.append(Model(operation, count))
        candidates = grid(default, BLOCK_ROWS=(8, 16, 32, 64), num_warps=(1, 2, 4), num_stages=(2, 3))
        yield ShapeClass(polynomial_affine_shape, (features, 3), models, (1, 4096, 2**18), candidates)


def trees(toy: bool = False) -> Iterator[ShapeClass]:
    """Yield ensembles of trees: small ones, ones whose nodes fit a cache, and larger ones; and ordered sums of them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300 if toy else 20_000, 64)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + rng.standard_normal(len(X))
    count, jobs = (5, None) if toy else (100, -1)
    boosting = HistGradientBoostingRegressor(max_iter=3 * count, early_stopping=False, random_state=0)
    shallow = RandomForestRegressor(count, max_depth=10, max_features=16, n_jobs=jobs, random_state=0)
    grown = RandomForestRegressor(count, max_features=16, n_jobs=jobs, random_state=0)
    for estimator, nodes, packed in (
        (boosting, MOST_CACHED, True),
        (boosting, MOST_CACHED, False),
        (shallow, MOST_PLAIN, True),
        (grown, 2**22, True),
    ):
        summed = ensemble(estimator.fit(X, y), packed)
        kinds = [("one", summed), *([("ordered", in_order(summed))] if packed else [])]
        for (kind, operation), rows in itertools.product(kinds, ((1, 128), (1024, 4096), (65536, 2**20))):
            parts = (*tree_class(rows[0], 100, nodes, 64, packed), kind)
            default = tree_ensemble_shape.default(*parts)
            many, block_rows, elements = rows[0] == 65536, default["BLOCK_ROWS"], default["ELEMENTS"]
            plain = packed and nodes <= MOST_PLAIN
            few_trees = (512, 1024) if many and nodes > MOST_PLAIN and kind == "one" else ()
            candidates = grid(
                default,
                BLOCK_ROWS=(1, 2) if rows[0] == 1 else (block_rows // 2, block_rows, 2 * block_rows),
                ELEMENTS=(elements // 2, elements) if rows[0] == 1 else (*few_trees, elements, 2 * elements),
                **({"PARTS": (False, True)} if few_trees else {}),
                FORM=("quads", "plain") if plain else (default["FORM"],),
                num_warps=(4, 8, 16) if rows[0] == 1 else (4, 8),
                maxnreg=(64, None) if many and packed else (default["maxnreg"],),
            )
            yield ShapeClass(tree_ensemble_shape, parts, [Model(operation, 64)], rows, candidates)


OPERATIONS: dict[str, Callable[[], Iterator[ShapeClass]]] = {
    "affine": linear,
    "quadratic": quadratics,
    "polynomial_affine": polynomials,
    "tree_ensemble": trees,
}


def shape_classes(chosen: Iterable[str], toy: bool = False) -> Iterator[ShapeClass]:
    """Yield the shape classes of the chosen operations; toys are small if a model takes long to make."""
    for name in chosen:
        yield from trees(toy) if name == "tree_ensemble" else OPERATIONS[name]()


def ensemble(estimator: BaseEstimator, packed: bool) -> TreeEnsemble:
    """Return the trees of a fitted estimator, for float32 rows if they are to be packed, else for float64 rows."""
    plan = lower(estimator).plan
    if packed:
        plan = specialise(plan, "float32")
    (operation,) = [step.operation for step in plan.steps if isinstance(step.operation, TreeEnsemble)]
    return operation
