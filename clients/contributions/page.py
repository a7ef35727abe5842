"""Contributions as HTML: a page of its own, and a fragment for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from triton_regressors.clients.contributions.drawing import DOTS, MOST, bars, beeswarm, waterfall
from triton_regressors.clients.contributions.target import Target
from triton_regressors.clients.errors import RowsError
from triton_regressors.clients.page import page

STYLE = """
body { max-width: 58rem; }
figure div { overflow-x: auto; }
"""
"""A telephone shows a part of a chart of long names at a time, in letters that can be read."""

CAUSES = "Contributions say how the model came to its answer. They do not say what would happen if a column changed."


def html_page(model: str, version: str, meaning: str, targets: Sequence[Target], where: str | None = None) -> str:
    """Return the page: for each target the waterfall of the first row, and a beeswarm and bars of all rows.

    `where` is the condition that chose the rows.
    """
    rows, chosen = len(targets[0].values), f" with {where}" if where else ""
    sections = [
        f"<h1>Contributions to the answers of {escape(model)}</h1>",
        f'<p class="faint">version {escape(version)}, {rows:,} row{"s" * (rows != 1)}{escape(chosen)}</p>',
        f"<p>{escape(meaning)}</p><p>{CAUSES}</p>",
    ]
    for target in targets:
        way = (
            f"From the base to the {'sum' if target.links else 'answer'}, the largest contribution first. A bar that "
            f"points to the right adds.{'' if target.errors is None else ' Behind ± is the standard error.'}"
        )
        sections += [f"<h2>One row: {escape(target.name)}</h2>", _figure(waterfall(target, 0), way)]
        if rows > 1:
            dots = f"{min(rows, DOTS):,} of {rows:,} rows" if rows > DOTS else "Each row"
            columns = len(target.columns)
            which = f" for each of the {MOST} largest of {columns:,} columns" if columns > MOST else " for each column"
            told = (
                f"{dots}: a dot{which}, to the right of the line if the column adds. Strings are coloured in their "
                "alphabetical order; a missing cell is a ring."
            )
            means = "The mean size of a column's contributions, whichever their sign."
            sections += [f"<h2>Many rows: {escape(target.name)}</h2>", _figure(beeswarm(target), told)]
            sections += [f"<h2>Columns: {escape(target.name)}</h2>", _figure(bars(target), means)]
    return page(f"Contributions of {model}", sections, STYLE)


def write_page(
    path: Path, model: str, version: str, meaning: str, targets: Sequence[Target], where: str | None = None
) -> None:
    """Write the page; raise `RowsError` if this is not possible."""
    try:
        path.write_text(html_page(model, version, meaning, targets, where), encoding="utf-8")
    except OSError as error:
        raise RowsError(f"Cannot write {path}: {error.strerror}.") from None


def fragment(about: str, meaning: str, targets: Sequence[Target]) -> str:
    """Return the waterfall of the first row, and the bars of many, in the colours of the page around them."""
    rows = len(targets[0].values)
    charts = [chart for target in targets if rows for chart in [waterfall(target, 0), *([bars(target)] * (rows > 1))]]
    told = "".join(f'<p style="margin: .6em 0">{escape(words)}</p>' for words in (about, meaning))
    return f'<div style="max-width: 54em; overflow-x: auto; line-height: 1.4">{"".join(charts)}{told}</div>'


def _figure(chart: str, caption: str) -> str:
    return f"<figure><div>{chart}</div><figcaption>{escape(caption)}</figcaption></figure>"
