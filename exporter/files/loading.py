"""Reads fitted estimators from files.

A `.skops` file is read safely in this sense: it may hold only types that are known to run no code of the file's, it may
unpack only to a limited number of bytes, and the numbers that compiled code would trust are checked before any such
code sees them (`soundness.py`). A damaged or crafted file ends in an `ExportError`. Not covered are types that the
caller trusts by name, pickles, and an estimator whose numbers fit together but are not those that were trained. There
is no limit on the time that a well-formed model of absurd size takes.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import joblib
import skops.io

from triton_regressors.defaults import BOOSTER_FILES, LARGEST_MB, MODEL_FILES, PICKLES, PREDICTOR_FILE, TORCH_FILES
from triton_regressors.errors import MissingExtra
from triton_regressors.exporter.boosters.skops_states import checked_models
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.files.booster_files import read_model_file
from triton_regressors.exporter.lowering.soundness import make_sound, one_line
from triton_regressors.extras import EXTRAS, require

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
    "catboost.core.CatBoost",
    "catboost.core.CatBoostRegressor",
    "collections.OrderedDict",
    "functools.partial",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMRegressor",
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
    "sklego.meta._shrinkage_utils.no_shrinkage_function",
    "sklego.meta.grouped_predictor.GroupedPredictor",
    "sklego.meta.grouped_predictor.GroupedRegressor",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBRFRegressor",
    "xgboost.sklearn.XGBRegressor",
    *(f"sklearn.gaussian_process.kernels.{name}" for name in KERNELS),
    *(f"sklearn.metrics._dist_metrics.{name}Distance64" for name in DISTANCES),
)
"""Parts of scikit-learn's estimators, boosters, and scikit-lego's containers, that skops does not trust by itself.

