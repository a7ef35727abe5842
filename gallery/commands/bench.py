"""The command `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Exhibits; by default all.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where results and plots go; by default benchmarks/results of this device, and docs/images/gallery.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Three sizes of each curve, and fewer rounds.")] = False,
) -> None:
    """Time exhibits beside their peers over many sizes, draw the curves, and write the figures as JSON.

    Needs a CUDA GPU. Every answer is compared with float64 before it is timed; a wrong one is said and not timed.

    Examples:
        python -m gallery bench
        python -m gallery bench softmax dot --output /tmp/curves
    """
    from gallery.catalogue import exhibits, find
    from gallery.curves import bench

    bench([find(name) for name in names] if names else list(exhibits().values()), output, quick=quick)
