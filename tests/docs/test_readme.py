"""README.md says what is: its generated sections are current, and the commands it names exist."""

import re
from pathlib import Path

from typer.main import get_command

from docs import readme
from triton_regressors.__main__ import make_app

ROOT = Path(readme.README).parent


def test_generated_sections_are_what_make_readme_writes():
    text = readme.README.read_text(encoding="utf-8")
    assert readme.fill(text) == text, "run `make readme`"


def test_every_make_target_it_names_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^    |`)make ([a-z]+)", readme.README.read_text(encoding="utf-8"), re.MULTILINE))
    assert named
    assert named <= targets


def test_every_command_and_option_it_names_exists():
    commands = get_command(make_app()).commands
    lines = re.findall(r"^ *triton-regressors (\w+)(.*)$", readme.README.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for name, _ in lines} == set(commands)
    for name, rest in lines:
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z0-9-]+", rest)) <= known


def test_every_file_it_links_to_exists():
    links = re.findall(r"\]\(([^)#]+)\)", readme.README.read_text(encoding="utf-8"))
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
