"""Says in one sentence what is likely wrong with an answer, from what was seen and not from its source."""

from __future__ import annotations

from collections.abc import Mapping

from gallery.exercises.exercise import Case
from gallery.exercises.judge import Finding

KNOWN_ERRORS = {
    "Expected dtype ['fp32', 'fp64'] but got": "Exponentials, logarithms and roots take float32 or float64: convert "
    "what you load with .to(tl.float32).",
    "Mask argument cannot be": "A block needs a mask of its own shape, and a block pointer none.",
    "'other' cannot be provided without mask": "`other` is the value of masked lanes, so it needs a mask.",
    "arange's range must be a power of 2": "The length of a block is a power of two: round up, and mask the rest.",
    "Cannot make_shape_compatible": "The shapes of two blocks do not fit: `[:, None]` makes a column and "
    "`[None, :]` a row.",
    "Loop-carried variable": "A variable has another type after a turn of the loop than before it: begin with "
    "tl.zeros(..., tl.float32), and convert what you add.",
    "out of resource": "A block needs more shared memory or registers than the GPU has: take smaller blocks.",
    "out of bounds": "A thread reads or writes outside of an array: threads without an element need an `if`, and every "
    "index has to be less than the array's length.",
    "Not all threads of a block come to the same": "A barrier stands where not all threads of a block come by, as "
    "inside of an `if`: on a GPU they would wait for each other for ever, or not at all.",
    "an illegal memory access": "The kernel reads or writes far outside of its arrays: a mask or a stride is wrong.",
}
"""Beginnings or parts of messages of the language and of CUDA, and what they mean."""


def diagnose(finding: Finding, case: Case) -> str:
    """Return the sentence about a finding that is not right, in the first case that is not."""
    if finding.exception:
        return next(
            (sentence for part, sentence in KNOWN_ERRORS.items() if part in finding.exception),
            "The kernel could not run; the message above says why.",
        )
    if finding.due:
        return f"`solve` returns another kind of answer: {finding.due}."
    if finding.mistake:
        return finding.mistake
    if case.special:
        return case.fault
    return _of_memory(finding) or _of_answer(finding) or case.fault


def _of_memory(finding: Finding) -> str | None:
    """Return the sentence about accesses to memory, or None."""
    if finding.stores and finding.loads:
        return (
            f"There is no mask, or a wrong one: {_many(finding.loads)} loaded outside of {_names(finding.loads)} and "
            f"{_many(finding.stores)} stored outside of {_names(finding.stores)}."
        )
    if finding.stores:
        return f"The mask of a store is missing or too wide: {_many(finding.stores)} stored outside of " + (
            f"{_names(finding.stores)}."
        )
    if finding.loads:
        return f"The mask of a load is missing or too wide: {_many(finding.loads)} loaded outside of " + (
            f"{_names(finding.loads)}."
        )
    if finding.broken:
        return (
            f"The mask of a store is missing or too wide: memory next to {' and '.join(dict.fromkeys(finding.broken))} "
            "was overwritten."
        )
    if "shared memory" in finding.races and finding.wrong:
        return (
            "A race: threads read places of shared memory that other threads of their block write, with no "
            "`cuda.syncthreads()` between, or add to one place without an atomic operation."
        )
    if finding.races and finding.wrong:
        return (
            f"A race: programs store to the same places of {_names(finding.races)}, or load what others store, and "
            "none waits for another; use an atomic operation, or a place for each program (in Numba, each thread)."
        )
    if finding.varies:
        return (
            "A race: the answer depends on the order in which programs run; use an atomic operation, or a place for "
            "each program."
        )
    if finding.changed:
        return f"The kernel overwrites its argument {' and '.join(finding.changed)}."
    return None


def _of_answer(finding: Finding) -> str | None:
    """Return the sentence about the wrong elements, or None."""
    if finding.unwritten and finding.unwritten == finding.total:
        return "Nothing is stored: the kernel's gap is still empty, or no program runs."
    if finding.unwritten:
        return (
            f"{finding.unwritten:,} elements are never written: there are fewer programs than blocks, a block is too "
            "small, or a mask is too narrow."
        )
    if finding.nans and finding.nans == finding.wrong:
        return (
            "Something without a value comes into the answer: masked lanes have none unless `other` gives them one, "
            "and memory outside of an array has none, nor has shared memory that no thread wrote."
        )
    return None


def _many(accesses: Mapping[str, int]) -> str:
    count = sum(accesses.values())
    return "1 number is" if count == 1 else f"{count:,} numbers are"


def _names(accesses: Mapping[str, int]) -> str:
    return " and ".join(f"`{name}`" for name in accesses)
