"""Plans: well-formedness, and their way to disk and back."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.documents import write_plan
from tests.kernels.operations import OPERATIONS, affine, inputs_for, quadratic, run_on_cpu, scale
from triton_regressors.kernels import entry
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.plan.plan import Operation, Plan, Step, load_plan


def small_plan() -> Plan:
    """Two outputs, `std` from a value of its own."""
    steps = (
        Step(scale(4), ("X",), "v0"),
        Step(affine(4, 2), ("v0",), "v1"),
        Step(quadratic(4), ("X",), "v2"),
        Step(Concatenate(), ("v0", "v1"), "v3"),
    )
    return Plan(4, steps, {"y": "v3", "std": "v2"})


def one_step(op: Operation, widths: tuple[int, ...]) -> Plan:
    """A plan that cuts its input into the widths and gives them to one operation."""
    total, starts = sum(widths), np.cumsum([0, *widths])
    cut = [
        Step(Columns(np.arange(start, start + width, dtype=np.int32)), ("X",), f"x{index}")
        for index, (start, width) in enumerate(zip(starts, widths, strict=False))
    ]
    return Plan(total, (*cut, Step(op, tuple(step.output for step in cut), "y")), {"y": "y"})


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_survives_the_way_to_disk(tmp_path: Path, name: str) -> None:
    op, widths = OPERATIONS[name]
    plan = one_step(op, widths)
    write_plan(tmp_path / "1", plan)
    read = load_plan(tmp_path / "1")
    assert read.to_json() == plan.to_json()
    for key, array in plan.to_tensors().items():
        assert read.to_tensors()[key].dtype == array.dtype
        assert np.array_equal(read.to_tensors()[key], array, equal_nan=True)
    X = np.random.default_rng(0).standard_normal((5, sum(widths))).astype(np.float32)
    before, after = (Runner(p, engine="torch").predict(X)["y"] for p in (plan, read))
    assert before.tobytes() == after.tobytes()


def test_what_is_written_is_the_same_each_time(tmp_path: Path) -> None:
    for directory in (tmp_path / "a", tmp_path / "b"):
        write_plan(directory, small_plan())
    for file in ("plan.json", "weights.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_counts_and_widths() -> None:
    plan = small_plan()
    assert plan.output_widths() == {"y": 6, "std": 1}
    assert plan.parameter_count() == 8 + 10 + (4 + 4 + 16 + 4 + 1)
    assert plan.parameter_bytes() == 8 * plan.parameter_count()


def test_steps_for_leaves_out_what_an_output_does_not_need() -> None:
    plan = small_plan()
    assert [step.output for step in plan.steps_for(("std",))] == ["v2"]
    assert [step.output for step in plan.steps_for(("y",))] == ["v0", "v1", "v3"]
    assert [step.output for step in plan.steps_for(("std", "y"))] == ["v0", "v1", "v2", "v3"]
    with pytest.raises(PlanError, match=r"^There is no output 'z'; the outputs are y, std\.$"):
        plan.steps_for(("z",))


@pytest.mark.parametrize(
    ("n_features", "steps", "outputs", "message"),
    [
        (0, (), {"y": "X"}, "A plan needs at least 1 feature, not 0."),
        (4, (), {}, "A plan needs at least one output."),
        (4, (), {"y": "v0"}, "Output 'y' names the value 'v0', which no step makes."),
        (4, (Step(scale(4), ("v1",), "v0"),), {"y": "v0"}, "Step 'v0' reads 'v1', which no step before it makes."),
        (4, (Step(scale(4), ("X",), "X"),), {"y": "X"}, "Value 'X' is made twice."),
        (4, (Step(scale(3), ("X",), "v0"),), {"y": "v0"}, "scale: shift and factor must be [4]"),
    ],
)
def test_plans_that_are_not_well_formed(
    n_features: int, steps: tuple[Step, ...], outputs: dict[str, str], message: str
) -> None:
    with pytest.raises(PlanError) as raised:
        Plan(n_features, steps, outputs)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_equals_itself_alone(name: str) -> None:
    op, _ = OPERATIONS[name]
    copied = dataclasses.replace(op)
    assert op == op
    assert op != copied
    assert len({op, copied, op}) == 2


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_goes_to_another_process_after_it_has_computed(name: str) -> None:
    operation, widths = OPERATIONS[name]
    arrays = inputs_for(widths, 3)
    expected = run_on_cpu(operation, arrays)
    found = pickle.loads(pickle.dumps(operation))
    assert set(vars(found)) == {field.name for field in dataclasses.fields(operation)}  # type: ignore[arg-type]
    assert run_on_cpu(found, arrays).tobytes() == expected.tobytes()


def test_steps_and_plans_are_equal_where_they_have_the_same_operations() -> None:
    plan, other = small_plan(), small_plan()
    assert plan.steps != other.steps
    assert plan != other
    assert plan == plan.with_steps(Step(step.operation, step.inputs, step.output) for step in plan.steps)
    assert plan != dataclasses.replace(plan, dtype="float64")
    assert plan.steps[0] != Step(plan.steps[0].operation, ("X",), "v9")


def test_an_operation_has_to_say_all_that_a_plan_asks() -> None:
    class Silent(Operation):
        pass

    with pytest.raises(TypeError, match=r"check.*launch.*output_width.*reference"):
        Silent()  # type: ignore[abstract]


def test_an_operation_is_checked_once_and_again_for_other_widths() -> None:
    checked: list[tuple[int, ...]] = []

    @dataclasses.dataclass(frozen=True, eq=False)
    class Noting(Concatenate):
        def check(self, *widths: int) -> None:
            checked.append(widths)
            super().check(*widths)

    op = Noting()
    plan = Plan(4, (Step(op, ("X", "X"), "v0"),), {"y": "v0"})
    plan = dataclasses.replace(plan.with_steps(plan.steps), dtype="float64")
    assert plan.widths() == {"X": 4, "v0": 8}
    assert checked == [(4, 4)]
    Plan(5, plan.steps, plan.outputs)
    assert checked == [(4, 4), (5, 5)]
    for _ in range(2):
        with pytest.raises(PlanError, match="at least one input is needed"):
            op.checked_width()


@pytest.fixture
def version(tmp_path: Path) -> Path:
    write_plan(tmp_path / "1", small_plan())
    return tmp_path / "1"


def edit(version: Path, **changes: Any) -> None:
    """Change the plan and its digests to fit, as only a deliberate change would."""
    document = read_document(version)
    entry.write_document(version, dataclasses.replace(document, plan={**document.plan, **changes}))


def replace_arrays(version: Path, arrays: dict[str, np.ndarray]) -> None:
    document = read_document(version)
    save_file(arrays, version / entry.WEIGHTS)
    entry.write_document(version, document)


def refusal(version: Path) -> str:
    with pytest.raises(PlanError) as raised:
        load_plan(version)
    return str(raised.value)


def test_another_protocol(version: Path) -> None:
    edit(version, protocol=99)
    assert refusal(version) == "The plan is written in protocol 99; these kernels read protocols 3 and 4."
    edit(version, protocol=None)
    assert refusal(version).startswith("The plan is written in protocol None;")


def test_an_operation_that_is_not_there(version: Path) -> None:
    steps = read_document(version).plan["steps"]
    edit(version, steps=[{**steps[0], "op": "convolution"}, *steps[1:]])
    assert refusal(version).startswith("There is no operation 'convolution' among these kernels")


def test_an_attribute_that_is_not_there(version: Path) -> None:
    steps = read_document(version).plan["steps"]
    edit(version, steps=[*steps[:1], {**steps[1], "attributes": {"colour": 1}}, *steps[2:]])
    message = refusal(version)
    assert message.startswith("The plan and its weights do not fit together:")
    assert "colour" in message


@pytest.mark.parametrize("missing", ["0.shift", "1.weight", "2.quadratic"])
def test_an_array_that_is_not_there(version: Path, missing: str) -> None:
    arrays = load_file(version / entry.WEIGHTS)
    replace_arrays(version, {key: array for key, array in arrays.items() if key != missing})
    message = refusal(version)
    assert message.startswith("The plan and its weights do not fit together:")
    assert missing.partition(".")[2] in message


@pytest.mark.parametrize("extra", ["9.weight", "weight", "0.colour"])
def test_an_array_too_many(version: Path, extra: str) -> None:
    arrays = load_file(version / entry.WEIGHTS)
    replace_arrays(version, {**arrays, extra: np.ones(2)})
    assert refusal(version).startswith("The plan and its weights do not fit together:")


def test_an_array_of_another_shape(version: Path) -> None:
    arrays = load_file(version / entry.WEIGHTS)
    replace_arrays(version, {**arrays, "1.weight": np.ones((3, 2))})
    assert refusal(version) == "affine: weight must be [4, targets], not [3, 2]."


@pytest.mark.parametrize("damage", ["empty", "cut", "garbage"])
def test_weights_that_are_none_are_named_though_their_digest_fits(version: Path, damage: str) -> None:
    path = version / entry.WEIGHTS
    document, content = read_document(version), path.read_bytes()
    path.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "garbage": b"\xff\x00" * 64}[damage])
    entry.write_document(version, document)
    assert refusal(version).startswith(f"Cannot read the weights {path}:")


@pytest.mark.parametrize("missing", ["steps", "outputs", "dtype"])
def test_a_part_of_the_plan_that_is_not_there(version: Path, missing: str) -> None:
    document = read_document(version)
    plan = {key: value for key, value in document.plan.items() if key != missing}
    entry.write_document(version, dataclasses.replace(document, plan=plan))
    message = refusal(version)
    assert message.startswith("The plan and its weights do not fit together:")
    assert missing in message


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_shown_in_a_line(name: str) -> None:
    op, _ = OPERATIONS[name]
    shown = repr(op)
    assert shown.startswith(f"{type(op).__name__}(")
    assert shown.endswith(f"{sum(array.size for _, array in op.arrays()):,} parameters)")
    assert "\n" not in shown
    assert len(shown) < 150


def test_a_plan_and_its_steps_are_shown_in_a_line_each() -> None:
    plan = small_plan()
    assert repr(plan) == (
        "Plan(X float32 [rows, 4] → y [rows, 6], std [rows, 1]: scale, affine, quadratic, concatenate; 47 parameters)"
    )
    assert repr(plan.steps[1]) == "Step(v1 = Affine(4 → 2, 10 parameters) of v0)"
    many = plan.with_steps(
        [*plan.steps, *(Step(Concatenate(), tuple(f"v{i}" for i in range(4)) * 50, f"w{i}") for i in range(9))]
    )
    assert repr(many).endswith(": scale, affine, quadratic, concatenate, concatenate, and 8 more; 47 parameters)")
    assert repr(many.steps[-1]) == "Step(w8 = Concatenate(0 parameters) of v0, v1, v2, v3, v0, and 195 more)"
