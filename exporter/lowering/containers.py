"""The classes of scikit-lego whose fitted instances hold a model for each group."""

from __future__ import annotations

from typing import Any

from triton_regressors.exporter.lowering.registry import computes_as

CONTAINERS = tuple(
    f"sklego.meta.{module}.{name}"
    for module, names in {
        "grouped_predictor": ("GroupedPredictor", "GroupedRegressor"),
        "hierarchical_predictor": ("HierarchicalPredictor", "HierarchicalRegressor"),
    }.items()
    for name in names
)


def is_container(estimator: Any) -> bool:
    """Return whether an estimator answers each row by the model of its group."""
    return computes_as(estimator, CONTAINERS)
