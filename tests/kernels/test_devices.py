"""Which GPUs have units for what, and what they compute by digits because of it."""

import pytest
import torch

from triton_regressors.kernels import devices
from triton_regressors.kernels.digit_layers import computes_by_digits

GPU = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("capability", "many_float64", "matrix_units", "widest_digits"),
    [
        ((7, 0), True, False, 0),
        ((7, 5), False, False, 0),
        ((8, 0), True, True, 128),
        ((8, 6), False, True, 256),
        ((8, 9), False, True, 256),
        ((9, 0), True, True, 128),
    ],
)
def test_by_the_compute_capability(
    capability: tuple[int, int],
    many_float64: bool,
    matrix_units: bool,
    widest_digits: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    for function in (devices.has_many_float64_units, devices.multiplies_float16, computes_by_digits):
        function.cache_clear()
    try:
        assert devices.has_many_float64_units(GPU) == many_float64
        assert devices.multiplies_float16(GPU) == matrix_units
        widths = (1, 128, 129, 256)
        assert [computes_by_digits(GPU, width) for width in widths] == [width <= widest_digits for width in widths]
    finally:
        for function in (devices.has_many_float64_units, devices.multiplies_float16, computes_by_digits):
            function.cache_clear()


def test_the_interpreter_has_matrix_units_and_few_for_float64() -> None:
    cpu = torch.device("cpu")
    assert devices.multiplies_float16(cpu)
    assert not devices.has_many_float64_units(cpu)
    assert devices.shared_memory(cpu) > 2**20
