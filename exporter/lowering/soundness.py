"""Checks that the parts of an estimator fit together before compiled code reads them.

The types that a file may hold run no code of the file's. But scikit-learn's and scipy's compiled code trusts the
numbers that its own `fit` wrote: a child that is its own ancestor is descended for ever, and an index beyond its array
reads, or writes, whatever lies there. So every part of an estimator from a file that such code reads is looked at
first: decision trees, HistGradientBoosting's trees and categories, support vectors, splines and sparse matrices. The
search trees of neighbours are built anew from the training points. What other parts hold is read by Python, which
raises errors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import numpy as np
import scipy.sparse
from scipy.interpolate import BSpline
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.neighbors import BallTree, KDTree
from sklearn.neighbors._base import NeighborsBase
from sklearn.svm import SVR, NuSVR
from sklearn.tree._tree import Tree

from triton_regressors.errors import TritonRegressorsError
from triton_regressors.exporter.errors import ExportError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

NO_CHILD = -1
"""The left child of a leaf."""

SET_WORDS = 8
"""The length of a set of HistGradientBoosting's categories, in 32-bit words."""


SPARSE = tuple(type(scipy.sparse.eye(2, format=form)) for form in ("csr", "csc", "bsr")) + tuple(
    getattr(scipy.sparse, f"{form}_array") for form in ("csr", "csc", "bsr")
)


