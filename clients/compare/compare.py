"""The whole comparison: for every configuration, for every load, the model and the do-nothing model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.client.client import Client, Protocol
from triton_regressors.clients.client.configuration import Configuration
from triton_regressors.clients.compare.batching import (
    BatchingConfiguration,
    default_configurations,
    distinct,
    quick_configurations,
)
from triton_regressors.clients.compare.errors import ComparisonError, NoAnswers
from triton_regressors.clients.compare.figures import perf_analyzer
from triton_regressors.clients.compare.figures.comparison import Comparison, IncompleteComparison
from triton_regressors.clients.compare.figures.measurement import Settings, expected_time, measure_load
from triton_regressors.clients.compare.figures.results import Figures, Point
from triton_regressors.clients.compare.figures.statistics import ServerCounters, Window
from triton_regressors.clients.compare.load.generator import Load, LoadGenerator
from triton_regressors.clients.compare.load.members import LAWS
from triton_regressors.clients.compare.load.payloads import (
    CheckedRows,
    Payloads,
    Signature,
    golden_rows,
    rows_with_reference,
)
from triton_regressors.clients.compare.report.progress import Display
from triton_regressors.clients.compare.session.environment import describe_environment
from triton_regressors.clients.compare.session.lock import only_comparison
from triton_regressors.clients.compare.session.session import BatchingOverride, floor_name
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.errors import TritonRegressorsError

PROTOCOLS = ("grpc", "http")
GENERATORS = ("builtin", "perf_analyzer")
CONTROL_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Server:
    """The server's addresses ("host:port") and, for the report, whether the server is our own."""

    grpc: str | None
    http: str | None
    own: bool

    def address(self, protocol: str) -> str:
        """Return the endpoint of a protocol; raise ComparisonError if it was not given."""
        found = self.grpc if protocol == "grpc" else self.http
        if found is None:
            option = "--url" if protocol == "grpc" else "--http-url"
            raise ComparisonError(f"Protocol {protocol!r} needs the server's address; give {option} HOST:PORT.")
        return found


