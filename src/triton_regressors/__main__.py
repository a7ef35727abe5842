"""The command `triton-regressors`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from triton_regressors.errors import TritonRegressorsError
from triton_regressors.version import __version__

INTERRUPTED = 130


def make_app() -> Any:
    """Return the command line; importing what it needs takes seconds."""
    import typer

    from triton_regressors.clients.commands import predict, serve, verify
    from triton_regressors.clients.compare.command import compare
    from triton_regressors.exporter.commands import describe, export

    app = typer.Typer(
        help="Serve scikit-learn regressors with Triton-language kernels on NVIDIA's Triton Inference Server.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for command in (export, describe, serve, predict, verify, compare):
        app.command()(command)

    @app.callback(invoke_without_command=True)
    def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
        if version:
            typer.echo(__version__)
            raise typer.Exit

    return app


def main() -> None:
    """Run the command line; what the user can mend is one sentence on stderr and exit code 1, Ctrl-C exit code 130."""
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interrupts:  # what that raises within an import may come out as an ImportError
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    app = make_app()
    if interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        app()
    except TritonRegressorsError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
