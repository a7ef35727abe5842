"""Results of statsmodels, which are no estimators of scikit-learn, and what of them is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

from tests.exporter.data import counts, positive_counts, small, targets_between
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.engine.runner import Runner

FAMILIES = sm.families
LINKS = sm.families.links


def of(data: Callable[[], Any], model: Any, **options: Any) -> tuple[Any, np.ndarray]:
    """Return a model's results on data with a constant, and the matrix."""
    X, y = data()
    X = sm.add_constant(X)
    return model(y, X, **options).fit(), X


RESULTS: dict[str, tuple[Callable[[], Any], Any, dict[str, Any]]] = {
    "ols": (small, sm.OLS, {}),
    "wls": (small, sm.WLS, {"weights": np.linspace(1, 2, 160)}),
    "gls": (small, sm.GLS, {"sigma": np.linspace(1, 2, 160)}),
    "quantile": (small, sm.QuantReg, {}),
    "robust": (small, sm.RLM, {}),
    "gaussian": (small, sm.GLM, {}),
    "poisson": (counts, sm.GLM, {"family": FAMILIES.Poisson()}),
    "poisson-root": (counts, sm.GLM, {"family": FAMILIES.Poisson(LINKS.Sqrt())}),
    "gamma": (positive_counts, sm.GLM, {"family": FAMILIES.Gamma(LINKS.Log())}),
    "binomial": (targets_between(0.05, 0.95), sm.GLM, {"family": FAMILIES.Binomial()}),
    "inverse": (targets_between(5, 6), sm.GLM, {"family": FAMILIES.Gamma(LINKS.InversePower())}),
}


@pytest.mark.parametrize("case", RESULTS)
def test_results_are_exported(case: str, engine: str) -> None:
    data, model, options = RESULTS[case]
    results, X = of(data, model, **options)
    compilation = compile_estimator(results, sample=X)
    found = Runner(compilation.plan, engine=engine, max_rows=len(X)).predict(compilation.sample.X)["y"][:, 0]
    expected = results.predict(X)
    assert np.abs(found - expected).max() <= 1e-5 * expected.std()


@pytest.mark.parametrize("case", ["ols", "poisson"])
def test_rows_may_be_drawn_and_tables_are_read_by_place(case: str) -> None:
    data, model, options = RESULTS[case]
    results, X = of(data, model, **options)
    assert compile_estimator(results).report.outputs["y"].within(1e-5)
    assert compile_estimator(results, sample=pd.DataFrame(X)).report.outputs["y"].within(1e-5)


def table() -> pd.DataFrame:
    X, y = small()
    return pd.DataFrame(X, columns=list("abcde")).assign(y=np.abs(y) + 1)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "formula": (
        lambda: smf.ols("y ~ a + b", table()).fit(),
        "RegressionResultsWrapper: it was fitted on a formula. Fit it on the matrix of its columns, "
        "results.model.exog.",
    ),
    "link": (
        lambda: of(targets_between(0.05, 0.95), sm.GLM, family=FAMILIES.Binomial(LINKS.CLogLog()))[0],
        "GLMResultsWrapper: its link is CLogLog; supported: Identity, InversePower, Log, Logit, Sqrt.",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    fit, why = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(fit())
    assert str(raised.value) == f"Cannot export {why}"
