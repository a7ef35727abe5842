"""Contributions as lines of text: the columns of a row by size, each with a bar."""

from __future__ import annotations

from collections.abc import Sequence

from triton_regressors.clients.contributions.target import Target, cut, shown_number, signed

MOST = 15
"""The lines for columns; those beyond are one sum."""
HALF = 16
"""The characters of the longest bar."""
NAME = 30
UP, DOWN = "█", "▒"
"""The bars of positive and of negative numbers, which also lie on two sides of a line."""


def row_lines(target: Target, row: int, most: int = MOST) -> list[str]:
    """Return the lines of a row: its answer, what each column adds to it, with its error if estimated, and the base."""
    parts = list(target.parts(row, most))
    cells = [(name, cell, signed(value), error) for name, cell, value, error in parts]
    bars = _bars([value for _, _, value, _ in parts])
    lines = _aligned([*cells, ("base", "", shown_number(float(target.base[row])), "")], [*bars, ""])
    return ["", f"row {target.rows[row]:,}: {target.answer(row)}", *lines]


def mean_lines(target: Target, most: int = MOST) -> list[str]:
    """Return the lines of many rows: the mean size of each column's contributions."""
    means = list(target.means(most))
    largest = max((value for _, value, alone in means if alone), default=0.0)
    bars = [UP * round(2 * HALF * value / largest) if largest and alone else "" for _, value, alone in means]
    heading = f"mean |contribution| to {target.explained} over {len(target.values):,} rows"
    return ["", heading, *_aligned([(name, shown_number(value)) for name, value, _ in means], bars)]


def _bars(values: Sequence[float]) -> list[str]:
    """Return a bar for each number, to the right of a line or, for a negative one, to its left."""
    largest = max(map(abs, values), default=0.0)
    sizes = [round(HALF * abs(value) / largest) if largest else 0 for value in values]
    left = max((size for size, value in zip(sizes, values, strict=True) if value < 0), default=0)
    return [
        f"{(DOWN * size if value < 0 else '').rjust(left)}│{UP * size if value > 0 else ''}"
        for size, value in zip(sizes, values, strict=True)
    ]


def _aligned(rows: Sequence[tuple[str, ...]], bars: Sequence[str]) -> list[str]:
    """Return lines of cells in columns: the first to the left, numbers to the right, then the bars.

    A terminal shows letters of Chinese, Japanese and Korean twice as wide as others.
    """
    from rich.cells import cell_len  # which few clients need

    short = [(cut(name, NAME), *rest) for name, *rest in rows]
    widths = [max(map(cell_len, column)) for column in zip(*short, strict=True)]
    lines = []
    for (name, *rest), bar in zip(short, bars, strict=True):
        room = [" " * (wide - cell_len(cell)) for cell, wide in zip((name, *rest), widths, strict=True)]
        cells = [space + cell for cell, space, wide in zip(rest, room[1:], widths[1:], strict=True) if wide]
        lines.append("  ".join(["", name + room[0], *cells, bar]).rstrip())
    return lines
