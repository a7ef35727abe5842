"""The units of each GPU."""

import sys

import pytest
import torch
import triton

from triton_regressors.kernels.plan import devices

GPU = torch.device("cuda", 0)
HOPPER_IN_GLUON = "triton.experimental.gluon.language.nvidia.hopper"


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


@pytest.mark.parametrize(
    ("capability", "version", "absent", "interpreted", "expected"),
    [
        ((9, 0), "3.6.0", False, False, True),
        ((9, 0), "3.7.1", False, False, True),
        ((9, 0), "3.8.0", False, False, False),
        ((9, 0), "3.7.1", True, False, False),
        ((9, 0), "3.7.1", False, True, False),
        ((8, 0), "3.7.1", False, False, False),
        ((10, 0), "3.7.1", False, False, False),
    ],
)
def test_warp_groups_take_a_hopper_gpu_and_a_known_gluon(
    capability: tuple[int, int],
    version: str,
    absent: bool,
    interpreted: bool,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(devices.triton, "__version__", version)
    monkeypatch.setattr(devices, "INTERPRETED", triton.language.constexpr(interpreted))
    if absent:
        monkeypatch.setitem(sys.modules, HOPPER_IN_GLUON, None)
    assert devices.has_warp_groups.__wrapped__(GPU) == expected
    assert not devices.has_warp_groups.__wrapped__(torch.device("cpu"))
    assert devices.has_dependent_launches.__wrapped__(GPU) == (capability == (9, 0))


def test_the_interpreter_has_matrix_units_and_few_for_float64() -> None:
    cpu = torch.device("cpu")
    assert devices.has_matrix_units(cpu)
    assert not devices.has_many_float64_units(cpu)
    assert devices.shared_memory(cpu) > 2**20
