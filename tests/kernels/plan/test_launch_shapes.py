"""Launch shapes: the look-up in the table, the defaults elsewhere, and the allowed contents of the shipped table."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.gpu.shape_classes import OPERATIONS, shape_classes
from tests.documents import write_plan
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.plan import launch_shapes as module
from triton_regressors.kernels.plan.launch_shapes import TABLE, LaunchShapes, Shape, launch_shapes, table
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

PACKAGE = module.__name__.removesuffix(".plan.launch_shapes")
FOLDER = TABLE.parents[1]
OF_THE_SERVER = ("backend", "serving.backend_types", "serving.fleet_requests", "serving.tensors")
CPU, HOPPER, TURING = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)

FIXED = {"BLOCK_FEATURES", "BLOCK_INNER", "BLOCK_PREFIXES", "BLOCK_TARGETS", "BLOCK_UNITS", "SLOTS", "SLOT_FEATURES"}
"""Parameters that decide the order of a sum of floats, or the parts that a program leaves out."""


@launch_shapes
def toy_shape(features: int, precision: str) -> Shape:
    return {"BLOCK_ROWS": features, "num_warps": 4}


@pytest.fixture
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = {"9.0": {"toy": {"32 float64": {"num_warps": 2}}}, "8.9": {"toy": {"64 float64": {"num_warps": 1}}}}
    monkeypatch.setattr(module, "table", lambda: measured)
    monkeypatch.setattr(module, "capability", {CPU: "", HOPPER: "9.0", TURING: "7.5"}.__getitem__)
    toy_shape.of.cache_clear()


@pytest.mark.usefixtures("_two_gpus")
def test_the_table_changes_what_it_names_for_its_gpu_and_class_alone() -> None:
    assert toy_shape.operation == "toy"
    assert toy_shape.of(HOPPER, 32, "float64") == {"BLOCK_ROWS": 32, "num_warps": 2}
    assert toy_shape.of(HOPPER, 32, "float32") == {"BLOCK_ROWS": 32, "num_warps": 4}
    assert toy_shape.of(HOPPER, 64, "float64") == {"BLOCK_ROWS": 64, "num_warps": 4}
    for device in (TURING, CPU):
        assert toy_shape.of(device, 32, "float64") == {"BLOCK_ROWS": 32, "num_warps": 4}


@pytest.mark.usefixtures("_two_gpus")
def test_a_trial_goes_before_the_table_and_ends() -> None:
    with toy_shape.trying({"num_warps": 8}):
        assert toy_shape.of(HOPPER, 32, "float64")["num_warps"] == 8
    assert toy_shape.of(HOPPER, 32, "float64")["num_warps"] == 2


@pytest.mark.usefixtures("_two_gpus")
def test_a_shape_is_looked_up_once() -> None:
    assert toy_shape.of(HOPPER, 32, "float64") is toy_shape.of(HOPPER, 32, "float64")


def test_a_cpu_has_no_capability() -> None:
    assert module.capability(CPU) == ""


def known() -> set[str]:
    """Return every operation that has launch shapes, as the modules of the kernels name them."""
    names = [".".join(path.relative_to(FOLDER).with_suffix("").parts) for path in FOLDER.rglob("*.py")]
    modules = [importlib.import_module(f"{PACKAGE}.{name}") for name in names if name not in OF_THE_SERVER]
    return {value.operation for each in modules for value in vars(each).values() if isinstance(value, LaunchShapes)}


def test_every_shape_of_the_table_is_of_an_operation_and_a_class_that_the_command_measures() -> None:
    """The test that each compiles for its GPU is in test_gpu_compile.py."""
    defaults = {(each.shapes.operation, each.key): each.default for each in shape_classes(OPERATIONS, toy=True)}
    assert {name for name, _ in defaults} == known()
    for gpu, operations in table().items():
        assert re.fullmatch(r"\d+\.\d", gpu)
        for name, classes in operations.items():
            for shape_class, shape in classes.items():
                default = defaults[name, shape_class]
                assert shape
                assert all(value != default[field] for field, value in shape.items())
                assert not shape.keys() & FIXED


def test_an_entry_carries_the_table(tmp_path: Path) -> None:
    operation = Affine(np.ones((3, 1)), np.zeros(1))
    write_plan(tmp_path / "1", Plan(3, (Step(operation, (INPUT,), "y"),), {"y": "y"}))
    assert json.loads((tmp_path / "1" / "kernels/plan" / TABLE.name).read_bytes()) == table()
