"""The command `profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gallery.commands.run import DtypeOption, SizeOption


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An exhibit, or levels/SUBJECT, as levels/block.")],
    size: SizeOption = None,
    dtype: DtypeOption = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where the trace goes.")] = Path("build/profile"),
    launch: Annotated[bool, typer.Option("--launch", hidden=True)] = False,
) -> None:
    """Show the kernels of an exhibit's calls, and of its peers': time, registers, shared memory, occupancy and rates.

    Needs a CUDA GPU. A trace is written that https://ui.perfetto.dev opens. Where ncu is installed, its counters of
    memory and multiprocessors are added. levels/SUBJECT shows a subject at each of the five levels.

    Examples:
        python -m gallery profile softmax
        python -m gallery profile matmul --size 4096x4096x4096
        python -m gallery profile levels/block --output /tmp/profile
    """
    import torch

    from gallery.errors import GalleryError
    from gallery.profiling import profile_command

    try:
        profile_command(name, size, dtype, output, launch=launch)
    except torch.OutOfMemoryError:
        raise GalleryError(f"{name} needs more memory than this GPU has free; a smaller --size may fit.") from None
