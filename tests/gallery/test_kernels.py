"""Every kernel of the gallery against its reference in float64, in every type and size that it takes."""

import pytest
import torch

from gallery.catalogue import KERNELS, PATH, exhibits
from gallery.check import error, gradient_error
from gallery.exhibit import Exhibit

EXHIBITS = list(exhibits().values())
WAYS = [
    pytest.param(exhibit, way, dtype, id=f"{exhibit.name}-{way}-{str(dtype).removeprefix('torch.')}")
    for exhibit in EXHIBITS
    for way in exhibit.ways
    for dtype in exhibit.dtypes
]
GRADIENTS = [case for case in WAYS if case.values[0].differentiable]


@pytest.mark.parametrize(("exhibit", "way", "dtype"), WAYS)
def test_the_answer_is_the_reference_s(exhibit: Exhibit, way: str, dtype: torch.dtype, device: torch.device) -> None:
    for size in exhibit.sizes:
        torch.manual_seed(7)
        arguments = exhibit.sample(size, dtype, device)
        assert error(exhibit, way, arguments) <= exhibit.tolerances[dtype], size


@pytest.mark.parametrize(("exhibit", "way", "dtype"), GRADIENTS)
def test_gradients_are_the_reference_s(exhibit: Exhibit, way: str, dtype: torch.dtype, device: torch.device) -> None:
    for size in exhibit.sizes:
        torch.manual_seed(7)
        arguments = exhibit.sample(size, dtype, device)
        assert gradient_error(exhibit, way, arguments) <= exhibit.tolerances[dtype], size


def test_all_kernels_lie_on_the_path() -> None:
    assert {path.stem for path in KERNELS.glob("*.py") if "EXHIBIT" in path.read_text("utf-8")} <= set(PATH)
    assert [exhibit.name for exhibit in EXHIBITS] == [name for name in PATH if name in exhibits()]
