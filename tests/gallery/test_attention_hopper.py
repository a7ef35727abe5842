"""The attention kernels for Hopper give what the others give, as far as a CPU can tell."""

import pytest
import torch

from gallery.kernels import attention as ours
from gallery.kernels import attention_backward_hopper, attention_hopper
from gallery.kernels.attention_backward import attention_backward
from tests.gallery import gluon_threads

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="of machines without a GPU; on Hopper test_attention.py runs the kernels"
)

SIZES = [(1, 1), (200, 70), (256, 256), (140, 520)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), SIZES)
def test_the_answer_and_gradients_are_the_reference_s(
    monkeypatch: pytest.MonkeyPatch, queries: int, keys: int, causal: bool
) -> None:
    torch.manual_seed(5)
    q, k, v, _ = ours.sample((1, 2, queries, keys, 64, causal), torch.bfloat16, torch.device("cpu"))
    monkeypatch.setattr(attention_hopper, "suits", lambda q: True)
    with gluon_threads.on_threads(attention_hopper), gluon_threads.on_threads(attention_backward_hopper):
        o, kept = ours.attention_with_logarithms(q, k, v, causal, False)
        upstream = torch.randn_like(q)
        gradients = attention_backward(upstream, q, k, v, o, kept, causal, False)
    exact = [each.double().requires_grad_() for each in (q, k, v)]
    truth = ours.reference(*exact, causal)
    theirs = torch.autograd.grad(truth, exact, upstream.double())
    scale = max(float(each.abs().max()) for each in theirs)
    assert float((o.double() - truth.detach()).abs().max() / truth.detach().abs().max()) <= 1.6e-2
    assert torch.allclose(kept, ours.attention_with_logarithms(q, k, v, causal, True)[1], atol=1e-5)
    for found, right in zip(gradients, theirs, strict=True):
        assert float((found.double() - right).abs().max()) <= 1.6e-2 * scale
