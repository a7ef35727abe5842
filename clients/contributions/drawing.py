"""Charts of contributions as SVG, made of text alone, so that a client needs no library to show them.

Text takes the colour of the page around it, light or dark. Two colours that people with any colour vision tell apart
stand for positive and negative, or for large and small cells; the forms of the bars and the signs say the same.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from html import escape, unescape

import numpy as np

from triton_regressors.clients.contributions.target import Target, cell_numbers, cut, shown_number, signed

UP, DOWN = "#D55E00", "#0072B2"
"""Colours of positive and of negative contributions, or of large and of small cells."""
LEFT, RIGHT, END, LINE, HEAD = 300, 640, 654, 26, 30
"""Pixels: the columns' chart from left to right, the end of all, a column's height, and the height above the first."""
LARGE, SMALL = 1.25, 0.78
"""The sizes on a page where there is room, and at least: letters of 15 pixels, as the page's own, and of 9."""
MOST = 15
"""The number of lines; the columns beyond are one sum."""
NAME, CHARACTER, BROAD, GAP = 34, 8, 13, 12
"""The most characters of a line's name, the pixels of one, of a Chinese one, and those before and behind a label."""
DOTS = 1000
"""The most rows of a beeswarm; of more rows, as many are shown, at equal distances."""
BINS, RADIUS = 85, 2.2
_NAMED = re.compile(r'text-anchor="end">(.*?)</text></g>', re.DOTALL)
PERCENTILES = (5, 95)
"""The cells that have the colours of the smallest and the largest ones; a column's extremes would hide the others."""


def waterfall(target: Target, row: int) -> str:
    """Return the way from the base to the row's answer, column by column in the order of their size."""
    parts, at = list(target.parts(row, MOST)), float(target.base[row])
    steps = np.cumsum([at, *(value for _, _, value, _ in parts)])
    labels = [f"{signed(value)} {error}".rstrip() for _, _, value, error in parts]
    total, ahead = shown_number(target.total(row)), [value >= 0 for _, _, value, _ in parts]
    rooms = [
        (0, _room(label)) if after else (_room(label), 0)
        for label, after in zip((shown_number(at), *labels, total), (True, *ahead, True), strict=True)
    ]
    scale = _Scale([*steps, steps[-1]], rooms)
    drawn = [_line_name(0, "base"), *_mark(scale(at), 0, shown_number(at))]
    for place, (name, cell, _, _) in enumerate(parts, 1):
        start, stop, after = scale(steps[place - 1]), scale(steps[place]), ahead[place - 1]
        drawn += [_line_name(place, name, cell), _arrow(start, stop, place)]
        drawn.append(_text(stop + (6 if after else -6), place, labels[place - 1], "start" if after else "end"))
        drawn.append(_guide(stop, place))
    last, sums = len(parts) + 1, "sum" if target.links else target.name
    drawn += [_line_name(last, sums), *_mark(scale(steps[-1]), last, total)]
    title = f"row {target.rows[row]:,}: {target.answer(row)}"
    return _svg(drawn, last + 1, title)


def beeswarm(target: Target) -> str:
    """Return a dot for each row and column, at its contribution, in a colour from the column's small to large cells.

    A missing cell is a ring: the colour between small and large ones is nearly grey.
    """
    rows = np.unique(np.linspace(0, len(target.values) - 1, min(DOTS, len(target.values))).round().astype(int))
    values, order = target.values[rows].astype(np.float64), _by_size(target)
    finite = values[:, order][np.isfinite(values[:, order])]
    ends = [float(finite.min(initial=0.0)), float(finite.max(initial=0.0))]
    scale, numbers = _Scale(ends, [(GAP, GAP)] * 2), cell_numbers(target.cells[rows])
    drawn = [*_axis(scale, len(order)), *_legend(len(order) + 1)]
    for place, column in enumerate(order):
        drawn.append(_line_name(place, target.columns[column]))
        xs = np.array([scale(value) for value in values[:, column]])
        looks, middle = _looks(numbers[:, column]), HEAD + LINE * (place + 0.5)
        for x, y, look in zip(xs, _stacked(xs), looks, strict=True):
            drawn.append(f'<circle cx="{x:.1f}" cy="{middle + y:.1f}" r="{RADIUS}" {look}/>')
    return _svg(drawn, len(order) + 2, f"contributions to {target.explained} of {len(rows):,} rows")


