"""The attention kernels for Hopper give the others' answers, as far as a CPU can tell."""

import itertools

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
    """Return q, k and v as views of one product, as in a block of a transformer."""
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
    """Two programs compute six tiles of two sequences, with the heads of a token side by side."""
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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("programs", [1, 2, 7])
def test_every_tile_has_its_turn(monkeypatch: pytest.MonkeyPatch, programs: int, causal: bool) -> None:
    """Five heads of 300 queries have three tiles each."""
    names = gluon_threads.translated(attention_hopper)
    monkeypatch.setattr(gluon_threads.OWN, "programs", programs, raising=False)
    made = [[] for _ in range(programs)]
    for program, tiles in enumerate(made):
        turn = program
        while turn < 15:
            tiles.append(tuple(map(int, names["place_of"](turn, 5, 300, 300, causal))))
            turn = names["after"](turn)
    blocks = {0: 1, 128: 2, 256: 3} if causal else dict.fromkeys((0, 128, 256), 3)
    assert sorted(itertools.chain(*made)) == [
        (head, start, blocks[start]) for head in range(5) for start in (0, 128, 256)
    ]
    if causal:
        assert all(tiles == sorted(tiles, key=lambda tile: -tile[2]) for tiles in made)
        work = [sum(tile[2] for tile in tiles) for tiles in made]
        assert max(work) - min(work) <= 2
