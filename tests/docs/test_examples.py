"""Every example of README.md and docs/ runs, and prints what its page shows."""

import re
from collections import Counter

import pytest

from docs.examples import PAGES, ExampleError, Session, blocks, outputs, renewed, same

EXAMPLES = {path.name: blocks(path.read_text(encoding="utf-8")) for path in PAGES}
RUN = [path for path in PAGES if any(block.reason() is None for block in EXAMPLES[path.name])]
LEFT_OUT = [(name, block) for name, found in EXAMPLES.items() for block in found if block.reason() is not None]


@pytest.mark.server
@pytest.mark.parametrize("path", RUN, ids=lambda path: path.name)
def test_a_page_prints_what_it_shows(path, request):
    text = path.read_text(encoding="utf-8")
    if '"BYTES"' in text:
        request.getfixturevalue("numpy1")
    for block, printed in outputs(text):
        assert same(printed, block.shown), (
            f"{path.name}, line {block.line}: run `make pages`, and read what has changed.\n{printed}"
        )


def test_these_blocks_are_not_run_and_no_others():
    """Marks of examples that do not run: pip, Docker, another machine, long measurements, and a user's own module."""
    assert Counter(name for name, _ in LEFT_OUT) == {
        "README.md": 1, "autogluon.md": 1, "deployment.md": 4, "extending.md": 1, "in_process.md": 1,
        "installation.md": 3, "scoring.md": 3, "serving.md": 1,
    }  # fmt: skip


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_block_of_commands_is_in_a_language_that_is_not_run(path):
    text = path.read_text(encoding="utf-8")
    assert not set(re.findall(r"^```(\w+)$", text, re.MULTILINE)) - {"python", "shell", "text", "toml"}


def test_outputs_are_compared_by_words_numbers_and_order():
    assert same("y: 1.0e-07 std\n[72.9332]  \n", "y: 3.1e-07 std\n[72.93319]")
    assert same("took 3 s", "took 4.5 s")
    assert not same("[72.93]", "[72.95]")
    assert not same("442 rows", "443 rows")
    assert not same("y: 1.0e-03 std", "y: 3.1e-07 std")
    assert not same("Model", "Models")


def test_a_block_that_fails_or_prints_something_else_is_found():
    page = "```python\nprint(2 + 2)\n```\n\n```text\n5\n```\n"
    assert renewed(page) == page.replace("5", "4")
    assert renewed(renewed(page)) == renewed(page)
    with pytest.raises(ExampleError, match="line 2 fails"):
        renewed("```python\n1 / 0\n```\n")
    with pytest.raises(ExampleError, match="line 2 fails"):
        renewed("```shell\nfalse\n```\n")


def test_only_ports_are_shown_as_the_pages_ports_not_numbers_with_the_same_digits(tmp_path, monkeypatch):
    monkeypatch.setattr("docs.examples._free_ports", lambda count: [33205, 33206, 33207][:count])
    (block,) = blocks("```python\nprint(72.933205, 33205, '127.0.0.1:8001', 'port=8000')\n```\n")
    with Session(tmp_path) as session:
        assert session.run(block) == "72.933205 33205 127.0.0.1:8001 port=8000\n"


def test_blocks_share_a_directory_and_what_python_knows():
    page = "```python\nx = 4\nopen('a', 'w').write('b')\n```\n```shell\ncat a\n```\n```text\nb\n```\n"
    page += "```python\nprint(x)\n```\n```text\n4\n```\n"
    assert [printed for _, printed in outputs(page)] == ["b", "4\n"]
