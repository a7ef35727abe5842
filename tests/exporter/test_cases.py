"""Every case of the catalogue, compiled and compared with scikit-learn's own answers."""

import itertools

import numpy as np
import pytest

from tests.exporter.catalogue.cases import CASES, Case
from tests.exporter.catalogue.compiled import compiled, matrix
from tests.kernels.operations import run_plan
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.registry import lowerings, qualified_name
from triton_regressors.exporter.passes.cost import cost
from triton_regressors.exporter.passes.optimise import fuse
from triton_regressors.exporter.passes.precision import EXACT
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.parity import Parity, measure, units
from triton_regressors.kernels.ops.linear.affine import Affine

TOLERANCE = 1e-5

# One unit in the last place cannot be promised where a prediction is so near zero that the float64 sums themselves,
# scikit-learn's and ours, are not sure of it.
FLOAT64_NOISE = 1e-10

SCHEDULE = (
    *("look up at once", "select columns in place", "fuse dense layers"),
    "choose precision",
)


def parities(case: Case, found: dict[str, np.ndarray]) -> dict[str, Parity]:
    """Return the parity with predict on the rows as they are given."""
    return {output: measure(found[output], y, units(y)) for output, y in case.expected().items()}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_compiled_plan_answers_as_the_estimator_does(case: Case) -> None:
    X = matrix(case)
    plan = compiled(case).plan
    assert list(plan.outputs) == list(case.expected())
    assert all(np.isfinite(y).all() for y in case.expected().values())  # so that every row is compared
    asked = X.copy()  # the torch engine reads it where it lies
    found = Runner(plan, engine="torch").predict(asked, tuple(plan.outputs))
    assert asked.tobytes() == X.tobytes()
    for parity in parities(case, found).values():
        assert parity.within(TOLERANCE)
        assert parity.max_error <= TOLERANCE or parity.max_ulp <= 1


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_report_says_what_is_measured(case: Case) -> None:
    X = matrix(case)
    report = compiled(case).report
    assert (report.rows, report.drawn) == (len(X), False)
    plan = compiled(case).plan
    found = Runner(plan, engine="auto", max_rows=len(X)).predict(X, tuple(plan.outputs))
    for output, parity in parities(case, found).items():
        assert report.outputs[output].max_error == pytest.approx(parity.max_error, rel=1e-3, abs=1e-9)


DRAWN = [case for case in CASES.values() if not case.needs_sample]


@pytest.mark.parametrize("case", DRAWN, ids=[case.name for case in DRAWN])
def test_without_a_sample_rows_are_drawn_to_the_fitted_scale(case: Case) -> None:
    estimator, _ = case.fitted()
    report = compile_estimator(estimator).report
    assert report.drawn
    assert report.rows > 900  # at most a few drawn rows lie where the estimator has no finite answer
    for parity in report.outputs.values():
        assert parity.within(TOLERANCE)
        assert parity.max_error <= TOLERANCE or parity.max_ulp <= 1


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_every_stage_computes_what_the_estimator_does(case: Case) -> None:
    X = matrix(case)
    for stage, plan in compiled(case).stages:
        # float32 coefficients of a quadratic form are chosen where they cost next to nothing.
        allowed = case.own_error + (EXACT if stage in SCHEDULE else FLOAT64_NOISE)
        found = run_plan(plan, X)
        for output, y in compiled(case).sample.rounded.items():
            assert found[output].dtype == np.float64
            assert np.abs((found[output] - y) / units(y)).max() <= allowed, stage


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_every_fusion_lowers_the_cost(case: Case) -> None:
    fused = [plan for name, plan in compiled(case).stages if name not in SCHEDULE]
    assert all(cost(after) < cost(before) for before, after in itertools.pairwise(fused))
    assert fuse(fused[-1]) is fused[-1]


FOLDED = [case for case in CASES.values() if case.family in ("affine", "link")]


@pytest.mark.parametrize("case", FOLDED, ids=[case.name for case in FOLDED])
def test_affine_models_are_one_step_within_one_float32_ulp(case: Case) -> None:
    plan = compiled(case).plan
    assert [type(step.operation) for step in plan.steps] == [Affine]
    assert (plan.steps[0].operation.function == "identity") == (case.family == "affine")
    parity = compiled(case).report.rounded["y"]
    assert parity.max_ulp <= 1 or parity.excess <= FLOAT64_NOISE


def test_catalogue_covers_every_lowering() -> None:
    seen: set[type] = set()

    def visit(thing: object) -> None:
        if hasattr(thing, "get_params"):
            seen.add(type(thing))
            for value in thing.get_params(deep=False).values():
                visit(value)
        elif isinstance(thing, list | tuple):
            for value in thing:
                visit(value)

    for case in CASES.values():
        visit(case.estimator)
    # scikit-learn cannot copy these as cases are copied: see test_catboost.py, test_statsmodels.py, test_autogluon.py,
    # test_cuml.py, test_pycaret.py, test_feature_engine.py, tests/exporter/networks.py and cases_flaml.py.
    others = ("catboost.core.CatBoost", "statsmodels.", "autogluon.", "cuml.", "flaml.", "pycaret.", "torch.", "tests.")
    others += ("feature_engine.datetime.datetime_ordinal.",)
    uncloned = {name for name in lowerings() if name.startswith(others) and name != "catboost.core.CatBoostRegressor"}
    assert lowerings().keys() - uncloned <= set(map(qualified_name, seen))
