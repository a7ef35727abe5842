"""From fitted scikit-learn estimators to entries of a Triton server model repository."""

from triton_regressors.exporter.compiler import Compilation, Export, compile_estimator, export
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.registry import lowers, lowers_inverse, lowers_transform

__all__ = [
    "Compilation",
    "Export",
    "ExportError",
    "compile_estimator",
    "export",
    "lowers",
    "lowers_inverse",
    "lowers_transform",
]
