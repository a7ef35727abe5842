"""Contributions of SVR, KernelRidge and Gaussian processes against sums over all coalitions, and against shap."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVR

from tests.kernels.operations import run_on_cpu, run_reference
from triton_regressors.exporter.contributions.points import point_contributions
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.points.pairwise import Pairwise

COLUMNS, BACKGROUND = 4, 5
Predict = Callable[[np.ndarray], np.ndarray]
Encode = Callable[[np.ndarray], np.ndarray]


def encoded(x: np.ndarray) -> np.ndarray:
    """Return columns of which columns 0 and 2 of the table have two each, and column 3 has none."""
    return np.column_stack([np.sin(x[:, 0]), x[:, 2], x[:, 1] ** 2, x[:, 0], np.abs(x[:, 2])])


RAW, ENCODED = [0, 1, 2, 3], [0, 2, 1, 0, 2]


def gaussian_process(kernel: Any, **fields: Any) -> GaussianProcessRegressor:
    return GaussianProcessRegressor(kernel, alpha=1e-2, optimizer=None, **fields)


MODELS: dict[str, tuple[Any, int]] = {
    "SVR": (SVR(C=10.0), 1),
    "KernelRidge": (KernelRidge(kernel="rbf", gamma=0.2), 2),
    "KernelRidge with a Laplacian kernel": (KernelRidge(kernel="laplacian"), 1),
    "GaussianProcessRegressor": (gaussian_process(ConstantKernel(3.0) * RBF(2.0) + WhiteKernel(0.1)), 1),
    "GaussianProcessRegressor of two RBF": (
        gaussian_process(RBF(1.5) + ConstantKernel(0.5) * RBF(4.0) + ConstantKernel(2.0), normalize_y=True),
        2,
    ),
}
ARD = gaussian_process(RBF([1.0, 2.0, 3.0, 4.0]) + WhiteKernel(0.1), normalize_y=True)


def data(targets: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, COLUMNS))
    y = np.column_stack([np.sin(x).sum(axis=1) + x[:, 0] * x[:, 1], x[:, 2] ** 2 - x[:, 3]])
    return x, y[:, 0] if targets == 1 else y


def over_coalitions(predict: Predict, rows: np.ndarray, background: np.ndarray) -> np.ndarray:
    """Return the Shapley values by their definition, `[rows, targets, columns]`."""
    worth = {}
    for coalition in itertools.product((False, True), repeat=COLUMNS):
        mixed = np.where(coalition, rows[:, None], background)
        worth[coalition] = predict(mixed.reshape(-1, COLUMNS)).reshape(len(rows), len(background), -1).mean(axis=1)
    found = np.zeros((len(rows), worth[coalition].shape[1], COLUMNS))
    for coalition, player in itertools.product(worth, range(COLUMNS)):
        if not coalition[player]:
            joined = (*coalition[:player], True, *coalition[player + 1 :])
            share = 1 / (COLUMNS * math.comb(COLUMNS - 1, sum(coalition)))
            found[..., player] += share * (worth[joined] - worth[coalition])
    return found


def of_plan(model: Any, encode: Encode, players: list[int], rows: np.ndarray, background: np.ndarray) -> np.ndarray:
    """Return the contributions from the model's lowered plan, `[rows, targets, columns + 1]`."""
    steps = lower(model).plan.steps_for(("y",))
    kernels = {step.output: step.operation for step in steps if isinstance(step.operation, Pairwise)}
    total: Any = 0.0
    for step in steps:
        if isinstance(step.operation, Affine):
            affine, (read,) = step.operation, step.inputs
            found = point_contributions(kernels[read], affine.weight, np.array(players), COLUMNS, encode(background))
            assert found is not None
            x = encode(rows)
            found.check(x.shape[1])
            expected, targets = run_reference(found, [x]), affine.weight.shape[1]
            assert np.abs(run_on_cpu(found, [x]) - expected).max() <= 1e-13 * np.abs(affine.weight).sum()
            one = expected.reshape(len(rows), targets, COLUMNS + 1)
            one[..., -1] += affine.intercept
            total = total + one
    return np.asarray(total)


@pytest.mark.parametrize("encode", [lambda x: x, encoded], ids=["columns", "several columns of a player"])
@pytest.mark.parametrize("name", [*MODELS, "ARD"])
def test_they_are_the_shapley_values(name: str, encode: Encode) -> None:
    model, targets = MODELS.get(name, (ARD, 1))
    x, y = data(targets)
    several = encode is encoded
    if name == "ARD" and several:
        model = gaussian_process(RBF([1.0, 2.0, 3.0, 4.0, 5.0]))
    model = clone(model).fit(encode(x), y)
    rows, background = 1.5 * x[:6], x[20 : 20 + BACKGROUND]
    found = of_plan(model, encode, ENCODED if several else RAW, rows, background)

    def predict(table: np.ndarray) -> np.ndarray:
        return np.asarray(model.predict(encode(table)))

    spread = y.std()
    margin = predict(rows).reshape(len(rows), -1)
    assert np.abs(found.sum(axis=2) - margin).max() <= 1e-12 * spread
    assert np.abs(found[..., :-1] - over_coalitions(predict, rows, background)).max() <= 1e-12 * spread
    assert np.abs(found[..., -1] - predict(background).reshape(BACKGROUND, -1).mean(axis=0)).max() <= 1e-12 * spread
    assert np.abs(found[..., 0]).min() > 1e-4 * spread


def test_they_are_those_of_shap() -> None:
    shap = pytest.importorskip("shap")
    x, y = data(1)
    model, rows, background = SVR(C=10.0).fit(x, y), x[:4], x[20 : 20 + BACKGROUND]
    expected = shap.ExactExplainer(model.predict, shap.maskers.Independent(background))(rows)
    found = of_plan(model, lambda x: x, RAW, rows, background)[:, 0]
    assert np.abs(found[:, :-1] - expected.values).max() <= 1e-12
    assert np.abs(found[:, -1] - expected.base_values).max() <= 1e-12


@pytest.mark.parametrize(
    "model",
    [SVR(kernel="poly"), SVR(kernel="sigmoid"), KernelRidge(kernel="cosine"), gaussian_process(Matern())],
)
def test_other_kernels_are_no_products(model: Any) -> None:
    x, y = data(1)
    kernel, affine = (step.operation for step in lower(model.fit(x, y)).plan.steps_for(("y",)))
    assert isinstance(kernel, Pairwise)
    assert point_contributions(kernel, affine.weight, np.arange(COLUMNS), COLUMNS, x) is None
