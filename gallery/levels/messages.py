"""Message passing on a graph: yᵢ = Σ w_e · x_{s(e)} over the edges e that lead to node i.

Mathematics: x `[nodes, width]`; edges are sorted by destination, so that those into node i are `offsets[i]` to
`offsets[i + 1]` (compressed sparse rows; `offsets` `[nodes + 1]`, int32); `sources` `[edges]`, int32, holds each edge's
source, and `weights` `[edges]` its weight. y has x's shape and type; sums are computed in float32.
With wₑ = 1/(edges into i) this is the mean over neighbours.
Lesson: a sum that is scattered to the destinations of edges needs atomics, whose order, and therefore bits, change from
run to run. With edges sorted by destination, each node *gathers* its sum: one program owns it, nothing collides, and
the messages are never written to memory. Torch's operations write them, one row for each edge, and read them back.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from gallery.arguments import demand_alike, demand_shape
from gallery.launches import Launch, by_layout
from gallery.levels.extension import library
from gallery.levels.operator import operator
from gallery.tuning import Choice, tuned

CHOICES = (
    Choice("eight edges at once", "nodes with few neighbours waste little", {"EDGES": 8}, 1),
    Choice("sixteen edges at once", "more rows are under way in each program", {"EDGES": 16}, 2),
    Choice("four edges at once", "few registers, so many programs are under way", {"EDGES": 4}, 1),
)


def by_destination(sources: torch.Tensor, destinations: torch.Tensor, nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `offsets` and `sources` of a list of edges; edges to the same node keep their order."""
    order = torch.argsort(destinations, stable=True)
    counts = torch.bincount(destinations, minlength=nodes)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return offsets.int(), sources[order].int()


def mean_weights(offsets: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the weights of edges with which the sum over neighbours is their mean."""
    counts = offsets.diff()
    return torch.repeat_interleave(1.0 / counts.clamp(min=1), counts).to(dtype)


def reference(x: torch.Tensor, offsets: torch.Tensor, sources: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return y; torch's sum over segments has a fixed order too."""
    sums = torch.float64 if x.dtype == torch.float64 else torch.float32
    messages = x.index_select(0, sources).to(sums) * weights.to(sums).unsqueeze(1)
    return torch.segment_reduce(messages, "sum", offsets=offsets.long(), initial=0.0).to(x.dtype)


@tuned(CHOICES, key=["nodes", "width"])
@triton.jit
def messages_kernel(
    x,  # [nodes, width], like y
    offsets,  # int32 [nodes + 1]
    sources,  # int32 [edges]
    weights,  # [edges]
    y,
    nodes,
    width,
    WIDTH: tl.constexpr,  # columns in a program
    EDGES: tl.constexpr,
):
    """Write WIDTH columns of one node; a program adds its edges EDGES at a time, always in the same order."""
    node = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    begin, end = tl.load(offsets + node), tl.load(offsets + node + 1)
    total = tl.zeros([EDGES, WIDTH], tl.float32)
    for first in range(begin, end, EDGES):
        edge = first + tl.arange(0, EDGES)
        source = tl.load(sources + edge, mask=edge < end, other=0).to(tl.int64)
        weight = tl.load(weights + edge, mask=edge < end, other=0.0).to(tl.float32)
        inside = (edge < end)[:, None] & (column < width)[None, :]
        value = tl.load(x + source[:, None] * width + column[None, :], mask=inside, other=0.0)
        total += value.to(tl.float32) * weight[:, None]
    tl.store(y + node * width + column, tl.sum(total, axis=0).to(y.dtype.element_ty), mask=column < width)


@operator("gallery::level_messages")
def in_triton_language(
    x: torch.Tensor, offsets: torch.Tensor, sources: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Return y of x's shape and type; x of any strides is copied into rows first."""
    return launcher(x, offsets, sources, weights)(x, offsets, sources, weights)


@by_layout
def launcher(
    x: torch.Tensor, offsets: torch.Tensor, sources: torch.Tensor, weights: torch.Tensor
) -> Callable[..., torch.Tensor]:
    """Return what computes y of tensors with these layouts."""
    check(x, offsets, sources, weights)
    nodes, width = x.shape
    columns = min(triton.next_power_of_2(width), 128)
    launch = Launch(messages_kernel, (nodes, triton.cdiv(width, columns)), nodes, width, columns)

    def answer(x: torch.Tensor, offsets: torch.Tensor, sources: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        if nodes and width:
            launch(x, offsets.contiguous(), sources.contiguous(), weights.contiguous(), y)
        return y

    return answer


@in_triton_language.register_fake
def _(x: torch.Tensor, offsets: torch.Tensor, sources: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def in_cuda(x: torch.Tensor, offsets: torch.Tensor, sources: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return y of x's shape and type, by `cuda/messages.cu`: float32 or bfloat16."""
    check(x, offsets, sources, weights)
    return library().messages(x, offsets, sources, weights)


def check(x: torch.Tensor, offsets: torch.Tensor, sources: torch.Tensor, weights: torch.Tensor) -> None:
    """Refuse arguments that no level supports; the caller of `by_destination` ensures that `sources` are nodes."""
    demand_alike(x=x, weights=weights)
    demand_alike((torch.int32,), offsets=offsets, sources=sources)
    demand_shape("x", x, -1, -1)
    demand_shape("offsets", offsets, x.shape[0] + 1)
    demand_shape("weights", weights, -1)
    demand_shape("sources", sources, len(weights))
