"""Float32 tables through the real Triton server: the answer is predict on the same float32 table."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.documents import document_of
from tests.exporter.catalogue.cases_float32 import FITTED, FLOAT32, holed, mixed, numbers
from tests.server.conftest import Unload
from tests.server.models import MAX_ROWS
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.verify import verify
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.publish.config import ServingOptions
from triton_regressors.exporter.publish.repository import publish
from triton_regressors.kernels.entry import Golden
from triton_regressors.kernels.format.parity import measure, units
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

pytestmark = pytest.mark.server

TOGETHER = {
    "float32_numbers": [name for name, case in FLOAT32.items() if case.table is numbers],
    "float32_holed": [name for name, case in FLOAT32.items() if case.table is holed],
}
"""Cases that are served side by side by one entry, an output for each: a server takes seconds to load one."""

ALONE = {name.replace("-", "_"): name for name, case in FLOAT32.items() if case.table is mixed}
"""Cases that are served as the very entries that `export` writes."""


def export_together(repository: Path, entry: str) -> None:
    """Write the plans of several cases side by side into one entry, each as `compile_estimator` made it."""
    steps: list[Step] = []
    outputs, answers = dict[str, str](), dict[str, np.ndarray]()
    for name in TOGETHER[entry]:
        case = FLOAT32[name]
        compilation = compile_estimator(case.fitted(), sample=case.table()[:FITTED])
        assert compilation.plan.dtype == "float32"
        prefix = {INPUT: INPUT, **{step.output: f"{name}.{step.output}" for step in compilation.plan.steps}}
        steps += [
            Step(s.operation, tuple(prefix[n] for n in s.inputs), prefix[s.output]) for s in compilation.plan.steps
        ]
        outputs[name] = prefix[compilation.plan.outputs["y"]]
        answers[name] = case.expected()[:16]
    plan = Plan(6, tuple(steps), outputs)
    golden = Golden(FLOAT32[TOGETHER[entry][0]].table()[:16], answers)
    holes = np.flatnonzero(np.isnan(FLOAT32[TOGETHER[entry][0]].table()).any(axis=0))
    document = dataclasses.replace(document_of(plan), nan_columns=tuple(holes.tolist()))
    publish(repository, entry, plan, golden, document, ServingOptions(max_batch_size=128))


@pytest.fixture(scope="module", autouse=True)
def served(repository: Path, client: Client, unload: Unload) -> Iterator[None]:
    for entry in TOGETHER:
        export_together(repository, entry)
    for entry, name in ALONE.items():
        export(FLOAT32[name].fitted(), repository, name=entry, sample=mixed()[:FITTED], max_batch_size=MAX_ROWS)
    for entry in (*TOGETHER, *ALONE):
        client.load(entry)
    yield
    for entry in (*TOGETHER, *ALONE):
        unload(entry)


@pytest.mark.parametrize("entry", TOGETHER)
def test_the_answer_is_predict_on_the_same_float32_table(client: Client, entry: str) -> None:
    names = TOGETHER[entry]
    rows = FLOAT32[names[0]].table()
    parts = [client.infer(entry, part, outputs=names) for part in np.array_split(rows, 15)]
    for name in names:
        found, expected = np.concatenate([part[name] for part in parts]), FLOAT32[name].expected()
        assert measure(found, expected, units(expected)).within(1e-6), name


@pytest.mark.parametrize("entry", ALONE)
def test_the_answer_is_predict_on_the_same_mixed_table(either: Client, entry: str) -> None:
    expected = FLOAT32[ALONE[entry]].expected()
    found = np.concatenate([either.predict(entry, part) for part in _parts(mixed())])
    assert measure(found.reshape(-1, 1), expected, units(expected)).within(1e-6)


@pytest.mark.parametrize("entry", ["columns_mixed", "whole_table"])
def test_a_float64_table_is_rounded_as_astype_rounds_it(repository: Path, client: Client, entry: str) -> None:
    rows = mixed()[:MAX_ROWS]
    wide = rows.astype(dict.fromkeys("abcd", np.float64))
    wide[list("abcd")] *= 1 + 1e-9
    assert client.predict(entry, wide).tobytes() == client.predict(entry, rows).tobytes()
    assert verify(client, entry, repository=repository).passed


def _parts(table: pd.DataFrame) -> list[pd.DataFrame]:
    return [table[start : start + MAX_ROWS] for start in range(0, len(table), MAX_ROWS)]
