"""The command `compare NAME`."""

from __future__ import annotations

import signal
import tempfile
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from triton_regressors.commands.connection import ProtocolName, entry_names
from triton_regressors.commands.lazy_imports import loading
from triton_regressors.defaults import DEFAULT_REPOSITORY
from triton_regressors.extras import require

if TYPE_CHECKING:
    from triton_regressors.clients.compare.figures.results import Point


_COMPARED, _LOAD, _SERVER = "What is compared", "The load", "The server"
_WINDOWS, _RESULT = "How long it is measured", "Results"


class LawName(str, Enum):
    """The values of `--ids`."""

    UNIFORM = "uniform"
    ZIPF = "zipf"


class GeneratorName(str, Enum):
    """The values of `--generator`."""

    BUILTIN = "builtin"
    PERF_ANALYZER = "perf_analyzer"


def compare(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The model to compare configurations of.", autocompletion=entry_names),
    ],
    repository: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Its model repository; a Triton server is started on it unless --url is given.",
            rich_help_panel=_SERVER,
        ),
    ] = DEFAULT_REPOSITORY,
    configurations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A TOML file of configurations, see above, instead of the default eight.",
            rich_help_panel=_COMPARED,
        ),
    ] = None,
    concurrency: Annotated[
        list[int] | None,
        typer.Option(
            "--concurrency",
            "-c",
            metavar="N",
            help="Closed loop: requests outstanding; repeatable. Default: 1, 8, 32.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            metavar="PER_S",
            help="Open loop: requests arrive at random (Poisson) at this rate, in requests/s; repeatable.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    rows: Annotated[
        list[int] | None,
        typer.Option(
            "--rows", "-r", metavar="N", help="Rows per request; repeatable. Default: 1.", rich_help_panel=_LOAD
        ),
    ] = None,
    protocol: Annotated[
        list[ProtocolName] | None,
        typer.Option(metavar="NAME", help="grpc or http; repeatable. Default: grpc.", rich_help_panel=_LOAD),
    ] = None,
    rows_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rows to send (.npy, .csv or .parquet) instead of the golden rows. A table may have more columns "
            "than the model was trained with: the columns are taken by name.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    ids: Annotated[
        LawName | None,
        typer.Option(
            metavar="LAW",
            help="How often golden rows name a fleet's models: uniform, the default, or zipf (rank k: 1/k).",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="gRPC address of a running server. If the server needs a key to load models, as those of `serve` "
            "and docker/ do, set $TRITON_ADMIN_KEY to it.",
            rich_help_panel=_SERVER,
        ),
    ] = None,
    http_url: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="HTTP address of a running server.", rich_help_panel=_SERVER),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Directory of the report; default: ./comparison-NAME.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    p99_ms: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            help="Recommend the highest throughput whose p99 is within this many ms.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Write the recommended configuration into config.pbtxt.", rich_help_panel=_RESULT),
    ] = False,
    floor: Annotated[
        bool, typer.Option(help="Measure the do-nothing model beside every point.", rich_help_panel=_COMPARED)
    ] = True,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Measure for less than a minute: four configurations, 1 and 32 clients, windows of half a second.",
            rich_help_panel=_WINDOWS,
        ),
    ] = False,
    warmup_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Load before the first window, in seconds. Default: 1; with --quick 0.5.",
            rich_help_panel=_WINDOWS,
        ),
    ] = None,
    window_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Length of a measurement window in seconds. Default: 1; with --quick 0.5.",
            rich_help_panel=_WINDOWS,
        ),
    ] = None,
    max_windows: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Stop waiting for stable figures after this many windows. Default: 8; with --quick 6.",
            rich_help_panel=_WINDOWS,
        ),
    ] = None,
    stability: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="How far the last 3 windows may differ in throughput and p50 (0.1: 10 %).",
            rich_help_panel=_WINDOWS,
        ),
    ] = 0.10,
    client_processes: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Processes that generate the load; default: by load and CPU cores.", rich_help_panel=_LOAD
        ),
    ] = None,
    generator: Annotated[
        GeneratorName,
        typer.Option(
            metavar="NAME",
            help="Load generator: builtin, or NVIDIA's perf_analyzer if it is installed.",
            rich_help_panel=_LOAD,
        ),
    ] = GeneratorName.BUILTIN,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of the open loop's arrival times.", rich_help_panel=_LOAD)
    ] = 0,
    python: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Python interpreter whose packages the models use, for a server that is started here; default: this "
            "one.",
            rich_help_panel=_SERVER,
        ),
    ] = None,
) -> None:
    """Compare dynamic batching configurations of a model side by side, and recommend one.

    Each configuration is applied by a load-time override, so no file changes. The model gets its own configuration back
    at the end, also after Ctrl-C, SIGTERM or a closed terminal. A do-nothing model is measured beside it as the floor.

    The file of --configurations has one table for each. All keys but label may be left out:

        [[configuration]]
        label = "gentle"                 # what tables and plots call it
        dynamic_batching = true          # default true
        max_queue_delay_us = 200         # default 0
        preferred_batch_sizes = [8, 32]  # default []
        instances = 2                    # default: as in config.pbtxt

    Examples:
        triton-regressors compare diabetes
        triton-regressors compare diabetes --quick
        triton-regressors compare diabetes --p99-ms 5 --apply
        triton-regressors compare diabetes -c 1 -c 64 --rows 16 --protocol http
        triton-regressors compare diabetes --configurations mine.toml
        triton-regressors compare diabetes --url gpu-server:8001 -o on-gpu
    """
    require("compare", "The report of `compare`")
    if url is None and http_url is None and python is None:
        require("serve", "The Triton server that `compare` starts without --url")
    with loading():
        from triton_regressors.clients.compare.batching import read_configurations
        from triton_regressors.clients.compare.compare import compare as run
        from triton_regressors.clients.compare.errors import ComparisonError
        from triton_regressors.clients.compare.figures.comparison import IncompleteComparison
        from triton_regressors.clients.compare.report.report import write_report
        from triton_regressors.clients.compare.report.table import TABLE_WIDTH, rich_table
        from triton_regressors.clients.compare.session.signals import interrupting
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
                concurrency=concurrency or ((1, 32) if quick else (1, 8, 32)),
                rows=rows or (1,),
                protocols=[each.value for each in protocol or (ProtocolName.grpc,)],
                rate=rate or None,
                rows_file=rows_file,
                ids=None if ids is None else ids.value,
                url=url,
                http_url=http_url,
                floor=floor,
                **_windows(quick, warmup_s, window_s, max_windows),
                quick=quick,
                stability=stability,
                client_processes=client_processes,
                generator=generator.value,
                seed=seed,
                p99_ms=p99_ms,
                python=python,
                console=Console(stderr=True),
            )
        except IncompleteComparison as error:
            failure, comparison = error, error.partial
        if comparison.interrupted and not comparison.points:
            raise typer.Exit(_exit_code(signals))
        console.print(rich_table(comparison))
        console.print(Text(f"{name}: {comparison.measured_on()}"), soft_wrap=True)
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


