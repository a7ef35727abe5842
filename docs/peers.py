"""Measures other tools on the cases of the test catalogue: `python -m docs.peers [--only PATTERN]`.

Run it in a separate environment with the peers, which does not need this package's torch and triton:

    python3 -m venv /tmp/peers
    /tmp/peers/bin/pip install torch==2.13.0 scikit-learn==1.9.1 pandas skl2onnx==1.20.0 onnxruntime==1.23.2 \
        hummingbird-ml==0.4.12 treelite==4.8.1 ml_dtypes xgboost-cpu==3.2.0 lightgbm==4.7.0 catboost==1.2.10
    /tmp/peers/bin/pip install --no-deps 'onnx==1.20.*' 'protobuf<7' onnxmltools==1.16.0 onnxconverter-common==1.16.0 \
        --editable .
    /tmp/peers/bin/python -m docs.peers

Each installed peer converts each case's fitted estimator. The answers to the rows that docs/coverage.py measures,
rounded to float32, are compared with the estimator's own float64 answers to the rounded rows, so that the conversion is
measured and not the rounding. For each answer docs/coverage.json gets the largest error in standard deviations, or in a
few words the reason why there is none. Options that improve a tool's answers are set, and its best answer counts. A
separate process runs the tools, so that a crash or an endless loop is a result.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
import importlib.metadata
import itertools
import multiprocessing
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pandas as pd
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import KNNImputer
from sklearn.linear_model import ARDRegression, BayesianRidge
from sklearn.neighbors import KNeighborsRegressor, KNeighborsTransformer, RadiusNeighborsRegressor

from docs.coverage import ROWS, WRONG, record, rounded, show_progress, versions_of, walk
from tests.exporter.catalogue.cases import CASES
from triton_regressors.kernels.format.parity import measure, units

SECONDS = 60.0
"""The time limit of a peer for a case, in seconds."""

PACKAGES = {
    *("catboost", "hummingbird-ml", "lightgbm", "numpy", "onnx", "onnxmltools", "onnxruntime", "scikit-learn"),
    *("skl2onnx", "torch", "treelite", "xgboost-cpu"),
}

WITH_CDIST = (
    GaussianProcessRegressor,
    KNeighborsRegressor,
    RadiusNeighborsRegressor,
    KNeighborsTransformer,
    KNNImputer,
)
WITH_STD = (BayesianRidge, ARDRegression, GaussianProcessRegressor)

Options = dict[type, dict[str, Any]]

Found = dict[str, float | str | None]
"""By the type of the graph: the largest error, None for an answer that is not finite, or the reason for no answer."""

Attempt = Callable[[], Any]
"""A function that converts a model, asks it, and returns the answer `[rows, ...]`."""


# The peers: for each the ways to get an answer, by the type of the graph, in the order of trial


def skl2onnx(estimator: Any, X: Any, output: str) -> Iterator[tuple[str, Attempt]]:
    """Return ways by graphs in float32 and float64, with and without the operator CDist, with one or several inputs.

    onnxruntime only takes strings in a column of strings: a missing one is the text of NaN or None, or empty.
    onnxmltools converts XGBoost's and LightGBM's regressors at any place in a model; CatBoost itself converts its own
    ones if they stand alone.
    """
    if type(estimator).__name__ == "CatBoostRegressor":
        yield "float32", functools.partial(_catboost_graph, estimator, X)
        return
    std: Options = {cls: {"return_std": True} for cls in WITH_STD} if output == "std" else {}
    cdist: Options = {**std, **{cls: {"optim": "cdist", **std.get(cls, {})} for cls in WITH_CDIST}}

    def attempt(graph: str, options: Options, columns: bool, missing: str) -> Any:
        inputs = _columns(estimator, X, graph, missing) if columns else {"X": X.astype(graph)}
        with converting():
            import onnxruntime
            from skl2onnx import convert_sklearn
            from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType

            _register_boosters()
            numbers = DoubleTensorType if graph == "float64" else FloatTensorType
            types = [
                (name, (StringTensorType if values.dtype == object else numbers)([None, values.shape[1]]))
                for name, values in inputs.items()
            ]
            opset = {"": 15, "ai.onnx.ml": 3} if _has_boosters(estimator) else None
            model = convert_sklearn(estimator, initial_types=types, options=options, target_opset=opset)
            model = model.SerializeToString()
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        read = {each.name for each in session.get_inputs()}
        answers = session.run(None, {name: values for name, values in inputs.items() if name in read})
        return answers[1 if output == "std" else 0]

    missing = ("nan", "None", "") if isinstance(X, pd.DataFrame) and X.isna().any(axis=None) else ("",)
    for way in itertools.product(("float32", "float64"), (cdist, std), by_columns(estimator, X), missing):
        yield way[0], functools.partial(attempt, *way)


@functools.cache
def _register_boosters() -> None:
    """Make skl2onnx convert XGBoost's and LightGBM's regressors as onnxmltools does."""
    from lightgbm import LGBMRegressor
    from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import calculate_linear_regressor_output_shapes as shapes
    from xgboost import XGBRegressor, XGBRFRegressor

    for cls, convert, options in (
        (LGBMRegressor, convert_lightgbm, {"split": None}),
        (XGBRegressor, convert_xgboost, None),
        (XGBRFRegressor, convert_xgboost, None),
    ):
        update_registered_converter(cls, f"Boosted{cls.__name__}", shapes, convert, options=options)


def _has_boosters(estimator: Any) -> bool:
    """Return whether an estimator is XGBoost's or LightGBM's, or contains one."""
    return any(type(part).__module__.startswith(("xgboost", "lightgbm")) for part in walk(estimator))


def _catboost_graph(estimator: Any, X: Any) -> Any:
    """Return the answers of CatBoost's own graph."""
    with tempfile.TemporaryDirectory() as directory, converting():
        import onnxruntime

        path = os.path.join(directory, "model.onnx")
        estimator.save_model(path, format="onnx")
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: np.asarray(X, dtype=np.float32)})[0]


