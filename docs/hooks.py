"""Hooks for mkdocs to make a site of pages in several folders of the repository: README.md, docs/, docker/README.md.

mkdocs takes the pages of one folder. With these hooks pages keep their paths from the root, so that the links between
them are the same on the site and in the repository. Linked files that are not pages are copied as they are.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
TAKEN = (
    "*.md",
    "LICENSE",
    "docs/*.css",
    "docs/*.md",
    "docs/images/**/*.png",
    "docs/images/**/*.svg",
    "docker/README.md",
    "docker/kubernetes/README.md",
    "model_repository/README.md",
    "benchmarks/*.md",
    "benchmarks/results/*/*.png",
)


def on_startup(**_: Any) -> None:
    """Copy the package for mkdocstrings, which follows no links between folders and needs an __init__.py in each."""
    copy = ROOT / "build" / "site-source"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for folder in {path.parent for path in copy.glob("*/**/*.py")}:
        (folder / "__init__.py").touch()


def on_files(files: Files, config: Any) -> Files:
    """Return the repository's pages and pictures, in place of those of one folder, and the theme's own files."""
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")]
    linked = [name for page in pages for name in re.findall(r"\]\(\.\./([\w/]+\.(?:py|ipynb))\)", page)]
    ours = sorted({*(path for pattern in TAKEN for path in ROOT.glob(pattern)), *(ROOT / name for name in linked)})
    made = [File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)) for path in ours]
    docs = Path(config["docs_dir"])
    others = [file for file in files if not file.abs_src_path or docs not in Path(file.abs_src_path).parents]
    return Files([*others, *made])