def _windows(quick: bool, warmup_s: float | None, window_s: float | None, max_windows: int | None) -> dict[str, Any]:
    """Return the given settings of the windows, with defaults for the others."""
    given = {"warmup_s": warmup_s, "window_s": window_s, "max_windows": max_windows}
    default = (
        {"warmup_s": 0.5, "window_s": 0.5, "max_windows": 6}
        if quick
        else {"warmup_s": 1.0, "window_s": 1.0, "max_windows": 8}
    )
    return {name: default[name] if value is None else value for name, value in given.items()}


def _exit_code(signals: list[int]) -> int:
    """Return a shell's exit code for a process that the first of these signals ended."""
    return 128 + (signals or [signal.SIGINT])[0]


def _check_writable(directory: Path) -> None:
    """Raise ComparisonError unless a directory exists or can be made, and files can be written into it."""
    from triton_regressors.clients.compare.errors import ComparisonError

    try:
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise ComparisonError(f"Nothing can be written into {directory}: {error.strerror}.") from None


def _apply(best: Point, config_file: Path, name: str, url: str | None, http_url: str | None, console: Console) -> None:
    """Write the recommendation into the file, and make a running server read it."""
    with loading():
        from triton_regressors.clients.client.client import Client
        from triton_regressors.clients.compare.batching import write_batching
    write_batching(config_file, best.configuration)
    console.print(Text(f"Wrote {best.configuration.label!r} into {config_file}."), soft_wrap=True)
    if url is not None or http_url is not None:
        with Client(url or str(http_url), "grpc" if url is not None else "http", 120.0) as client:
            client.load(name)
        console.print("The running server has loaded this configuration.", highlight=False)
