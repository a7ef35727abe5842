"""Reads fitted estimators from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import joblib
import skops.io

from triton_regressors.exporter.errors import ExportError

PICKLES = (".joblib", ".pkl", ".pickle")

PARTS_OF_ESTIMATORS = (
    "scipy.sparse._csr.csr_matrix",
    "sklearn._loss.loss.HalfGammaLoss",
    "sklearn._loss.loss.HalfPoissonLoss",
    "sklearn._loss.loss.HalfTweedieLoss",
    "sklearn._loss.loss.HalfTweedieLossIdentity",
    "sklearn.feature_selection._univariate_selection.f_classif",
    "sklearn.feature_selection._univariate_selection.f_regression",
    "sklearn.feature_selection._univariate_selection.r_regression",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._search_successive_halving.HalvingGridSearchCV",
    "sklearn.model_selection._search_successive_halving.HalvingRandomSearchCV",
    "sklearn.model_selection._split.KFold",
)
"""Parts of scikit-learn's estimators that skops does not trust by itself; none of them runs code from a file."""


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