def hummingbird(estimator: Any, X: Any, output: str) -> Iterator[tuple[str, Attempt]]:
    """Return ways by a torch model for an array or for columns; it gets copies because it may overwrite its input."""

    def attempt(columns: bool, config: dict[str, Any]) -> Any:
        rows = X.copy()
        if columns and not isinstance(X, pd.DataFrame):
            rows = pd.DataFrame(rows, columns=estimator.feature_names_in_)
        with converting():
            from hummingbird.ml import convert

            if output == "std":
                raise ValueError("gives no standard deviation")
            model = convert(estimator, "torch", rows.copy(), extra_config=config)
        return model.predict(rows)

    for columns, config in itertools.product(by_columns(estimator, X), ({}, {"batch_size": len(X)})):
        yield "float32", functools.partial(attempt, columns, config)


def treelite(estimator: Any, X: Any, output: str) -> Iterator[tuple[str, Attempt]]:
    """Return the way by treelite's model of the trees, run by treelite's own interpreter."""

    def attempt() -> Any:
        with converting():
            import treelite.frontend
            import treelite.gtil
            import treelite.sklearn

            if output == "std":
                raise ValueError("gives no standard deviation")
            library = type(estimator).__module__.partition(".")[0]
            if library == "xgboost":
                model = treelite.frontend.from_xgboost(estimator.get_booster())
            elif library == "lightgbm":
                model = treelite.frontend.from_lightgbm(estimator.booster_)
            else:
                model = treelite.sklearn.import_model(estimator)
        return treelite.gtil.predict(model, X.copy())

    yield "float32", attempt


PEERS = {"skl2onnx": skl2onnx, "hummingbird-ml": hummingbird, "treelite": treelite}


def by_columns(estimator: Any, X: Any) -> tuple[bool, ...]:
    """Return whether to give columns by name, in order of trial: yes for a table, otherwise no, then yes if named."""
    if isinstance(X, pd.DataFrame):
        return (True,)
    return (False, True) if hasattr(estimator, "feature_names_in_") else (False,)


def _columns(estimator: Any, X: Any, graph: str, missing: str) -> dict[str, np.ndarray]:
    """Return each column by its name `[rows, 1]`: numbers of the graph's type, or strings."""
    if not isinstance(X, pd.DataFrame):
        X = pd.DataFrame(X, columns=estimator.feature_names_in_)
    return {
        name: values.fillna(missing).to_numpy(object)[:, None]
        if values.dtype == object
        else values.to_numpy(graph)[:, None]
        for name, values in X.items()
    }


class ConversionError(Exception):
    """A peer does not convert an estimator; the message says why."""


