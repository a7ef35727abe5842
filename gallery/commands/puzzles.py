"""The command `puzzles`."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Puzzles; by default all six.")] = None,
) -> None:
    """Run the six puzzles in Numba CUDA beside the Triton language: their errors and, on a GPU, their times.

    Needs Numba, which `pip install 'triton-regressors[gallery]'` installs. Without a GPU Numba's simulator runs them.

    Examples:
        python -m gallery puzzles
        python -m gallery puzzles dot
    """
    from gallery.puzzles.beside import PUZZLES, beside
    from gallery.show import run

    for exhibit in [beside(name) for name in names or PUZZLES]:
        run(exhibit)
