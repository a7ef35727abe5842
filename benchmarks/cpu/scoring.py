"""Rows a second of scoring files, against the same rows in memory, scikit-learn's predict, and the Triton server.

    python -m benchmarks.cpu.scoring [--quick] [--models ridge ...] [--device cpu] [--batches N] [--output DIR]

A .parquet of float64 columns is scored in eight ways, which take turns, in another order each round:

    files     `score`, from file to file
    read      `score` once rows are read: a thread converts the tables that come next
    tables    `tr.load`'s model on the file's tables as `score` reads them, 65,536 rows each, or 8 million numbers
    predict   the model on the same rows as a float64 matrix: the entry's own predict of the file's contents
    matrix    the model on the same rows as the float32 matrix that the entry takes: nothing to convert
    frame     the estimator's own predict on the same tables, each made a DataFrame first, like a user's code
    float64   the estimator's own predict on the same rows as a float64 matrix: nothing to convert
    server    `Client.predict` of the same tables over gRPC, from a Triton server on this machine, if there is one

On a CPU all compute in one thread, the server's model too. Several threads read and convert, pyarrow's or ours, and the
server and its client use all cores. If the entry runs on a GPU, scikit-learn has all cores. Slow ways are given fewer
of the tables. Figures are medians over the rounds. Answers of scikit-learn's ways are compared to 1e-5 standard
deviations, all others to the bit.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
from triton_regressors.clients.server.installation import find_installation
from triton_regressors.scoring.columns import Columns, rows_together
from triton_regressors.scoring.prefetch import ahead
from triton_regressors.scoring.scorer import Scorer

MODELS = ("ridge", "linear_large", "polynomial_2", "boosting", "scaled_forest", "neighbors_small")
WHOLE, PEERS = ("files", "read"), ("frame", "float64")
"""The ways that take all tables at once, and scikit-learn's ways."""

BATCHES, QUICK_BATCHES = 16, 4
DIFFERENT = 4
"""The number of different tables; further tables repeat them."""

ROUNDS, QUICK_ROUNDS = 5, 3
PASS_SECONDS, QUICK_PASS_SECONDS = 1.0, 0.25
"""The time of a way's tables in a round, one table at least; files are read to their end."""

LIMIT = 1e-5
"""The largest difference of scikit-learn's answers from ours, in standard deviations."""

Way = Callable[[int], np.ndarray]
"""A function that answers the table of that number, or all tables."""


def measure(source: Model, batches: int, rounds: int, pass_seconds: float, device: str) -> dict[str, Any]:
    """Export a model, score a number of batches of rows in all ways, and return its JSON."""
    with tempfile.TemporaryDirectory() as folder, ways_of(source, batches, Path(folder), device) as (ways, where):
        found, counts = {}, {}
        for name, way in ways.items():  # warms up, too
            found[name], counts[name] = first_pass(way, 1 if name in WHOLE else batches, pass_seconds)
        check(source.name, found)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds):
            for name in rotated(list(ways), number):
                began = time.perf_counter()
                for batch in range(counts[name]):
                    ways[name](batch)
                seconds[name].append(time.perf_counter() - began)
    counts |= dict.fromkeys(WHOLE, batches)
    batch_rows = rows_together(source.n_features)
    rates = {name: round(counts[name] * batch_rows / statistics.median(times)) for name, times in seconds.items()}
    print(f"{source.title}, {where}: " + ", ".join(f"{name} {rate:,}/s" for name, rate in rates.items()))
    shares = [(one, other) for one in ("read", "tables") for other in ("predict", "matrix", "frame")]
    print("  " + ", ".join(f"{one} / {other} {rates[one] / rates[other]:.2f}" for one, other in shares), flush=True)
    return {
        "case": f"{source.name} on {'a CPU' if where.endswith('CPU') else 'a GPU'}",
        "title": source.title,
        "where": where,
        "n_features": source.n_features,
        "rows": {name: count * batch_rows for name, count in counts.items()},
        "rows_per_s": rates,
        "slowest_over_fastest": {name: round(max(times) / min(times), 3) for name, times in seconds.items()},
    }


