"""skorch's regressor: its network in evaluation mode, which `predict` uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton_regressors.exporter.estimators.torch import Network, as_rows, count_columns, in_evaluation
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import answers, counts_columns, lowers

REGRESSOR = "skorch.regressor.NeuralNetRegressor"

WITH_FUNCTION = ("BCEWithLogitsLoss", "CrossEntropyLoss")
"""Losses for which skorch applies a function to the answer of the network."""


@lowers(REGRESSOR)
def lower_neural_net(net: Any, x: Value, builder: Builder) -> Value:
    """The answer of `module_`."""
    loss = type(net.criterion_).__name__
    if net.predict_nonlinearity not in ("auto", None):
        raise builder.refuse(net, "its predict_nonlinearity is a function of yours; supported: 'auto', None")
    if net.predict_nonlinearity == "auto" and loss in WITH_FUNCTION:
        raise builder.refuse(net, f"its criterion is {loss}, a loss of classes; supported: losses of regression")
    return Network(in_evaluation(net.module_), net, builder).answer(x)


@answers(REGRESSOR)
def answer_by_neural_net(net: Any, table: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """Return the answer of `predict` to rows in the type of the network's parameters, which it does not cast itself."""
    return {"y": net.predict(as_rows(net.module_, table).cpu().numpy())}


@counts_columns(REGRESSOR)
def count_columns_of_neural_net(net: Any) -> int | None:
    """Return how many columns the network's first layer reads."""
    return count_columns(net.module_) if hasattr(net, "module_") else None
