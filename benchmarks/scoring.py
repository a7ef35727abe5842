"""Rows a second of scoring files, against the same rows in memory, scikit-learn's predict, and the Triton server.

    python -m benchmarks.scoring [--quick] [--models ridge ...] [--output DIR]

A .parquet of float64 columns is scored in five ways, which take turns, in another order each round:

    files          `score`, from file to file
    tables         `Predictor` on the file's tables once they are read, 65,536 rows at a time
    matrix         `Predictor` on the same rows as the float32 matrix that the entry takes: nothing to convert
    scikit-learn   the estimator's own predict on them as a float64 matrix, 65,536 rows at a time
    server         `Client.predict` of the same tables over gRPC, from a Triton server on this machine

All compute in one thread, the server's model too; pyarrow reads, and the server and its client work, on what cores
there are. Figures are medians over the rounds. The answers of all but scikit-learn are compared to the bit, and
scikit-learn's to 1e-5 standard deviations.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

import triton_regressors as tr
from benchmarks.checking import WrongAnswerError
from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.models import Model, model
from benchmarks.timing import rotated

MODELS = ("ridge", "polynomial_2", "boosting", "scaled_forest")
BATCH = 65_536
BATCHES, QUICK_BATCHES = 16, 4
ROUNDS, QUICK_ROUNDS = 5, 2
LIMIT = 1e-5
"""How far scikit-learn's answers may be from ours, in standard deviations."""


def measure(source: Model, batches: int, rounds: int) -> dict[str, Any]:
    """Export a model, score so many batches of rows in all ways, and return its JSON."""
    names = [f"x{place}" for place in range(source.n_features)]
    X = source.rows(batches * BATCH, seed=7).astype(np.float32).astype(np.float64)
    with tempfile.TemporaryDirectory() as directory, threadpool_limits(1):
        folder = Path(directory)
        exported = tr.export(source.estimator, folder / "models", name=source.name, sample=X[:1000], input="fp32")
        entry = exported.entry.directory
        pq.write_table(pa.table(dict(zip(names, X.T, strict=True))), folder / "rows.parquet", row_group_size=4 * BATCH)
        answer = tr.Predictor(entry, columns=names)
        tables = [pa.Table.from_batches([each]) for each in pq.ParquetFile(folder / "rows.parquet").iter_batches(BATCH)]
        pieces = [X[start : start + BATCH] for start in range(0, len(X), BATCH)]
        matrices = [np.ascontiguousarray(piece, dtype=np.float32) for piece in pieces]
        with tr.TritonServer([folder / "models"]) as server, tr.Client(server.grpc_url) as client:

            def files() -> np.ndarray:
                tr.score(entry, folder / "rows.parquet", folder / "out.parquet", columns=names, overwrite=True)
                return pq.read_table(folder / "out.parquet")["y"].to_numpy()

            ways: dict[str, Callable[[], Any]] = {
                "files": files,
                "tables": lambda: np.concatenate([answer(table)["y"].to_numpy() for table in tables]),
                "matrix": lambda: np.concatenate([answer.predict(matrix) for matrix in matrices])[:, 0],
                "scikit-learn": lambda: np.concatenate([source.estimator.predict(piece) for piece in pieces]),
                "server": lambda: np.concatenate(
                    [client.predict(source.name, table.to_pandas().to_numpy()) for table in tables]
                )[:, 0],
            }
            found = {name: np.asarray(way()) for name, way in ways.items()}  # warms up, too
            check(source.name, found)
            seconds: dict[str, list[float]] = {name: [] for name in ways}
            for number in range(rounds):
                for name in rotated(list(ways), number):
                    began = time.perf_counter()
                    ways[name]()
                    seconds[name].append(time.perf_counter() - began)
    rates = {name: round(len(X) / statistics.median(times)) for name, times in seconds.items()}
    print(f"{source.title}, {len(X):,} rows: " + ", ".join(f"{name} {rate:,}/s" for name, rate in rates.items()))
    shares = [("tables", "matrix"), ("tables", "scikit-learn"), ("files", "scikit-learn"), ("files", "server")]
    print("  " + ", ".join(f"{one} / {other} {rates[one] / rates[other]:.2f}" for one, other in shares))
    spread = {name: round(max(times) / min(times), 3) for name, times in seconds.items()}
    return {
        "model": source.name,
        "title": source.title,
        "n_features": source.n_features,
        "rows": len(X),
        "rows_per_s": rates,
        "slowest_over_fastest": spread,
    }


def check(name: str, found: dict[str, np.ndarray]) -> None:
    """Fail where ways that have the same bits do not, or scikit-learn's answers are others."""
    ours = found["files"]
    for way in ("tables", "matrix", "server"):
        if found[way].tobytes() != ours.tobytes():
            raise WrongAnswerError(f"{name}: {way} has not the bits of files.")
    peer = found["scikit-learn"].reshape(len(ours))
    if not float(np.abs(peer - ours).max() / peer.std()) <= LIMIT:
        raise WrongAnswerError(f"{name}: scikit-learn's answers are others.")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="these alone")
    parser.add_argument("--output", type=Path, default=None, help="directory of scoring.json")
    arguments = parser.parse_args()
    batches, rounds = (QUICK_BATCHES, QUICK_ROUNDS) if arguments.quick else (BATCHES, ROUNDS)
    print(f"scoring on {device_name()}")
    settings = {"quick": arguments.quick, "rounds": rounds, "batch": BATCH, "busy_at_start": busy()}
    results = [measure(model(name), batches, rounds) for name in arguments.models]
    save_models(arguments.output or default_directory(), "scoring", settings, results, MODELS)


if __name__ == "__main__":
    main()
