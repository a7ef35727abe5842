"""A demonstration of the whole product on real data: `make demo`.

It trains regressors on the data sets that ship with scikit-learn, exports them, serves all of them in one Triton
server, queries it over gRPC and HTTP, verifies it, compares dynamic batching configurations, and leaves a report.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_diabetes, load_linnerud
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVR

from triton_regressors import (
    AsyncClient,
    BatchingConfiguration,
    Client,
    Comparison,
    Export,
    InvalidRequest,
    TritonRegressorsError,
    TritonServer,
    compare,
    export,
    verify,
    write_report,
)
from triton_regressors.clients.compare.report.report import rich_table

CONFIGURATIONS = (
    BatchingConfiguration("none", dynamic_batching=False, instances=1),
    BatchingConfiguration("on", instances=1),
    BatchingConfiguration("delay 500 µs", max_queue_delay_us=500, instances=1),
    BatchingConfiguration("on, 2 instances", instances=2),
)
CLIENTS = (1, 16)


def train() -> dict[str, tuple[Any, np.ndarray]]:
    """Return fitted regressors and the rows they were fitted on, by their names on the server."""
    X, y = load_diabetes(return_X_y=True)
    exercises, physique = load_linnerud(return_X_y=True)
    return {
        "diabetes_ridge": (Ridge(alpha=0.1).fit(X, y), X),
        "diabetes_polynomial": (
            make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge(alpha=50.0)).fit(X, y),
            X,
        ),
        "diabetes_poisson": (make_pipeline(StandardScaler(), PoissonRegressor()).fit(X, y), X),
        "diabetes_forest": (RandomForestRegressor(random_state=0).fit(X, y), X),
        "diabetes_svr": (make_pipeline(StandardScaler(), SVR(C=100.0)).fit(X, y), X),
        "diabetes_bayesian": (BayesianRidge().fit(X, y), X),
        "linnerud_linear": (make_pipeline(StandardScaler(), LinearRegression()).fit(exercises, physique), exercises),
    }


def export_all(models: dict[str, tuple[Any, np.ndarray]], repository: Path, console: Console) -> dict[str, Export]:
    """Export each model, and print its plan and the size of its errors."""
    table = Table(title="Exported models, each compared with the estimator's own predict", title_justify="left")
    for heading in ("entry", "estimator", "numbers", "plan", "launches", "max |error| / std"):
        table.add_column(heading)
    exported = {}
    for name, (estimator, rows) in models.items():
        exported[name] = export(estimator, repository, name=name, sample=rows)
        compilation = exported[name].compilation
        steps = compilation.plan.steps
        parity = ", ".join(f"{key} {found.max_error:.1e}" for key, found in compilation.report.outputs.items())
        shown = " → ".join(type(part).__name__ for _, part in getattr(estimator, "steps", [("", estimator)]))
        launches = sum(step.launches() for step in steps)
        plan = ", ".join(step.operation.kind() for step in steps)
        types = ", ".join(compilation.inputs.datatypes().values())
        table.add_row(name, shown, types, plan, str(launches), parity)
    console.print(table)
    return exported


async def ask_at_once(url: str, name: str, rows: np.ndarray) -> np.ndarray:
    """Return the answers to requests of one row each, all of them sent concurrently."""
    async with AsyncClient(url) as client:
        answers = await asyncio.gather(*(client.predict(name, rows[i : i + 1]) for i in range(len(rows))))
    return np.concatenate(answers)


def query_all(models: dict[str, tuple[Any, np.ndarray]], server: TritonServer, console: Console) -> None:
    """Ask for one row of each entry over both protocols, and show the error for a bad request."""
    table = Table(title="One row for each model, sent over gRPC and HTTP", title_justify="left")
    for heading in ("entry", "scikit-learn", "gRPC", "HTTP"):
        table.add_column(heading)
    with Client(server.grpc_url, "grpc") as over_grpc, Client(server.http_url, "http") as over_http:
        for name, (estimator, rows) in models.items():
            X = rows[:1]  # float64: the client sends what the entry takes
            answers = (np.ravel(estimator.predict(X)), *(np.ravel(c.predict(name, X)) for c in (over_grpc, over_http)))
            table.add_row(name, *(" ".join(f"{value:.4f}" for value in answer) for answer in answers))
        console.print(table)
        X = models["diabetes_bayesian"][1][:1]
        answer = over_grpc.infer("diabetes_bayesian", X, outputs=("y", "std"))
        console.print(f"diabetes_bayesian also has std: {answer['y'][0, 0]:.2f} ± {answer['std'][0, 0]:.2f}")
        X = models["diabetes_ridge"][1]
        one_by_one = asyncio.run(ask_at_once(server.grpc_url, "diabetes_ridge", X))
        same = np.array_equal(one_by_one, over_grpc.predict("diabetes_ridge", X))
        bits = "the same bits as" if same else "DIFFERENT bits from"
        console.print(
            f"{len(X)} requests of one row each, all at once from one AsyncClient: {bits} one request of all rows"
        )
        bad = np.full((1, X.shape[1]), np.nan)
        try:
            over_grpc.predict("diabetes_ridge", bad)
        except InvalidRequest as error:
            console.print(f"A row of NaN is refused: {error}", highlight=False)


def verify_all(exported: dict[str, Export], server: TritonServer, console: Console) -> bool:
    """Check every entry's golden rows against the running server."""
    passed = True
    with Client(server.grpc_url) as client:
        for name, exports in exported.items():
            result = verify(client, exports.entry.directory)
            passed = passed and result.passed
            errors = ", ".join(f"{output.name} {output.max_error:.1e} std" for output in result.outputs)
            bits = "the same bits" if result.bit_identical else "DIFFERENT bits"
            console.print(
                f"{'verified' if result.passed else 'FAILED'}: {name}: {errors} on {result.rows} golden rows, "
                f"{bits} in every batching",
                highlight=False,
            )
    return passed


