"""What of glum's regressors is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from glum import GeneralizedLinearRegressor

from tests.exporter.data import small
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator


def table() -> pd.DataFrame:
    X, y = small()
    frame = pd.DataFrame(X, columns=list("abcde")).assign(y=y)
    return frame.assign(kind=pd.Categorical(np.where(X[:, 0] > 0, "u", "v")))


def test_columns_of_a_matrix_have_no_names() -> None:
    estimator = GeneralizedLinearRegressor(alpha=0.1).fit(*small())
    assert compile_estimator(estimator, sample=small()[0]).report.outputs["y"].within(1e-5)
    named = GeneralizedLinearRegressor(alpha=0.1).fit(table()[list("abcde")], table()["y"])
    assert compile_estimator(named, sample=table()[list("edcba")]).report.outputs["y"].within(1e-5)


REFUSED: dict[str, tuple[Any, str]] = {
    "formula": (
        lambda: GeneralizedLinearRegressor(formula="y ~ a + b", alpha=0.1).fit(table()),
        "it was fitted on a formula; supported: columns of numbers.",
    ),
    "categories": (
        lambda: GeneralizedLinearRegressor(alpha=0.1).fit(table()[["a", "kind"]], table()["y"]),
        "it was fitted on pandas' categorical columns. Put a OneHotEncoder in front of it, in a ColumnTransformer.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    fit, why = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(fit())
    assert str(raised.value) == f"Cannot export GeneralizedLinearRegressor: {why}"
