"""The command line of the gallery: `python -m gallery`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Any

import typer

from gallery import commands
from triton_regressors.commands.help import Command, Group
from triton_regressors.commands.lazy_imports import INTERRUPTED
from triton_regressors.errors import TritonRegressorsError

ABOUT = """How kernels are made in the Triton language, from the first to attention; without a command, what there is.

Examples:
    python -m gallery
    python -m gallery run softmax
    python -m gallery run softmax --size 4096x16384 --dtype bfloat16
    python -m gallery bench softmax dot
    python -m gallery try map
"""


def make_app() -> Any:
    """Return the command line: every module `gallery/commands/NAME.py` is the command NAME, by its function `command`.

    Each command imports its dependencies when it runs, since kernels are bound to their device when they are imported.
    """
    app = typer.Typer(
        help=ABOUT,
        cls=Group,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    for module in pkgutil.iter_modules(commands.__path__):
        found = importlib.import_module(f"gallery.commands.{module.name}")
        app.command(name=module.name, cls=Command)(found.command)

    @app.callback(invoke_without_command=True)
    def _root(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            from gallery.listing import print_exhibits

            print_exhibits()

    return app


def main() -> None:
    """Run the command line; a user's error is one sentence on stderr and exit code 1, Ctrl-C is exit code 130."""
    try:
        make_app()()
    except TritonRegressorsError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