@contextmanager
def ways_of(source: Model, batches: int, folder: Path, device: str) -> Iterator[tuple[dict[str, Way], str]]:
    """Yield the ways to score rows, and the name of the device that computes the entry."""
    batch_rows = rows_together(source.n_features)
    X = source.rows(min(batches, DIFFERENT) * batch_rows, seed=7).astype(np.float32).astype(np.float64)
    names = [f"x{place}" for place in range(source.n_features)]
    with ExitStack() as held:
        with threadpool_limits(1):
            exported = tr.export(source.estimator, folder / "models", name=source.name, sample=X[:1000], input="fp32")
        entry, rows, out = exported.entry.directory, folder / "rows.parquet", folder / "out.parquet"
        whole = pa.table(dict(zip(names, X.T, strict=True)))
        with pq.ParquetWriter(rows, whole.schema, use_dictionary=False) as writer:
            for _ in range(batches // DIFFERENT or 1):
                writer.write_table(whole, row_group_size=DIFFERENT * batch_rows)
        answer = Scorer(entry, columns=names, device=device)
        if not answer.on_gpu():
            held.enter_context(threadpool_limits(1))
        different = pq.ParquetFile(rows).iter_batches(batch_rows, row_groups=[0])
        tables = [pa.Table.from_batches([each]) for each in different] * batches
        pieces = [X[start : start + batch_rows] for start in range(0, len(X), batch_rows)] * batches
        matrices = [piece.astype(np.float32) for piece in pieces[:DIFFERENT]] * batches

        def files(_: int) -> np.ndarray:
            tr.score(entry, rows, out, columns=names, overwrite=True, device=device)
            return pq.read_table(out)["y"].to_numpy()

        def read_already(_: int) -> np.ndarray:
            converted = ((table, answer.tensors(Columns(table))) for table in tables[:batches])
            return np.concatenate(
                [answer.answers(Columns(table), tensors)["y"] for table, tensors in ahead(converted)]
            )[:, 0]

        ways: dict[str, Way] = {
            "files": files,
            "read": read_already,
            "tables": lambda number: answer(tables[number])["y"].to_numpy(),
            "predict": lambda number: answer.predict(pieces[number]),
            "matrix": lambda number: answer.predict(matrices[number]),
            "frame": lambda number: source.estimator.predict(tables[number].to_pandas().to_numpy()),
            "float64": lambda number: source.estimator.predict(pieces[number]),
        }
        if device == "auto" and server_there():
            server = held.enter_context(tr.TritonServer([folder / "models"]))
            client = held.enter_context(tr.Client(server.grpc_url))
            ways["server"] = lambda number: client.predict(source.name, tables[number].to_pandas().to_numpy())
        yield ways, answer.where


def server_there() -> bool:
    """Return whether this machine has a Triton server, and print a line if it has none."""
    try:
        find_installation(Path())
    except tr.ServerError as error:
        print(f"without the server: {str(error).partition('. ')[0]}")
        return False
    return True


def first_pass(way: Way, batches: int, pass_seconds: float) -> tuple[np.ndarray, int]:
    """Return a way's answers to as many tables as fit in the time of a pass, and the number of these tables."""
    found = [way(0)]
    began = time.perf_counter()
    for number in range(1, batches):
        if time.perf_counter() - began > pass_seconds * number / (number + 1):
            break
        found.append(way(number))
    return np.concatenate(found), len(found)


def check(name: str, found: dict[str, np.ndarray]) -> None:
    """Fail if ways that should have the same bits do not, or if scikit-learn's answers differ."""
    for way, answers in found.items():
        ours = found["files"][: len(answers)]
        peer = answers.reshape(len(ours))
        if way not in PEERS:
            if peer.tobytes() != ours.tobytes():
                raise WrongAnswerError(f"{name}: {way} has not the bits of files.")
        elif not float(np.abs(peer - ours).max() / peer.std()) <= LIMIT:
            raise WrongAnswerError(f"{name}: scikit-learn's answers are others.")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="these alone")
    parser.add_argument("--device", default="auto", help="where the entry computes: auto, cpu, gpu")
    parser.add_argument("--batches", type=int, default=None, help="how many tables, by fours")
    parser.add_argument("--output", type=Path, default=None, help="directory of scoring.json")
    arguments = parser.parse_args()
    quick = arguments.quick
    batches = arguments.batches or (QUICK_BATCHES if quick else BATCHES)
    if batches > DIFFERENT and batches % DIFFERENT:
        parser.error(f"--batches is {batches}; it must be a multiple of {DIFFERENT}, or less.")
    rounds, pass_seconds = (QUICK_ROUNDS, QUICK_PASS_SECONDS) if quick else (ROUNDS, PASS_SECONDS)
    print(f"scoring on {device_name()}")
    settings = {"quick": quick, "rounds": rounds, "busy_at_start": busy()}
    directory = arguments.output or default_directory()
    order = [f"{name} on a {device}" for device in ("GPU", "CPU") for name in MODELS]
    for name in arguments.models:
        result = measure(model(name), batches, rounds, pass_seconds, arguments.device)
        save_models(directory, "scoring", settings, [result], order, key="case")


if __name__ == "__main__":
    main()