None of them runs code from a file, and a `functools.partial` can only hold a function that is trusted too. Compiled
code reads some of them and trusts their contents: `soundness.py` checks these, and `boosters/skops_states.py` the
boosters.
"""


def load_estimator(
    path: str | Path,
    *,
    trust_pickle: bool = False,
    trusted_types: Sequence[str] = (),
    largest_mb: int = LARGEST_MB,
    missing: float | None = None,
) -> Any:
    """Return the estimator in a file of skops, of a boosting library, or with `trust_pickle` in a pickle.

    A network that `torch.save` wrote is a pickle, too. A directory may hold a predictor of AutoGluon, which is made of
    pickles.

    skops rebuilds an object from types that it trusts. Unpickling runs any code that the file holds, so a pickle is
    refused unless the caller trusts the file. XGBoost, LightGBM and CatBoost read their own files, which hold no code.

    Args:
        path: the file, whose suffix says what it is; or the directory of a predictor.
        trust_pickle: whether a pickle may be loaded.
        trusted_types: further types that skops may load, by their full names.
        largest_mb: how many megabytes a `.skops` file may unpack to.
        missing: the number that stands for a missing value; only XGBoost's own files need it, as they do not hold it.

    Raises:
        ExportError: the file cannot be read, is damaged, or is not trusted.
        MissingExtra: the library that wrote the file is not installed.
    """
    path = Path(path)
    if not os.path.exists(path):  # False, rather than an error, for a name that is too long
        raise ExportError(f"There is no file {path}.")
    if path.is_dir() or path.name == PREDICTOR_FILE:
        return _load_predictor(path if path.is_dir() else path.parent, trust_pickle)
    if not path.is_file():  # reading a pipe, or a device such as /dev/zero, may never end
        raise ExportError(f"{path} is a pipe, a device or a socket; a fitted estimator is a regular file.")
    if path.suffix in BOOSTER_FILES:
        return _read(path, lambda: read_model_file(path, missing))
    if missing is not None:
        raise ExportError(f"{path} itself records what a missing value is. Leave out --missing.")
    if path.suffix in PICKLES:
        if not trust_pickle:
            raise ExportError(
                f"{path} is a pickle, and loading it runs whatever code is in it: if you made this file yourself, "
                "say --trust-pickle; better, save the estimator with skops.io.dump."
            )
        return _read(path, lambda: joblib.load(path))
    if path.suffix in TORCH_FILES:
        return _load_network(path, trust_pickle)
    if path.suffix != ".skops":
        raise ExportError(f"The suffix of {path} is unknown; accepted: {', '.join(MODEL_FILES)}.")
    megabytes = -(-_read(path, lambda: _unpacked_bytes(path, largest_mb * 2**20)) // 2**20)
    if megabytes > largest_mb:
        raise ExportError(
            f"{path} unpacks to {megabytes:,} MB, and at most {largest_mb:,} are read; if you know what it holds, say "
            f"--largest-mb {megabytes}."
        )
    trusted = {*PARTS_OF_ESTIMATORS, *trusted_types}
    unknown = _read(path, lambda: skops.io.get_untrusted_types(file=path))
    untrusted = sorted(set(unknown) - trusted)
    if untrusted:
        raise ExportError(
            f"{path} holds types that are not trusted: {', '.join(untrusted)}; if you know them, name each with "
            "--trust-type."
        )
    estimator = _read(path, lambda: _load_skops(path, set(unknown)))
    _read(path, lambda: make_sound(estimator))
    return estimator


def _load_predictor(path: Path, trust_pickle: bool) -> Any:
    """Return the predictor of AutoGluon in a directory."""
    if not (path / PREDICTOR_FILE).is_file():
        raise ExportError(
            f"{path} is a directory; a fitted estimator is a file, or the directory of an AutoGluon predictor, which "
            f"has a {PREDICTOR_FILE}."
        )
    if not trust_pickle:
        raise ExportError(
            f"{path} holds pickles of AutoGluon, and loading them runs whatever code is in them: if you made this "
            "predictor yourself, say --trust-pickle."
        )
    if find_spec("autogluon") is None or find_spec("autogluon.tabular") is None:
        written = path / "version.txt"
        version = f"=={written.read_text().strip()}" if written.is_file() else ""
        raise MissingExtra(
            f"Reading {path} needs autogluon.tabular, not installed here; `pip install 'autogluon.tabular{version}'` "
            "brings it, best with the extra [all] for every library of its models."
        )
    from autogluon.tabular import TabularPredictor

    return _read(path, lambda: TabularPredictor.load(str(path), verbosity=0))


def _load_network(path: Path, trust_pickle: bool) -> Any:
    """Return the network in a file of `torch.save`, in evaluation mode."""
    if not trust_pickle:
        raise ExportError(
            f"{path} is a pickle of PyTorch, and loading it runs whatever code is in it: if you made this file "
            "yourself, say --trust-pickle."
        )
    import torch

    network = _read(path, lambda: torch.load(path, map_location="cpu", weights_only=False))
    if not isinstance(network, torch.nn.Module):
        raise ExportError(
            f"{path} holds a {type(network).__name__} and no network, as a state_dict does not say what the layers "
            "are. Save the network itself, torch.save(network, path), or export it from Python."
        )
    return network.eval()


def _load_skops(path: Path, types: set[str]) -> Any:
    """Return the contents of a `.skops` file; its `types`, beyond those that skops trusts, are trusted.

    A class that the caller trusts may be derived from a booster's class.
    """
    libraries = {name.partition(".")[0] for name in types} & set(EXTRAS["boosters"])
    if libraries:
        require("boosters", f"Reading {path}", *sorted(libraries))
    if not types <= set(PARTS_OF_ESTIMATORS):
        libraries = {library for library in EXTRAS["boosters"] if find_spec(library) is not None}
    with checked_models(sorted(libraries)):
        return skops.io.load(path, trusted=sorted(types))


def _unpacked_bytes(path: Path, enough: int) -> int:
    """Return how many bytes a `.skops` file unpacks to: each part as often as it is read, and archives within parts.

    Counting, and unpacking, stops once the total exceeds `enough`.
    """
    with zipfile.ZipFile(path) as archive:
        parts = {part.filename: part for part in archive.infolist()}
        total = sum(part.file_size for part in parts.values())
        if total > enough or "schema.json" not in parts:
            return total
        waiting, times = [json.loads(archive.read("schema.json"))], dict.fromkeys(parts, 0)
        while waiting:
            state = waiting.pop()
            if isinstance(state, dict):
                name = state.get("file")
                if isinstance(name, str) and name in times:
                    times[name] += 1
                waiting.extend(state.values())
            elif isinstance(state, list):
                waiting.extend(state)
        total += sum(parts[name].file_size * (count - 1) for name, count in times.items() if count)
        for name in [name for name, count in times.items() if count and total <= enough]:
            with archive.open(name) as part:
                start = part.read(4)
                content = start + part.read() if start == b"PK\x03\x04" else b""
            if content:  # the arrays of a sparse matrix
                with zipfile.ZipFile(io.BytesIO(content)) as inner:
                    total += times[name] * sum(array.file_size for array in inner.infolist())
    return total


def _read(path: Path, read: Any) -> Any:
    try:
        return read()
    except (ExportError, MissingExtra):
        raise
    except Exception as error:  # a damaged file can make the readers raise almost anything
        raise ExportError(f"Cannot read {path}: {_why_not(error)}.") from error


def _why_not(error: Exception) -> str:
    """Return why a file could not be read, and the remedy if one of the user's classes is not found."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (
            f"it holds a class of the module {error.name}, which is not installed. If that is a module of yours, say "
            f"--import {error.name} in its directory"
        )
    if isinstance(error, AttributeError) and "__main__" in str(error):
        return (
            f"it holds a class of a script or a notebook ({one_line(error)}). Move the class to a module of its own, "
            "save the estimator again, and name the module with --import"
        )
    return one_line(error)
