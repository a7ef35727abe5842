"""optbinning's BinningProcess: every row of bins, special codes and unknown values, and what is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from optbinning import BinningProcess
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tests.exporter.catalogue.cases_optbinning import CODES, METRICS, process, with_holes
from tests.exporter.data import small
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.engine.runner import Runner

TABLE, Y = with_holes()
LEVELS = TABLE.assign(level=np.random.default_rng(0).integers(0, 5, len(TABLE)))


def fitted(binning: BinningProcess, X: Any = TABLE, y: Any = Y) -> Pipeline:
    return make_pipeline(binning, Ridge()).fit(X, y)


PROCESSES: dict[str, Any] = {
    "default": process,
    "special": lambda: process(special_codes=[-1.0, "Paris"]),
    "codes": lambda: process(**CODES, **METRICS),
    "selected": lambda: process(selection_criteria={"quality_score": {"min": 0.1}}, fixed_variables=["job"]),
    "unknown": lambda: process(binning_fit_params={"city": {"cat_unknown": 7.0}}),
    "levels": lambda: BinningProcess(list(LEVELS.columns), categorical_variables=["city", "job", "level"]),
    "splits": lambda: process(binning_fit_params={"age": {"user_splits": [30.0, 40.0, 50.0]}}),
    "constant": lambda: process(binning_fit_params={"age": {"max_n_prebins": 2, "min_prebin_size": 0.5}}),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_bins_are_those_of_the_process(name: str, engine: str) -> None:
    table = LEVELS if name == "levels" else TABLE
    pipeline = fitted(PROCESSES[name](), table)
    binning = pipeline[0]
    edges = [
        np.ravel(binning.get_binned_variable(variable).splits).astype(float).tolist() for variable in ("age", "income")
    ]
    numbers = [number for each in edges for split in each for number in (split, np.nextafter(split, -np.inf))]
    rows = table.sample(len(numbers) + 40, replace=True, random_state=0, ignore_index=True)
    rows.loc[: len(numbers) - 1, "age"] = numbers
    rows.loc[: len(numbers) - 1, "income"] = numbers[::-1]
    rows.loc[::6, "city"] = "Berlin"
    rows.loc[::8, ["age", "income"]] = [-1.0, np.nextafter(-1.0, 0.0)]
    compilation = compile_estimator(pipeline, sample=rows)
    assert compilation.report.within
    found = Runner(compilation.plan, engine=engine, max_rows=len(rows)).predict(compilation.sample.X)["y"][:, 0]
    assert np.abs(found - pipeline.predict(rows)).max() <= 1e-5 * Y.std()


def test_rows_may_be_drawn_and_a_matrix_has_the_variables_names() -> None:
    X, y = small()
    pipeline = fitted(BinningProcess(list("abcde")), X, y)
    for sample in (X, None, pd.DataFrame(X, columns=list("abcde"))[list("edcba")]):
        assert compile_estimator(pipeline, sample=sample).report.within
    assert compile_estimator(fitted(process())).report.drawn


@pytest.mark.parametrize("metric", ["woe", "event_rate", "indices"])
def test_a_process_of_a_binary_target(metric: str) -> None:
    options = {} if metric == "woe" else {"binning_transform_params": {name: {"metric": metric} for name in TABLE}}
    binning = process(**options).fit(TABLE, (Y.median() < Y).astype(int))
    pipeline = Pipeline([("bins", binning), ("model", Ridge().fit(binning.transform(TABLE), Y))])
    assert compile_estimator(pipeline, sample=TABLE).report.within


def strings() -> Any:
    binning = process(binning_transform_params={name: {"metric": "bins"} for name in TABLE})
    return make_pipeline(binning, OneHotEncoder(handle_unknown="ignore"), Ridge()).fit(TABLE, Y)


def nothing() -> Any:
    pipeline = fitted(process())
    pipeline[0]._support = np.zeros(4, dtype=bool)
    return pipeline


REFUSED: dict[str, tuple[Any, str]] = {
    "bins": (strings, "the metric of city is 'bins', which are strings; use 'indices'."),
    "nothing": (nothing, "it selects no variable."),
    "unfitted": (
        lambda: Pipeline([("binningprocess", process()), ("model", Ridge().fit(TABLE[["age"]].fillna(0.0), Y))]),
        "none of its attributes ends in '_', as those of a fitted one do; call fit first, or give its class a "
        "__sklearn_is_fitted__.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    fit, why = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(fit(), sample=TABLE)
    assert str(raised.value) == f"Cannot export BinningProcess (step 'binningprocess'): {why}"