def show_bars(comparison: Comparison, console: Console) -> None:
    """Draw each configuration's throughput as a bar."""
    table = Table(title=f"Throughput with {CLIENTS[-1]} clients", title_justify="left", box=None)
    points = [point for point in comparison.points if point.load.concurrency == CLIENTS[-1]]
    most = max((point.model.requests_per_s for point in points), default=1.0)
    for point in points:
        rate = point.model.requests_per_s
        table.add_row(point.configuration.label, Bar(most, 0, rate, width=50), f"{rate:,.0f} requests/s")
    console.print(table)


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo_output"), help="directory for all files")
    output = parser.parse_args().output
    console = Console() if sys.stdout.isatty() else Console(width=120)
    shutil.rmtree(output, ignore_errors=True)
    repository = output / "model_repository"

    console.rule("1. Train and export")
    models = train()
    exported = export_all(models, repository, console)

    console.rule("2. Serve all of them in one Triton server")
    server = TritonServer([repository])
    with contextlib.ExitStack() as running:
        with console.status("starting the Triton server"):
            running.enter_context(server)
        console.print(f"gRPC on {server.grpc_url}, HTTP on {server.http_url}, metrics on {server.metrics_url}")
        console.rule("3. Query")
        query_all(models, server, console)
        console.rule("4. Verify")
        passed = verify_all(exported, server, console)
        console.rule("5. Compare dynamic batching configurations")
        comparison = compare(
            "diabetes_polynomial",
            repository,
            CONFIGURATIONS,
            concurrency=CLIENTS,
            url=server.grpc_url,
            window_s=0.5,
            warmup_s=0.5,
            max_windows=6,
            console=console,
        )
    report, *others = write_report(comparison, output / "comparison")
    console.print(rich_table(comparison))
    show_bars(comparison, console)
    for warning in comparison.warnings():
        console.print(warning, style="yellow", highlight=False)
    console.print(comparison.verdict(), highlight=False)
    console.rule("Left for you")
    console.print(f"report   {report}\nplots    {', '.join(str(path) for path in others if path.suffix == '.png')}")
    console.print(f"entries  {repository}\nserve    .venv/bin/triton-regressors serve {repository}")
    return 0 if passed else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TritonRegressorsError as error:
        sys.exit(f"Error: {error}")
