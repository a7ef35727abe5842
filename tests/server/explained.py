"""Contributions of cases of the catalogue through the real Triton server, against their exact values in float64.

    python -m tests.server.explained [CASE ...]     all cases of numbers, or these; exit code 1 if any misses

As in parity.py the plans of cases with the same input share entries. A case that the exporter refuses to explain is
left out; docs/coverage.md has the reasons.
"""

import argparse
import dataclasses
import functools
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from docs.coverage_contributions import BACKGROUND_ROWS, ways_of
from tests.exporter.catalogue.cases import CASES
from tests.server import parity
from tests.servers import triton_server
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.contribution_game import BACKGROUND, OUTPUT
from triton_regressors.exporter.compilation import Compilation
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.errors import ExportError
from triton_regressors.kernels.format.parity import measure

PER_ENTRY = 50
PATIENCE_S = 600.0
"""A request asks for the contributions of up to `PER_ENTRY` cases, some of them by their definition."""
ROWS = BACKGROUND_ROWS
"""The rows that are explained, and the batch size: loading computes a full batch of every output."""


class Explained(NamedTuple):
    """One case's contributions as the server answered them."""

    case: str
    ways: tuple[str, ...]
    max_error: float  # standard deviations of the margin
    max_ulp: float  # units in the last place of the float32 nearest to the exact value
    excess: float  # standard deviations beyond one such unit
    same_bits: bool  # whether rows have the same bits alone and together

    def failure(self) -> str:
        """Return the promise that is missed, or nothing."""
        if not self.same_bits:
            return "bits depend on the batch"
        near = self.max_error <= parity.TOLERANCE or self.max_ulp <= 1 or self.excess <= parity.TOLERANCE
        return "" if near else f"more than {parity.TOLERANCE} std"


@functools.cache
def compiled(name: str) -> Compilation:
    """Return a case with contributions against its first rows, which are its one output.

    Raises:
        ExportError: the exporter refuses to explain it.
    """
    estimator, X = CASES[name].fitted()
    found = compile_estimator(estimator, sample=X, contributions=BACKGROUND, background=X[:BACKGROUND_ROWS])
    plan = dataclasses.replace(found.plan, outputs={OUTPUT: found.plan.outputs[OUTPUT]})
    return dataclasses.replace(found, stages=[("contributions alone", plan)])


def explainable(names: Sequence[str]) -> list[str]:
    """Return the cases that can be explained."""
    found = []
    for name in names:
        try:
            compiled(name)
        except ExportError:
            continue
        found.append(name)
    return found


def rows(names: Sequence[str], progress: Callable[[str], None] = lambda model: None) -> Iterator[Explained]:
    """Serve the named cases and yield a row for each."""
    with tempfile.TemporaryDirectory(prefix="explained-") as directory:
        repository = Path(directory)
        entries = list(parity.export_together(repository, names, compiled, PER_ENTRY, ROWS, export_each))
        with triton_server([repository], models=[]) as server, Client(server.grpc_url, timeout_s=PATIENCE_S) as client:
            for entry in entries:
                client.load(entry[0].model)
                for question in entry:
                    yield from ask(client, question)
                client.unload(entry[0].model)
                progress(entry[0].model)


def export_each(repository: Path, names: Iterable[str]) -> Iterator[list[parity.Question]]:
    """Write each case as the entry that a user writes."""
    for name in names:
        estimator, X = CASES[name].fitted()
        export(estimator, repository, name=name, sample=X, contributions=BACKGROUND, background=X[:BACKGROUND_ROWS])
        yield [parity.Question(name, parity.asked(name), {OUTPUT: (name, OUTPUT)})]


def ask(client: Client, question: parity.Question) -> Iterator[Explained]:
    """Ask for some rows together and one by one, and measure each case."""
    outputs, X = tuple(question.outputs), parity.take(question.X, np.arange(min(ROWS, len(question.X))))
    whole = client.infer(question.model, X, outputs=outputs)
    alone = [client.infer(question.model, parity.take(X, [row]), outputs=outputs) for row in range(len(X))]
    for key, (name, _) in question.outputs.items():
        sample = compiled(name).sample
        given = measure(whole[key], sample.expected[OUTPUT][: len(X)], sample.units[OUTPUT])
        same_bits = whole[key].tobytes() == b"".join(answer[key].tobytes() for answer in alone)
        yield Explained(name, tuple(ways_of(compiled(name).plan)), *dataclasses.astuple(given), same_bits)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.server.explained", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="CASE", help="default: all cases of numbers")
    arguments = parser.parse_args()
    names = explainable(arguments.names or [name for name, case in CASES.items() if not case.tabular])
    found = list[Explained]()
    for row in rows(names, progress=lambda model: print(f"served {model}", file=sys.stderr, flush=True)):
        found.append(row)
        if row.failure():
            print(f"{row.case}: {row.failure()} ({row})", flush=True)
    failures = [row for row in found if row.failure()]
    ways = {way: sum(way in row.ways for row in found) for row in found for way in row.ways}
    print(
        f"{len(found)} cases explained, {len(failures)} misses; by {ways}; error {max(r.max_error for r in found):.1e}"
    )
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
