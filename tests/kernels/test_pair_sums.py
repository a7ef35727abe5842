"""Sums in pairs: their order follows their length alone."""

import pytest
import torch
import triton
import triton.language as tl

from triton_regressors.kernels.numerics.pairwise_reduce import sum_in_pairs


@triton.jit
def sums_kernel(values, out, LINES: tl.constexpr, LENGTH: tl.constexpr):
    line, place = tl.arange(0, LINES), tl.arange(0, LENGTH)
    tl.store(out + line, sum_in_pairs(tl.load(values + line[:, None] * LENGTH + place[None, :])))


def sums(values: torch.Tensor, warps: int) -> torch.Tensor:
    out = values.new_empty(len(values))
    sums_kernel[(1,)](values=values, out=out, LINES=values.shape[0], LENGTH=values.shape[1], num_warps=warps)
    return out


@pytest.mark.parametrize("length", [1, 2, 8, 64, 256])
def test_bits_follow_the_length_alone(device: torch.device, length: int) -> None:
    values = torch.randn(8, length, dtype=torch.float64, generator=torch.Generator().manual_seed(length)).to(device)
    found, expected = sums(values, 4), values
    while expected.shape[1] > 1:
        expected = expected[:, ::2] + expected[:, 1::2]
    assert torch.equal(found, expected[:, 0])
    for lines, warps in ((slice(2, 3), 1), (slice(4, 8), 2), (slice(0, 8), 8)):
        assert torch.equal(sums(values[lines].contiguous(), warps), found[lines])