@contextlib.contextmanager
def converting() -> Iterator[None]:
    """Raise the errors of a conversion as another class than those of the converted model."""
    try:
        yield
    except Exception as error:
        raise ConversionError(_short(error)) from error


# Asking them


def ask(peer: str, name: str) -> dict[str, Found]:
    """Return a peer's results for a case: for each output, and each type of graph that was tried, an error or a reason.

    The first right answer counts, otherwise the best one, otherwise the last reason.
    """
    case = CASES[name]
    estimator, rows = case.fitted()
    X = in_float32(rows)
    found: dict[str, Found] = {}
    for output, expected in case.answers(X).items():
        asked = case.gives_std(estimator) if output == "std" else estimator
        errors: Found = {}
        for graph, attempt in PEERS[peer](asked, X[:ROWS], output):
            if any(isinstance(error, float) and error <= WRONG for error in errors.values()):
                break
            error = _error(attempt, expected)
            if graph not in errors or _rank(error) <= _rank(errors[graph]):
                errors[graph] = error
        if isinstance(errors.get("float64"), str) and isinstance(errors["float32"], str):
            del errors["float64"]
        found[output] = errors
    return found


def in_float32(rows: Any) -> Any:
    """Return rows with their numbers rounded to float32, in float64 as before."""
    if not isinstance(rows, pd.DataFrame):
        return rows.astype(np.float32).astype(np.float64)
    numbers = rows.select_dtypes("number").columns
    return rows.assign(**{name: rows[name].astype(np.float32).astype(np.float64) for name in numbers})


def _error(attempt: Attempt, expected: np.ndarray) -> float | str | None:
    """Return the answer's largest error, None if it is not finite, or the reason why there is no such answer."""
    try:
        answer = np.asarray(attempt())
    except ConversionError as refusal:
        return f"does not convert: {refusal}"
    except Exception as error:
        return f"raises: {_short(error)}"
    if len(answer.shape) == 0 or len(answer) != ROWS or answer.size != expected[:ROWS].size:
        return f"shape {list(answer.shape)}, not {list(expected[:ROWS].shape)}"
    answer = answer.reshape(ROWS, -1).astype(np.float32)
    return rounded(measure(answer, expected[:ROWS], units(expected)).max_error)


def _rank(error: float | str | None) -> tuple[int, float]:
    """Return a sorting key: smaller errors before larger ones, then answers without an error, then other reasons."""
    if isinstance(error, float):
        return 0, error
    return (1 if error is None or error.startswith("shape") else 2), 0.0


def _short(error: Exception) -> str:
    """Return the error's kind and the beginning of its message, without parts that differ from run to run."""
    text = re.sub(r"0x[0-9a-f]+", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text}"[:100]


def serve(connection: Connection) -> None:
    """Answer one (peer, case) after the other, in a process that may crash."""
    with open(os.devnull, "w") as nowhere:  # onnxruntime and hummingbird write to the file itself
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        connection.send(None)  # ready
        while True:
            connection.send(ask(*connection.recv()))


class Worker:
    """A process that answers, restarted after it crashed or was stopped."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._connection.recv()

    def ask(self, peer: str, name: str) -> dict[str, Found]:
        """Return the result of `ask`, or that the process crashed or took too long."""
        self._connection.send((peer, name))
        try:
            if self._connection.poll(SECONDS):
                found: dict[str, Found] = self._connection.recv()
                return found
            reason = f"does not end within {SECONDS:.0f} s"
        except EOFError:
            reason = "crashes"
        self._process.kill()
        self._process.join()
        self._start()
        return {output: {"float32": reason} for output in CASES[name].expected()}


def main() -> int:
    """Ask every installed peer about every case and record its answers."""
    parser = argparse.ArgumentParser(prog="python -m docs.peers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="the cases to ask about, as in 'ridge*'")
    pattern = parser.parse_args().only
    installed = {distribution.metadata["Name"] for distribution in importlib.metadata.distributions()}
    peers = [peer for peer in PEERS if peer in installed]
    names = [name for name in sorted(CASES) if fnmatch.fnmatch(name, pattern)]
    worker = Worker()
    found: dict[str, dict[str, dict[str, Found]]] = {}
    start = time.monotonic()
    for number, name in enumerate(names, 1):
        found[name] = {peer: worker.ask(peer, name) for peer in peers}
        show_progress(number, len(names), start)
    record("peers", versions_of(installed & PACKAGES), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
