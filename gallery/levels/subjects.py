"""The subjects of every level: five operations, a block of a transformer and three models, with their sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from gallery.levels import text
from gallery.levels.attention import written_out
from gallery.levels.messages import by_destination, mean_weights
from gallery.levels.models import HEAD, Block, GraphNetwork, VisionTransformer
from gallery.levels.parts import COMPILE, EAGER, IN_TORCH, Parts, parts_of, raised

Size = tuple[int, ...]
Arguments = tuple[torch.Tensor, ...]
Call = Callable[..., torch.Tensor]

SEED = 7
OF_FLOAT32, OF_BFLOAT16, OF_MODELS = 1e-5, 1e-2, 4e-2
"""The largest error in units of the truth's largest magnitude: bfloat16 has 2⁻⁹, a block rounds to it seven times."""


@dataclass(frozen=True)
class Subject:
    """One computation, with the same meaning at all levels."""

    name: str
    formula: str
    build: Callable[[Size, Parts], Call]
    """A function that builds it from a level's parts: a function, or a module with the same weights at all levels."""
    sample: Callable[[Size, torch.dtype, torch.device], Arguments]
    """A function that returns arguments, drawn from torch's generator."""
    small: Size
    """The size to check, which the interpreter runs too."""
    large: Size
    """The size to check and time on a GPU."""
    work: Callable[[Size], int]
    """The number of floating-point operations."""
    numbers: Callable[[Size], int]
    """The numbers that must be read or written, weights included."""
    dtype: torch.dtype = torch.bfloat16
    """The type on a GPU; on a CPU it is float32."""
    tolerance: float = OF_BFLOAT16
    others: Mapping[str, Call] = field(default_factory=dict)
    """Further calls to measure beside the levels, by name."""

    def at(self, level: str, size: Size, device: torch.device) -> Call:
        """Return the subject as a level computes it on a device."""
        return raised(self.placed(self.made(size, parts_of(level)), device, self.dtype_on(device)), level)

    def truth(self, size: Size, arguments: Arguments) -> torch.Tensor:
        """Return the answer in float64, from the weights and arguments as they are on the device."""
        device, dtype = arguments[0].device, self.dtype_on(arguments[0].device)
        made = self.placed(self.placed(self.made(size, IN_TORCH), device, dtype), device, torch.float64)
        return made(*(each.double() if each.is_floating_point() else each for each in arguments))

    def arguments(self, size: Size, device: torch.device) -> Arguments:
        """Return arguments on a device, the same in every run."""
        torch.manual_seed(SEED)
        return self.sample(size, self.dtype_on(device), device)

    def made(self, size: Size, parts: Parts) -> Call:
        """Return the result of `build`; every call draws the same weights."""
        torch.manual_seed(SEED)
        return self.build(size, parts)

    @staticmethod
    def placed(made: Call, device: torch.device, dtype: torch.dtype) -> Call:
        """Return a module with its weights on a device and of a type; a function is returned unchanged."""
        return made.requires_grad_(False).to(device, dtype) if isinstance(made, nn.Module) else made

    def dtype_on(self, device: torch.device) -> torch.dtype:
        """Return the type of floating-point numbers on a device."""
        return self.dtype if device.type == "cuda" else torch.float32

    def tolerance_on(self, device: torch.device) -> float:
        """Return the largest allowed error of an answer, in units of the truth's largest magnitude."""
        return self.tolerance if device.type == "cuda" else OF_FLOAT32


