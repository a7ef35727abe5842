"""NGBoost's regressors: sums of trees are the parameters of a distribution; its moments are `y` and `std`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.trees import are_trees, fitted_trees
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import answers, lowers, qualified_name
from triton_regressors.exporter.lowering.tree_nodes import add_trees, note_thresholds
from triton_regressors.kernels.ops.columns.combine import Combine


@dataclasses.dataclass(frozen=True)
class Moments:
    """The moments of a distribution as functions of a weighted sum of its parameters.

    The mean is `function(Σ mean · parameters + offset)`, the deviation `exp(Σ std · parameters + std_offset)`.
    """

    mean: tuple[float, ...]
    function: str
    std: tuple[float, ...]
    std_offset: float = 0.0
    offset: float = 0.0


DISTRIBUTIONS = {
    "ngboost.distns.exponential.Exponential": Moments((1.0,), "exp", (1.0,)),
    "ngboost.distns.gamma.Gamma": Moments((1.0, -1.0), "exp", (0.5, -1.0)),
    "ngboost.distns.halfnormal.HalfNormal": Moments(
        (1.0,), "exp", (1.0,), 0.5 * math.log1p(-2 / math.pi), 0.5 * math.log(2 / math.pi)
    ),
    "ngboost.distns.laplace.Laplace": Moments((1.0, 0.0), "identity", (0.0, 1.0), 0.5 * math.log(2.0)),
    "ngboost.distns.normal.Normal": Moments((1.0, 0.0), "identity", (0.0, 1.0)),
    "ngboost.distns.normal.NormalFixedVar": Moments((1.0,), "identity", (0.0,)),
    "ngboost.distns.poisson.Poisson": Moments((1.0,), "exp", (0.5,)),
    "ngboost.distns.t.TFixedDf": Moments((1.0, 0.0), "identity", (0.0, 1.0), 0.5 * math.log(3.0)),
    "ngboost.distns.t.TFixedDfFixedVar": Moments((1.0,), "identity", (0.0,), 0.5 * math.log(3.0)),
}
"""The distributions whose moments are plain functions of their parameters; those of Student's t have 3 degrees."""

LOG_NORMAL = "ngboost.distns.lognormal.LogNormal"


@lowers("ngboost.api.NGBRegressor")
def lower_ngb_regressor(estimator: Any, x: Value, builder: Builder) -> dict[str, Value]:
    """The mean and the standard deviation of the distribution that the sums of the base learners parameterise."""
    distribution = estimator.Dist
    if distribution.__name__ == "DistWithUncensoredScore":
        distribution = distribution.__base__
    name = qualified_name(distribution)
    if name not in DISTRIBUTIONS and name != LOG_NORMAL:
        known = ", ".join(sorted(each.rpartition(".")[2] for each in (*DISTRIBUTIONS, LOG_NORMAL)))
        raise builder.refuse(estimator, f"its distribution is {distribution.__name__}; supported: {known}")
    parameters = _parameters(estimator, x, builder)
    if name == LOG_NORMAL:
        return _log_normal(parameters, builder)
    moments = DISTRIBUTIONS[name]
    return {
        "y": builder.affine(parameters, moments.mean, moments.offset, moments.function),
        "std": builder.affine(parameters, moments.std, moments.std_offset, "exp"),
    }


@answers("ngboost.api.NGBRegressor")
def answer_by_distribution(estimator: Any, table: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """Return the mean, and the standard deviation of the predicted distribution if it is asked for."""
    predicted = estimator.pred_dist(table)
    return {"y": predicted.predict()} | ({"std": predicted.std()} if "std" in outputs else {})


def _parameters(estimator: Any, x: Value, builder: Builder) -> Value:
    """Return the parameters of the distribution: `init − Σᵢ rate · scalingᵢ · learnersᵢ(columnsᵢ of x)`."""
    initial = np.atleast_1d(np.asarray(estimator.init_params, dtype=np.float64))
    factors = -estimator.learning_rate * np.asarray(estimator.scalings, dtype=np.float64)
    learners = [learner for stage in estimator.base_models for learner in stage]
    columns = [np.asarray(chosen) for chosen in estimator.col_idxs for _ in initial]
    weight = np.kron(factors[:, None], np.eye(len(initial)))  # [learners, parameters]
    if not are_trees(learners, builder):
        values = []
        for number, (learner, chosen) in enumerate(zip(learners, columns, strict=True)):
            with builder.at(f"base_models[{number // len(initial)}]"):
                values.append(builder.lower(learner, builder.columns(x, chosen)))
        return builder.affine(builder.concatenate(values), weight, initial)
    trees = fitted_trees(learners)
    tree = np.repeat(np.arange(len(learners)), trees.sizes)
    widest = np.zeros((len(learners), max(map(len, columns))), dtype=np.int64)
    for row, chosen in zip(widest, columns, strict=True):
        row[: len(chosen)] = chosen
    value = trees.value * weight[tree[trees.left < 0]]
    trees = dataclasses.replace(trees, feature=widest[tree, np.maximum(trees.feature, 0)], value=value)
    note_thresholds(trees, x, builder)
    return add_trees(trees, x, builder, baseline=initial)


def _log_normal(parameters: Value, builder: Builder) -> dict[str, Value]:
    """Return the moments for the parameters μ and log σ: `exp(μ + σ²/2)`, and that times `√(exp(σ²) − 1)`."""
    variance = builder.affine(parameters, (0.0, 2.0), 0.0, "exp")
    mean = builder.affine(builder.concatenate([parameters, variance]), (1.0, 0.0, 0.5), 0.0, "exp")
    spread = builder.elementwise(builder.elementwise(variance, "expm1"), "sqrt")
    return {"y": mean, "std": builder.add(Combine("product"), mean, spread)}
