"""Isotonic regression and transformers of numbers that cannot be exported, and the words that say so."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, QuantileTransformer, SplineTransformer

from tests.exporter.catalogue.cases_continuous import rising, stepped
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.builder import Builder

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
X, y = stepped()
HOLE = np.where(np.arange(5) == 2, np.nan, X)


def twice(x: np.ndarray) -> np.ndarray:
    return 2 * x


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "quantiles of nothing": (
        lambda: make_pipeline(QuantileTransformer(n_quantiles=5), FunctionTransformer(np.isnan), Ridge()).fit(HOLE, y),
        r"^Cannot export QuantileTransformer \(step 'quantiletransformer'\): "
        r"column 2 held nothing but NaN, and so it has no quantiles\.$",
    ),
    "no spline": (
        lambda: make_pipeline(
            SplineTransformer(2, degree=1, extrapolation="periodic", include_bias=False),
            FunctionTransformer(twice),
        ).fit(X),
        r"^Cannot export SplineTransformer \(step 'splinetransformer'\): "
        r"include_bias=False leaves no column of its only spline\.$",
    ),
    "inverse of bins": (
        lambda: TransformedTargetRegressor(
            LinearRegression(),
            transformer=KBinsDiscretizer(3, encode="ordinal", quantile_method="linear"),
            check_inverse=False,
        ).fit(X, y),
        r"^Cannot export KBinsDiscretizer \(step 'transformer_'\): no lowering is registered for its "
        r"inverse_transform\. Transform targets by one that has it, such as StandardScaler, PowerTransformer or ",
    ),
    "unfitted": (
        lambda: QuantileTransformer(),
        r"^Cannot export QuantileTransformer: it is not fitted; call fit first\.$",
    ),
    "not a regressor": (
        lambda: SplineTransformer().fit(X),
        r"^Cannot export SplineTransformer: it transforms rows, and has no predict\. Give a regressor, or "
        r"a Pipeline that ends in one\.$",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_and_how(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(ExportError, match=message):
        compile_estimator(make(), sample=X)


def test_isotonic_regression_takes_one_feature() -> None:
    builder = Builder(2)
    with pytest.raises(ExportError, match=r"^Cannot export IsotonicRegression: it takes 1 feature and would get 2\.$"):
        builder.lower(IsotonicRegression().fit(*rising()), builder.input)
