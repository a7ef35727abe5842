"""The command `run`: it checks an exhibit, times it beside its peers, and prints the results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from triton.runtime.errors import InterpreterError

from benchmarks.timing import Timing
from gallery.catalogue import kernel_device
from gallery.check import gradient_error
from gallery.errors import GalleryError
from gallery.exercises.arguments import NAN, STRIDES, with_nan
from gallery.exercises.catalogue import exercises
from gallery.exercises.diagnosis import diagnose
from gallery.exercises.exercise import Case
from gallery.exercises.judge import Finding, judge, ways_to_run
from gallery.exercises.memory import Memory
from gallery.exercises.report import print_finding
from gallery.exhibit import Arguments, Exhibit, Size
from gallery.limits import Limit, time_beside_limit
from gallery.sizes import demand_room, read_size, refusals, written

ROOT = Path(__file__).parents[1]
SEED = 7
FORWARD, GRADIENTS = "", ", gradients"
"""The endings of names in the table's rows."""


def run(exhibit: Exhibit, size: str | None = None, dtype: str | None = None) -> None:
    """Check an exhibit on its sizes or the given one, time it on a GPU, and print.

    Raises:
        GalleryError: The exhibit takes no such size or type, or an error is larger than allowed.
    """
    console = Console(markup=False, highlight=False)
    device, kind = kernel_device(), read_dtype(exhibit, dtype)
    timed = read_size(exhibit, size) if size else exhibit.curve[-1] if device.type == "cuda" else None
    console.print(Text.assemble("\n", (exhibit.name, "bold"), f": {exhibit.formula}"))
    if device.type == "cpu":
        console.print("There is no GPU: the kernels run through the interpreter, which says nothing of their speed.")
    sizes = [timed] if size and timed else [*exhibit.sizes, *([timed] if timed else [])]
    if size and timed:
        _demand_taken(exhibit, timed, kind, device)
    special = _special_cases(exhibit, kind, device)
    errors, faults = {}, {}
    for way in exhibit.ways:
        errors[way], faults[way] = _judge(exhibit, way, _cases(exhibit, way, sizes, kind), special, device)
    timings: dict[str, tuple[Limit, dict[str, Timing]]] = {}
    if timed is not None and device.type == "cuda":
        arguments = draw(exhibit, timed, kind, device)
        timings[FORWARD] = time_beside_limit(exhibit, arguments, calls(exhibit, arguments))
        if exhibit.backward_traffic or exhibit.backward_work:
            backward = backward_calls(exhibit, arguments)
            timings[GRADIENTS] = time_beside_limit(exhibit, arguments, backward, backward=True)
    console.print(_about(exhibit, sizes, special, timed, kind, timings[FORWARD][0] if timings else None))
    table = Table("", "error / largest", *(("µs", "rate", "share") if timings else ()))
    for column in table.columns[1:]:
        column.justify = "right"
    for name in (*exhibit.ways, *exhibit.peers):
        for which, found in zip((FORWARD, GRADIENTS), errors.get(name, (None, None)), strict=True):
            cells = ["" if found is None else f"{found:.1e}"]
            if which in timings:
                bound, times = timings[which]
                us = times[name].median_us
                cells += [f"{us:,.1f}", bound.text(bound.rate_of(us)), f"{bound.share_of(us):.1%}"]
            if any(cells):
                table.add_row(name + which, *cells)
    console.print(table)
    if device.type == "cuda":
        for kernel, words in (exhibit.chosen() if exhibit.chosen else {}).items():
            console.print(f"{kernel}: {words}")
        if exhibit.remark and timed is not None:
            console.print(exhibit.remark(*draw(exhibit, timed, kind, device)))
    for way, fault in faults.items():
        if fault is not None:
            finding, sentence = fault
            print_finding(console, finding)
            raise GalleryError(f"{exhibit.name}, {way}: {sentence}")


def run_interpreted(exhibit: Exhibit, dtype: str | None = None) -> None:
    """Check an exhibit in another process through the interpreter, which sees accesses that a GPU does not show.

    Raises:
        GalleryError: Something is wrong.
    """
    arguments = [sys.executable, "-m", "gallery", "run", exhibit.name, *(["--dtype", dtype] if dtype else [])]
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it ended without a word."])[-1].removeprefix("Error: ")
        raise GalleryError(f"Through the interpreter: {reason}")
    Console().print("Through the interpreter, which looks at every access to memory, it is right.")


def calls(exhibit: Exhibit, arguments: Arguments) -> dict[str, Callable[[], Any]]:
    """Return the calls to time: every way and every peer on these arguments."""
    return {name: partial(call, *arguments) for name, call in (*exhibit.ways.items(), *exhibit.peers.items())}


def backward_calls(exhibit: Exhibit, arguments: Arguments) -> dict[str, Callable[[], Any]]:
    """Return the gradients of every way and peer to time; their forwards are computed here, once."""
    found = {}
    for name, call in (*exhibit.ways.items(), *exhibit.peers.items()):
        given = [
            each.detach().clone().requires_grad_()
            if isinstance(each, torch.Tensor) and each.is_floating_point()
            else each
            for each in arguments
        ]
        answer = call(*given)
        answers = answer if isinstance(answer, tuple) else (answer,)
        asked = [each for each in given if isinstance(each, torch.Tensor) and each.requires_grad]
        upstream = [torch.randn_like(each) for each in answers]
        found[name] = partial(torch.autograd.grad, answers, asked, upstream, retain_graph=True)
    return found


