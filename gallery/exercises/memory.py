"""Tensors between guards: memory on both sides of every tensor that shows whether a kernel wrote there or read it.

A guard of an argument is NaN in every floating-point type, so a number that was read there spoils the answer. A tensor
that a launcher makes is filled with one pattern, guards and all, so places that were never written show too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

GUARD_BYTES = 2**18
"""The length of a guard: a block of the longest usual length beyond an end still lies in it."""

LARGEST_COPIED = 2**28
"""The bytes of the largest argument that is compared with a copy afterwards."""

NAN_BYTE, UNWRITTEN_BYTE = 0xFF, 0x7F
"""The bytes of arguments' guards, NaN in all floating-point types, and of what no kernel has written."""

FACTORIES = ("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like")
METHODS = ("new_empty", "new_zeros", "new_ones", "new_full", "contiguous", "clone")


def apart(shape: Sequence[int]) -> tuple[int, ...]:
    """Return strides that leave a place between neighbours, and three between rows."""
    return tuple(2 * math.prod(length + 3 for length in shape[place + 1 :]) for place in range(len(shape)))


def slices(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a slice of the first columns: only rows lie apart."""
    return tuple(math.prod(length + 5 for length in shape[place + 1 :]) for place in range(len(shape)))


def transposed(shape: Sequence[int]) -> tuple[int, ...]:
    """Return strides by which the elements of a column, or of the first dimension, are neighbours."""
    return tuple(math.prod(shape[:place]) for place in range(len(shape)))


LAYOUTS: dict[str, Callable[[Sequence[int]], tuple[int, ...]]] = {
    "apart": apart,
    "slices": slices,
    "transposed": transposed,
}
"""The strides of each layout, given a shape."""


@dataclass
class Block:
    """One guarded tensor."""

    name: str
    tensor: torch.Tensor
    memory: torch.Tensor
    """All bytes, uint8: a guard, the tensor's, a guard."""

    end: int
    """The place in `memory` where the tensor's bytes end; they begin behind `GUARD_BYTES`."""

    byte: int
    before: torch.Tensor | None = None
    """A copy of `memory` if nothing of it may change."""

    def guards_hold(self) -> bool:
        """Return whether both guards are as they were."""
        return bool((self.memory[:GUARD_BYTES] == self.byte).all() and (self.memory[self.end :] == self.byte).all())

    def is_unchanged(self) -> bool:
        """Return whether the tensor, and what lies between its elements, is as it was, if it has to be."""
        inside = slice(GUARD_BYTES, self.end)
        return self.before is None or torch.equal(self.memory[inside], self.before[inside])


@dataclass
class Memory:
    """All guarded tensors of one call."""

    blocks: list[Block] = field(default_factory=list)

    def hold(self, name: str, values: torch.Tensor, layout: str = "drawn") -> torch.Tensor:
        """Return a copy of an argument between guards, in a layout; its memory must not change.

        Between elements that do not lie together is NaN too.
        """
        strides = values.stride() if layout == "drawn" else LAYOUTS[layout](list(values.shape))
        block = self._reserve(name, values, strides, NAN_BYTE)
        block.tensor.copy_(values)
        if block.memory.numel() <= LARGEST_COPIED:
            block.before = block.memory.clone()
        return block.tensor

    def wrap(self, function: Callable[..., torch.Tensor], *, filled: bool) -> Callable[..., torch.Tensor]:
        """Return a function of torch that makes tensors, whose tensors then lie between guards."""

        def make(*args: Any, **kwargs: Any) -> torch.Tensor:
            made = function(*args, **kwargs)
            if type(made) is not torch.Tensor or made.device.type not in ("cpu", "cuda") or made.requires_grad:
                return made
            if filled and any(made is each for each in args):  # contiguous() of what is contiguous
                return made
            block = self._reserve("what it makes", made, made.stride(), UNWRITTEN_BYTE)
            if filled:
                block.tensor.copy_(made)
            return block.tensor

        return make

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Let all tensors that are made by functions of torch lie between guards."""
        owned = [(torch, name) for name in FACTORIES] + [(torch.Tensor, name) for name in METHODS]
        before = {(owner, name): getattr(owner, name) for owner, name in owned}
        inherited = {(owner, name) for owner, name in owned if name not in vars(owner)}
        try:
            for (owner, name), function in before.items():
                setattr(owner, name, self.wrap(function, filled="empty" not in name))
            yield
        finally:
            for (owner, name), function in before.items():
                if (owner, name) in inherited:
                    delattr(owner, name)
                else:
                    setattr(owner, name, function)

    def regions(self) -> dict[int, tuple[int, int, str]]:
        """Return the addresses where each tensor begins and ends, and its name, by its storage's address."""
        found = {}
        for block in self.blocks:
            base = block.memory.data_ptr()
            found[base] = base + GUARD_BYTES, base + block.end, block.name
        return found

    def broken(self) -> list[str]:
        """Return the names of tensors of which a guard was written."""
        return [block.name for block in self.blocks if not block.guards_hold()]

    def changed(self) -> list[str]:
        """Return the names of arguments that were changed."""
        return [block.name for block in self.blocks if not block.is_unchanged()]

    def _reserve(self, name: str, like: torch.Tensor, strides: tuple[int, ...], byte: int) -> Block:
        size, width = like.shape, like.element_size()
        extent = 1 + sum((length - 1) * step for length, step in zip(size, strides, strict=True)) if like.numel() else 0
        end = GUARD_BYTES + extent * width
        memory = torch.ByteTensor(0).to(like.device).resize_(-(-(end + GUARD_BYTES) // 16) * 16).fill_(byte)
        tensor = torch.tensor([], dtype=like.dtype, device=like.device)
        tensor.set_(memory.untyped_storage(), GUARD_BYTES // width, size, strides)
        block = Block(name, tensor, memory, end, byte)
        self.blocks.append(block)
        return block


def unwritten(tensor: torch.Tensor) -> torch.Tensor:
    """Return where a tensor that a launcher made has places that no kernel has written, bool of its shape."""
    if not tensor.numel():
        return torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
    whole = tensor.detach().clone(memory_format=torch.contiguous_format)
    return (whole.view(-1, 1).view(torch.uint8) == UNWRITTEN_BYTE).all(1).view(tensor.shape)
