"""The look of the charts, and their forms: a PNG file, and an SVG inside the page.

People with any colour vision can tell the colours apart, and every configuration also has its own marker.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C", "#9467BD")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK, FAINT, GRID = "#2A2A2A", "#6B6B6B", "#D9D9D9"
"""Colours of text, of secondary text and of grid lines; in the HTML report they become the page's own."""
FONTS = ("DejaVu Sans", "Helvetica", "Arial", "sans-serif")
WIDE, NARROW = 10.0, 4.4
"""Widths of figures in inches; a narrow one can be read on a screen of 400 pixels."""
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": list(FONTS),
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",
}


def save_png(figure: Figure, path: Path) -> None:
    """Write the figure as PNG on white, at 150 dots per inch."""
    with rc_context(STYLE):
        FigureCanvasAgg(figure)
        figure.savefig(path, dpi=150, facecolor="white", metadata={"Software": ""})


def inline_svg(figure: Figure, title: str) -> str:
    """Return the figure as an `<svg>` element for an HTML page: no background, text and grid in the page's colours."""
    buffer = io.StringIO()
    with rc_context(STYLE):
        FigureCanvasSVG(figure)
        figure.savefig(buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format")))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", text)
    text = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", text, count=1)
    text = text.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
    for colour, variable in ((INK, "--ink"), (FAINT, "--faint"), (GRID, "--grid")):
        text = re.sub(colour, f"var({variable})", text, flags=re.IGNORECASE)
    return text
