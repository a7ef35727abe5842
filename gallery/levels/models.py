"""A block of a transformer and three small models, assembled from the parts of any level.

A language model that continues a text, a vision transformer and a graph network. Their weights are drawn from torch's
generator, small and the same at every level; the language model is further trained on one built-in text.
Source of the block: Xiong et al., *On Layer Normalization in the Transformer Architecture* (2020); of the vision
transformer: Dosovitskiy et al., *An Image is Worth 16x16 Words* (2021); of the graph network's layer: Hamilton, Ying,
Leskovec, *Inductive Representation Learning on Large Graphs* (2017).
"""

from __future__ import annotations

import torch
from torch import nn

from gallery.levels.parts import Parts

HEAD = 64
"""The size of a head, in models of every size."""


class Linear(nn.Module):
    """y = f(x Wᵀ + b) + r, `linear.py`."""

    def __init__(self, inputs: int, outputs: int, parts: Parts) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * inputs**-0.5)
        self.bias = nn.Parameter(torch.randn(outputs) * 0.02)
        self.linear = parts.linear

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None, gelu: bool = False) -> torch.Tensor:
        """Return y."""
        return self.linear(x, self.weight, self.bias, residual, gelu)


class LayerNorm(nn.Module):
    """Layer normalisation, optionally followed by GELU, `layer_norm.py`."""

    def __init__(self, width: int, parts: Parts) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + torch.randn(width) * 0.02)
        self.bias = nn.Parameter(torch.randn(width) * 0.02)
        self.layer_norm = parts.layer_norm

    def forward(self, x: torch.Tensor, gelu: bool = False) -> torch.Tensor:
        """Return y."""
        return self.layer_norm(x, self.weight, self.bias, gelu)


class Block(nn.Module):
    """A block of a transformer: h = x + attention(norm(x)), y = h + W₂ GELU(W₁ norm(h)); x, y `[batch, tokens, width]`.

    It takes seven kernels in the Triton language and CUDA C++: each product includes the operations after it.
    """

    def __init__(self, width: int, parts: Parts, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = width // HEAD, causal
        self.before_attention, self.before_layers = LayerNorm(width, parts), LayerNorm(width, parts)
        self.look, self.mix = Linear(width, 3 * width, parts), Linear(width, width, parts)
        self.widen, self.narrow = Linear(width, 4 * width, parts), Linear(4 * width, width, parts)
        self.attention = parts.attention

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y."""
        batch, tokens, width = x.shape
        looked = self.look(self.before_attention(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = looked.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = self.attention(q, k, v, self.causal).transpose(1, 2).reshape(batch, tokens, width)
        x = self.mix(mixed, x)
        return self.narrow(self.widen(self.before_layers(x), None, True), x)


class LanguageModel(nn.Module):
    """The scores of each next token: token and position, blocks, norm, linear; tokens `[batch, context]` int64."""

    def __init__(self, parts: Parts, tokens: int, context: int, width: int = 128, blocks: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(tokens, width) * 0.5)
        self.places = nn.Parameter(torch.randn(context, width) * 0.5)
        self.blocks = nn.ModuleList(Block(width, parts) for _ in range(blocks))
        self.norm, self.scores = LayerNorm(width, parts), Linear(width, tokens, parts)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return `[batch, context, tokens]`."""
        x = nn.functional.embedding(tokens, self.tokens) + self.places
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


class VisionTransformer(nn.Module):
    """The scores of each class: patches, linear, norm + GELU, place, blocks, norm, mean over patches, linear."""

    def __init__(
        self, parts: Parts, width: int, blocks: int, side: int = 32, patch: int = 4, classes: int = 16
    ) -> None:
        super().__init__()
        self.patch = patch
        self.stem, self.stem_norm = Linear(3 * patch**2, width, parts), LayerNorm(width, parts)
        self.places = nn.Parameter(torch.randn((side // patch) ** 2, width) * 0.5)
        self.blocks = nn.ModuleList(Block(width, parts, causal=False) for _ in range(blocks))
        self.norm, self.scores = LayerNorm(width, parts), Linear(width, classes, parts)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return `[batch, classes]` of images `[batch, 3, side, side]`."""
        batch, colours, side, _ = images.shape
        patch, along = self.patch, side // self.patch
        cut = images.view(batch, colours, along, patch, along, patch).permute(0, 2, 4, 1, 3, 5)
        patches = cut.reshape(batch, along * along, colours * patch * patch)
        x = self.stem_norm(self.stem(patches), True) + self.places
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x).mean(dim=1))


class GraphLayer(nn.Module):
    """h = GELU(norm(W x + V messages(x))), with `messages.py` between two products, the second adding the first."""

    def __init__(self, width: int, parts: Parts) -> None:
        super().__init__()
        self.own, self.others = Linear(width, width, parts), Linear(width, width, parts)
        self.norm, self.messages = LayerNorm(width, parts), parts.messages

    def forward(
        self, x: torch.Tensor, offsets: torch.Tensor, sources: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Return h of x's shape."""
        return self.norm(self.others(self.messages(x, offsets, sources, weights), self.own(x)), True)


class GraphNetwork(nn.Module):
    """The scores of each node's classes: linear, layers, linear; x `[nodes, width]`, edges as in `messages.py`."""

    def __init__(self, parts: Parts, width: int, layers: int = 3, classes: int = 16) -> None:
        super().__init__()
        self.stem = Linear(width, width, parts)
        self.layers = nn.ModuleList(GraphLayer(width, parts) for _ in range(layers))
        self.scores = Linear(width, classes, parts)

    def forward(
        self, x: torch.Tensor, offsets: torch.Tensor, sources: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Return `[nodes, classes]`."""
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x, offsets, sources, weights)
        return self.scores(x)