def error(found: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the largest error in units of the truth's largest magnitude; NaN counts as infinite."""
    assert found.shape == truth.shape, f"shape {list(found.shape)} where {list(truth.shape)} is due"
    largest = float((found.double() - truth).abs().max() / truth.abs().max())
    return largest if largest == largest else float("inf")


def _normalised(size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    rows, width = size
    draw = partial(torch.randn, dtype=dtype, device=device)
    return draw(rows, width) * 2 + 1, 1 + draw(width) * 0.1, draw(width) * 0.1


def _heads(size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    batch, heads, tokens = size  # they lie as a block of a transformer has them
    return torch.randn(batch, tokens, 3, heads, HEAD, dtype=dtype, device=device).permute(2, 0, 3, 1, 4).unbind(0)


def _graph(size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    nodes, edges, width = size
    offsets, sources = by_destination(*torch.randint(0, nodes, (2, edges), device=device).unbind(0), nodes)
    return torch.randn(nodes, width, dtype=dtype, device=device), offsets, sources, mean_weights(offsets, dtype)


def _rows(size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    rows, features = size
    draw = partial(torch.randn, dtype=dtype, device=device)
    mean, scale = draw(features) + 5, draw(features).abs() + 2
    return draw(rows, features) * 3 + 5, mean, scale, draw(features * (features + 3) // 2) * 0.1, draw(1)


def _of_block(rows: int, tokens: int, width: int, causal: bool) -> int:
    return 24 * rows * width**2 + (2 if causal else 4) * rows * tokens * width


LEVELLED = [
    Subject(
        "layer_norm_gelu",
        "y = GELU(norm(x) · γ + β), x [rows, width]",
        lambda size, parts: parts.layer_norm,
        _normalised,
        small=(20, 72),
        large=(65536, 1024),
        work=lambda size: 20 * size[0] * size[1],
        numbers=lambda size: 2 * size[0] * size[1],
    ),
    Subject(
        "attention",
        "Y = softmax(QKᵀ/√64) V, causal, Q, K, V [batch, heads, tokens, 64]",
        lambda size, parts: parts.attention,
        _heads,
        small=(1, 2, 72),
        large=(8, 16, 1024),
        work=lambda size: 2 * size[0] * size[1] * size[2] ** 2 * HEAD,
        numbers=lambda size: 4 * size[0] * size[1] * size[2] * HEAD,
        others={f"{EAGER}, written out": written_out, f"{COMPILE}, written out": written_out},
    ),
    Subject(
        "messages",
        "yᵢ = Σ wₑ x_{s(e)} over the edges e into node i, mean of neighbours, x [nodes, width]",
        lambda size, parts: parts.messages,
        _graph,
        small=(30, 100, 24),
        large=(2**19, 2**22, 128),
        work=lambda size: 2 * size[1] * size[2],
        numbers=lambda size: size[1] * (size[2] + 3) + size[0] * size[2],
    ),
    Subject(
        "polynomial",
        "y = b + Σ aᵢ zᵢ + Σ cᵢⱼ zᵢ zⱼ, z = (x − m)/s: scaler, polynomial of degree 2 and Ridge, x [rows, features]",
        lambda size, parts: parts.polynomial,
        _rows,
        small=(70, 5),
        large=(2**20, 32),
        work=lambda size: size[0] * (size[1] * (size[1] + 1) + 4 * size[1]),
        numbers=lambda size: size[0] * (size[1] + 1),
        dtype=torch.float32,
        tolerance=OF_FLOAT32,
    ),
    Subject(
        "block",
        "a causal block of a transformer with heads of 64, x [batch, tokens, width]",
        lambda size, parts: Block(size[2], parts),
        lambda size, dtype, device: (torch.randn(size, dtype=dtype, device=device),),
        small=(1, 20, 128),
        large=(8, 1024, 1024),
        work=lambda size: _of_block(size[0] * size[1], size[1], size[2], causal=True),
        numbers=lambda size: 12 * size[2] ** 2 + 2 * size[0] * size[1] * size[2],
        tolerance=OF_MODELS,
    ),
    Subject(
        "language_model",
        "the scores of each next token, two blocks of width 128, trained on one sentence",
        lambda size, parts: text.language_model(parts),
        lambda size, dtype, device: (text.encoded(text.TEXT).to(device),),
        small=(1, text.CONTEXT),
        large=(1, text.CONTEXT),
        work=lambda size: 2 * _of_block(size[1], size[1], 128, causal=True) + 2 * size[1] * 128 * text.TOKENS,
        numbers=lambda size: 24 * 128**2 + 2 * 128 * text.TOKENS + size[1] * text.TOKENS,
        tolerance=OF_MODELS,
    ),
    Subject(
        "vision_transformer",
        "the scores of 16 classes, images of 32 × 32 in patches of 4 × 4, drawn weights; [images, width, blocks]",
        lambda size, parts: VisionTransformer(parts, size[1], size[2]),
        lambda size, dtype, device: (torch.randn(size[0], 3, 32, 32, dtype=dtype, device=device),),
        small=(1, 64, 1),
        large=(256, 384, 4),
        work=lambda size: size[2] * _of_block(size[0] * 64, 64, size[1], causal=False) + 96 * size[0] * 64 * size[1],
        numbers=lambda size: 12 * size[2] * size[1] ** 2 + size[0] * 3 * 32 * 32,
        tolerance=OF_MODELS,
    ),
    Subject(
        "graph_network",
        "the scores of 16 classes for each node, three layers, drawn weights; [nodes, edges, width]",
        lambda size, parts: GraphNetwork(parts, size[2]),
        _graph,
        small=(20, 60, 32),
        large=(2**16, 2**20, 128),
        work=lambda size: 7 * 2 * size[0] * size[2] ** 2 + 3 * 2 * size[1] * size[2],
        numbers=lambda size: 3 * size[1] * (size[2] + 3) + size[0] * (size[2] + 16),
        tolerance=OF_MODELS,
    ),
]
SUBJECTS: dict[str, Subject] = {subject.name: subject for subject in LEVELLED}
OPERATIONS = ("layer_norm_gelu", "attention", "messages", "polynomial")


def other(subject: Subject, name: str) -> Call:
    """Return the further calls to measure besides the levels."""
    made: Any = subject.others[name]
    return raised(made, COMPILE) if name.startswith(COMPILE) else made
