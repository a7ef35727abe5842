"""Requests for one row's contributions beside requests for its answer alone, on one Triton server over gRPC.

    python -m benchmarks.served.explained [--quick] [--output DIR]

A boosting of 100 trees is exported with and without contributions. One client asks the one for contributions and for
its answer alone in turn, which shows what contributions cost, and then both for their answers in turn, which shows what
the option costs who does not ask for them. A turn is one request of each, and the next one has the other order, so that
a server that slows down slows both. Differences are medians over the turns of a round.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.models import Model
from benchmarks.served.requests import four_digits
from benchmarks.timing import rotated
from triton_regressors import export
from triton_regressors.clients.client.client import Client
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

PAIRS = ((EXPLAINED, ANSWERED), (ANSWERED, WITHOUT))
"""What is asked in turn. No third request comes between: a process that is asked more often than another is faster, so
that times of one pair cannot be compared with those of the other."""

SENT, ROUNDS, TURNS, ERROR = 2048, 9, 500, 1e-6
WARM_UP = 100
"""Turns before the first round."""


class Asking:
    """Asks the entries for one row after the other, and compares each answer with that of all rows together."""

    def __init__(self, client: Client, X: np.ndarray) -> None:
        """Raise ValueError if the contributions of rows do not add up to their answers."""
        self._client, self._X = client, X
        self._expected = client.infer("with", {"X": X}, outputs=("y", OUTPUT))
        answers = self._expected["y"][:, 0]
        self._unit = float(answers.std())
        if np.abs(self._expected[OUTPUT].sum(axis=1, dtype=float) - answers).max() > 1e-5 * self._unit:
            raise ValueError("The contributions miss the answers.")

    def turn(self, pair: Sequence[str], number: int) -> dict[str, float]:
        """Return the µs that a request of each contender took."""
        found, row = {}, number % len(self._X)
        for who in rotated(list(pair), number):
            entry, output = ASKED[who]
            began = time.perf_counter()
            answer = self._client.infer(entry, {"X": self._X[row : row + 1]}, outputs=(output,))[output]
            found[who] = 1e6 * (time.perf_counter() - began)
            if np.abs(answer - self._expected[output][row]).max() > ERROR * self._unit:
                raise ValueError(f"{who}: row {row} has another answer than among all rows.")
        return found

    def rounds(self, pair: Sequence[str], count: int) -> list[list[dict[str, float]]]:
        """Return the turns of so many rounds, after some that warm up."""
        turns = [self.turn(pair, number) for number in range(WARM_UP + count * TURNS)]
        return [turns[start : start + TURNS] for start in range(WARM_UP, len(turns), TURNS)]


def measure(source: Model, rounds: int) -> dict[str, Any]:
    """Export a model twice and ask both entries; return the medians of the rounds."""
    X = source.rows(SENT, seed=5).astype(np.float32)
    with tempfile.TemporaryDirectory() as directory:
        export(source.estimator, directory, name="with", sample=X, contributions=PATH, instances=1)
        export(source.estimator, directory, name="without", sample=X, instances=1)
        with TritonServer([directory]) as server, Client(server.grpc_url) as client:
            asking = Asking(client, X)
            pairs = [_beside(pair, asking.rounds(pair, rounds)) for pair in PAIRS]
    found = {"model": source.name, "title": source.title, "rounds": rounds, "pairs": pairs}
    print(found, flush=True)
    return found


def _beside(pair: tuple[str, str], of_rounds: Sequence[Sequence[dict[str, float]]]) -> dict[str, Any]:
    """Return the median times of a pair, and the median difference with the least and the most of a round."""
    asked, beside = pair
    over = [median(turn[asked] - turn[beside] for turn in turns) for turns in of_rounds]
    p50 = {who: four_digits(median(turn[who] for turns in of_rounds for turn in turns)) for who in pair}
    return {
        "asked": asked,
        "beside": beside,
        "p50_us": p50[asked],
        "beside_p50_us": p50[beside],
        "over_us": four_digits(median(over)),
        "over_us_range": [four_digits(min(over)), four_digits(max(over))],
    }


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
