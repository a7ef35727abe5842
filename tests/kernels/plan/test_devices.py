"""The units of each GPU."""

import sys

import pytest
import torch
import triton

from tests.kernels.operations import OPERATIONS
from tests.kernels.operations_dense import dense_layers
from triton_regressors.kernels.plan import devices

CHAINS = {
    "layers": (dense_layers(64, 256, 256, 256, 4, precision="int8"), 64),
    "contributions": (OPERATIONS["tree contributions"][0], *OPERATIONS["tree contributions"][1]),
}
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


def test_a_launch_begins_early_only_after_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert devices.early_launch(cpu) == devices.early_launch(cpu, after_a_kernel=False) == {"EARLY": False}
    monkeypatch.setattr(devices, "has_dependent_launches", lambda _: True)
    assert devices.early_launch(GPU) == {"EARLY": True, "launch_pdl": True}
    assert devices.early_launch(GPU, after_a_kernel=False) == {"EARLY": True}


@pytest.mark.gpu
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("rows", [1, 16, 64, 300, 1024])
@pytest.mark.parametrize("name", CHAINS)
def test_launches_that_begin_early_have_the_bits_of_those_that_wait(
    name: str, rows: int, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many calls follow each other, and none waits on the host for the one before."""
    if not devices.has_dependent_launches(GPU):
        pytest.skip("needs a GPU of compute capability 9.0")
    op, features = CHAINS[name]
    parameters = {key: torch.as_tensor(array).to(GPU) for key, array in op.parameters().items()}
    draws = [torch.randn(rows, features) for _ in range(50)]
    draws = [x.pin_memory() if pinned else x.to(GPU) for x in draws]
    width = op.output_width(features)
    outputs = {early: [torch.empty(rows, width, device=GPU) for _ in draws] for early in (True, False)}
    for early, answers in outputs.items():
        monkeypatch.setattr(devices, "has_dependent_launches", lambda _, early=early: early)
        for x, output in zip(draws, answers, strict=True):
            op.launch(parameters, [x], output, rows)
    assert all(torch.equal(one, other) for one, other in zip(*outputs.values(), strict=True))