def draw(exhibit: Exhibit, size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    """Return the arguments of a size, the same in every run.

    Raises:
        GalleryError: There are none of such a size, or the memory does not suffice for them.
    """
    demand_room(exhibit, size, dtype, device)
    torch.manual_seed(SEED)
    with refusals(exhibit, size):
        return exhibit.sample(size, dtype, device)


def read_dtype(exhibit: Exhibit, name: str | None) -> torch.dtype:
    """Return a type by its name, or the exhibit's first; raise `GalleryError` if the exhibit does not take it."""
    known = {str(dtype).removeprefix("torch."): dtype for dtype in exhibit.dtypes}
    if name is not None and name not in known:
        raise GalleryError(f"--dtype {name} is none that {exhibit.name} takes, which are {', '.join(known)}.")
    return known[name] if name else exhibit.dtypes[0]


def _demand_taken(exhibit: Exhibit, size: Size, dtype: torch.dtype, device: torch.device) -> None:
    """Raise `GalleryError` if an exhibit refuses a size's arguments; what else goes wrong is left to the judge."""
    arguments, memory = draw(exhibit, size, dtype, device), Memory()
    (_, watch), *_ = ways_to_run("triton", device, large=True)
    with suppress(InterpreterError), refusals(exhibit, size), memory.guarding(), watch(memory, Finding("")):
        next(iter(exhibit.ways.values()))(*arguments)


def _cases(exhibit: Exhibit, way: str, sizes: list[Size], dtype: torch.dtype) -> list[tuple[Case, float]]:
    """Return the cases of an exhibit's sizes, with the errors that a way's answers may have."""
    found = []
    for size in sizes:
        allowed = exhibit.allowed(way, size, dtype)
        fault = f"the error is larger than {allowed:.0e}."
        found.append((Case(written(size), partial(draw, exhibit, size), fault, dtype, large=True), allowed))
    return found


def _special_cases(exhibit: Exhibit, dtype: torch.dtype, device: torch.device) -> list[tuple[Case, float]]:
    """Return further cases, with their tolerances: those of the exercise that asks for the same, or strides and NaN.

    They are no larger than the exhibit's own sizes, and in its types.
    """
    counts = [_elements(draw(exhibit, size, dtype, device)) for size in exhibit.sizes]
    exercise = exercises().get(exhibit.name)
    if exercise is None or exercise.reference is not exhibit.reference:
        size = exhibit.sizes[counts.index(max(counts))]
        sample = partial(draw, exhibit, size)
        faults = [("slices", STRIDES), ("transposed", STRIDES)]
        found = [Case(name, sample, fault, dtype, name, special=True, large=True) for name, fault in faults]
        found.append(Case("a NaN", partial(with_nan, exhibit.sample, size), NAN, dtype, special=True, large=True))
        return [(case, exhibit.tolerances[dtype]) for case in found]
    # Cases of other types than float32 are about these types.
    given = [replace(case, dtype=dtype if case.dtype == torch.float32 else case.dtype) for case in exercise.cases]
    return [
        (replace(case, large=True), max(exhibit.tolerances[case.dtype], exercise.tolerances.get(case.dtype, 0.0)))
        for case in given
        if case.dtype in exhibit.tolerances and _elements(case.arguments(case.dtype, device)) <= max(counts)
    ]


def _judge(
    exhibit: Exhibit,
    way: str,
    cases: list[tuple[Case, float]],
    special: list[tuple[Case, float]],
    device: torch.device,
) -> tuple[tuple[float, float | None], tuple[Finding, str] | None]:
    """Return the largest errors of a way's answers and gradients, and the first finding that is wrong, with a sentence.

    An error of the special cases is not among the largest, as their tolerance may be another.
    """
    call, largest = exhibit.ways[way], 0.0
    for case, allowed in (*cases, *special):
        finding = judge(call, exhibit.reference, case, allowed, device)
        if not finding.is_right:
            return (finding.error, None), (finding, diagnose(finding, case))
        if (case, allowed) in cases:
            largest = max(largest, finding.error)
    if not exhibit.differentiable:
        return (largest, None), None
    of_gradients = 0.0
    for case, _ in cases:
        finding = _judge_gradients(exhibit, way, case, device)
        of_gradients = max(of_gradients, finding.error)
        if not finding.is_right or finding.error > exhibit.tolerances[case.dtype]:
            return (largest, of_gradients), (finding, diagnose(finding, case))
    return (largest, of_gradients), None


def _judge_gradients(exhibit: Exhibit, way: str, case: Case, device: torch.device) -> Finding:
    """Return what was found in one case's gradients: the largest error, and accesses outside of arrays."""
    finding, memory = Finding(f"{case.name}, gradients"), Memory()
    arguments = case.arguments(case.dtype, device)
    (_, watch), *_ = ways_to_run("triton", device, large=True)
    with memory.guarding(), watch(memory, finding):
        finding.error = gradient_error(exhibit, way, arguments)
    finding.broken = memory.broken()
    return finding


def _elements(arguments: Arguments) -> int:
    return sum(each.numel() for each in arguments if isinstance(each, torch.Tensor))


def _about(
    exhibit: Exhibit,
    sizes: list[Size],
    special: list[tuple[Case, float]],
    timed: Size | None,
    dtype: torch.dtype,
    bound: Limit | None,
) -> str:
    checked = "its size" if len(sizes) == 1 else f"{len(sizes)} sizes"
    text = f"{str(dtype).removeprefix('torch.')}, checked on {checked} against float64"
    text += f" and on {len(special)} special inputs" if special else ""
    if timed is not None and bound is not None:
        text += f", timed on {written(timed)}; shares are of {bound.name}, {bound.text(bound.rate)}"
    text += f". Errors may be {exhibit.tolerances[dtype]:.0e}"
    for way in exhibit.bounds:
        text += f", those of {way} {max(exhibit.allowed(way, size, dtype) for size in sizes):.0e}"
    return f"{text}."
