"""The look of HTML pages: one file, nothing fetched, readable in light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --panel: #f5f6f8; --ink: #1d2129; --faint: #5d6573; --grid: #d8dce3;
  --good: #00664d; --good-panel: #e3f3ee; --warn: #8a4b00; --warn-panel: #fdf1e0; }
@media (prefers-color-scheme: dark) { :root { --page: #14171c; --panel: #1d2128; --ink: #e7eaf0; --faint: #a2abba;
  --grid: #363c47; --good: #66d2b1; --good-panel: #13302a; --warn: #f2b661; --warn-panel: #33260f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  overflow-wrap: break-word;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
p { margin: .4rem 0; max-width: 75ch; }
.faint, figcaption { color: var(--faint); }
figure { margin: .5rem 0 0; padding: 1rem; background: var(--panel); border-radius: 8px; }
figure svg { width: 100%; height: auto; }
figcaption { font-size: .9rem; margin-top: .6rem; max-width: 90ch; }
@media (max-width: 640px) {
  body { padding: 1.25rem .75rem 3rem; }
  figure { padding: .5rem; }
}
"""


def page(title: str, sections: Sequence[str], style: str = "") -> str:
    """Return a whole page of HTML sections, with further styles of its own."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n"
        + "\n".join(sections)
        + "\n</body>\n</html>\n"
    )
