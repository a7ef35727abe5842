"""Every kernel of the gallery against its reference in float64, in every type and size that it takes."""

import importlib
from pathlib import Path

import pytest
import torch

from gallery.exhibit import Answer, Exhibit

KERNELS = sorted(path.stem for path in (Path(__file__).parents[2] / "gallery/kernels").glob("*.py"))
EXHIBITS: list[Exhibit] = [importlib.import_module(f"gallery.kernels.{name}").EXHIBIT for name in KERNELS]
CASES = [
    pytest.param(exhibit, way, dtype, id=f"{exhibit.name}-{way}-{str(dtype).removeprefix('torch.')}")
    for exhibit in EXHIBITS
    for way in exhibit.ways
    for dtype in exhibit.dtypes
]


def outputs(answer: Answer) -> tuple[torch.Tensor, ...]:
    return answer if isinstance(answer, tuple) else (answer,)


@pytest.fixture
def device(engine: str) -> torch.device:
    return torch.device("cuda" if engine == "triton" else "cpu")


@pytest.mark.parametrize(("exhibit", "way", "dtype"), CASES)
def test_the_answer_is_the_reference_s(exhibit: Exhibit, way: str, dtype: torch.dtype, device: torch.device) -> None:
    for size in exhibit.sizes:
        torch.manual_seed(7)
        arguments = exhibit.sample(size, dtype, device)
        exact = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments]
        found, truth = outputs(exhibit.ways[way](*arguments)), outputs(exhibit.reference(*exact))
        assert len(found) == len(truth)
        for ours, theirs in zip(found, truth, strict=True):
            assert ours.shape == theirs.shape, size
            assert ours.dtype == dtype, size
            if theirs.numel():
                scale = theirs.abs().max().clamp(min=1e-30)
                assert float((ours.double() - theirs).abs().max() / scale) <= exhibit.tolerances[dtype], size
