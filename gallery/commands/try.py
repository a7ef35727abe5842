"""The command `try`."""
# ruff: noqa: N999  (the command is named as a learner says it)

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="An exercise; without it all are listed.")] = None,
    folder: Annotated[Path, typer.Option("--folder", metavar="DIR", help="Where the file is written.")] = Path(),
    hint: Annotated[int | None, typer.Option(metavar="N", help="Show a hint instead: 1, 2 or 3.")] = None,
    solution: Annotated[bool, typer.Option("--solution", help="Show the gallery's kernel instead.")] = False,
) -> None:
    """Write an exercise: a file with a statement and a kernel to complete, which `check` judges.

    A file that is there is never overwritten.

    Examples:
        python -m gallery try
        python -m gallery try softmax
        python -m gallery try softmax --hint 1
    """
    from gallery.exercises import show

    if name is None:
        show.print_exercises()
    elif hint is not None:
        show.print_hint(name, hint)
    elif solution:
        show.print_solution(name)
    else:
        show.write_exercise(name, folder)
