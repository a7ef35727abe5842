"""Folds an elementwise function into the operation before it, which applies it before writing the element."""

from __future__ import annotations

import dataclasses

from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import Operation


def fold_function(first: Operation, second: Operation, width: int) -> Operation | None:
    """Fold an elementwise function into the operation before it."""
    if isinstance(first, TreeEnsemble) and first.output not in ("sum", "ordered"):
        return None
    plain = isinstance(second, Elementwise) and second.low is None and second.high is None
    if plain and not isinstance(first, Elementwise) and getattr(first, "function", "") == "identity":
        return dataclasses.replace(first, function=second.function)  # type: ignore[type-var, attr-defined]
    return None
