"""Attention of any lengths beside float64, its gradients' bits, and its refusals."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gallery.kernels.attention import WAYS, attention, attention_with_logarithms, reference, sample
from gallery.kernels.attention_backward import attention_backward

TOLERANCES = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def largest_error(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.double() - truth).abs().max() / truth.abs().max().clamp(min=1e-30))


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    queries=st.integers(1, 140), keys=st.integers(3, 140), size=st.sampled_from([64, 128]), causal=st.booleans(),
    dtype=st.sampled_from(list(TOLERANCES)), seed=st.integers(0, 99),
)  # fmt: skip
def test_answer_logarithm_and_gradients_are_float64_s(
    device: torch.device, queries: int, keys: int, size: int, causal: bool, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    q, k, v, _ = sample((1, 1, queries, keys, size, causal), dtype, device)
    exact = [each.double().requires_grad_() for each in (q, k, v)]
    truth = reference(*exact, causal)
    upstream = torch.randn_like(q)
    for name in WAYS:
        portable = name == "portable"
        o, kept = attention_with_logarithms(q, k, v, causal, portable)
        s = (q.double() @ k.double().mT) / size**0.5
        if causal:
            s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
        assert largest_error(o, truth.detach()) <= TOLERANCES[dtype]
        assert float((kept - s.logsumexp(-1)).abs().max()) <= 1e-4
        ours = attention_backward(upstream, q, k, v, o, kept, causal, portable)
        theirs = torch.autograd.grad(truth, exact, upstream.double(), retain_graph=True)
        scale = max(float(each.abs().max()) for each in theirs)  # with few keys dq and dk cancel to almost nothing
        for found, right in zip(ours, theirs, strict=True):
            assert float((found.double() - right).abs().max()) <= TOLERANCES[dtype] * scale


def test_large_numbers_overflow_nothing(device: torch.device) -> None:
    """Without the maximum subtracted, exp(1000) would be infinite in float32."""
    q = torch.full((1, 1, 3, 64), 11.0, device=device)
    k = torch.cat([q, -q], dim=2)
    v = torch.randn(1, 1, 6, 64, device=device)
    assert largest_error(attention(q, k, v), reference(q.double(), k.double(), v.double())) <= 5e-6


def test_a_query_sees_no_later_key(device: torch.device) -> None:
    q, k, v, _ = sample((1, 1, 70, 70, 64, 1), torch.float32, device)
    before = attention(q, k, v, causal=True)
    k[:, :, 40:], v[:, :, 40:] = 1e4, -1e30
    assert torch.equal(attention(q, k, v, causal=True)[:, :, :40], before[:, :, :40])


def test_the_same_bits_each_time_and_from_other_strides(device: torch.device) -> None:
    q, k, v, _ = sample((2, 2, 40, 50, 64, 0), torch.bfloat16, device)
    o, kept = attention_with_logarithms(q, k, v, False, False)
    apart = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v, o)]
    assert torch.equal(attention(*apart[:3]), o)
    first = attention_backward(q, q, k, v, o, kept, False, False)
    second = attention_backward(apart[0], *apart, kept, False, False)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_refusals_name_the_argument(device: torch.device) -> None:
    q, k, v, _ = sample((1, 2, 3, 4, 64, 0), torch.float32, device)
    with pytest.raises(ValueError, match="'q' has heads of 32; accepted are 64 and 128"):
        attention(q[..., :32], k, v)
    with pytest.raises(ValueError, match=r"'k' has shape \[1, 1, 4, 64\]; \[1, 2, any, 64\] is needed"):
        attention(q, k[:, :1], v)
    with pytest.raises(ValueError, match=r"'v' has shape \[1, 2, 3, 64\]; \[1, 2, 4, 64\] is needed"):
        attention(q, k, v[:, :, 1:])
    with pytest.raises(TypeError, match="'q' is float64; accepted are float32, float16, bfloat16"):
        attention(q.double(), k.double(), v.double())
