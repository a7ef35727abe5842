"""glum's generalised linear regressors: `y = link⁻¹(X coef + intercept)`."""

from __future__ import annotations

from typing import Any

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers
from triton_regressors.kernels.ops.columns.combine import Combine

FUNCTIONS = {
    "CloglogLink": ("exp", "negative", "expm1", "negative"),
    "IdentityLink": (),
    "LogLink": ("exp",),
    "LogitLink": ("expit",),
}
"""The functions that each link's inverse applies in turn."""


@lowers("glum._glm.GeneralizedLinearRegressor", "glum._glm_cv.GeneralizedLinearRegressorCV")
def lower_generalised_linear(estimator: Any, x: Value, builder: Builder) -> Value:
    """`y = link⁻¹(X coef + intercept)`, with the last coefficients of a path."""
    if hasattr(estimator, "X_model_spec_"):
        raise builder.refuse(estimator, "it was fitted on a formula; supported: columns of numbers")
    if getattr(estimator, "categorical_levels_", None):
        raise builder.refuse(
            estimator,
            "it was fitted on pandas' categorical columns. Put a OneHotEncoder in front of it, in a ColumnTransformer",
        )
    link = estimator.link_instance
    name = type(link).__name__
    if name not in FUNCTIONS and name != "TweedieLink":
        raise builder.refuse(estimator, f"its link is {name}; supported: {', '.join([*FUNCTIONS, 'TweedieLink'])}")
    y = builder.affine(x, estimator.coef_, estimator.intercept_)
    if name == "TweedieLink" and link.power not in (0, 1):
        return builder.add(Combine("sum", exponent=float(1 / (1 - link.power))), y)
    functions = FUNCTIONS.get(name, ("exp",) if getattr(link, "power", 0) == 1 else ())
    for function in functions:
        y = builder.elementwise(y, function)
    return y
