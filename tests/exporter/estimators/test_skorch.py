"""skorch's regressor: rows of both types, and what is refused."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetRegressor
from torch import nn

from tests.exporter.data import unit_scale
from tests.exporter.networks import Residual, perceptron
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator

X = unit_scale()[0]
ROWS, Y = X.astype(np.float32), unit_scale()[1][:, None].astype(np.float32)


def net(module: Any, **options: Any) -> NeuralNetRegressor:
    torch.manual_seed(0)
    return NeuralNetRegressor(module, max_epochs=2, verbose=0, **options)


def test_predict_is_in_evaluation_mode_whatever_the_network_is_in() -> None:
    fitted = net(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 1)))
    fitted.fit(ROWS, Y).module_.train()
    for sample in (ROWS, X, None):
        assert compile_estimator(fitted, sample=sample).report.within
    assert compile_estimator(fitted, sample=X).report.rows == len(X)


def test_a_class_of_network_with_parameters() -> None:
    fitted = net(Residual, module__columns=5, module__units=6).fit(ROWS, Y[:, 0])
    assert compile_estimator(fitted, sample=X).report.within


def test_a_target_transformed_around_it_takes_float32_rows_as_its_predict_does() -> None:
    fitted = TransformedTargetRegressor(net(perceptron(nn.Tanh())), transformer=StandardScaler()).fit(ROWS, Y)
    assert compile_estimator(fitted, sample=ROWS).report.within
    with pytest.raises(RuntimeError, match="must have the same dtype"):
        fitted.predict(X)


REFUSED: dict[str, tuple[Any, str]] = {
    "unfitted": (lambda: net(perceptron(nn.ReLU())), "it is not fitted; call fit first."),
    "function": (
        lambda: net(perceptron(nn.ReLU()), predict_nonlinearity=torch.exp).fit(ROWS, Y),
        "its predict_nonlinearity is a function of yours; supported: 'auto', None.",
    ),
    "loss": (
        lambda: net(perceptron(nn.ReLU()), criterion=nn.BCEWithLogitsLoss).fit(ROWS, np.abs(np.sin(Y))),
        "its criterion is BCEWithLogitsLoss, a loss of classes; supported: losses of regression.",
    ),
    "layer": (
        lambda: net(nn.Sequential(nn.Linear(5, 1), nn.Hardswish())).fit(ROWS, Y),
        "its layer 1 is a Hardswish; supported: Linear, BatchNorm1d, LayerNorm, Flatten, Identity, Dropout, ELU, GELU, "
        "LeakyReLU, ReLU, SELU, Sigmoid, SiLU, Softplus, Tanh.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    fit, why = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(fit(), sample=X)
    assert str(raised.value) == f"Cannot export NeuralNetRegressor: {why}"
