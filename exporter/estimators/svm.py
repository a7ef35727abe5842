"""Support vector regression with kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.svm import SVR, NuSVR

from triton_regressors.exporter.estimators.kernel_approximation import dense, kernel_function, kernel_sum
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers

KERNELS = ("linear", "poly", "rbf", "sigmoid")


@lowers(SVR, NuSVR)
def lower_support_vector_regression(estimator: Any, x: Value, builder: Builder) -> Value:
    """`y = k(x, support_vectors) dual_coef + intercept`; a linear kernel is one affine map."""
    if not isinstance(estimator.kernel, str) or estimator.kernel not in KERNELS:
        shown = f"'{estimator.kernel}'" if isinstance(estimator.kernel, str) else "a callable"
        raise builder.refuse(estimator, f"kernel is {shown}; supported: {', '.join(map(repr, KERNELS))}")
    vectors, dual_coef = dense(estimator.support_vectors_), dense(estimator.dual_coef_)
    if not len(vectors):
        return builder.affine(x, np.zeros(x.width), estimator.intercept_)
    parameters = {"gamma": estimator._gamma, "degree": estimator.degree, "coef0": estimator.coef0}
    kernel = kernel_function(estimator, x, estimator.kernel, vectors, parameters, builder)
    return kernel_sum(x, kernel, dual_coef.T, estimator.intercept_, builder)
