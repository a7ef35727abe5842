"""Prints what there is in the gallery."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from gallery.catalogue import exhibits


def print_exhibits() -> None:
    """Print every exhibit with its formula, in the order in which they are best read."""
    table = Table(title="Gallery", title_justify="left")
    for heading in ("exhibit", "computes", "SIZE", "ways"):
        table.add_column(heading, overflow="fold")
    for name, exhibit in exhibits().items():
        table.add_row(name, exhibit.formula, exhibit.lengths, ", ".join(exhibit.ways))
    Console(markup=False, highlight=False).print(table)
