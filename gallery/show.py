"""The command `run`: it checks an exhibit, times it beside its peers, and prints the results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.timing import Timing
from gallery.catalogue import kernel_device
from gallery.check import error, gradient_error
from gallery.errors import GalleryError
from gallery.exhibit import Arguments, Exhibit, Size
from gallery.limits import Limit, time_beside_limit

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
    errors = {way: _errors(exhibit, way, sizes, kind, device) for way in exhibit.ways}
    allowed = exhibit.tolerances[kind]
    timings: dict[str, tuple[Limit, dict[str, Timing]]] = {}
    if timed is not None and device.type == "cuda":
        arguments = draw(exhibit, timed, kind, device)
        timings[FORWARD] = time_beside_limit(exhibit, arguments, calls(exhibit, arguments))
        if exhibit.backward_traffic or exhibit.backward_work:
            backward = backward_calls(exhibit, arguments)
            timings[GRADIENTS] = time_beside_limit(exhibit, arguments, backward, backward=True)
    console.print(_about(exhibit, sizes, timed, kind, timings[FORWARD][0] if timings else None))
    table = Table("", "error / largest", *(("µs", "rate", "of the limit") if timings else ()))
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
    for way, found in errors.items():
        if max(each or 0.0 for each in found) > allowed:
            raise GalleryError(f"{exhibit.name}, {way}: the error is larger than {allowed:.0e}.")


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
        GalleryError: There are none of such a size.
    """
    torch.manual_seed(SEED)
    try:
        return exhibit.sample(size, dtype, device)
    except (ValueError, TypeError, IndexError) as reason:
        known = ", ".join(map(_text, [*exhibit.sizes[:4], exhibit.curve[-1]]))
        raise GalleryError(f"{exhibit.name} has no size {_text(size)}; sizes are such as {known}.") from reason


def read_size(exhibit: Exhibit, text: str) -> Size:
    """Return a size given as 4096x512; raise `GalleryError` for other texts."""
    try:
        return tuple(int(part) for part in text.replace(",", "x").split("x"))
    except ValueError:
        raise GalleryError(f"--size {text} is no size; it takes one as {_text(exhibit.curve[-1])}.") from None


def read_dtype(exhibit: Exhibit, name: str | None) -> torch.dtype:
    """Return a type by its name, or the exhibit's first; raise `GalleryError` if the exhibit does not take it."""
    known = {str(dtype).removeprefix("torch."): dtype for dtype in exhibit.dtypes}
    if name is not None and name not in known:
        raise GalleryError(f"--dtype {name} is none that {exhibit.name} takes, which are {', '.join(known)}.")
    return known[name] if name else exhibit.dtypes[0]


def _errors(
    exhibit: Exhibit, way: str, sizes: list[Size], dtype: torch.dtype, device: torch.device
) -> tuple[float, float | None]:
    """Return the largest error of the answers, and of the gradients if there are any."""
    drawn = [draw(exhibit, size, dtype, device) for size in sizes]
    answers = max(error(exhibit, way, arguments) for arguments in drawn)
    return answers, max(gradient_error(exhibit, way, each) for each in drawn) if exhibit.differentiable else None


def _about(exhibit: Exhibit, sizes: list[Size], timed: Size | None, dtype: torch.dtype, bound: Limit | None) -> str:
    checked = "its size" if len(sizes) == 1 else f"{len(sizes)} sizes"
    text = f"{str(dtype).removeprefix('torch.')}, checked on {checked} against float64"
    if timed is not None and bound is not None:
        text += f", timed on {_text(timed)}; the limit is {bound.name}: {bound.text(bound.rate)}"
    return f"{text}. Errors may be {exhibit.tolerances[dtype]:.0e}."


def _text(size: Size) -> str:
    return "x".join(map(str, size))
