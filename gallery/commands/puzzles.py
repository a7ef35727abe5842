"""The command `puzzles`."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Puzzles; by default all six.")] = None,
) -> None:
    """Run the six puzzles in Numba CUDA beside the Triton language: their errors and, on a GPU, their times.

    Prints what else tells their ways apart: the reads of pooling, counted, the threads of four launches of a broadcast
    and the additions that a race loses in a dot product. All six end with a table of both languages' terms.

    Needs Numba, which `pip install 'triton-regressors[gallery]'` installs. Without a GPU Numba's simulator runs them.

    Examples:
        python -m gallery puzzles
        python -m gallery puzzles dot
    """
    from gallery.catalogue import kernel_device

    kernel_device()  # before the language is imported, as in `run`
    from gallery.puzzles.beside import PUZZLES, beside
    from gallery.puzzles.show import print_terms, run_puzzle

    for name, exhibit in [(name, beside(name)) for name in names or PUZZLES]:
        run_puzzle(PUZZLES[name], exhibit)
    if not names:
        print_terms()
