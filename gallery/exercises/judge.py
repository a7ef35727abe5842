"""Judges a function by one case: between guards, in several orders of programs, against the formula in float64."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from gallery.check import SMALLEST, exact, outputs
from gallery.exercises.exercise import Case
from gallery.exercises.memory import Memory, unwritten
from gallery.exhibit import Answer, Arguments

SEED = 7
SHOWN = 5
"""The differences that a finding keeps."""

REPEATED, REPEATED_LARGE = 30, 5
"""The calls of a case on a GPU, where programs run in a different order each time."""


@dataclass
class Finding:
    """What was seen in one case; all of it can be written as JSON."""

    case: str
    order: str = ""
    """How the programs ran when this was seen."""

    error: float = 0.0
    """The largest error, in units of the truth's largest magnitude; infinite if an element is wrong in kind."""

    exception: str | None = None
    due: str | None = None
    """The number, shape or type of tensors that is due, if the answer's is another."""

    differences: list[tuple[str, str, str]] = field(default_factory=list)
    """The first places that differ: index, expected, got."""

    wrong: int = 0
    total: int = 0
    nans: int = 0
    """The wrong elements that are NaN and should be a number."""

    unwritten: int = 0
    """The wrong elements that no kernel has written."""

    loads: dict[str, int] = field(default_factory=dict)
    stores: dict[str, int] = field(default_factory=dict)
    races: dict[str, int] = field(default_factory=dict)
    """Accesses of no correct kernel, as in `gallery.exercises.watch.Accesses`."""

    broken: list[str] = field(default_factory=list)
    """The names of tensors whose guards were overwritten."""

    changed: list[str] = field(default_factory=list)
    """The names of arguments that were changed."""

    varies: bool = False
    """True if another launch gave another answer."""

    mistake: str | None = None
    """The sentence of a known mistake that gives this answer."""

    @property
    def is_right(self) -> bool:
        """Return whether nothing is wrong."""
        signs = self.exception, self.due, self.wrong, self.loads, self.stores, self.broken, self.changed
        return not any(signs)


def judge(
    call: Callable[..., Answer],
    reference: Callable[..., Answer],
    case: Case,
    tolerance: float,
    device: torch.device,
    language: str = "triton",
    mistakes: Mapping[str, Callable[..., Answer]] | None = None,
) -> Finding:
    """Return what was found in a case: the first thing wrong, or that nothing is."""
    torch.manual_seed(SEED)
    drawn = case.arguments(case.dtype, device)
    names = inspect.signature(reference).parameters
    arguments = dict(zip(names, drawn, strict=False))  # the last may have defaults
    truth = outputs(reference(*exact(drawn)))
    found: list[Finding] = []
    for order, watch in ways_to_run(language, device, large=case.large):
        finding = judge_once(call, arguments, case.layout, truth, tolerance, watch, mistakes or {})
        finding.case, finding.order = case.name, order
        found.append(finding)
        if finding.exception or (not finding.is_right and device.type == "cpu"):
            break
    worst = max(found, key=lambda finding: finding.error)
    first = next((finding for finding in found if not finding.is_right), worst)
    first.varies = bool(first.wrong) and any(finding.differences != first.differences for finding in found)
    return first


def judge_once(
    call: Callable[..., Answer],
    arguments: Mapping[str, Any],
    layout: str,
    truth: Sequence[torch.Tensor],
    tolerance: float,
    watch: Callable[[Memory, Finding], AbstractContextManager[None]],
    mistakes: Mapping[str, Callable[..., Answer]],
) -> Finding:
    """Return what was found in one call on these arguments, laid between guards."""
    finding, memory, drawn = Finding(""), Memory(), tuple(arguments.values())
    given = [
        memory.hold(name, value, layout) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    ]
    try:
        with memory.guarding(), watch(memory, finding):
            found = call(*given)
            if any(isinstance(value, torch.Tensor) and value.is_cuda for value in given):
                torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        finding.exception = f"{type(error).__name__}: {error}"
        return finding
    finding.changed = memory.changed()
    finding.broken = memory.broken()
    compare(finding, found, truth, next(each.dtype for each in drawn if isinstance(each, torch.Tensor)), tolerance)
    if finding.wrong and isinstance(found, torch.Tensor):
        for sentence, function in mistakes.items():
            if _is_answer(found, function, drawn, tolerance, partly=bool(finding.loads)):
                finding.mistake = sentence
                break
    return finding


