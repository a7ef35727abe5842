"""Layers of neural networks for the kernels' tests."""

import itertools

import numpy as np

from triton_regressors.kernels.ops.dense_layers import DenseLayers
from triton_regressors.kernels.plan import Operation


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


OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    f"dense {'-'.join(map(str, widths))} {activation} in {precision}": (
        dense_layers(*widths, activation=activation, precision=precision),
        (widths[0],),
    )
    for widths, activation in (((5, 9, 1), "tanh"), ((40, 70, 20, 3), "relu"), ((3, 17, 16, 20, 1), "expit"))
    for precision in DenseLayers.PRECISIONS
}
