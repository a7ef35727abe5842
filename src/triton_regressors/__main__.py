"""The command `triton-regressors`."""

from __future__ import annotations

import sys
from typing import Any

from triton_regressors.commands.lazy_imports import INTERRUPTED, loading
from triton_regressors.errors import TritonRegressorsError
from triton_regressors.version import __version__

ABOUT = """Serve scikit-learn regressors with Triton-language kernels on NVIDIA's Triton Inference Server.

Examples:
    triton-regressors export diabetes.skops --sample rows.csv
    triton-regressors serve
    triton-regressors predict diabetes rows.csv
    triton-regressors compare diabetes --p99-ms 5
"""


def make_app() -> Any:
    """Return the command line with all commands. Each command imports its dependencies when it runs."""
    import typer

    from triton_regressors.commands.compare import compare
    from triton_regressors.commands.deploy import deploy
    from triton_regressors.commands.describe import describe
    from triton_regressors.commands.explain import explain
    from triton_regressors.commands.export import export
    from triton_regressors.commands.export_fleet import export_fleet
    from triton_regressors.commands.help import Command, Group
    from triton_regressors.commands.predict import predict
    from triton_regressors.commands.score import score
    from triton_regressors.commands.serve import serve
    from triton_regressors.commands.update_fleet import update_fleet
    from triton_regressors.commands.verify import verify

    app = typer.Typer(
        help=ABOUT,
        cls=Group,
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    for command in (
        export,
        export_fleet,
        update_fleet,
        describe,
        serve,
        predict,
        explain,
        verify,
        compare,
        score,
        deploy,
    ):
        app.command(cls=Command)(command)

    @app.callback(invoke_without_command=True)
    def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
        if version:
            typer.echo(__version__)
            raise typer.Exit

    return app


def main() -> None:
    """Run the command line; an error that the user can fix gives one sentence on stderr and exit code 1, Ctrl-C 130."""
    with loading():
        app = make_app()
    try:
        app()
    except TritonRegressorsError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
