"""Checks of a launcher's arguments; each message names the argument."""

from __future__ import annotations

from collections.abc import Collection

import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def demand_alike(dtypes: Collection[torch.dtype] = FLOATS, **tensors: torch.Tensor) -> None:
    """Raise `TypeError` or `ValueError` unless all tensors have one type of `dtypes` and are on one device."""
    first, head = next(iter(tensors.items()))
    dtype, device = head.dtype, head.device
    for tensor in tensors.values():
        if tensor.dtype is not dtype or tensor.device != device:
            break
    else:
        if dtype in dtypes:
            return
    for name, tensor in tensors.items():
        if tensor.dtype not in dtypes:
            accepted = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            raise TypeError(f"'{name}' is {str(tensor.dtype).removeprefix('torch.')}; accepted are {accepted}.")
        if tensor.dtype != head.dtype or tensor.device != head.device:
            raise ValueError(
                f"'{name}' is {tensor.dtype} on {tensor.device}, '{first}' is {head.dtype} on {head.device}: "
                "they must be alike."
            )


def demand_shape(name: str, tensor: torch.Tensor, *shape: int) -> None:
    """Raise `ValueError` unless a tensor has this shape; −1 stands for any length."""
    if tensor.shape == shape:
        return
    if tensor.dim() != len(shape) or any(
        want not in (-1, have) for want, have in zip(shape, tensor.shape, strict=True)
    ):
        wanted = ", ".join("any" if length == -1 else str(length) for length in shape)
        raise ValueError(f"'{name}' has shape {list(tensor.shape)}; [{wanted}] is needed.")
