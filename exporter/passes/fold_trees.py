"""Folds the operations before and after an ensemble of trees into it."""

from __future__ import annotations

import dataclasses

import numpy as np

from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import Operation


def fold_into_trees(first: Operation, second: Operation, width: int) -> Operation | None:
    """Have trees read selected columns in place, and sum the weights of leaves in place of an Affine of indicators."""
    match first, second:
        case Columns(), TreeEnsemble():
            feature = np.append(first.indices, -1)[second.feature].astype(np.int32)
            return dataclasses.replace(second, feature=feature)
        case Columns(), SymmetricTrees():
            return dataclasses.replace(second, feature=first.indices[second.feature].astype(np.int32))
        case TreeEnsemble(output="leaves"), Affine():
            return dataclasses.replace(
                first, values=second.weight, baseline=second.intercept, function=second.function, output="sum"
            )
    return None