def bars(target: Target) -> str:
    """Return the mean size of each column's contributions."""
    means = list(target.means(MOST))
    single = [0.0, *(value for _, value, alone in means if alone)]
    scale, drawn = _Scale(single, [(0, _room(shown_number(value))) for value in single]), []
    for place, (name, value, alone) in enumerate(means):
        width, top = scale(value) - LEFT if alone else 0.0, HEAD + LINE * place + 4
        if alone:
            drawn.append(f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="{LINE - 8}" rx="2" fill="{DOWN}"/>')
        drawn += [_line_name(place, name), _text(LEFT + width + 6, place, shown_number(value))]
    return _svg(drawn, len(means), f"mean size of the contributions to {target.explained}")


class _Scale:
    """The place in pixels of a number: as far apart as `rooms` allow, the pixels that each needs on either side."""

    def __init__(self, numbers: Sequence[float], rooms: Sequence[tuple[int, int]]) -> None:
        finite = [float(number) for number in numbers if math.isfinite(number)] or [0.0]
        self.low, self.high = min(finite), max(finite)
        self._span = (self.high - self.low) or 1.0
        shares = [(number - self.low) / self._span if math.isfinite(number) else 0.0 for number in numbers]
        each, whole = list(zip(shares, rooms, strict=True)), RIGHT - LEFT
        fitting = [(whole - left - right) / (b - a) for a, (left, _) in each for b, (_, right) in each if b > a]
        self._width = max(min(fitting, default=1.0), 1.0)
        self._first = LEFT + max(left - self._width * share for share, (left, _) in each)

    def __call__(self, number: float) -> float:
        return self._first + self._width * (number - self.low) / self._span if math.isfinite(number) else self._first

    def ticks(self) -> list[float]:
        """Return round numbers, five at most."""
        step = 10.0 ** math.floor(math.log10(self._span / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if self._span / (step * factor) <= 4)
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


def _looks(numbers: np.ndarray) -> list[str]:
    """Return each dot's attributes: from `DOWN` for small to `UP` for large numbers, a ring without a number."""
    known = numbers[np.isfinite(numbers)]
    low, high = np.percentile(known, PERCENTILES) if len(known) else (0.0, 0.0)
    ends = [np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) for colour in (DOWN, UP)]
    found = []
    for number in numbers:
        share = 0.5 if high <= low else float(np.clip((number - low) / (high - low), 0, 1))
        red, green, blue = (ends[0] + (ends[1] - ends[0]) * (share if math.isfinite(share) else 0.5)).astype(int)
        filled, ring = f'fill="#{red:02x}{green:02x}{blue:02x}"', 'fill="none" stroke="currentColor" stroke-width=".6"'
        found.append(filled if math.isfinite(number) else ring)
    return found


def _axis(scale: _Scale, lines: int) -> list[str]:
    """Return a line at zero, and round numbers below the chart."""
    x, bottom = scale(0.0), HEAD + LINE * lines
    drawn = [f'<path d="M{x:.1f} {HEAD}V{bottom}" stroke="currentColor" opacity=".45"/>']
    labels = [(tick, f"{'+' * (tick > 0)}{shown_number(tick)}") for tick in scale.ticks()]
    return [*drawn, *(_text(scale(tick), lines, label, "middle") for tick, label in labels)]


def _legend(place: int) -> list[str]:
    """Return the colours of cells, in a line below the chart."""
    stops = "".join(f'<stop offset="{share}" stop-color="{colour}"/>' for share, colour in ((0, DOWN), (1, UP)))
    x, top = (LEFT + RIGHT) / 2, HEAD + LINE * place + 8
    return [
        f'<defs><linearGradient id="cells">{stops}</linearGradient></defs>',
        _text(x - 63, place, "small cells", "end"),
        f'<rect x="{x - 55}" y="{top}" width="110" height="10" rx="2" fill="url(#cells)"/>',
        _text(x + 63, place, "large cells"),
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


def _line_name(place: int, name: str, cell: str = "") -> str:
    """Return the name of a line, and its cell, to the left of its bar.

    A long name is cut, not its cell; it is whole where a mouse rests on it.
    """
    after = f" = {cell}" if cell else ""
    short = cut(name, NAME - len(after)) + after
    return f"<g><title>{escape(name + after)}</title>{_text(LEFT - GAP, place, short, 'end')}</g>"


def _text(x: float, place: int, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{HEAD + LINE * place + LINE / 2 + 4}" text-anchor="{anchor}">{escape(words)}</text>'


def _pixels(words: str) -> int:
    """Return the room that a text needs, in any usual font."""
    return sum(BROAD if unicodedata.east_asian_width(letter) in "FW" else CHARACTER for letter in words)


def _room(label: str) -> int:
    """Return the room beside a place that its label needs."""
    return _pixels(label) + GAP


def _svg(drawn: Sequence[str], lines: int, title: str) -> str:
    """Return an `<svg>` element of some lines below its title; it begins where the longest name does.

    Its letters have one size whatever the names' length, and shrink a little on a narrow page.
    """
    height = HEAD + LINE * lines + 4
    names = max(_pixels(unescape(name)) for part in drawn for name in _NAMED.findall(part))
    width = max(names + GAP + END - LEFT, _pixels(title))
    first = END - width
    return (
        f'<svg role="img" aria-label="{escape(title)}" viewBox="{first} 0 {width} {height}" '
        f'style="width: {LARGE * width:.0f}px; min-width: {SMALL * width:.0f}px; max-width: 100%; height: auto" '
        f'fill="currentColor" font-family="system-ui, DejaVu Sans, sans-serif" font-size="12">'
        f'<text x="{first}" y="14" font-weight="600">{escape(title)}</text>{"".join(drawn)}</svg>'
    )
