"""Draws arguments of kernels, of any shape, odd and empty, with any strides, in every type; and judges answers."""

import torch
from hypothesis import strategies as st

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TYPES = (torch.float32, torch.float16, torch.bfloat16)
ROUNDING = {dtype: torch.finfo(dtype).eps / 2 for dtype in TYPES}
"""The largest error of one rounding to the type, in units of the number."""
if DEVICE.type == "cpu":
    ROUNDING[torch.bfloat16] *= 2  # the interpreter truncates float32 to it, while a GPU rounds

FLOAT32_SLACK = 1e-6
"""The further error of sums and functions in float32, in units of the largest number."""


def assert_near(ours: torch.Tensor, truth: torch.Tensor, largest: float | None = None) -> None:
    """Demand each element within a rounding to the type plus float32's error of the largest summand.

    The largest summand is by default the largest of the truth.
    """
    assert ours.shape == truth.shape
    if truth.numel():
        largest = float(truth.abs().max()) if largest is None else largest
        allowed = truth.abs() * ROUNDING[ours.dtype] * 1.01 + largest * FLOAT32_SLACK
        allowed = allowed + torch.finfo(ours.dtype).smallest_normal * torch.finfo(ours.dtype).eps
        difference = (ours.double() - truth).abs()
        assert bool((difference <= allowed).all()), f"{float((difference - allowed).max()):.1e} more than allowed"


def _filled(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


@st.composite
def tensors(draw: st.DrawFn, *, shape: tuple[int, ...] | None = None, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor of up to three dimensions, whose elements may lie apart or in another order."""
    if shape is None:
        shape = draw(
            st.one_of(
                st.tuples(st.integers(0, 3000)),
                st.lists(st.integers(0, 12), min_size=0, max_size=3).map(tuple),
            )
        )
    kind = dtype or draw(st.sampled_from(TYPES))
    seed, apart, turned = draw(st.integers(0, 99)), draw(st.booleans()), draw(st.booleans())
    if turned:
        shape = shape[::-1]
    x = _filled((*shape[:-1], 2 * shape[-1]), kind, seed)[..., ::2] if apart and shape else _filled(shape, kind, seed)
    return x.permute(tuple(reversed(range(x.dim())))) if turned else x


@st.composite
def matrices(draw: st.DrawFn) -> torch.Tensor:
    """Return a matrix: rows one after the other, a slice of a wider one, with gaps in its rows, or transposed."""
    rows, columns = draw(st.one_of(st.tuples(st.integers(0, 70), st.integers(0, 70)), st.just((2, 1000))))
    kind, seed = draw(st.sampled_from(TYPES)), draw(st.integers(0, 99))
    way = draw(st.sampled_from(("rows", "slice", "gaps", "transposed")))
    if way == "slice":
        return _filled((rows, columns + 9), kind, seed)[:, 4 : 4 + columns]
    if way == "gaps":
        return _filled((2 * rows, 3 * columns), kind, seed)[::2, ::3]
    return _filled((columns, rows), kind, seed).T if way == "transposed" else _filled((rows, columns), kind, seed)