def compare(
    name: str,
    repository: str | Path | None = None,
    configurations: Sequence[BatchingConfiguration] | None = None,
    concurrency: Sequence[int] = (1, 8, 32),
    rows: Sequence[int] = (1,),
    protocols: Sequence[str] = ("grpc",),
    rate: float | Sequence[float] | None = None,
    rows_file: str | Path | None = None,
    url: str | None = None,
    http_url: str | None = None,
    floor: bool = True,
    window_s: float = 1.0,
    max_windows: int = 8,
    warmup_s: float = 1.0,
    stability: float = 0.10,
    client_processes: int | None = None,
    generator: str = "builtin",
    seed: int = 0,
    p99_ms: float | None = None,
    python: Path | None = None,
    quick: bool = False,
    console: Console | None = None,
    on_point: Callable[[Point], None] | None = None,
    ids: str | None = None,
) -> Comparison:
    """Measure dynamic batching configurations of the model `name` side by side.

    repository: the model repository that holds the entry; its server is started here and stopped at the end, unless
    `url` (gRPC) or `http_url` names a running one. Its files are never changed.
    configurations: default set if None, or four of it if `quick`. concurrency: clients of the closed loop, used
    when `rate` is None; rate: requests per second of an open loop with Poisson arrivals, instead. rows: per request.
    protocols: of "grpc" and "http". rows_file: .npy, .csv or .parquet rows to send instead of the golden rows.
    floor: measure the do-nothing model beside every point. window_s, max_windows, warmup_s, stability: see Settings.
    client_processes: load worker processes (default: by load and cores). generator: "builtin" or "perf_analyzer".
    seed: of the open loop's arrivals. p99_ms: the latency limit for `Comparison.best`. python: the interpreter whose
    packages the models of a server started here see; None: the running one. console: where to show progress.
    on_point: called with every point when it is complete. ids: the law by which the golden rows of a fleet name its
    models, "uniform" (as None) or "zipf": the model of rank k in proportion to 1/k, with drawn ranks.

    Ctrl-C restores the model and returns the points measured so far, with `interrupted` set. Raises ComparisonError if
    something cannot be compared or another comparison of the model on the same server runs, InferenceError or
    ServerError if the server fails, and IncompleteComparison if either happens after the first point.
    """
    repository = None if repository is None else Path(repository)
    rows_file = None if rows_file is None else Path(rows_file)
    loads = plan_loads(concurrency, rows, protocols, rate)
    settings = Settings(warmup_s=warmup_s, window_s=window_s, max_windows=max_windows, stability=stability)
    if generator not in GENERATORS:
        raise ComparisonError(f"Unknown generator {generator!r}; accepted: {', '.join(GENERATORS)}.")
    if ids is not None and (ids not in LAWS or rows_file is not None):
        raise ComparisonError(
            f"Unknown law {ids!r} of ids; accepted: {', '.join(LAWS)}."
            if ids not in LAWS
            else "ids is the law of golden rows; the rows of a file name their models themselves."
        )
    if client_processes is not None and client_processes < 1:
        raise ComparisonError(f"client_processes is {client_processes}; accepted: 1 or more.")
    if p99_ms is not None and not p99_ms > 0:
        raise ComparisonError(f"The p99 limit is {p99_ms} ms; accepted: a number above 0.")
    tool = perf_analyzer.find() if generator == "perf_analyzer" else None
    chosen = distinct(configurations) if configurations is not None else None
    comparison = Comparison(name, p99_ms=p99_ms)

    def interrupted(kind: type[BaseException] | None, *_: object) -> bool:
        """Record a Ctrl-C that comes on the way out, when everything is measured."""
        comparison.interrupted = comparison.interrupted or kind is KeyboardInterrupt
        return kind is KeyboardInterrupt

    with contextlib.ExitStack() as stack:
        stack.push(interrupted)
        display = stack.enter_context(Display(console))
        try:
            display.say("starting the Triton server" if url is None and http_url is None else "connecting")
            server = stack.enter_context(running_server(name, repository, url, http_url, python))
            for protocol in protocols:
                server.address(protocol)
            control: Protocol = "grpc" if server.grpc else "http"
            client = stack.enter_context(Client(server.address(control), control, CONTROL_TIMEOUT_S))
            if not server.own:
                stack.enter_context(only_comparison(name, [each for each in (server.grpc, server.http) if each]))
            config = client.config(name)
            signature = Signature.of(config)
            too_many = [load.rows for load in loads if load.rows > max(config.max_batch_size, 1)]
            if too_many:
                raise ComparisonError(
                    f"{too_many[0]} rows a request are more than max_batch_size {config.max_batch_size} of {name!r}."
                )
            if chosen is None:
                chosen = (quick_configurations if quick else default_configurations)(config.max_batch_size)
            for configuration in chosen:
                configuration.apply(config)  # refuse what cannot work before anything is measured
            real = choose_rows(client, config, repository, rows_file, signature, ids)
            if tool is None:
                real = replace(real, tensors=Configuration.of(config).sent(real.tensors))  # as Client sends them
            processes = {load: load.processes(client_processes) for load in loads}
            comparison.planned = len(chosen) * len(loads)
            if console is not None:
                beside = ", each beside a do-nothing model" if floor else ""
                what = f"{len(chosen)} configuration{'s' * (len(chosen) != 1)}"
                under = f"{len(loads)} load{'s' * (len(loads) != 1)}"
                console.print(
                    f"Measuring {what} under {under}{beside}: this takes "
                    f"{expected_time(comparison.planned, settings, floor)}, and loading takes further time.",
                    highlight=False,
                    soft_wrap=True,
                )
            comparison.settings = {
                **asdict(settings),
                "generator": generator,
                "seed": seed,
                "floor": floor,
                "ids": ids,
                "rows_file": None if rows_file is None else str(rows_file),
                "configurations": [asdict(configuration) for configuration in chosen],
            }
            comparison.environment = describe_environment(client, config, server.own, python)
            override = stack.enter_context(BatchingOverride(client, name, server.address(control), floor))
            pool = stack.enter_context(LoadGenerator(0 if tool else max(processes.values())))

            def figures(
                model: str, real: CheckedRows, load: Load, report: Callable[[Window], None], what: str
            ) -> Figures:
                address = server.address(load.protocol)

                def read_counters() -> ServerCounters:
                    return ServerCounters.of(client.statistics(model))

                if tool is not None:
                    return perf_analyzer.measure_load(tool, model, real, load, address, read_counters, settings)
                payloads = Payloads.build(model, signature, real, load, address)
                count = processes[load]
                try:
                    return measure_load(pool, load, payloads, address, read_counters, settings, count, seed, report)
                except NoAnswers as error:
                    raise ComparisonError(
                        f"Model {model!r} answers requests only with errors ({what}): {error}"
                    ) from error

            display.total(comparison.planned * (1 + floor))
            for configuration in chosen:
                display.say(f"{configuration.label}: loading")
                override.use(configuration)
                for load in loads:
                    what = f"{configuration.label}, {load}, {load.protocol}, {load.rows} rows"
                    with display.measuring(what) as report:
                        found = figures(name, real, load, report, what)
                    base = None
                    if floor:
                        with display.measuring(f"{what}, do-nothing model") as report:
                            base = figures(floor_name(name), real.zeros(), load, report, what)
                    comparison.points.append(Point(configuration, load, found, base))
                    if on_point is not None:
                        on_point(comparison.points[-1])
        except KeyboardInterrupt:
            comparison.interrupted = True
            display.say("interrupted: restoring the model")
        except TritonRegressorsError as error:
            if not comparison.points:
                raise
            comparison.interrupted, comparison.failure = True, str(error)
            raise IncompleteComparison(str(error), comparison) from error
    return comparison


