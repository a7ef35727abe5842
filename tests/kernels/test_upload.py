"""Rows on their way to the device."""

import pytest
import torch

from triton_regressors.kernels.engine.upload import BLOCK, MOST_PROGRAMS, upload

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 64])
@pytest.mark.parametrize("rows", [1, 7, BLOCK // 64, BLOCK // 64 + 1, BLOCK + 5, BLOCK * MOST_PROGRAMS + 3])
def test_the_first_rows_are_copied(rows: int, width: int, dtype: torch.dtype) -> None:
    source = torch.randn(rows + 2, width, dtype=dtype, pin_memory=DEVICE == "cuda")
    source[0, 0], source[rows - 1, -1] = torch.nan, torch.inf
    target = torch.zeros(rows + 2, width, dtype=dtype, device=DEVICE)
    upload(source, target, rows)
    assert torch.equal(target[:rows].cpu().view(torch.uint8), source[:rows].view(torch.uint8))
    assert not target[rows:].any()
