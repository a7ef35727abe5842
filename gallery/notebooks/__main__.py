"""Makes the notebooks: `python -m gallery.notebooks [--check]`.

A notebook `NAME.ipynb` is made from `NAME.md` beside it. Text becomes cells of text and a block of `python` a cell of
code. A block of `sources` becomes a cell with kernels of the gallery: its lines are `MODULE: NAME, NAME`, or
`cuda NAME.cu as VARIABLE`. `{terms}` is the table of terms. Cells have no outputs, as these depend on the GPU.

With --check nothing is written; the exit code is 1 if a notebook differs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from gallery.notebooks.sources import Sources, cuda_text
from gallery.puzzles.terms import markdown

HERE = Path(__file__).parent
BLOCK = re.compile(r"^```(python|sources)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def notebook(text: str) -> dict[str, Any]:
    """Return the notebook of a page."""
    sources, cells = Sources(), []
    parts = BLOCK.split(text)  # text, language, code, text, …
    for place, part in enumerate(parts):
        if place % 3 == 1:
            continue
        code = place % 3 == 2
        body = part.strip().replace("{terms}", markdown().strip())
        if code and parts[place - 1] == "sources":
            body = "\n\n\n".join(_sources(line, sources) for line in body.splitlines())
        if body:
            cell: dict[str, Any] = {"cell_type": "code" if code else "markdown", "id": f"cell-{len(cells)}"}
            cell |= {"execution_count": None, "outputs": []} if code else {}
            cells.append(cell | {"metadata": {}, "source": body.splitlines(keepends=True)})
    return {
        "cells": cells,
        "metadata": {
            "accelerator": "GPU",
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _sources(line: str, sources: Sources) -> str:
    if found := re.fullmatch(r"cuda (\w+\.cu) as (\w+)", line):
        return f'{found[2]} = r"""\n{cuda_text(found[1])}"""'
    module, _, names = line.partition(": ")
    return sources.text(module, names.split(", "))


def notebooks() -> dict[Path, str]:
    """Return the notebooks' texts by path."""
    return {
        page.with_suffix(".ipynb"): json.dumps(notebook(page.read_text(encoding="utf-8")), ensure_ascii=False, indent=1)
        + "\n"
        for page in sorted(HERE.glob("*.md"))
    }


def main() -> int:
    """Write the notebooks, or with --check report whether they are as their pages and kernels make them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a notebook differs")
    check, differing = parser.parse_args().check, []
    for path, text in notebooks().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            differing.append(path.name)
            if not check:
                path.write_text(text, encoding="utf-8")
    print(f"{'differ' if check else 'written'}: {', '.join(differing) or 'none'}")
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
