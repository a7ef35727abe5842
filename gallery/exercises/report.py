"""Prints a finding: the case, and the first places that differ."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gallery.exercises.judge import Finding


def print_finding(console: Console, finding: Finding) -> None:
    """Print the case of a finding, and the first places that differ."""
    console.print(Text.assemble(("✗ ", "red"), finding.case, f", {finding.order}" if finding.order else ""))
    if finding.exception:
        console.print(finding.exception)
    if finding.differences:
        table = Table("index", "expected", "got", title=f"{finding.wrong:,} of {finding.total:,} differ")
        for column in table.columns:
            column.justify = "right"
        for row in finding.differences:
            table.add_row(*row)
        console.print(table)
