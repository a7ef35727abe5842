"""Layers in plain torch: the network's own numbers, and a row's bits in every batch and at every place."""

import itertools

import numpy as np
import pytest
import torch

from triton_regressors.kernels.cpu.tiles import one_thread
from triton_regressors.kernels.ops.networks import cpu_layers
from triton_regressors.kernels.ops.networks.cpu_layers import PlainLayers


@pytest.mark.parametrize("function", ["relu", "tanh", "expit"])
@pytest.mark.parametrize("widths", [(7, 33, 5, 1), (32, 128, 128, 3), (300, 10, 2)])
def test_layers(function: str, widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(widths))
    layers = [(rng.standard_normal(shape), rng.standard_normal(shape[1])) for shape in itertools.pairwise(widths)]
    functions = [function] * (len(layers) - 1) + ["identity"]
    x = rng.standard_normal((800, widths[0]))
    plain = PlainLayers(layers, functions)
    with one_thread():
        whole = plain.outputs(torch.from_numpy(x))
        for count in (0, 1, 2, 5, 13, 64, 97, 500):
            for start in (0, 3, 800 - count):
                part = torch.from_numpy(x[start : start + count])
                assert torch.equal(plain.outputs(part), whole[start : start + count])
                assert torch.equal(plain.outputs(part.flip(0)).flip(0), whole[start : start + count])
    own = {"relu": lambda u: np.maximum(u, 0), "tanh": np.tanh, "expit": lambda u: 1 / (1 + np.exp(-u))}[function]
    for (weight, intercept), name in zip(layers, functions, strict=True):
        x = x @ weight + intercept
        x = x if name == "identity" else own(x)
    np.testing.assert_allclose(whole, x, rtol=1e-11, atol=1e-11)


def test_weights_too_large_to_be_tried_have_tiles_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_layers, "LARGEST_TRIAL", 10)
    plain = PlainLayers([(np.ones((77, 3)), np.zeros(3))], ["identity"])
    assert plain._sizes == cpu_layers.SIZES[:1]
    assert torch.equal(plain.outputs(torch.ones(5, 77)), torch.full((5, 3), 77.0, dtype=torch.float64))
