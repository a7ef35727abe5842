"""Reads fitted estimators from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import joblib
import skops.io

from triton_regressors.exporter.errors import ExportError

PICKLES = (".joblib", ".pkl", ".pickle")

KERNELS = (
    "ConstantKernel",
    "DotProduct",
    "ExpSineSquared",
    "Exponentiation",
    "Matern",
    "PairwiseKernel",
    "Product",
    "RBF",
    "RationalQuadratic",
    "Sum",
    "WhiteKernel",
)
DISTANCES = (
    "BrayCurtis",
    "Canberra",
    "Chebyshev",
    "Euclidean",
    "Hamming",
    "Haversine",
    "Jaccard",
    "Mahalanobis",
    "Manhattan",
    "Minkowski",
    "RogersTanimoto",
    "RussellRao",
    "SEuclidean",
    "SokalMichener",
    "SokalSneath",
)
PARTS_OF_ESTIMATORS = (
    "builtins.object",
    "functools.partial",
    "numpy.amax",
    "numpy.amin",
    "numpy.clip",
    "numpy.dtype",
    "numpy.floating",
    "numpy.integer",
    "numpy.max",
    "numpy.mean",
    "numpy.median",
    "numpy.min",
    "numpy.number",
    "numpy.sum",
    "scipy._lib.array_api_compat.numpy._aliases.asarray",
    "scipy.interpolate._bsplines.BSpline",
    "scipy.sparse._csr.csr_matrix",
    "sklearn._loss.loss.HalfGammaLoss",
    "sklearn._loss.loss.HalfPoissonLoss",
    "sklearn._loss.loss.HalfTweedieLoss",
    "sklearn._loss.loss.HalfTweedieLossIdentity",
    "sklearn.cluster._bisect_k_means._BisectingTree",
    "sklearn.cluster._kmeans._kmeans_single_elkan",
    "sklearn.cluster._kmeans._kmeans_single_lloyd",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.feature_selection._univariate_selection.f_classif",
    "sklearn.feature_selection._univariate_selection.f_regression",
    "sklearn.feature_selection._univariate_selection.r_regression",
    "sklearn.impute._iterative.IterativeImputer",
    "sklearn.impute._iterative._ImputerTriplet",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._search_successive_halving.HalvingGridSearchCV",
    "sklearn.model_selection._search_successive_halving.HalvingRandomSearchCV",
    "sklearn.model_selection._split.KFold",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils.validation.check_array",
    *(f"sklearn.gaussian_process.kernels.{name}" for name in KERNELS),
    *(f"sklearn.metrics._dist_metrics.{name}Distance64" for name in DISTANCES),
)
"""Parts of scikit-learn's estimators that skops does not trust by itself.

None of them runs code from a file, and a partial can only be one of a function that is trusted too.
"""


def load_estimator(path: Path, *, trust_pickle: bool = False, trusted_types: Sequence[str] = ()) -> Any:
    """Return the estimator in a `.skops` file, or with `trust_pickle` in a `.joblib`, `.pkl` or `.pickle` file.

    skops rebuilds an object from types it trusts; `trusted_types` names further ones. Unpickling runs whatever code
    the file holds, which is why it is refused unless the caller trusts the file. Raises `ExportError`.
    """
    if not path.exists():
        raise ExportError(f"There is no file {path}.")
    if path.is_dir():
        raise ExportError(f"{path} is a directory; a fitted estimator is a .skops, .joblib or .pkl file.")
    if path.suffix in PICKLES:
        if not trust_pickle:
            raise ExportError(
                f"{path} is a pickle, and loading it runs whatever code is in it: if you made this file yourself, "
                "say --trust-pickle; better, save the estimator with skops.io.dump."
            )
        return _read(path, lambda: joblib.load(path))
    if path.suffix != ".skops":
        raise ExportError(f"Cannot tell what {path} is by its suffix; .skops, .joblib, .pkl and .pickle are read.")
    trusted = {*PARTS_OF_ESTIMATORS, *trusted_types}
    unknown = _read(path, lambda: skops.io.get_untrusted_types(file=path))
    untrusted = sorted(set(unknown) - trusted)
    if untrusted:
        raise ExportError(
            f"{path} holds types that are not trusted: {', '.join(untrusted)}; if you know them, name each with "
            "--trust-type."
        )
    return _read(path, lambda: skops.io.load(path, trusted=sorted(set(unknown) & trusted)))


def _read(path: Path, read: Any) -> Any:
    try:
        return read()
    except Exception as error:  # a damaged file can make the readers raise almost anything
        raise ExportError(f"Cannot read {path}: {type(error).__name__}: {error}.") from error
