"""The attention kernels for Hopper give what the others give, as far as a CPU can tell."""

import pytest
import torch

from gallery.kernels import attention as ours
from gallery.kernels import attention_backward_hopper, attention_hopper
from gallery.kernels.attention_backward import attention_backward
from gallery.levels import attention as level
from tests.gallery import gluon_threads

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="of machines without a GPU; on Hopper test_attention.py runs the kernels"
)

SIZES = [(1, 1), (200, 70), (256, 256), (140, 520)]


def drawn_together(batch: int, tokens: int, heads: int) -> tuple[torch.Tensor, ...]:
    """Return q, k and v as views of one product, as a block of a transformer has them."""
    together = torch.randn(batch, tokens, 3, heads, 64, dtype=torch.bfloat16)
    return together.permute(2, 0, 3, 1, 4).unbind(0)


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


@pytest.mark.parametrize("causal", [False, True])
def test_views_are_read_where_they_lie(monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    """Two programs make six tiles of two sequences, heads of a token side by side."""
    q, k, v = drawn_together(2, 140, 3)
    monkeypatch.setattr(attention_hopper, "suits", lambda q: True)
    read = []
    with gluon_threads.on_threads(attention_hopper):
        describe = attention_hopper.describe
        monkeypatch.setattr(attention_hopper, "describe", lambda x, rows: read.append(x) or describe(x, rows))
        found = level.in_triton_language(q, k, v, causal)
        monkeypatch.undo()
    assert [each.data_ptr() for each in read[:3]] == [each.data_ptr() for each in (q, k, v)]
    truth = level.reference(q.double(), k.double(), v.double(), causal)
    assert float((found.double() - truth).abs().max() / truth.abs().max()) <= 1e-2


def test_what_no_descriptor_describes_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = drawn_together(1, 70, 1)
    odd = [torch.zeros(1, 1, 70, 67, dtype=torch.bfloat16)[..., 1:65].copy_(each) for each in (q, k, v)]
    monkeypatch.setattr(attention_hopper, "suits", lambda q: True)
    with gluon_threads.on_threads(attention_hopper):
        assert torch.equal(ours.attention(*odd), ours.attention(q, k, v))


def test_at_each_turn_there_is_another_tile_and_the_longest_come_first() -> None:
    """Of five heads, two at once, and 300 queries: three tiles of each head, with three, two and one blocks of keys."""
    place_of = gluon_threads.translated(attention_hopper)["place_of"]
    places = [tuple(map(int, place_of(turn, (5, 2, 300, 300), True))) for turn in range(15)]
    assert {(head, start) for head, start, _ in places} == {(h, at) for h in range(5) for at in (0, 128, 256)}
    assert [blocks for *_, blocks in places] == [3, 3, 2, 2, 1, 1] * 2 + [3, 2, 1]
    assert [head for head, *_ in places] == [0, 1] * 3 + [2, 3] * 3 + [4] * 3
