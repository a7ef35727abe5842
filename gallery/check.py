"""The distance of an answer, or a gradient, from the float64 reference."""

from __future__ import annotations

from typing import Any

import torch

from gallery.exhibit import Answer, Arguments, Exhibit

SMALLEST = 1e-30
"""A truth below this counts as zero, and errors are then absolute."""


def outputs(answer: Answer) -> tuple[torch.Tensor, ...]:
    """Return an answer's tensors."""
    return answer if isinstance(answer, tuple) else (answer,)


def exact(arguments: Arguments) -> Arguments:
    """Return the arguments with all floating-point tensors in float64, detached from their graphs."""
    return tuple(each.detach().double() if _is_float(each) else each for each in arguments)


def error(exhibit: Exhibit, way: str, arguments: Arguments) -> float:
    """Return the largest error of a way in units of the truth's largest magnitude.

    Raises:
        AssertionError: The number, shapes or type of the answer's tensors differ from the reference's.
    """
    found = outputs(exhibit.ways[way](*arguments))
    return _largest(found, outputs(exhibit.reference(*exact(arguments))), _dtype(arguments))


def gradient_error(exhibit: Exhibit, way: str, arguments: Arguments) -> float:
    """Return the largest error of the gradients of all floating-point arguments, for a random gradient of the answer.

    Raises:
        AssertionError: The same as for `error`.
    """
    truths = tuple(each.requires_grad_() if _is_float(each) else each for each in exact(arguments))
    given = tuple(each.detach().clone().requires_grad_() if _is_float(each) else each for each in arguments)
    answers, truth = outputs(exhibit.ways[way](*given)), outputs(exhibit.reference(*truths))
    upstream = [torch.randn_like(answer) for answer in answers]
    ours = torch.autograd.grad(answers, [each for each in given if _is_float(each)], upstream)
    theirs = torch.autograd.grad(truth, [each for each in truths if _is_float(each)], [u.double() for u in upstream])
    return _largest(ours, theirs, _dtype(arguments))


def _largest(found: tuple[torch.Tensor, ...], truth: tuple[torch.Tensor, ...], dtype: torch.dtype) -> float:
    assert len(found) == len(truth), f"{len(found)} tensors where {len(truth)} are due"
    largest = 0.0
    for ours, theirs in zip(found, truth, strict=True):
        assert ours.shape == theirs.shape, f"shape {list(ours.shape)} where {list(theirs.shape)} is due"
        assert ours.dtype == dtype, f"{ours.dtype} where {dtype} is due"
        if theirs.numel():
            difference = (ours.double() - theirs).abs().max() / theirs.abs().max().clamp(min=SMALLEST)
            assert not difference.isnan(), "NaN, where the truth or the answer is none"
            largest = max(largest, float(difference))
    return largest


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _dtype(arguments: Arguments) -> torch.dtype:
    return next(each.dtype for each in arguments if _is_float(each))
