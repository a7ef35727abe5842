"""The few shapes of the gallery's pictures, as SVG text: the same calls give the same bytes.

A picture is drawn on a light card, so that it can be read on a dark page too. Each program has its own colour; lanes
that a mask switches off are hatched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import atan2, cos, sin

INK, SOFT, LINE = "#0f172a", "#475569", "#64748b"
PAINT = {
    "blank": ("#ffffff", "#cbd5e1"),
    "plain": ("#f1f5f9", "#94a3b8"),
    "0": ("#bfdbfe", "#2563eb"),
    "1": ("#fed7aa", "#ea580c"),
    "2": ("#bbf7d0", "#16a34a"),
    "3": ("#e9d5ff", "#9333ea"),
    "0 now": ("#2563eb", "#1e40af"),
    "1 now": ("#ea580c", "#9a3412"),
    "2 now": ("#16a34a", "#166534"),
    "3 now": ("#9333ea", "#6b21a8"),
    "mask": ("url(#mask)", "#94a3b8"),
}
"""Name → fill and stroke. A number is a program's; `now` marks the elements that it works on at the moment."""

WIDTH = 960
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
MASK = (
    '<pattern id="mask" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="7" height="7" fill="#f8fafc"/><path d="M0 0V7" stroke="#94a3b8" stroke-width="3"/></pattern>'
)

Paint = str | Callable[[int, int], str]
Texts = Callable[[int, int], object] | Sequence[object] | None


class Picture:
    """A card of a height; coordinates are from its upper left corner, to the right and down."""

    def __init__(self, height: int, title: str) -> None:
        self._height, self._title = height, title
        self._parts: list[str] = []

    def svg(self) -> str:
        """Return the picture."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self._height}" role="img" '
            f'aria-labelledby="title" font-family="{FONT}">\n<title id="title">{escape(self._title)}</title>\n'
            f"<defs>{MASK}</defs>\n"
        )
        card = (
            f'<rect x="1" y="1" width="{WIDTH - 2}" height="{self._height - 2}" rx="14" fill="#ffffff" '
            'stroke="#cbd5e1" stroke-width="2"/>'
        )
        return head + "\n".join([card, *self._parts]) + "\n</svg>\n"

    def text(
        self, x: float, y: float, text: object, size: int = 14, anchor: str = "middle", bold: bool = False,
        colour: str = INK,
    ) -> None:  # fmt: skip
        """Write a line of text; y is the height of its baseline."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{weight}>'
            f"{escape(str(text))}</text>"
        )

    def note(self, x: float, y: float, *lines: str, anchor: str = "start") -> None:
        """Write lines below each other, softly."""
        for place, line in enumerate(lines):
            self.text(x, y + 19 * place, line, 13, anchor, colour=SOFT)

    def box(
        self, x: float, y: float, width: float, height: float, paint: str = "plain", *lines: object, round: int = 3,
        bold: bool = False, dashed: bool = False,
    ) -> None:  # fmt: skip
        """Draw a rectangle with lines of text in its middle."""
        fill, stroke = PAINT[paint]
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round}" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="1.5"{dash}/>'
        )
        colour = "#ffffff" if paint.endswith("now") else INK
        size = 14 if width > 40 else 13 if width > 24 else 10
        for place, line in enumerate(lines):
            middle = y + height / 2 + size * 0.36 + 19 * (place - (len(lines) - 1) / 2)
            self.text(x + width / 2, middle, line, size, bold=bold and not place, colour=colour)

    def outline(self, x: float, y: float, width: float, height: float, paint: str) -> None:
        """Draw a thick frame around an area."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="none" '
            f'stroke="{PAINT[paint][1]}" stroke-width="3"/>'
        )

    def cells(
        self, x: float, y: float, rows: int, columns: int, size: float, paint: Paint = "plain", texts: Texts = None,
        height: float | None = None,
    ) -> None:  # fmt: skip
        """Draw a matrix of cells; colours and texts by row and column, or texts in a row."""
        high = height or size
        for i in range(rows):
            for j in range(columns):
                text = texts(i, j) if callable(texts) else texts[i * columns + j] if texts else ""
                colour = paint(i, j) if callable(paint) else paint
                self.box(x + j * size, y + i * high, size, high, colour, *([text] if text != "" else []), round=2)

    def arrow(self, x: float, y: float, to_x: float, to_y: float, paint: str = "", dashed: bool = False) -> None:
        """Draw an arrow."""
        colour = PAINT[paint][1] if paint else LINE
        angle = atan2(to_y - y, to_x - x)
        back_x, back_y = to_x - 9 * cos(angle), to_y - 9 * sin(angle)
        side_x, side_y = 5 * sin(angle), -5 * cos(angle)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<path d="M{x:.1f} {y:.1f}L{back_x:.1f} {back_y:.1f}" stroke="{colour}" stroke-width="2"{dash}/>'
            f'<path d="M{to_x:.1f} {to_y:.1f}L{back_x + side_x:.1f} {back_y + side_y:.1f}'
            f'L{back_x - side_x:.1f} {back_y - side_y:.1f}z" fill="{colour}"/>'
        )

    def brace(self, x: float, y: float, width: float, text: object, paint: str = "", below: bool = False) -> None:
        """Draw a bracket of a width over (or below) an area, with a text."""
        colour = PAINT[paint][1] if paint else LINE
        leg = -6 if below else 6
        self._parts.append(
            f'<path d="M{x + 2:g} {y + leg:g}V{y:g}H{x + width - 2:g}V{y + leg:g}" fill="none" stroke="{colour}" '
            'stroke-width="2"/>'
        )
        self.text(x + width / 2, y + 17 if below else y - 7, text, 13, colour=colour if paint else SOFT, bold=True)
