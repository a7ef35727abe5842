"""The output of `--help` can be read at 80 columns and names each option's value, and its examples are right."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.commands.test_main import COMMANDS
from triton_regressors.__main__ import make_app
from triton_regressors.clients.compare.batching import read_configurations

BARE_TYPES = re.compile(
    r"<[^>]*\b(str|int|float|bool|path|list|range)\b|\[[a-z_]+ ?range\]|\b(INTEGER|FLOAT|BOOLEAN)\b"
)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(make_app(), list(arguments), env={"COLUMNS": "80"}, prog_name="triton-regressors")
    assert result.exit_code == 0
    return result.stdout


def examples(help_text: str) -> list[str]:
    _, _, found = help_text.partition("\nExamples\n")
    return [line.strip() for line in found.splitlines() if line.strip()]


@pytest.mark.parametrize("command", [(), *((command,) for command in COMMANDS)])
def test_it_reads_well_at_80_columns(command: tuple[str, ...]) -> None:
    text = printed(*command, "--help")
    assert text == printed(*command, "-h")
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 90, "export's is the longest"
    assert not BARE_TYPES.search(text)
    assert text.startswith(" ".join(["Usage: triton-regressors", *command]))
    assert re.search(r"^  -h, --help +Show this message", text, re.MULTILINE)


def test_options_stand_in_groups_with_what_they_take() -> None:
    text = printed("export", "-h")
    headings = re.findall(r"^(?!Usage|Write)[A-Z].+", text, re.MULTILINE)
    assert [heading.strip() for heading in headings] == [
        *("Arguments", "What is exported", "How it is verified", "Prediction intervals", "Reading the file"),
        *("How the server runs it", "Options", "Examples"),
    ]
    for words in ("--repository DIR ", "--preferred-batch-size ROWS ", "--dynamic-batching /", "[default: 1e-05]"):
        assert words in text
    assert "--floor / --no-floor " in printed("compare", "-h")
    assert "-c, --concurrency N " in printed("compare", "-h")


@pytest.mark.parametrize("command", [(), *((command,) for command in COMMANDS)])
def test_its_examples_can_be_typed(command: tuple[str, ...]) -> None:
    """Every option and argument of theirs is one that the command takes."""
    group: Any = typer.main.get_command(make_app())
    found = examples(printed(*command, "-h"))
    assert len(found) >= 2
    for example in found:
        program, name, *arguments = shlex.split(example.partition(" > ")[0])
        assert program == "triton-regressors"
        assert name in (command or COMMANDS)
        group.commands[name].make_context(name, arguments)


def test_the_configurations_in_compares_help_can_be_read(tmp_path: Path) -> None:
    lines = printed("compare", "-h").splitlines()
    first = lines.index(next(line for line in lines if line.strip() == "[[configuration]]"))
    file = tmp_path / "mine.toml"
    file.write_text("\n".join(lines[first : lines.index("", first)]))
    (configuration,) = read_configurations(file)
    assert (configuration.label, configuration.preferred_batch_sizes, configuration.instances) == ("gentle", (8, 32), 2)
