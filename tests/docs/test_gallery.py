"""docs/gallery.md follows the path of the gallery, and quotes the kernels verbatim."""

import ast
import re
from textwrap import dedent

import pytest

from docs.examples import PAGES, ROOT
from gallery.catalogue import KERNELS, PATH
from gallery.puzzles.terms import markdown

PAGE = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
STEPS = dict(zip(PATH, re.findall(r"^## \d+\. .*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL), strict=True))
QUOTES = [
    (path.name, match[1], match[2])
    for path in PAGES
    for match in re.finditer(
        r'^```\w+ title="(.*?)"\n(.*?)^```\n', path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
]


def holds(source: str, quote: str) -> bool:
    """Return whether a source holds the lines of a quote one after the other, at any indentation."""
    lines, wanted = source.splitlines(), quote.splitlines()
    found = (dedent("\n".join(lines[at : at + len(wanted)])) for at in range(len(lines) - len(wanted) + 1))
    return bool(wanted) and "\n".join(wanted) in found


@pytest.mark.parametrize(("page", "name", "quote"), QUOTES)
def test_a_quote_is_in_the_file_that_it_names(page: str, name: str, quote: str) -> None:
    assert holds((ROOT / name).read_text(encoding="utf-8"), quote), f"{page} quotes {name} otherwise than it is"


def test_a_quote_that_is_changed_is_found() -> None:
    source = "def f():\n    x = 1\n    return x\n"
    assert holds(source, "x = 1\nreturn x\n")
    assert not holds(source, "x = 2\nreturn x\n")
    assert not holds(source, "x = 1\n\nreturn x\n")
    assert not holds(source, "    x = 1\nreturn x\n")
    assert not holds(source, "")


def test_no_block_with_a_title_is_in_a_form_that_is_not_compared() -> None:
    """A block with more than a language in its first line is not run, so it must be a quote."""
    for path in PAGES:
        openings = re.findall(r"^```\w+ .*$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(openings) == sum(page == path.name for page, *_ in QUOTES), path.name


@pytest.mark.parametrize("name", PATH)
def test_a_step_shows_its_picture_and_quotes_and_links_its_kernel(name: str) -> None:
    step, kernel = STEPS[name], f"gallery/kernels/{name}.py"
    assert f"](images/gallery/{name}.svg)" in step
    assert f"[{kernel}](../{kernel})" in step
    assert '```python title="gallery/' in step


@pytest.mark.parametrize("name", PATH)
def test_a_step_links_what_its_kernel_names_of_the_product(name: str) -> None:
    text = ast.get_docstring(ast.parse((KERNELS / f"{name}.py").read_text(encoding="utf-8"))) or ""
    _, _, product = text.partition("In the product")
    named = re.findall(r"`((?:kernels|exporter)/[\w/]+\.py)`", product)
    assert named
    assert set(named) <= set(re.findall(r"\]\(\.\./([\w/]+\.py)\)", STEPS[name]))


def test_the_table_of_terms_is_the_one_that_the_command_prints() -> None:
    assert markdown() in PAGE


def test_every_item_of_the_notebooks_has_a_command_and_names_what_its_files_have() -> None:
    table = PAGE.partition("\n## Point by point\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 20
    known = {path.stem for path in (ROOT / "gallery/commands").glob("*.py")}
    for _, *places, commands in rows:
        assert {words.split()[0] for words in re.findall(r"`(.*?)`", commands)} <= known
        for place in places:
            names = re.findall(r"`(\w+)`", place)
            files = [
                (ROOT / "docs" / link).read_text(encoding="utf-8") for link in re.findall(r"\((\.\./.*?\.py)\)", place)
            ]
            assert all(any(re.search(rf"\b{name}\b", text) for text in files) for name in names), place


@pytest.mark.parametrize(
    "question",
    [
        "Why mask?",
        "Why subtract the maximum?",
        "Why tile over K?",
        "Why does the best block size depend on the problem?",
    ],
)
def test_the_questions_are_answered(question: str) -> None:
    assert PAGE.count(f"**{question}**") == 1
