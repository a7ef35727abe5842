"""Charts of contributions as SVG, made of text alone, so that a client needs no library to show them.

Text takes the colour of the page around it, light or dark. Two colours that people with any colour vision tell apart
stand for positive and negative, or for large and small cells; the forms of the bars and the signs say the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape, unescape

import numpy as np

from triton_regressors.clients.contributions.target import Target, cell_numbers, shown_number, signed

UP, DOWN, NONE = "#D55E00", "#0072B2", "#8C8C8C"
"""Colours of positive and of negative contributions, or of large and of small cells; and of cells without numbers."""
WIDTH, LEFT, RIGHT, LINE, HEAD = 720, 250, 690, 26, 30
"""Pixels: the width, the columns' chart from left to right, a column's height, and the height above the first."""
MOST = 15
"""The number of lines; the columns beyond are one sum."""
SHORT, NAME, CHARACTER, GAP = 12, 34, 8, 12
"""The characters of a line's name that have room at least and at most, the pixels of one, and those behind the name."""
DOTS = 1000
"""The most rows of a beeswarm; of more rows, as many are shown, at equal distances."""
BINS, RADIUS = 110, 2.2
_NAMED = re.compile(r"<title>(.*?)</title>", re.DOTALL)
PERCENTILES = (5, 95)
"""The cells that have the colours of the smallest and the largest ones; a column's extremes would hide the others."""


def waterfall(target: Target, row: int) -> str:
    """Return the way from the base to the row's answer, column by column in the order of their size."""
    parts, at = list(target.parts(row, MOST)), float(target.base[row])
    steps = np.cumsum([at, *(value for _, _, value, _ in parts)])
    scale = _Scale(steps, 0.14 if target.errors is None else 0.26)  # labels with errors are longer
    drawn = [_line_name(0, "base"), *_mark(scale(at), 0, shown_number(at))]
    for place, (part, start, stop) in enumerate(zip(parts, steps[:-1], steps[1:], strict=True), 1):
        name, cell, value, error = part
        drawn += [_line_name(place, f"{name} = {cell}" if cell else name), _arrow(scale(start), scale(stop), place)]
        ahead = value >= 0
        label = f"{signed(value)} {error}".rstrip()
        drawn.append(_text(scale(stop) + (6 if ahead else -6), place, label, "start" if ahead else "end"))
        drawn.append(_guide(scale(stop), place))
    last, sums = len(parts) + 1, "sum" if target.links else target.name
    drawn += [_line_name(last, sums), *_mark(scale(steps[-1]), last, shown_number(target.total(row)))]
    title = f"row {target.rows[row]:,}: {target.answer(row)}"
    return _svg(drawn, last + 1, title)


def beeswarm(target: Target) -> str:
    """Return a dot for each row and column, at its contribution, in a colour from the column's small to large cells."""
    rows = np.unique(np.linspace(0, len(target.values) - 1, min(DOTS, len(target.values))).round().astype(int))
    values, order = target.values[rows].astype(np.float64), _by_size(target)
    scale, numbers = _Scale([0.0, *values[:, order].ravel()], 0.04), cell_numbers(target.cells[rows])
    drawn = [*_axis(scale, len(order)), *_legend()]
    for place, column in enumerate(order):
        drawn.append(_line_name(place, target.columns[column]))
        xs = np.array([scale(value) for value in values[:, column]])
        colours, middle = _colours(numbers[:, column]), HEAD + LINE * (place + 0.5)
        for x, y, colour in zip(xs, _stacked(xs), colours, strict=True):
            drawn.append(f'<circle cx="{x:.1f}" cy="{middle + y:.1f}" r="{RADIUS}" fill="{colour}"/>')
    return _svg(drawn, len(order) + 1, f"contributions to {target.name} of {len(rows):,} rows")


