"""Which GPUs have units for what."""

import pytest
import torch

from triton_regressors.kernels import devices

GPU = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("capability", "many_float64", "matrix_units"),
    [
        ((7, 0), True, False),
        ((7, 5), False, False),
        ((8, 0), True, True),
        ((8, 6), False, True),
        ((8, 9), False, True),
        ((9, 0), True, True),
    ],
)
def test_by_the_compute_capability(
    capability: tuple[int, int],
    many_float64: bool,
    matrix_units: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    for function in (devices.has_many_float64_units, devices.has_matrix_units):
        function.cache_clear()
    try:
        assert devices.has_many_float64_units(GPU) == many_float64
        assert devices.has_matrix_units(GPU) == matrix_units
    finally:
        for function in (devices.has_many_float64_units, devices.has_matrix_units):
            function.cache_clear()


def test_the_interpreter_has_matrix_units_and_few_for_float64() -> None:
    cpu = torch.device("cpu")
    assert devices.has_matrix_units(cpu)
    assert not devices.has_many_float64_units(cpu)
    assert devices.shared_memory(cpu) > 2**20
