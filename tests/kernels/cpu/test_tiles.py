"""Products and functions of elements: a row's bits depend neither on how many rows there are nor on its place."""

import numpy as np
import pytest
import torch

from triton_regressors.kernels.cpu import tiles
from triton_regressors.kernels.cpu.tiles import apply, one_thread, product
from triton_regressors.kernels.numerics.functions import FUNCTIONS, IN_PLACE

COUNTS = (1, 2, 3, 5, 13, 25, 49, 64, 97, 200, 769)


def drawn(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape))


@pytest.mark.parametrize(
    ("features", "columns"), [(1, 1), (64, 1), (700, 1), (5, 2), (13, 3), (33, 129), (34, 200), (128, 128), (1500, 10)]
)
def test_products(features: int, columns: int) -> None:
    x, weight = drawn(1000, features), drawn(features, columns)
    with one_thread():
        whole = product(x, weight)
        np.testing.assert_allclose(whole, x @ weight, rtol=1e-12, atol=1e-12 * features)
        for count in COUNTS:
            for start in (0, 3, 1000 - count):
                part = x[start : start + count]
                assert torch.equal(product(part, weight), whole[start : start + count])
                assert torch.equal(product(part.flip(0), weight).flip(0), whole[start : start + count])
        added = product(x[:77].float(), weight, lambda part: part.add_(1.0))
        assert torch.equal(added, product(x[:77].float(), weight) + 1.0)
        assert product(x[:0], weight).shape == (0, columns)


def test_a_library_that_treats_small_tiles_or_the_last_rows_in_other_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    multiply, largest = tiles.multiply, {128: 384, 1: 1536}

    def other(block: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, direct: bool) -> None:
        multiply(block, weight, out, direct)
        if direct:
            out[-1] += 1.0
        out += len(block) < largest[weight.shape[1]]

    monkeypatch.setattr(tiles, "multiply", other)
    tiles.way.cache_clear()
    try:
        assert tiles.way(128, 128) == (False, (384,))
        assert tiles.way(64, 1) == (False, (1536,))
    finally:
        tiles.way.cache_clear()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_elements(name: str) -> None:
    values = drawn(1000).abs()
    with one_thread():
        whole = apply(FUNCTIONS[name], values.clone())
        for count in COUNTS:
            for function in (FUNCTIONS[name], IN_PLACE.get(name, FUNCTIONS[name])):
                found = apply(function, values[-count:].clone())
                assert found.numpy().tobytes() == whole[-count:].numpy().tobytes()
    np.testing.assert_allclose(whole, FUNCTIONS[name](values), rtol=1e-13)
