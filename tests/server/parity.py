"""Every case of tests/exporter/catalogue/ through the real Triton server, against predict on the same float64 table.

    python -m tests.server.parity                 all cases and rentals.py, exit code 1 if any misses its promise
    python -m tests.server.parity --one-by-one    the same with each case as the entry that `export` writes
    python -m tests.server.parity ridge poisson   these cases alone

The server starts a process for each entry, and each imports torch, which takes about 2 s. The first form therefore
puts the plans of cases with the same input tensors side by side into one entry, an output for each, written
by the exporter's own code. Each case's fused plan is served as it is; only the entry around it is shared. A model of
strings that no other case shares its tensors and categories with is the entry that `export` writes in either form.
"""

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from tests.documents import document
from tests.exporter.catalogue.cases import CASES
from tests.exporter.catalogue.compiled import compiled, matrix
from tests.kernels.operations import run_plan
from tests.server.rentals import MODELS
from tests.servers import triton_server
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.exporter.compilation import Compilation
from triton_regressors.exporter.publish.config import ServingOptions
from triton_regressors.exporter.publish.repository import publish
from triton_regressors.kernels.entry import Golden
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.format.parity import measure, units
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

TOLERANCE = 1e-5
"""In standard deviations of the predictions."""

FLOAT64_NOISE = 1e-10
"""In standard deviations: if a prediction is so near zero that float64 sums, scikit-learn's and ours, are unsure of
its last float32 place, one unit in that place cannot be promised. Features around 10,000 cost 1e-12."""

CASES_PER_ENTRY = 200
MAX_BATCH_SIZE = 128
"""The batch size of shared entries: loading warms up a full batch, by default 4,096 rows of every output."""

ROWS_PER_REQUEST = (1, 2, 7, 16, 3)


@dataclass(frozen=True)
class Row:
    """One output of one case as the server answered it."""

    case: str
    family: str
    output: str
    datatypes: str  # of the entry's inputs
    max_error: float  # standard deviations from predict on the table as given
    max_ulp: float  # units in the last place of the float32 nearest to the expectation
    excess: float  # standard deviations beyond one such unit
    rounded_ulp: float  # the same two, from predict on the numbers as they were sent
    rounded_excess: float
    same_bits: bool  # whether each row's bits are the same alone, in small requests and in one large one

    def failure(self) -> str:
        """Return the promise that is missed, or nothing."""
        if not self.same_bits:
            return "bits depend on the batch"
        if not (self.max_error <= TOLERANCE or self.max_ulp <= 1):
            return f"more than {TOLERANCE} std"
        if self.family in ("affine", "link") and not (self.rounded_ulp <= 1 or self.rounded_excess <= FLOAT64_NOISE):
            return "more than 1 ulp"
        return ""


@dataclass(frozen=True)
class Question:
    """An entry, rows for it, and the case and output behind each of the outputs to ask for."""

    model: str
    X: Any  # a float64 matrix, or a DataFrame whose columns go by name
    outputs: dict[str, tuple[str, str]]


def rows(
    names: Sequence[str],
    *,
    one_by_one: bool = False,
    progress: Callable[[str], None] = lambda model: None,
) -> list[Row]:
    """Serve the named cases and return one row for each of their outputs."""
    with tempfile.TemporaryDirectory(prefix="parity-") as directory:
        repository = Path(directory)
        entries = list(export_each(repository, names) if one_by_one else export_together(repository, names))
        with triton_server([repository], models=[]) as server, Client(server.grpc_url) as client:

            def serve(entry: list[Question]) -> list[Row]:
                model = entry[0].model
                client.load(model)
                found = [row for question in entry for row in ask(client, question)]
                client.unload(model)
                progress(model)
                return found

            # One at a time: the server has ended here when an entry's process crashed while another entry was loaded.
            return [row for entry in entries for row in serve(entry)]


