"""The common form of tables of results, and the note on the versions behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NAMES = {"triton": "Triton language"}

Document = Mapping[str, Any]


def note(document: Document) -> str:
    """Return the versions behind a table, and whether it was a quick run."""
    environment = document["environment"]
    facts = [f"{environment['cores']} cores"]
    facts += [f"{NAMES.get(name, name)} {version}" for name, version in environment["versions"].items()]
    facts += ["a quick run"] * document["settings"].get("quick", False)
    facts += ["on a machine that other programs kept busy"] * document["settings"].get("busy_at_start", False)
    return f" ({', '.join(facts)})"


def microseconds(value: float) -> str:
    """Return a time as a table shows it: three digits at least."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def table(header: Sequence[str], alignment: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; a cell that repeats the one above it in the first column is left empty."""
    rule = ["---:" if side == "r" else "---" for side in alignment]
    lines = [header, rule]
    above = None
    for row in rows:
        lines.append(["" if row[0] == above else row[0], *row[1:]])
        above = row[0]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def optional(value: float | None, factor: float, form: str) -> str:
    """Return a number as a table shows it, a dash for None."""
    return "–" if value is None else format(value * factor, form)
