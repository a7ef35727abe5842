"""Layer normalisation: rows of any shape, kept in registers or read twice, and its refusals."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gallery.kernels import layer_norm as forward
from gallery.kernels import layer_norm_backward as backward
from gallery.kernels.layer_norm import layer_norm, reference

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@pytest.fixture(params=[False, True], ids=["in registers", "read twice"])
def wide(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rows of every width take the kernels of the widest, or none."""
    if request.param:
        monkeypatch.setattr(forward, "WIDEST", 0)
        monkeypatch.setattr(backward, "WIDEST", 0)


def largest_error(found: torch.Tensor, truth: torch.Tensor) -> float:
    found, truth = found.detach(), truth.detach()
    return float((found.double() - truth).abs().max() / truth.abs().max().clamp(min=1e-30))


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 9), width=st.integers(4, 300), offset=st.sampled_from([0.0, 100.0]), seed=st.integers(0, 99),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)  # fmt: skip
def test_answer_and_gradients_are_float64_s(
    wide: None, device: torch.device, rows: int, width: int, offset: float, seed: int, dtype: torch.dtype
) -> None:
    """An offset cancels in the mean of squares; here it costs only the bits that x itself has lost."""
    torch.manual_seed(seed)
    x = (torch.randn(rows, width, device=device) + offset).to(dtype).requires_grad_()
    w, b = torch.randn(2, width, device=device, dtype=dtype).unbind()
    w.requires_grad_()
    b.requires_grad_()
    exact = [each.detach().double().requires_grad_() for each in (x, w, b)]
    y, truth = layer_norm(x, w, b), reference(*exact, 1e-5)
    upstream = torch.randn_like(y)
    gradients = torch.autograd.grad(y, (x, w, b), upstream)
    truths = torch.autograd.grad(truth, exact, upstream.double())
    allowed = TOLERANCES[dtype] * (1 + offset)
    for ours, theirs in zip((y, *gradients), (truth, *truths), strict=True):
        assert largest_error(ours, theirs) <= allowed


def test_gradients_of_few_and_many_rows_have_the_same_bits_each_time(device: torch.device) -> None:
    x, w = torch.randn(300, 33, device=device), torch.randn(33, device=device)
    kept = forward.layer_norm_with_statistics(x, w, w, 1e-5)[1:]
    first, second = (backward.layer_norm_backward(x, x, w, *kept) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rows_are_along_the_last_dimension_of_any_strides(device: torch.device, dtype: torch.dtype) -> None:
    x = torch.randn(6, 3, 4, device=device, dtype=dtype).permute(1, 2, 0)
    w, b = torch.randn(2, 12, device=device, dtype=dtype)[:, ::2].unbind()
    found = layer_norm(x, w, b)
    assert largest_error(found, reference(x.double(), w.double(), b.double(), 1e-5)) <= TOLERANCES[dtype]


def test_refusals_name_the_argument(device: torch.device) -> None:
    x, w = torch.zeros(3, 4, device=device), torch.zeros(4, device=device)
    with pytest.raises(ValueError, match=r"'weight' has shape \[3\]; \[4\] is needed"):
        layer_norm(x, w[:3], w)
    with pytest.raises(ValueError, match=r"'bias' is torch\.float64"):
        layer_norm(x, w, w.double())
    with pytest.raises(TypeError, match="'x' is int32; accepted are float32, float16, bfloat16, float64"):
        layer_norm(x.int(), w, w)
    with pytest.raises(ValueError, match="'x' has no dimension"):
        layer_norm(x.sum(), w, w)
    for eps in (-5.0, 0.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"'eps' is {eps}; it must be above 0 and finite"):
            layer_norm(x, w, w, eps)
    with pytest.raises(ValueError, match=r"'mean' has shape \[2\]; \[3\] is needed"):
        backward.layer_norm_backward(x, x, w, w[:2], w[:3])