def rows_of_rentals(progress: Callable[[str], None] = lambda model: None) -> Iterator[Row]:
    """Serve the models of rentals.py, and yield a row for each; all rows of the users' table are asked."""
    with tempfile.TemporaryDirectory(prefix="parity-") as directory:
        compilations = {name: model.export(Path(directory), name).compilation for name, model in MODELS.items()}
        with triton_server([Path(directory)]) as server, Client(server.grpc_url) as client:
            for name, model in MODELS.items():
                table, expected = model.table, model.expected()
                found = np.concatenate([client.infer(name, batch)["y"] for batch in model.batches()])
                chosen = np.random.default_rng(0).permutation(len(table))[:7]
                same_bits = client.predict(name, table.iloc[chosen]).tobytes() == found[chosen].tobytes()
                given = dataclasses.astuple(measure(found, expected, units(expected)))
                datatypes = ", ".join(compilations[name].inputs.datatypes().values())
                yield Row(name, "rentals", "y", datatypes, *given, *given[1:], same_bits)
                progress(name)


def export_each(repository: Path, names: Iterable[str]) -> Iterator[list[Question]]:
    """Write each case as its own entry, the way a user does."""
    for name in names:
        estimator, X = CASES[name].fitted()
        export(estimator, repository, name=name, sample=X)
        yield [Question(name, asked(name), {output: (name, output) for output in CASES[name].expected()})]


def asked(name: str) -> Any:
    """Return a case's rows as a client sends them: columns go by name where the entry takes only some of them."""
    _, X = CASES[name].fitted()
    compilation = compiled(CASES[name])
    taken = sum(map(len, compilation.inputs.columns().values()))
    return X if isinstance(X, pd.DataFrame) or taken == X.shape[1] else pd.DataFrame(X, columns=compilation.columns)


def export_together(
    repository: Path,
    names: Iterable[str],
    compile_case: Callable[[str], Compilation] = lambda name: compiled(CASES[name]),
    per_entry: int = CASES_PER_ENTRY,
    max_batch_size: int = MAX_BATCH_SIZE,
    export_alone: Callable[[Path, Iterable[str]], Iterator[list[Question]]] = export_each,
) -> Iterator[list[Question]]:
    """Write cases of the same input as entries of at most `per_entry`; `export_alone` writes one with other tensors.

    Cases whose rows hold NaN share an entry if they take it in the same columns.

    An entry's golden row is one that all of its cases answer, as one case does not know another's categories.
    """
    groups: dict[tuple[Inputs, tuple[int, ...]], list[str]] = {}
    for name in names:
        inputs = compile_case(name).inputs
        if dataclasses.replace(inputs, categorical=()) == _plain(inputs):
            inputs = _plain(inputs)
        missing = np.isnan(matrix(CASES[name])).any()
        groups.setdefault((inputs, tuple(compiled(CASES[name]).nan_columns) if missing else ()), []).append(name)
    for (inputs, nan_columns), group in groups.items():
        if len(group) == 1 and inputs != _plain(inputs):
            yield from export_alone(repository, group)
            continue
        while group:
            row = matrix(CASES[group[0]])[:1]
            together = [name for name in group if _answers(name, row)][:per_entry]
            model = f"cases-{inputs.n_features}-{inputs.dtype}-{group[0]}"
            compilations = {name: compile_case(name) for name in together}
            yield _publish(repository, model, inputs, nan_columns, row, compilations, max_batch_size)
            group = [name for name in group if name not in together]


def _plain(inputs: Inputs) -> Inputs:
    """Return the inputs of a plan with the same number of columns, all of them numbers."""
    return Inputs.plain(inputs.n_features, inputs.dtype)


def _answers(name: str, row: np.ndarray) -> bool:
    """Return whether a case's answers to a row of another case are finite."""
    return all(np.isfinite(values).all() for values in run_plan(compiled(CASES[name]).plan, row).values())


def _publish(
    repository: Path,
    model: str,
    inputs: Inputs,
    nan_columns: tuple[int, ...],
    row: np.ndarray,
    compilations: Mapping[str, Compilation],
    max_batch_size: int,
) -> list[Question]:
    """Write one entry and return its questions, one for each set of rows."""
    steps: list[Step] = []
    values: dict[str, str] = {}
    spreads: dict[str, list[float]] = {}
    questions: dict[bytes, Question] = {}
    for index, (name, compilation) in enumerate(compilations.items()):
        X, plan = asked(name), compilation.plan
        prefix = {INPUT: INPUT, **{step.output: f"{index}.{step.output}" for step in plan.steps}}
        steps += [
            Step(step.operation, tuple(prefix[value] for value in step.inputs), prefix[step.output])
            for step in plan.steps
        ]
        rows = X.to_json().encode() if isinstance(X, pd.DataFrame) else X.tobytes()
        question = questions.setdefault(rows, Question(model, X, {}))
        for output, value in plan.outputs.items():
            key = f"{output}_{index}"
            values[key] = prefix[value]
            spreads[key] = compilation.sample.units[output].tolist()
            question.outputs[key] = (name, output)
    plan = Plan(inputs.n_features, tuple(steps), values, inputs.matrix_dtype)
    golden = Golden(row, run_plan(plan, row))  # proves no more than that the entry runs: each case is asked for its own
    written = dataclasses.replace(document(plan.to_json(), inputs, spreads, TOLERANCE), nan_columns=nan_columns)
    if inputs != _plain(inputs):  # the columns are found by name
        first = next(iter(compilations.values()))
        written = dataclasses.replace(written, provenance=first.document().provenance)
    publish(repository, model, plan, golden, written, ServingOptions(max_batch_size=max_batch_size))
    return list(questions.values())


