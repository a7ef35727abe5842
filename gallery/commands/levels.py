"""The command `levels`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="layer_norm_gelu, attention, messages, polynomial, block, language_model, vision_transformer or "
            "graph_network; by default all.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where results and plots go; by default benchmarks/results of this device, and docs/images/gallery.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds.")] = False,
) -> None:
    """Compute the same in torch eager, TorchScript, torch.compile, the Triton language and CUDA C++.

    On a GPU every level is checked against float64, then measured: time, memory, launches and compile time.
    Without a GPU the available levels answer small sizes, the Triton language by its interpreter.

    Examples:
        python -m gallery levels
        python -m gallery levels block attention --output /tmp/levels
    """
    from gallery.levels.show import levels

    levels(names or None, output, quick=quick)
