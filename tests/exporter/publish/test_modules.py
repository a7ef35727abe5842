"""The modules that an entry carries: enough for its plan, and no other family's."""

import dataclasses
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.documents import document_of, write_plan
from tests.kernels.operations import OPERATIONS
from tests.kernels.plan.test_plan import one_step
from triton_regressors.exporter.publish.modules import (
    KERNELS,
    MODEL,
    OF_CLASSES,
    OF_FLEETS,
    OF_STRINGS,
    OF_TENSORS,
    imported,
    modules_of,
)
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.fleet import Fleet
from triton_regressors.kernels.format.inputs import TextInput
from triton_regressors.kernels.format.text_steps import MadeTexts
from triton_regressors.kernels.ops.kinds import FAMILIES, MODULES
from triton_regressors.kernels.plan.plan import Plan

ENGINES = ("torch", "triton" if torch.cuda.is_available() else "interpret")
EXAMPLES = {op.kind(): name for name, (op, _) in reversed(OPERATIONS.items())}
"""An example of each operation: the first of its kind."""

QUOTING = Path("serving/quoting.py")

OF_OTHERS = {family: {"linear"} for family in ("neighbors", "networks", "points", "games")}
"""The families whose modules a family takes."""


def plan_of(kind: str) -> Plan:
    return one_step(*OPERATIONS[EXAMPLES[kind]])


def carried_by(plan: Plan) -> list[Path]:
    return modules_of(plan, document_of(plan))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a package in `tmp_path` that can be imported, and is forgotten afterwards."""
    name = f"version_{tmp_path.name}"
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


def test_there_is_an_example_of_each_operation() -> None:
    assert set(EXAMPLES) == set(MODULES)
    assert {f"ops/{name.replace('.', '/')}.py" for name in MODULES.values()} <= {
        path.relative_to(KERNELS).as_posix() for path in KERNELS.rglob("*.py")
    }


@pytest.mark.parametrize("kind", MODULES)
def test_a_version_computes_by_its_own_modules(tmp_path: Path, package: str, kind: str) -> None:
    plan = plan_of(kind)
    write_plan(tmp_path / package, plan)
    load = importlib.import_module(f"{package}.kernels.plan.plan").load_plan
    runner = importlib.import_module(f"{package}.kernels.engine.runner").Runner
    X = np.random.default_rng(0).standard_normal((3, plan.n_features)).astype(np.float32)
    for engine in ENGINES:
        found = runner(load(tmp_path / package), engine=engine).predict(X)["y"]
        assert found.tobytes() == Runner(plan, engine=engine).predict(X)["y"].tobytes()


@pytest.mark.parametrize("kind", MODULES)
def test_a_version_carries_no_other_family(kind: str) -> None:
    family = MODULES[kind].partition(".")[0]
    carried = {path.parts[1] for path in carried_by(plan_of(kind)) if path.parts[0] == "ops"} - {"kinds.py"}
    assert {family} <= carried <= {family, *OF_OTHERS.get(family, ()), "columns"}  # which cut the example's input


def test_what_no_version_needs() -> None:
    """Types are read by mypy alone."""
    everything = {path for kind in MODULES for path in carried_by(plan_of(kind))}
    there = {path.relative_to(KERNELS) for path in KERNELS.rglob("*") if path.suffix in (".py", ".json")}
    assert there - everything == {Path("serving/backend_types.py"), QUOTING, *OF_TENSORS, *OF_STRINGS, *OF_FLEETS}


def test_modules_that_few_entries_need_go_with_these() -> None:
    plan = plan_of("affine")
    document = document_of(plan)
    carried = set(carried_by(plan))

    def further(**changes: object) -> set[Path]:
        return set(modules_of(plan, dataclasses.replace(document, **changes))) - carried  # type: ignore[arg-type]

    assert further(inputs=dataclasses.replace(document.inputs, made=MadeTexts((), ()))) == {*OF_STRINGS}
    text = dataclasses.replace(document.inputs, text=(TextInput("kind", (0,), (("a",),), (True,)),))
    assert further(inputs=text) == {QUOTING, *OF_TENSORS}
    assert further(fleet=Fleet("shop", (), ())) == {Path("plan/stacked.py"), QUOTING, *OF_FLEETS}
    assert OF_CLASSES in set(carried_by(plan_of("member_choice"))) - set(carried_by(plan_of("stacked_affine")))


def test_imports_inside_functions_count_and_those_for_types_do_not() -> None:
    of_the_model = imported(MODEL)
    assert {Path("entry.py"), Path("serving/tensors.py"), Path("engine/runner.py")} <= of_the_model
    assert Path("serving/backend_types.py") not in of_the_model
    assert Path("ops/networks/int8_hopper.py") in imported(Path("ops/networks/int8_fused.py"))


def test_a_linear_model_carries_little() -> None:
    carried = carried_by(plan_of("affine"))
    assert sum(os.path.getsize(KERNELS / path) for path in carried) < 268_000
    assert set(FAMILIES) - {path.parts[1] for path in carried if path.parts[0] == "ops"} >= {"trees", "points"}