def bars(target: Target) -> str:
    """Return the mean size of each column's contributions."""
    means = list(target.means(MOST))
    scale, drawn = _Scale([0.0, *(value for _, value in means)], 0.0, 60), list[str]()
    for place, (name, value) in enumerate(means):
        width, top = scale(value) - LEFT, HEAD + LINE * place + 4
        drawn.append(f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="{LINE - 8}" rx="2" fill="{DOWN}"/>')
        drawn += [_line_name(place, name), _text(scale(value) + 6, place, shown_number(value))]
    return _svg(drawn, len(means), f"mean size of the contributions to {target.name}")


class _Scale:
    """The place in pixels of a number; `margin` is the share of the width that stays free on either side."""

    def __init__(self, numbers: Sequence[float] | np.ndarray, margin: float, labels: int = 0) -> None:
        finite = [float(number) for number in numbers if math.isfinite(number)] or [0.0]
        self.low, self.high = min(finite), max(finite)
        self._span = (self.high - self.low) or 1.0
        self._first = LEFT + margin * (RIGHT - LEFT)
        self._width = (RIGHT - LEFT) * (1 - 2 * margin) - labels

    def __call__(self, number: float) -> float:
        return self._first + self._width * (number - self.low) / self._span if math.isfinite(number) else self._first

    def ticks(self) -> list[float]:
        """Return round numbers, some five of them."""
        step = 10.0 ** math.floor(math.log10(self._span / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if self._span / (step * factor) <= 6)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [step * number for number in range(first, last + 1)]


def _by_size(target: Target) -> list[int]:
    """Return the places of the columns with the largest mean contributions, by size."""
    means = np.abs(target.values).mean(axis=0, dtype=np.float64)
    return [int(place) for place in np.argsort(-means, kind="stable")[:MOST]]


def _stacked(xs: np.ndarray) -> np.ndarray:
    """Return the distance of each dot from the middle of its line, so that dots at one place lie on one another."""
    nearest, found = np.round((xs - LEFT) / (RIGHT - LEFT) * BINS).astype(int), np.zeros(len(xs))
    crowd = max(int(np.bincount(nearest - nearest.min()).max()) - 1, 1) if len(xs) else 1
    step = min(2 * RADIUS, (LINE - 2 * RADIUS) / crowd)
    for near in np.unique(nearest):
        (dots,) = np.nonzero(nearest == near)
        number = np.arange(len(dots))
        found[dots] = step * ((number + 1) // 2) * np.where(number % 2, 1, -1)
    return found


def _colours(numbers: np.ndarray) -> list[str]:
    """Return each cell's colour: from `DOWN` for small to `UP` for large numbers, `NONE` without a number."""
    known = numbers[np.isfinite(numbers)]
    low, high = np.percentile(known, PERCENTILES) if len(known) else (0.0, 0.0)
    ends = [np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) for colour in (DOWN, UP)]
    found = []
    for number in numbers:
        share = 0.5 if high <= low else float(np.clip((number - low) / (high - low), 0, 1))
        red, green, blue = (ends[0] + (ends[1] - ends[0]) * (share if math.isfinite(share) else 0.5)).astype(int)
        found.append(f"#{red:02x}{green:02x}{blue:02x}" if math.isfinite(number) else NONE)
    return found


def _axis(scale: _Scale, lines: int) -> list[str]:
    """Return a line at zero, and round numbers below the chart."""
    x, bottom = scale(0.0), HEAD + LINE * lines
    drawn = [f'<path d="M{x:.1f} {HEAD}V{bottom}" stroke="currentColor" opacity=".45"/>']
    return [*drawn, *(_text(scale(tick), lines, signed(tick), "middle") for tick in scale.ticks())]


def _legend() -> list[str]:
    """Return the colours of cells, above the chart."""
    stops = "".join(f'<stop offset="{place}" stop-color="{colour}"/>' for place, colour in ((0, DOWN), (1, UP)))
    x = RIGHT - 190
    return [
        f'<defs><linearGradient id="cells">{stops}</linearGradient></defs>',
        f'<text x="{x - 8}" y="14" text-anchor="end">small cells</text>',
        f'<rect x="{x}" y="5" width="110" height="10" rx="2" fill="url(#cells)"/>',
        f'<text x="{x + 118}" y="14">large cells</text>',
    ]


def _mark(x: float, place: int, label: str) -> list[str]:
    """Return a short line with a number, for the base and the sum."""
    top = HEAD + LINE * place
    line = f'<path d="M{x:.1f} {top + 3}V{top + LINE - 3}" stroke="currentColor" stroke-width="2"/>'
    return [line, _text(x + 6, place, label), *([_guide(x, place)] if not place else [])]


def _arrow(start: float, stop: float, place: int) -> str:
    """Return a bar with a tip at its end."""
    top, bottom = HEAD + LINE * place + 4, HEAD + LINE * (place + 1) - 4
    neck = stop - math.copysign(min(6.0, abs(stop - start)), stop - start)
    points = (
        f"{start:.1f},{top} {neck:.1f},{top} {stop:.1f},{(top + bottom) / 2} {neck:.1f},{bottom} {start:.1f},{bottom}"
    )
    return f'<polygon points="{points}" fill="{UP if stop >= start else DOWN}"/>'


def _guide(x: float, place: int) -> str:
    """Return a thin line from a bar's end to the next line."""
    top = HEAD + LINE * (place + 1)
    return f'<path d="M{x:.1f} {top - 4}v8" stroke="currentColor" opacity=".45"/>'


def _line_name(place: int, name: str) -> str:
    """Return the name of a line to the left of its bar; a long one is cut, and whole where a mouse rests on it."""
    short = name if len(name) <= NAME else f"{name[: NAME - 1]}…"
    return f"<g><title>{escape(name)}</title>{_text(LEFT - GAP, place, short, 'end')}</g>"


def _text(x: float, place: int, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{HEAD + LINE * place + LINE / 2 + 4}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(drawn: Sequence[str], lines: int, title: str) -> str:
    """Return an `<svg>` element of some lines below its title; it begins where the longest name does."""
    height = HEAD + LINE * lines + 4
    longest = max(len(unescape(name)) for part in drawn for name in _NAMED.findall(part))
    first = max(LEFT - GAP - CHARACTER * min(max(longest, SHORT), NAME), 0)
    return (
        f'<svg role="img" aria-label="{escape(title)}" viewBox="{first} 0 {WIDTH - first} {height}" '
        f'fill="currentColor" font-family="system-ui, DejaVu Sans, sans-serif" font-size="12">'
        f'<text x="{first}" y="14" font-weight="600">{escape(title)}</text>{"".join(drawn)}</svg>'
    )
