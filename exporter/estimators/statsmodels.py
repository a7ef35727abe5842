"""statsmodels' results of linear models and of generalised linear models that were fitted on arrays.

They predict `link⁻¹(X params)`: a constant is a column of `X`, as `statsmodels.api.add_constant` makes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers

FUNCTIONS = {"Identity": "identity", "InversePower": "reciprocal", "Log": "exp", "Logit": "expit", "Sqrt": "square"}
"""The inverse of each link."""


@lowers(
    "statsmodels.genmod.generalized_linear_model.GLMResultsWrapper",
    "statsmodels.regression.linear_model.RegressionResultsWrapper",
    "statsmodels.robust.robust_linear_model.RLMResultsWrapper",
)
def lower_results(results: Any, x: Value, builder: Builder) -> Value:
    """`y = link⁻¹(X params)`; the link of linear models is the identity."""
    if hasattr(results.model, "formula"):
        raise builder.refuse(
            results, "it was fitted on a formula. Fit it on the matrix of its columns, results.model.exog"
        )
    family = getattr(results.model, "family", None)
    link = "Identity" if family is None else type(family.link).__name__
    if link not in FUNCTIONS:
        raise builder.refuse(results, f"its link is {link}; supported: {', '.join(FUNCTIONS)}")
    return builder.affine(x, np.asarray(results.params, dtype=np.float64), 0.0, FUNCTIONS[link])
