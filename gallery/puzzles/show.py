"""The command `puzzles`: it runs a puzzle's ways, and prints the table of terms."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from gallery.exhibit import Exhibit
from gallery.puzzles.beside import Puzzle
from gallery.puzzles.terms import HEADINGS, TERMS
from gallery.show import run


def run_puzzle(puzzle: Puzzle, exhibit: Exhibit) -> None:
    """Check and time a puzzle's ways, and print its remark."""
    run(exhibit)
    if puzzle.remark:
        Console(markup=False, highlight=False).print(puzzle.remark())


def print_terms() -> None:
    """Print what corresponds in Numba and in the Triton language."""
    table = Table(*HEADINGS, title="Terms", title_justify="left")
    for line in TERMS:
        table.add_row(*(cell.replace("`", "") for cell in line))
    Console(markup=False, highlight=False).print("\n", table)
