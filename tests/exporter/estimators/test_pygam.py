"""Numbers at knots and beyond them in pyGAM's regressors, and what of these is refused."""

from typing import Any

import numpy as np
import pytest
from pygam import LinearGAM, f, s, te
from pygam.pygam import GAM

from tests.exporter.catalogue.cases_pygam import with_factor
from tests.exporter.data import small
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.engine.runner import Runner


@pytest.mark.parametrize("order", [0, 1, 2, 3, 4])
def test_numbers_at_knots_and_far_beyond_them(order: int, engine: str) -> None:
    X, y = small()
    gam = LinearGAM(s(0, n_splines=7, spline_order=order) + te(1, 2, n_splines=5)).fit(X, y)
    low, high = np.asarray(gam.terms[0].edge_knots_)
    asked = X[:24].copy()
    asked[:, 0] = np.linspace(low - (high - low) * (order > 0), high + (high - low) * (order > 0), 24)
    asked[:8, 0] = low + (high - low) * np.linspace(0, 1, 8 - order)[np.arange(8) % (8 - order)]
    compilation = compile_estimator(gam, sample=asked)
    found = Runner(compilation.plan, engine=engine, max_rows=24).predict(compilation.sample.X)["y"][:, 0]
    assert np.abs(found - gam.predict(asked)).max() <= 1e-5 * gam.predict(asked).std()


def test_an_unknown_factor_has_no_answer() -> None:
    X, y = with_factor()
    gam = LinearGAM(s(0) + f(1)).fit(X, y)
    plan = compile_estimator(gam, sample=X, input="fp32").plan
    asked = X[:4].astype(np.float32)
    asked[:, 1] = [0, 4, 5, -1]
    found = Runner(plan, engine="torch").predict(asked)["y"][:, 0]
    assert np.isnan(found).tolist() == [False, False, True, True]


REFUSED: dict[str, tuple[Any, str]] = {
    "periodic": (
        lambda: LinearGAM(s(0, basis="cp")).fit(*small()),
        "LinearGAM (step 'terms[0]'): a term's basis is 'cp'; supported: 'ps'.",
    ),
    "three": (
        lambda: LinearGAM(te(0, 1, 2, n_splines=4)).fit(*small()),
        "LinearGAM (step 'terms[0]'): it has a tensor term of other than two splines; supported: two splines.",
    ),
    "link": (
        lambda: GAM(s(0), link="inv_squared").fit(small()[0], np.abs(small()[1]) + 1),
        "GAM: its link is 'inv_squared'; supported: 'identity', 'log', 'inverse'.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    fit, why = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(fit())
    assert str(raised.value) == f"Cannot export {why}"
