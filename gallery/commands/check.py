"""The command `check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `try` wrote and you completed.")],
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Then time the file's SWEEP of block sizes and warps, on a GPU.")
    ] = False,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="The longest time that a case may take.")] = 120.0,
) -> None:
    """Judge an exercise: on odd, large, strided and NaN inputs, between guards, in several orders of programs.

    It says in one sentence what is likely wrong. The file runs in a process of its own. Exit code 1: it is not right.

    Examples:
        python -m gallery check map.py
        python -m gallery check softmax.py --sweep
    """
    from gallery.exercises.show import check

    if not check(file, sweep=sweep, seconds=seconds):
        raise typer.Exit(1)