def compare(
    finding: Finding, found: Answer, truth: Sequence[torch.Tensor], dtype: torch.dtype, tolerance: float
) -> None:
    """Note in a finding where an answer differs from the truth."""
    answers = outputs(found)
    if len(answers) != len(truth) or not all(isinstance(each, torch.Tensor) for each in answers):
        finding.due = f"{len(truth)} tensors are due"
        return
    for ours, theirs in zip(answers, truth, strict=True):
        if ours.shape != theirs.shape:
            finding.due = f"its shape is {list(ours.shape)} where {list(theirs.shape)} is due"
        elif ours.dtype != dtype:
            finding.due = f"its type is {ours.dtype} where {dtype} is due"
        if finding.due:
            return
        apart = distances(ours.detach(), theirs)
        finding.error = max(finding.error, float(apart.max()) if apart.numel() else 0.0)
        wrong = apart > tolerance
        finding.total += wrong.numel()
        if not wrong.any():
            continue
        finding.wrong += int(wrong.sum())
        finding.nans += int((wrong & ours.isnan() & ~theirs.isnan()).sum())
        finding.unwritten += int((wrong & unwritten(ours)).sum())
        never = unwritten(ours)
        for place in wrong.nonzero()[: SHOWN - len(finding.differences)].tolist():
            at = tuple(place)
            got = "never written" if never[at] else f"{ours[at].item():.7g}"
            finding.differences.append((", ".join(map(str, at)) or "–", f"{theirs[at].item():.7g}", got))


def distances(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Return the errors in units of the truth's largest finite magnitude; NaN for NaN is 0, for a number infinite."""
    value = ours.double()
    finite = theirs[theirs.isfinite()]
    largest = finite.abs().max().clamp(min=SMALLEST) if finite.numel() else torch.ones((), dtype=torch.float64)
    alike = (value == theirs) | (value.isnan() & theirs.isnan())
    apart = ((value - theirs).abs() / largest).nan_to_num(nan=torch.inf, posinf=torch.inf)
    return torch.where(alike, 0.0, apart)


def ways_to_run(
    language: str, device: torch.device, *, large: bool = False
) -> Iterator[tuple[str, Callable[[Memory, Finding], AbstractContextManager[None]]]]:
    """Return the ways in which a call is repeated, each with what watches it."""
    if device.type == "cuda":
        for _ in range(REPEATED_LARGE if large else REPEATED):
            yield "programs as the GPU ran them", unwatched
    elif language == "triton":
        from gallery.exercises.watch import ORDERS

        for order in ORDERS[-1:] if large else ORDERS:
            yield f"programs {order}", lambda memory, finding, order=order: interpreted(memory, finding, order)
    else:
        from gallery.exercises import simulator

        for order in simulator.ORDERS[-1:] if large else simulator.ORDERS:
            yield f"threads {order}", lambda memory, finding, order=order: simulator.watching(order, finding.races)


@contextmanager
def unwatched(memory: Memory, finding: Finding) -> Iterator[None]:
    """Do nothing: the guards alone tell."""
    yield


@contextmanager
def interpreted(memory: Memory, finding: Finding, order: str) -> Iterator[None]:
    """Run kernels of the Triton language in an order, and note accesses that no correct kernel makes."""
    from gallery.exercises.watch import Watch

    watch = Watch(order, memory.regions)
    try:
        with watch.watching():
            yield
    finally:
        finding.loads, finding.stores, finding.races = watch.found.loads, watch.found.stores, watch.found.races


def _is_answer(
    found: torch.Tensor, function: Callable[..., Any], drawn: Arguments, tolerance: float, *, partly: bool
) -> bool:
    """Return whether an answer is that of a function, or, if `partly`, the numbers of an answer that also has NaN."""
    try:
        theirs = outputs(function(*exact(drawn)))[0]
    except (RuntimeError, ValueError, IndexError):  # a mistake that these arguments do not allow
        return False
    if found.shape != theirs.shape:
        return False
    apart, numbers = distances(found.detach(), theirs), ~found.isnan()
    return bool(numbers.any()) and bool((apart[numbers] if partly else apart).max() <= 4 * tolerance)
