"""Comparison of answers with float64 before anything is timed: a fast wrong answer is no result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

CHUNK_BYTES = 2**28


class WrongAnswerError(Exception):
    """A contender's answers differ from float64."""


def poison(outputs: Sequence[torch.Tensor]) -> None:
    """Fill outputs with NaN, so that an element that is never written is found."""
    for output in outputs:
        output.fill_(float("nan"))


def error_of_tensors(
    found: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    expected: Callable[[torch.Tensor], torch.Tensor],
    elements_per_row: int,
) -> float:
    """Return the largest |found − expected| in standard deviations of the expected answers, NaN if any is not finite.

    `expected` maps float64 rows `[rows, features]` to float64 answers `[rows, targets]`; it is given pieces of rows, so
    that its `elements_per_row` intermediate numbers fit in memory.
    """
    total = squares = largest = 0.0
    count = 0
    finite = True
    step = max(CHUNK_BYTES // (8 * elements_per_row), 1)
    for answers, rows in zip(found, inputs, strict=True):
        for start in range(0, len(rows), step):
            truth = expected(rows[start : start + step].double())
            error = (answers[start : start + step].reshape(truth.shape).double() - truth).abs().max().item()
            finite = finite and np.isfinite(error)
            largest = max(largest, error)
            total += truth.sum().item()
            squares += truth.square().sum().item()
            count += truth.numel()
    unit = max(squares / count - (total / count) ** 2, 0.0) ** 0.5
    return largest / (unit or 1.0) if finite else float("nan")


def error_of_arrays(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference in standard deviations of `expected`; one row is measured by its magnitude."""
    truth = np.asarray(expected, dtype=np.float64)
    answers = np.asarray(found, dtype=np.float64).reshape(truth.shape)
    unit = truth.std() if truth.size > 1 else abs(float(truth.reshape(-1)[0]))
    return float(np.abs(answers - truth).max() / (unit or 1.0))


def demand(name: str, error: float, limit: float) -> float:
    """Return the error, or raise `WrongAnswerError` if it is NaN or above the limit."""
    if not error <= limit:
        raise WrongAnswerError(
            f"{name} is {error:.1e} standard deviations from the float64 answer; the limit is {limit:g}."
        )
    return error
