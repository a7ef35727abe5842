"""The command `triton-regressors`."""

from __future__ import annotations

import sys

INTERRUPTED = 130

try:  # these take seconds
    import typer

    from triton_regressors import __version__
    from triton_regressors.clients.commands import predict, serve, verify
    from triton_regressors.clients.compare.command import compare
    from triton_regressors.errors import TritonRegressorsError
    from triton_regressors.exporter.commands import describe, export
except KeyboardInterrupt:
    sys.exit(INTERRUPTED)

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


def main() -> None:
    """Run the command line; what the user can mend is one sentence on stderr and exit code 1."""
    try:
        app()
    except TritonRegressorsError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
