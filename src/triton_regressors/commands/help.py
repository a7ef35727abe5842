"""The output of `--help`: the usage, the command's purpose, its options in groups, and examples."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.core import TyperArgument, TyperCommand, TyperGroup

WIDEST = 100
NAMES_WIDTH = 28
"""Columns for an option and its value; a longer one is folded."""


class Command(TyperCommand):
    """A command whose help reads well at 80 columns, and names an option's value instead of its type."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print it."""
        _print_help(self, ctx)


class Group(TyperGroup):
    """The commands together."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print it."""
        _print_help(self, ctx)


def _print_help(command: TyperCommand | TyperGroup, ctx: Any) -> None:
    """Print the help of a command.

    The docstring is refilled except for indented lines, and the text after `Examples:` comes last. Options without a
    panel come after those with one.
    """
    console = Console(markup=False, highlight=False, emoji=False)
    console.width = min(console.width, WIDEST)
    parameters = [each for each in command.get_params(ctx) if not getattr(each, "hidden", False)]
    arguments = [each for each in parameters if isinstance(each, TyperArgument)]
    takes = [_takes(each) if each.required else f"[{_takes(each)}]" for each in arguments]
    takes += ["COMMAND ..."] if isinstance(command, TyperGroup) else []
    console.print(Text.assemble(("Usage: ", "bold"), " ".join([ctx.command_path, "[OPTIONS]", *takes])))
    prose, _, examples = inspect.cleandoc(command.help or "").partition("\nExamples:\n")
    for paragraph in prose.strip("\n").split("\n\n"):
        as_it_is = any(line.startswith(" ") for line in paragraph.splitlines())
        console.print("", Text(paragraph if as_it_is else " ".join(paragraph.split())), sep="\n")
    sections = {"Arguments": [(Text(_takes(each), "bold cyan"), _words(each)) for each in arguments]}
    for each in parameters:
        if not isinstance(each, TyperArgument):
            panel = getattr(each, "rich_help_panel", None) or ""
            sections.setdefault(panel, []).append((_names(each), _words(each)))
    sections["Options"] = sections.pop("", [])
    if isinstance(command, TyperGroup):
        listed = [each for each in command.commands.values() if not each.hidden]
        sections["Commands"] = [(Text(str(each.name), "bold cyan"), _first_paragraph(each)) for each in listed]
    for title, rows in sections.items():
        _print_section(console, title, rows)
    if examples:
        console.print("", Text("Examples", "bold"), Padding(inspect.cleandoc("\n" + examples), (0, 0, 0, 2)), sep="\n")


def _print_section(console: Console, title: str, rows: Iterable[tuple[Text, Text]]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(max_width=NAMES_WIDTH)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    if table.row_count:
        console.print("", Text(title, "bold"), Padding(table, (0, 0, 0, 2)), sep="\n")


def _takes(parameter: Any) -> str:
    """Return the placeholder for a parameter's value: PORT."""
    return parameter.metavar or str(parameter.name).upper()


def _names(option: Any) -> Text:
    """Return an option in its typed form: -o, --output FILE."""
    names = ", ".join(sorted(option.opts, key=len))
    if option.secondary_opts:
        names += " / " + ", ".join(option.secondary_opts)
    flag = getattr(option, "is_flag", False)
    return Text.assemble((names, "bold cyan"), "" if flag else " ", ("" if flag else _takes(option), "yellow"))


def _words(parameter: Any) -> Text:
    """Return a parameter's help, and its default if that is informative."""
    default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    if isinstance(default, bool):
        default = parameter.opts[0] if default and parameter.secondary_opts else ""
    text = Text(parameter.help or "")
    if default != "" and isinstance(default, str | int | float | Path):
        text.append(f" [default: {default}]", "dim")
    return text


def _first_paragraph(command: Any) -> Text:
    return Text(" ".join(inspect.cleandoc(command.help or "").partition("\n\n")[0].split()))