def plan_loads(
    concurrency: Sequence[int], rows: Sequence[int], protocols: Sequence[str], rate: float | Sequence[float] | None
) -> tuple[Load, ...]:
    """Return every combination to measure; raise ComparisonError for an empty or impossible one."""
    rates = None if rate is None else ((rate,) if isinstance(rate, int | float) else tuple(rate))
    for what, values in (
        (("rows", rows), ("rate", rates))
        if rates is not None
        else (
            ("rows", rows),
            ("concurrency", concurrency),
        )
    ):
        if not values or any(not value > 0 for value in values):
            raise ComparisonError(f"{what} is {list(values or ())}; accepted: one or more numbers above 0.")
    unknown = [protocol for protocol in protocols if protocol not in PROTOCOLS]
    if unknown or not protocols:
        raise ComparisonError(f"Unknown protocol {unknown[0] if unknown else ''!r}; accepted: {', '.join(PROTOCOLS)}.")
    return tuple(
        Load(protocol, count, rate=float(each)) if rates is not None else Load(protocol, count, concurrency=int(each))
        for protocol in protocols
        for count in rows
        for each in (rates if rates is not None else concurrency)
    )


@contextlib.contextmanager
def running_server(
    name: str, repository: Path | None, url: str | None, http_url: str | None, python: Path | None
) -> Iterator[Server]:
    """Yield the server given by its addresses, or a server of our own on the repository while the context lasts."""
    if url is not None or http_url is not None:
        yield Server(_address(url, "--url"), _address(http_url, "--http-url"), own=False)
        return
    if repository is None:
        raise ComparisonError("There is no server to measure: give the repository, or the address of a running server.")
    if not (repository / name).is_dir():
        present = sorted(path.name for path in repository.glob("*") if path.is_dir()) if repository.is_dir() else []
        found = f"it holds {', '.join(present)}" if present else "it holds no models"
        raise ComparisonError(f"There is no model {name!r} in {repository}; {found}.")
    with TritonServer([repository], models=[name], python=python) as server:
        if server.closed:
            raise ComparisonError(
                "Configurations cannot be compared here: the Triton server loads no model on request, because "
                f"{server.closed}."
            )
        yield Server(server.grpc_url, server.http_url, own=True)


def _address(url: str | None, option: str) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url if "//" in url else f"//{url}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("", "http", "grpc") or not parts.hostname or port is None or parts.path.strip("/"):
        raise ComparisonError(f"{option} is {url!r}; accepted: HOST:PORT of an endpoint without TLS.")
    return parts.netloc


def choose_rows(
    client: Client,
    config: model_config_pb2.ModelConfig,
    repository: Path | None,
    rows_file: Path | None,
    signature: Signature,
    ids: str | None = None,
) -> CheckedRows:
    """Return the rows to send: the user's own, else the golden rows of the entry; see `golden_rows` for `ids`."""
    name = config.name
    entry = None if repository is None else repository / name
    if rows_file is not None:
        from triton_regressors.clients.rows import read_tensors

        return rows_with_reference(client, name, read_tensors(rows_file, config), signature)
    golden = None if entry is None else golden_rows(entry, signature, ids)
    if golden is None:
        where = "no repository is given" if entry is None else f"{entry} has no golden rows"
        raise ComparisonError(f"There are no rows to send for {name!r}: {where}; give --rows-file ROWS.")
    return golden