def make_sound(estimator: Any) -> None:
    """Check all that an estimator holds, and build the search trees in it anew.

    Raises:
        ValueError: in one clause that names the part, something does not fit together.
    """
    for part in list(_parts(estimator)):
        for check in [check for kind, check in CHECKS.items() if isinstance(part, kind)]:
            try:
                check(part)
            except Exception as error:  # what is missing or of another type can raise almost anything
                raise ValueError(f"its {type(part).__name__} does not hold together: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """Return an error's first line without its full stop, and with its type where that says more than the words."""
    words = (str(error).splitlines() or [""])[0].rstrip(".")
    return words if isinstance(error, ValueError) and words else f"{type(error).__name__}: {words}".rstrip(": ")


def in_one_sentence(compiling: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Have a function of an estimator raise `ExportError`, naming its class, for whatever else it raises."""

    @functools.wraps(compiling)
    def compile_or_refuse(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        try:
            return compiling(*arguments, **options)
        except Exception as error:
            if isinstance(error, TritonRegressorsError):
                raise
            subject = type(arguments[0]).__name__ if arguments else "the estimator"
            if "__sklearn_tags__" in str(error):  # how scikit-learn says so, in a thousand characters
                raise ExportError(
                    f"Cannot export {subject}: its own predict fails, because a part of it is not a scikit-learn "
                    "estimator. Derive the class of that part from sklearn.base.BaseEstimator, and fit it again."
                ) from error
            raise ExportError(
                f"Cannot export {subject}: it does not behave like a fitted one ({one_line(error)})."
            ) from error

    return compile_or_refuse


def check_nodes(left: np.ndarray, right: np.ndarray, inner: np.ndarray) -> None:
    """Raise `ValueError` unless nodes, `[nodes]` each, are a tree with its root first.

    Each node but the root must be the child of one node, and come after it.

    Args:
        left: the left children's numbers.
        right: the right children's.
        inner: whether a node has children.
    """
    children = np.stack([left[inner], right[inner]]).astype(np.int64)
    if ((children <= np.flatnonzero(inner)) | (children >= len(inner))).any():
        raise ValueError("a node's child does not come after it in its tree")
    if (np.bincount(children.ravel(), minlength=len(inner)) != (np.arange(len(inner)) > 0)).any():
        raise ValueError("a node is not the child of one other node")


def _parts(estimator: Any) -> Iterator[Any]:
    """Yield everything that can be reached from an estimator, each once."""
    seen: dict[int, Any] = {}
    waiting = [estimator]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, str | bytes | int | float | np.generic | type):
            continue
        seen[id(part)] = part
        yield part
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list | tuple | set | frozenset):
            waiting.extend(part)
        elif isinstance(part, np.ndarray) and part.dtype == object:
            waiting.extend(part.ravel().tolist())
        waiting.extend(getattr(part, "__dict__", {}).values())


def _check_tree(tree: Any) -> None:
    if not 0 < tree.node_count <= tree.capacity:
        raise ValueError(f"a tree counts {tree.node_count} nodes and has {tree.capacity}")
    inner = tree.children_left != NO_CHILD
    check_nodes(tree.children_left, tree.children_right, inner)
    _check_features(tree.feature[inner], tree.n_features)


def _check_boosting(model: HistGradientBoostingRegressor) -> None:
    if not hasattr(model, "_predictors"):
        return
    categorical = np.asarray(model._bin_mapper.is_categorical_, dtype=bool)
    for predictor in (predictor for stage in model._predictors for predictor in stage):
        nodes = predictor.nodes[predictor.nodes["is_leaf"] == 0]
        _check_features(nodes["feature_idx"], len(categorical))
        if not categorical[nodes["feature_idx"][nodes["is_categorical"] > 0]].all():
            raise ValueError("a node asks for the category of a feature that has none")


def _check_predictor(predictor: Any) -> None:
    nodes, sets = predictor.nodes, predictor.raw_left_cat_bitsets
    inner = nodes["is_leaf"] == 0
    if not len(nodes):
        raise ValueError("a tree has no nodes")
    check_nodes(nodes["left"], nodes["right"], inner)
    asked = nodes["bitset_idx"][inner & (nodes["is_categorical"] > 0)]
    if sets.dtype != np.uint32 or sets.ndim != 2 or sets.shape[1] != SET_WORDS or (asked >= len(sets)).any():
        raise ValueError("a node's set of categories is not there")


def _check_features(features: np.ndarray, count: int) -> None:
    if ((features < 0) | (features >= count)).any():
        raise ValueError(f"a node asks for a feature that is not in [0, {count})")


def _check_gradient_boosting(model: GradientBoostingRegressor) -> None:
    if np.shape(getattr(model, "estimators_", [[0]]))[1:] != (1,):
        raise ValueError("estimators_ must be [stages, 1]")


def _check_support_vectors(model: Any) -> None:
    if not hasattr(model, "support_vectors_"):
        return
    count = np.shape(model.support_vectors_)[0]
    shapes = {"support_": (count,), "_dual_coef_": (1, count), "_intercept_": (1,), "_n_support": (2,)}
    for name, shape in shapes.items():
        if np.shape(getattr(model, name)) != shape:
            raise ValueError(f"{name} must be {list(shape)}")


def _check_spline(spline: BSpline) -> None:
    knots, degree = np.asarray(spline.t, dtype=np.float64), spline.k
    count = len(knots) - degree - 1
    if degree < 0 or count <= degree or len(spline.c) < count or not (np.diff(knots) >= 0).all():
        raise ValueError(f"{len(knots)} knots in ascending order do not go with degree {degree}")


def _rebuild_search(neighbors: Any) -> None:
    """Build the search tree anew from the training points; what was fitted on a tree is refused when it is lowered."""
    tree, metric = getattr(neighbors, "_tree", None), getattr(neighbors, "effective_metric_", None)
    if tree is None or not isinstance(metric, str) or not hasattr(neighbors, "n_features_in_"):
        return
    if not isinstance(tree, KDTree | BallTree):
        raise ValueError(f"_tree is a {type(tree).__name__}")
    parameters = neighbors.effective_metric_params_
    neighbors._tree = type(tree)(neighbors._fit_X, neighbors.leaf_size, metric=metric, **parameters)


CHECKS: dict[Any, Callable[[Any], None]] = {
    Tree: _check_tree,
    TreePredictor: _check_predictor,
    HistGradientBoostingRegressor: _check_boosting,
    GradientBoostingRegressor: _check_gradient_boosting,
    (SVR, NuSVR): _check_support_vectors,
    NeighborsBase: _rebuild_search,
    BSpline: _check_spline,
    SPARSE: lambda matrix: matrix.check_format(full_check=True),
}
"""The check of each type."""
