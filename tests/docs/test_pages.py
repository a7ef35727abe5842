"""README.md and docs/ say what is: generated pages are current, and the commands, names and links in them exist."""

import os
import re
import subprocess
import sys

from typer.main import get_command

import triton_regressors as tr
from benchmarks.cpu.libraries import SCIKIT_LEARN
from benchmarks.cpu.predict import fastest
from benchmarks.figures.tables import read_results
from docs import estimators
from docs.examples import PAGES, ROOT
from triton_regressors.__main__ import make_app

README_LINES = 125
KINDS = ("regressor", "transformer")
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PAGES}
WRITTEN = {name: text for name, text in TEXTS.items() if name != "docs/coverage.md"}


def test_the_page_of_estimators_is_what_make_pages_writes():
    assert estimators.PAGE.read_text(encoding="utf-8") == estimators.page(), "run `make pages`"


def test_readme_stays_short():
    assert len(TEXTS["README.md"].splitlines()) <= README_LINES


def test_the_figures_in_readme_are_those_of_the_results():
    counts = [re.search(rf"\| {kind}s, of .*? \| +(\d+) \|", TEXTS["docs/coverage.md"])[1] for kind in KINDS]
    forest = read_results()["nvidia-h200"]["predict"]["models"][-1]
    point = next(point for point in forest["points"] if point["rows"] == 4096)
    ours, theirs = (fastest(point, name, checked=False)["median_us"] for name in ("triton", SCIKIT_LEARN))
    assert "Forest" in forest["title"]
    assert f"{counts[0]} regressors and {counts[1]}\n" in TEXTS["README.md"]
    assert f"4,096 rows {round(theirs / ours, -1):.0f} times as fast" in TEXTS["README.md"]


def test_every_make_target_they_name_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    texts = [*WRITTEN.values(), (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")]
    named = {name for text in texts for name in re.findall(r"(?:^    |`)make ([a-z]+)\b", text, re.MULTILINE)}
    assert named
    assert named <= targets


def test_every_command_and_option_they_name_exists():
    commands = get_command(make_app()).commands
    lines = [line for text in WRITTEN.values() for line in re.findall(r"triton-regressors ([\w-]+)([^`\n|]*)", text)]
    assert {name for name, _ in lines} >= set(commands)
    for name, rest in lines:
        if name in commands:
            known = {option for parameter in commands[name].params for option in parameter.opts}
            assert set(re.findall(r"--[a-z][a-z0-9-]+", rest)) <= known, (name, rest)


def test_every_file_they_link_to_exists():
    for name, text in WRITTEN.items():
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        links = re.findall(r"\]\((?!https?://)([^)#]+)[^)]*\)", prose)
        for link in links:
            assert ((ROOT / name).parent / link).exists(), f"{name}: {link}"


def test_every_path_that_contributing_names_exists():
    """A path begins with a folder of the repository; it may be a pattern."""
    paths = re.findall(r"`([a-z]+/[\w/.*]*)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    paths = [path for path in paths if (ROOT / path.partition("/")[0]).is_dir()]
    assert len(paths) > 40
    assert [path for path in paths if not any(ROOT.glob(path.rstrip("/")))] == []


def test_the_entry_page_lists_every_other():
    listed = set(re.findall(r"\]\(([a-z_]+\.md)\)", TEXTS["docs/index.md"]))
    assert {name.removeprefix("docs/") for name in TEXTS} - {"README.md", "index.md"} == listed


def test_the_reference_has_every_public_name_once():
    named = re.findall(r"^::: triton_regressors\.(\w+)$", TEXTS["docs/api.md"], re.MULTILINE)
    assert sorted(named) == sorted(set(tr.__all__) - {"__version__"})


def test_the_site_builds_without_a_broken_link_and_fetches_nothing(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")
    }
    assert {"index.html", "docs/index.html", "docs/api.html", "docker/README.html"} <= {
        name.replace("docker/index", "docker/README") for name in pages
    }
    for name, page in pages.items():
        fetched = re.findall(
            r'<(?:script|img|iframe|source)[^>]*\bsrc="https?:[^"]*|<link[^>]*\bhref="https?:[^"]*', page
        )
        assert not [link for link in fetched if 'rel="canonical"' not in link], name
