"""The training covers of trees: the weight of the training rows that reached each node.

The path-dependent game replaces a column that is not known by its training rows: where a tree asks for it, the answer
is the mean over both children, weighted by `cover[child] / cover[node]`. Libraries count these rows in different ways:
scikit-learn by their weights in the tree's own sample, HistGradientBoosting and LightGBM by their number, XGBoost by
the sum of their second derivatives, CatBoost by their weights.
"""

from __future__ import annotations

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering.lower import Lowered
from triton_regressors.kernels.plan.plan import Step


def covers_of(step: Step, lowered: Lowered) -> np.ndarray:
    """Return the covers of a step of trees in the order of its operation, float64.

    They are `[nodes]` for `TreeEnsemble`, and `[leaves]` for `SymmetricTrees`.

    Args:
        step: a step of the lowered plan, or one with its output and the same nodes.
        lowered: the model, lowered with covers.

    Raises:
        ExportError: the model does not hold the covers, or they are not weights; the message is a clause.
    """
    maker = lowered.makers.get(step.output) or "the model"
    instead = "use contributions='background' with background=rows"
    covers = lowered.covers.get(step.output)
    if covers is None:
        raise ExportError(f"{maker} does not hold the training covers of its trees; {instead}")
    unsound = ~(covers >= 0) | np.isinf(covers)
    if unsound.any():
        raise ExportError(f"a node of {maker} has the training cover {covers[unsound][0]}; {instead}")
    return covers
