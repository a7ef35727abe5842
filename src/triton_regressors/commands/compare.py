"""The command `compare NAME`."""

from __future__ import annotations

import signal
import tempfile
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from triton_regressors.commands.connection import ProtocolName
from triton_regressors.commands.loading import loading
from triton_regressors.defaults import DEFAULT_REPOSITORY
from triton_regressors.extras import require

if TYPE_CHECKING:
    from triton_regressors.clients.compare.results import Point


class GeneratorName(str, Enum):
    """What `--generator` accepts."""

    BUILTIN = "builtin"
    PERF_ANALYZER = "perf_analyzer"


def compare(
    name: Annotated[str, typer.Argument(help="The model to compare configurations of.")],
    repository: Annotated[
        Path, typer.Option(help="Its model repository; a Triton server is started on it unless --url is given.")
    ] = DEFAULT_REPOSITORY,
    configurations: Annotated[
        Path | None, typer.Option(help="A TOML file of 'configuration' tables instead of the default set.")
    ] = None,
    concurrency: Annotated[
        list[int] | None,
        typer.Option("--concurrency", "-c", help="Closed loop: requests outstanding; repeatable. Default: 1, 8, 32."),
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(help="Open loop instead: Poisson arrivals at so many requests/s; repeatable."),
    ] = None,
    rows: Annotated[
        list[int] | None, typer.Option("--rows", "-r", help="Rows per request; repeatable. Default: 1.")
    ] = None,
    protocol: Annotated[
        list[ProtocolName] | None, typer.Option(help="grpc or http; repeatable. Default: grpc.")
    ] = None,
    rows_file: Annotated[
        Path | None,
        typer.Option(
            help="Rows to send (.npy, .csv or .parquet) instead of the golden rows. Of a table with more columns, "
            "those that the model was trained with are taken by name."
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="gRPC address HOST:PORT of a running server. If it loads models only for holders of a key, as `serve` "
            "and the one in docker/ do, put the key into $TRITON_ADMIN_KEY."
        ),
    ] = None,
    http_url: Annotated[str | None, typer.Option(help="HTTP address HOST:PORT of a running server.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where the report goes; default: ./comparison-NAME.")
    ] = None,
    p99_ms: Annotated[
        float | None, typer.Option(help="Recommend the highest throughput whose p99 is within this many ms.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the recommended configuration into config.pbtxt.")
    ] = False,
    floor: Annotated[bool, typer.Option(help="Measure the do-nothing model beside every point.")] = True,
    warmup_s: Annotated[float, typer.Option(help="Load before the first window, in seconds.")] = 1.0,
    window_s: Annotated[float, typer.Option(help="Length of a measurement window in seconds.")] = 1.0,
    max_windows: Annotated[int, typer.Option(help="Give up waiting for stable figures after so many windows.")] = 8,
    stability: Annotated[
        float, typer.Option(help="How far the last 3 windows may differ in throughput and p50 (0.1: 10 %).")
    ] = 0.10,
    client_processes: Annotated[
        int | None, typer.Option(help="Load worker processes; default: by load and cores.")
    ] = None,
    generator: Annotated[
        GeneratorName, typer.Option(help="perf_analyzer: use NVIDIA's load generator, where it is installed.")
    ] = GeneratorName.BUILTIN,
    seed: Annotated[int, typer.Option(help="Seed of the open loop's arrival times.")] = 0,
    python: Annotated[
        Path | None,
        typer.Option(help="The interpreter whose packages the models of a server started here see; by default this."),
    ] = None,
) -> None:
    """Compare dynamic batching configurations of a model side by side, and recommend one.

    Each configuration is applied by a load-time override, so that no file changes, and is put back at the end, also
    after Ctrl-C, and when it is told to stop or its terminal is gone. A do-nothing model is measured beside it as the
    floor.
    """
    require("compare", "The report of `compare`")
    if url is None and http_url is None and python is None:
        require("serve", "The Triton server that `compare` starts without --url")
    with loading():
        from triton_regressors.clients.compare.batching import read_configurations
        from triton_regressors.clients.compare.comparison import IncompleteComparison
        from triton_regressors.clients.compare.errors import ComparisonError
        from triton_regressors.clients.compare.report import TABLE_WIDTH, rich_table, write_report
        from triton_regressors.clients.compare.run import compare as run
        from triton_regressors.clients.compare.signals import interrupting
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    directory = output or Path(f"comparison-{name}")
    config_file = repository / name / "config.pbtxt"
    if apply and not config_file.is_file():
        raise ComparisonError(f"--apply needs the model's files: there is no {config_file}; give --repository.")
    _check_writable(directory)
    if apply:
        _check_writable(config_file.parent)
    chosen = None if configurations is None else read_configurations(configurations)
    failure: IncompleteComparison | None = None
    with interrupting() as signals:
        try:
            comparison = run(
                name,
                repository=repository if (url is None and http_url is None) or (repository / name).is_dir() else None,
                configurations=chosen,
                concurrency=concurrency or (1, 8, 32),
                rows=rows or (1,),
                protocols=[each.value for each in protocol or (ProtocolName.grpc,)],
                rate=rate or None,
                rows_file=rows_file,
                url=url,
                http_url=http_url,
                floor=floor,
                window_s=window_s,
                max_windows=max_windows,
                warmup_s=warmup_s,
                stability=stability,
                client_processes=client_processes,
                generator=generator.value,
                seed=seed,
                p99_ms=p99_ms,
                python=python,
                console=console,
            )
        except IncompleteComparison as error:
            failure, comparison = error, error.partial
        if comparison.interrupted and not comparison.points:
            raise typer.Exit(_exit_code(signals))
        console.print(rich_table(comparison))
        for warning in comparison.warnings():
            console.print(Text(warning, style="yellow"), soft_wrap=True)
        console.print(Text(f"Report: {write_report(comparison, directory)[0]}"), soft_wrap=True)
    if failure is not None:
        raise failure
    if comparison.interrupted:
        console.print("The model has its own configuration again.", highlight=False)
        raise typer.Exit(_exit_code(signals))
    best = comparison.best()
    console.print(Text(comparison.verdict(), style="bold"), soft_wrap=True)
    if apply:
        _apply(best, config_file, name, url, http_url, console)


def _exit_code(signals: list[int]) -> int:
    """What a shell makes of a process that the first of these signals ended."""
    return 128 + (signals or [signal.SIGINT])[0]


def _check_writable(directory: Path) -> None:
    """Raise ComparisonError unless files can be written into a directory that is there, or can be made."""
    from triton_regressors.clients.compare.errors import ComparisonError

    try:
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise ComparisonError(f"Nothing can be written into {directory}: {error.strerror}.") from None


def _apply(best: Point, config_file: Path, name: str, url: str | None, http_url: str | None, console: Console) -> None:
    """Write the recommendation into the file, and have a running server read it."""
    with loading():
        from triton_regressors.clients.compare.batching import write_batching
        from triton_regressors.clients.infer import Client
    write_batching(config_file, best.configuration)
    console.print(Text(f"Wrote {best.configuration.label!r} into {config_file}."), soft_wrap=True)
    if url is not None or http_url is not None:
        with Client(url or str(http_url), "grpc" if url is not None else "http", 120.0) as client:
            client.load(name)
        console.print("The running server has loaded it.", highlight=False)
