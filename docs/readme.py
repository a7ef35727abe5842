"""Makes the generated sections of README.md: `python -m docs.readme`, or with --check only compares.

What can be exported comes from the registry of lowerings, the benchmark tables from the committed results.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.tables import markdown, read_results
from triton_regressors.exporter import registry

README = Path(__file__).parent.parent / "README.md"


def support() -> str:
    """Return a table of every class that has a lowering, by the file of lowerings/ it is in."""
    families: dict[str, list[str]] = {}
    for cls, lowering in registry.lowerings().items():
        module = lowering.__module__.rpartition(".")[2]
        families.setdefault(module, []).append(cls.__name__)
    rows = [f"| {family.replace('_', ' ')} | {', '.join(names)} |" for family, names in sorted(families.items())]
    return "\n".join(["| family | estimators |", "| --- | --- |", *rows])


def sections() -> dict[str, str]:
    """Return every generated section by the name of its markers."""
    return {"support": support(), "benchmarks": markdown(read_results())}


def fill(text: str) -> str:
    """Return README.md's text with every section made anew."""
    for name, content in sections().items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        if begin not in text or end not in text:
            raise SystemExit(f"README.md has no markers {begin} and {end}.")
        text = text[: text.index(begin)] + f"{begin}\n{content}\n" + text[text.index(end) :]
    return text


def main() -> int:
    """Write README.md, or with --check return 1 if it is not what it should be."""
    before = README.read_text(encoding="utf-8")
    after = fill(before)
    if "--check" in sys.argv[1:]:
        return int(before != after)
    README.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
