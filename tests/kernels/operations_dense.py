"""Layers of neural networks, and ordered sums of products, for the kernels' tests."""

import itertools

import numpy as np

from triton_regressors.kernels.ops.linear.ordered_affine import OrderedAffine
from triton_regressors.kernels.ops.networks.dense_layers import DenseLayers
from triton_regressors.kernels.plan.plan import Operation


def dense_layers(
    *widths: int,
    activation: str = "relu",
    function: str = "identity",
    precision: str = "float64",
    shift: float = 0.0,
    seed: int = 0,
) -> DenseLayers:
    """Return a network with weights as scikit-learn draws them, whose features lie around `shift`."""
    rng = np.random.default_rng(seed)
    bounds = [np.sqrt(6 / (inputs + units)) for inputs, units in itertools.pairwise(widths)]
    shapes = zip(bounds, itertools.pairwise(widths), strict=True)
    weights = [rng.uniform(-bound, bound, shape) for bound, shape in shapes]
    intercepts = [rng.uniform(-bound, bound, units) for bound, units in zip(bounds, widths[1:], strict=True)]
    intercepts[0] = intercepts[0] - shift * weights[0].sum(axis=0)
    return DenseLayers(
        np.concatenate([weight.ravel() for weight in weights]),
        np.concatenate(intercepts),
        np.full(widths[0], shift),
        widths,
        activation,
        function,
        precision,
    )


def ordered_affine(features: int, targets: int = 1, function: str = "identity", seed: int = 0) -> OrderedAffine:
    """Return drawn weights, some of them 0."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((features, targets)) * (rng.random((features, targets)) < 0.9)
    intercept = rng.standard_normal(targets)
    return OrderedAffine(weight.astype(np.float32), intercept.astype(np.float32), function)


OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    f"dense {'-'.join(map(str, widths))} {activation} in {precision}": (
        dense_layers(*widths, activation=activation, precision=precision),
        (widths[0],),
    )
    for widths, activation in (((5, 9, 1), "tanh"), ((40, 70, 20, 3), "relu"), ((3, 17, 16, 20, 1), "expit"))
    for precision in DenseLayers.PRECISIONS
}
OPERATIONS |= {
    "dense 5-140-3 relu in int8": (dense_layers(5, 140, 3, precision="int8"), (5,)),
    "ordered affine": (ordered_affine(9), (9,)),
    "ordered affine to 11": (ordered_affine(5, 11, "expit"), (5,)),
}