def take(X: Any, chosen: np.ndarray) -> Any:
    """Return some rows of a matrix or of a DataFrame."""
    return X.iloc[chosen] if isinstance(X, pd.DataFrame) else X[chosen]


def ask(client: Client, question: Question) -> Iterator[Row]:
    """Ask for all rows in one request and, shuffled, in many small ones at a time, and measure each output."""
    X, names = question.X, tuple(question.outputs)
    whole = client.infer(question.model, X, outputs=names)
    order = np.random.default_rng(len(X)).permutation(len(X))
    ends = np.cumsum(np.resize(ROWS_PER_REQUEST, len(X)))
    chunks = [chunk for chunk in np.split(order, ends[ends < len(X)]) if len(chunk)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda chunk: client.infer(question.model, take(X, chunk), outputs=names), chunks))
    for key, (name, output) in question.outputs.items():
        case = CASES[name]
        found, expected = whole[key], case.expected()[output]
        again = np.full_like(found, np.nan)
        for chunk, answer in zip(chunks, answers, strict=True):
            again[chunk] = answer[key]
        given = measure(found, expected, units(expected))
        sent = measure(found, compiled(case).sample.rounded[output], units(expected))
        family = case.family if output == "y" else "std"
        datatypes = ", ".join(dict.fromkeys(compiled(case).inputs.datatypes().values()))
        same_bits = found.tobytes() == again.tobytes()
        yield Row(name, family, output, datatypes, *dataclasses.astuple(given), sent.max_ulp, sent.excess, same_bits)


def table(found: Sequence[Row]) -> Table:
    """Return the rows as a table, the largest error of each family below."""
    title = "The Triton server's answers against scikit-learn's own to the float64 table as given"
    shown = Table(title=title, title_justify="left")
    headings = ("case", "family", "output", "inputs", "max |error| / std", "in float32 ulp", "bits by batch", "")
    for heading in headings:
        shown.add_column(heading, justify="right" if "error" in heading or "ulp" in heading else "left")
    for row in found:
        shown.add_row(*_cells(row), "same" if row.same_bits else "differ", f"[red]{row.failure()}[/red]")
    shown.add_section()
    for family in dict.fromkeys(row.family for row in found):
        members = [row for row in found if row.family == family]
        errors, ulps = [row.max_error for row in members], [row.max_ulp for row in members]
        shown.add_row(f"largest of {len(members)}", family, "", "", f"{max(errors):.1e}", f"{max(ulps):.2f}")
    return shown


def _cells(row: Row) -> tuple[str, ...]:
    return row.case, row.family, row.output, row.datatypes, f"{row.max_error:.1e}", f"{row.max_ulp:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.server.parity", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE", help="default: all cases")
    parser.add_argument("--one-by-one", action="store_true", help="serve each case as the entry that export writes")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in CASES]
    if unknown:
        parser.error(f"there is no case {unknown[0]!r}; see tests/exporter/catalogue/")
    names = arguments.names or list(CASES)
    with Console(stderr=True).status("Fitting and exporting…") as status:

        def served(model: str) -> None:
            status.update(f"Served {model}")

        found = rows(names, one_by_one=arguments.one_by_one, progress=served)
        if not arguments.names:
            found += rows_of_rentals(served)
    Console(width=None if sys.stdout.isatty() else 120).print(table(found))
    failures = [row for row in found if row.failure()]
    print(f"{len({row.case for row in found})} cases, {len(found)} outputs, {len(failures)} misses.")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
