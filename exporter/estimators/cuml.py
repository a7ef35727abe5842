"""cuML's estimators, each as the estimator of scikit-learn that its `as_sklearn` returns."""

from __future__ import annotations

from typing import Any

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers, lowers_inverse, lowers_transform

LIBRARY = "cuml.*"


@lowers(LIBRARY)
def lower_cuml(estimator: Any, x: Value, builder: Builder) -> dict[str, Value]:
    """The prediction or the output of scikit-learn's estimator."""
    return builder.lower_outputs(_as_sklearn(estimator, builder), x)


@lowers_transform(LIBRARY)
def transform_by_cuml(transformer: Any, x: Value, builder: Builder) -> Value:
    """The output of scikit-learn's transformer."""
    return builder.lower_transform(_as_sklearn(transformer, builder), x)


@lowers_inverse(LIBRARY)
def invert_cuml(transformer: Any, y: Value, builder: Builder) -> Value:
    """The inverse of scikit-learn's transformer."""
    return builder.lower_inverse(_as_sklearn(transformer, builder), y)


def _as_sklearn(estimator: Any, builder: Builder) -> Any:
    if not hasattr(estimator, "as_sklearn"):
        raise builder.refuse(
            estimator,
            "it has no as_sklearn(), which cuML has from version 25.02 on for the estimators that scikit-learn has "
            "too. Fit it with a newer cuML, or fit scikit-learn's estimator under cuml.accel",
        )
    return estimator.as_sklearn()
