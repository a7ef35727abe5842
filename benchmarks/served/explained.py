"""Requests for one row's contributions beside requests for its answer alone, on one Triton server over gRPC.

    python -m benchmarks.served.explained [--quick] [--output DIR]

A boosting of 100 trees is exported with and without contributions. One client asks the one for contributions, for its
answer alone, and the other for its answer, in turn, closed loop. What contributions cost is the difference of the first
two in a round; what the option costs who does not ask for them is that of the last two.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.models import Model
from benchmarks.served.requests import QUICK, four_digits, measuring
from benchmarks.timing import rotated
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.compare.load.generator import Load
from triton_regressors.clients.compare.load.payloads import CheckedRows
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.contribution_game import OUTPUT, PATH

SOURCES = tuple(
    Model(
        f"depth-{depth}",
        f"GradientBoosting, 100 × depth {depth}, path",
        32,
        partial(GradientBoostingRegressor, max_depth=depth),
    )
    for depth in (6, 8)
)
EXPLAINED, ANSWERED, WITHOUT = "contributions", "y", "y_without_the_option"
ASKED = {EXPLAINED: ("with", OUTPUT), ANSWERED: ("with", "y"), WITHOUT: ("without", "y")}
"""The entry and the output that each contender asks for."""

LOAD = Load("grpc", 1, concurrency=1)
SENT, ROUNDS, ERROR = 2048, 9, 1e-6


def measure(source: Model, rounds: int) -> dict[str, Any]:
    """Export a model twice and ask both entries; return the medians of the rounds."""
    X = source.rows(SENT, seed=5).astype(np.float32)
    with tempfile.TemporaryDirectory() as directory:
        export(source.estimator, directory, name="with", sample=X, contributions=PATH, instances=1)
        export(source.estimator, directory, name="without", sample=X, instances=1)
        with TritonServer([directory]) as server:
            with Client(server.grpc_url) as client:
                answers = client.infer("with", {"X": X}, outputs=("y", OUTPUT))
            expected = {output: values.astype(np.float64) for output, values in answers.items()}
            unit = float(expected["y"].std())
            if np.abs(expected[OUTPUT].sum(axis=1) - expected["y"][:, 0]).max() > 1e-5 * unit:
                raise ValueError(f"{source.name}: the contributions miss the answers")
            rows = {output: CheckedRows({"X": X}, values, ERROR * unit) for output, values in expected.items()}
            with measuring(server.grpc_url, QUICK, "builtin", (LOAD,)) as ask:
                of_rounds = []
                for number in range(rounds):
                    found = {}
                    for who in rotated(list(ASKED), number):
                        entry, output = ASKED[who]
                        figures = ask(entry, rows[output], LOAD, output)
                        if figures.failed:
                            raise ValueError(f"{source.name}, {who}: {dict(figures.errors)}")
                        found[who] = figures.latency.p50_ms * 1e3
                    of_rounds.append(found)
    p50 = {who: four_digits(median(found[who] for found in of_rounds)) for who in ASKED}
    over = {
        "contributions_over_y_us": [found[EXPLAINED] - found[ANSWERED] for found in of_rounds],
        "y_over_without_us": [found[ANSWERED] - found[WITHOUT] for found in of_rounds],
    }
    medians = {key: four_digits(median(values)) for key, values in over.items()}
    ranges = {f"{key}_range": [four_digits(each(values)) for each in (min, max)] for key, values in over.items()}
    print(f"{source.title}: {p50}, {medians}, {ranges}", flush=True)
    return {"model": source.name, "title": source.title, "rounds": rounds, "p50_us": p50, **medians, **ranges}


def run(directory: Path, *, quick: bool = False) -> Path | None:
    """Measure the models and write explained.json."""
    print(f"explained requests on {device_name()}")
    path = None
    for source in SOURCES:
        at_start = {"busy_at_start": busy()}
        result = at_start | measure(source, 1 if quick else ROUNDS)
        path = save_models(directory, "explained", {"quick": quick}, [result], [each.name for each in SOURCES])
    return path


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--output", type=Path, default=None, help="directory of explained.json")
    arguments = parser.parse_args()
    run(arguments.output or default_directory(), quick=arguments.quick)


if __name__ == "__main__":
    main()
