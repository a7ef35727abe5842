"""Draws the pictures of docs/contributions.md: `python -m docs.contribution_pictures` writes docs/images/contributions.

The model is the one that the page's Python blocks up to `LAST` fit and export, so that the pictures show what the page
prints.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import triton_regressors as tr
from docs.examples import ROOT, blocks
from triton_regressors.clients.contributions.drawing import LARGE, bars, beeswarm, waterfall
from triton_regressors.clients.contributions.target import Target

PAGE, FOLDER = ROOT / "docs/contributions.md", ROOT / "docs/images/contributions"
LAST = 2
"""The number of Python blocks of the page that come before the server."""
INK, PAPER, FRAME = "#0f172a", "#ffffff", "#cbd5e1"
MARGIN = 14


def explained(page: str) -> Target:
    """Return the contributions to the answers for the rows `held_out` of the entry `progress` of a page."""
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [block.code for block in blocks(page) if block.language == "python"][:LAST]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        exec(compile("\n".join(code), "<example>", "exec"), names)
        found = tr.load("model_repository/progress").infer(names["held_out"], outputs=("y", "contributions"))
    rows, parts = names["held_out"], found["contributions"]
    return Target(
        name="y",
        columns=tuple(map(str, rows.columns)),
        values=parts[:, :-1],
        base=parts[:, -1],
        predictions=found["y"][:, 0],
        cells=rows.to_numpy(dtype=object),
        rows=np.arange(len(rows)),
        links=(),
    )


def card(chart: str) -> str:
    """Return a chart as a file: on paper of its own, since a picture in a page does not know the page's colours."""
    match = re.search(r'viewBox="-?\d+ 0 (\d+) (\d+)" style="[^"]*"', chart)
    assert match is not None
    width, height = (round(LARGE * int(size)) for size in match.groups())
    whole, high = width + 2 * MARGIN, height + 2 * MARGIN
    placed = chart.replace(match[0], match[0].partition(" style")[0], 1)
    placed = placed.replace("<svg ", f'<svg x="{MARGIN}" y="{MARGIN}" width="{width}" height="{height}" ', 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{high}" viewBox="0 0 {whole} {high}" '
        f'color="{INK}"><rect x=".5" y=".5" width="{whole - 1}" height="{high - 1}" rx="10" fill="{PAPER}" '
        f'stroke="{FRAME}"/>{placed}</svg>\n'
    )


def pictures(page: str) -> dict[Path, str]:
    """Return the files of a page."""
    target = explained(page)
    charts = {"waterfall": waterfall(target, 0), "beeswarm": beeswarm(target), "bars": bars(target)}
    return {FOLDER / f"{name}.svg": card(chart) for name, chart in charts.items()}


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in pictures(PAGE.read_text(encoding="utf-8")).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
