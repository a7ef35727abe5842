"""Symmetric trees: kernels against references, references against the documentation's sums, and damaged plans."""

import dataclasses
import itertools
import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.documents import write_plan
from tests.kernels.examples import examples
from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_trees import symmetric_trees
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.trees import launch, symmetric_sum
from triton_regressors.kernels.ops.trees.border_counts import MOST_BORDERS, count_columns
from triton_regressors.kernels.ops.trees.launch import FEW_PAIRS, SymmetricTile, symmetric_tile
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step, load_plan

drawn = examples(12)
seeds = st.integers(0, 2**32 - 1)
dtypes = st.sampled_from([np.float32, np.float64])
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3.4028235e38]


def leaves(op: SymmetricTrees, row: np.ndarray) -> list[int]:
    """Return the leaf that one row reaches in each tree, as the operation's documentation says."""
    found, level, first = [], 0, 0
    for depth in op.depth.tolist():
        leaf = 0
        for k, question in enumerate(op.asked[level : level + depth]):
            value = op.threshold.dtype.type(row[op.feature[question]])
            answer = op.missing[question] if np.isnan(value) else value > op.threshold[question]
            leaf += int(answer) << k
        found.append(first + leaf)
        level, first = level + depth, first + 2**depth
    return found


def expected(op: SymmetricTrees, x: np.ndarray) -> np.ndarray:
    """Return the sums, rounded once."""
    rows = [op.values[leaves(op, row)] for row in x]
    sums = [[math.fsum([b, *held]) for b, held in zip(op.baseline, values.T, strict=True)] for values in rows]
    return np.array(sums).reshape(len(x), len(op.baseline))


def check(op: SymmetricTrees, x: np.ndarray, device: torch.device) -> None:
    """The kernels of few rows and of many give the reference's bits, the exact answer but for a few roundings."""
    op.check(x.shape[1])
    double = run_reference(op, [x.astype(np.float64)])
    allowed = 4 * np.spacing(np.abs(op.values).max() * len(op.depth))
    assert (np.abs(double - expected(op, x)) <= allowed).all()
    assert np.array_equal(run_reference(op, [x]), double)
    assert np.array_equal(run_on_cpu(op, [x]), double)
    for few in (0, FEW_PAIRS):
        with mock.patch.object(launch, "FEW_PAIRS", few):
            assert np.array_equal(run_kernel(op, [x.astype(np.float64)], device, torch.float64), double)
            assert np.array_equal(run_kernel(op, [x], device), double.astype(np.float32))


@drawn
@given(
    features=st.integers(1, 20),
    depths=st.lists(st.integers(0, 10), min_size=1, max_size=12),
    outputs=st.integers(1, 3),
    questions=st.integers(1, 300),
    dtype=dtypes,
    rows=st.integers(0, 40),
    missing=st.booleans(),
    seed=seeds,
)
def test_sums(
    device: torch.device,
    features: int,
    depths: list[int],
    outputs: int,
    questions: int,
    dtype: type,
    rows: int,
    missing: bool,
    seed: int,
) -> None:
    """Rows hold ordinary numbers and special ones for decisions: NaN, infinity, zeros, denormals and the largest."""
    op = symmetric_trees(features, depths, outputs, seed, dtype, questions)
    (x,) = inputs_for([features], rows, seed)
    if missing:
        rng = np.random.default_rng(seed)
        op.threshold[rng.random(questions) < 0.2] = dtype(rng.choice(SPECIAL[1:]))
        x = np.where(rng.random(x.shape) < 0.3, rng.choice(np.float32(SPECIAL), x.shape), x)
    check(op, x, device)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_number_at_a_border_does_not_exceed_it_and_the_next_one_does(device: torch.device, dtype: type) -> None:
    op = symmetric_trees(2, [4] * 20, 1, 3, dtype)
    at = np.repeat(op.threshold, 3)
    at[1::3], at[2::3] = np.nextafter(at[1::3], dtype(np.inf)), np.nextafter(at[2::3], dtype(-np.inf))
    x = np.stack([at, at[::-1]], axis=1).astype(np.float64)
    check(op, x, device)


def test_float32_borders_compare_with_the_nearest_float32(device: torch.device) -> None:
    op = symmetric_trees(1, [1], questions=1)
    op.threshold[0], op.asked[0], op.baseline[0], op.values[:, 0] = 1.0, 0, 0.0, [-1.0, 1.0]
    x = 1 + 2.0**-23 * np.array([[-1], [0], [0.25], [0.5], [0.5 + 1e-6], [1]])  # half a step is rounded to even, down
    for dtype, above in ((np.float32, [0, 0, 0, 0, 1, 1]), (np.float64, [0, 0, 1, 1, 1, 1])):
        typed = dataclasses.replace(op, threshold=op.threshold.astype(dtype))
        check(typed, x, device)
        assert run_reference(typed, [x]).ravel().tolist() == [2 * number - 1 for number in above]


@pytest.mark.parametrize("depths", [[16], [0], [0, 0, 0], [8, 8], [1, 16, 0, 9], [7]])
def test_every_depth(device: torch.device, depths: list[int]) -> None:
    op = symmetric_trees(3, depths, questions=100)
    (x,) = inputs_for([3], 30)
    x[4], x[7, 1] = np.nan, np.nan
    check(op, x, device)


def test_trees_that_ask_nothing_need_no_questions(device: torch.device) -> None:
    op = symmetric_trees(3, [0, 0], 2, questions=0)
    check(op, inputs_for([3], 5)[0], device)


def test_more_borders_than_a_column_has(device: torch.device) -> None:
    """Each border of a feature is asked about, and so are the borders on both sides of a column's end."""
    borders = 2 * MOST_BORDERS + 5
    op = symmetric_trees(1, [4] * (borders // 4 + 1), questions=borders)
    op.missing[:], op.asked[:] = np.arange(borders) % 2, np.arange(len(op.asked)) % borders
    columns = count_columns(op.feature, op.threshold, op.missing)
    assert len(columns.asked) == 4  # 127 and some more for NaN as yes, and the same for NaN as no
    assert np.array_equal(np.sort(columns.borders, axis=0), columns.borders)
    x = np.append(np.sort(op.threshold), [np.nan, np.inf, -np.inf]).astype(np.float32)[:, None]
    check(op, x, device)


def test_tiles_and_parts_do_not_change_a_bit(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of rows chooses how rows and trees are shared; sums of integers do not depend on it."""
    tiles = [symmetric_tile(rows, 1000, 1) for rows in (1, 300, 4_000, 20_000, 1_000_000)]
    assert all(first != second for first, second in itertools.combinations(tiles, 2))
    (x,) = inputs_for([3], 45)
    for outputs in (1, 2):
        op = symmetric_trees(3, [5] * 21, outputs)
        reference = run_reference(op, [x])
        for sizes in (
            (False, 1, 16, 16, 1),
            (False, 4, 32, 32, 1),
            (True, 4, 8, 8, 1),
            (True, 4, 8, 16, 1),
            (True, 8, 4, 24, 1),
            (True, 16, 1, 5, 1),
            (True, 64, 2, 2, 1),
            (True, 128, 1, 21, 4),
        ):
            monkeypatch.setattr(symmetric_sum, "symmetric_tile", lambda *_, sizes=sizes: SymmetricTile(*sizes))
            assert np.array_equal(run_kernel(op, [x], device, torch.float64), reference)
    monkeypatch.setattr(symmetric_sum, "MOST_COUNTS", 1)
    monkeypatch.setattr(symmetric_sum, "FEWEST_ROWS", 16)
    assert np.array_equal(run_kernel(op, [x], device, torch.float64), reference)


def test_trees_give_the_bits_that_the_same_trees_of_nodes_give(device: torch.device) -> None:
    """Both sum integers of the same unit."""
    op = symmetric_trees(4, [3] * 9)
    roots = 15 * np.arange(9, dtype=np.int32)
    place = np.arange(15)
    level, leaf = np.log2(place + 1).astype(int), place - 7
    path = [leaf >> 2 & 1, leaf >> 1 & 1, leaf & 1]  # the first answer is the first step down
    number = np.where(leaf >= 0, path[0] + 2 * path[1] + 4 * path[2], 0)
    question = op.asked.reshape(9, 3)[:, np.minimum(level, 2)]
    nodes = TreeEnsemble(
        feature=np.where(leaf < 0, op.feature[question], -1).ravel().astype(np.int32),
        threshold=op.threshold[question].ravel(),
        child=np.where(leaf < 0, roots[:, None] + 2 * place + 1, 8 * np.arange(9)[:, None] + leaf)
        .ravel()
        .astype(np.int32),
        flags=np.where(leaf < 0, 1 - op.missing[question], 0).ravel().astype(np.uint8),
        sets=np.zeros((0, 1), dtype=np.int32),
        roots=roots,
        values=op.values.reshape(9, 8, 1)[:, number[7:]].reshape(-1, 1),
        baseline=op.baseline,
    )
    nodes.check(4)
    (x,) = inputs_for([4], 60)
    x[::7, 2] = np.nan
    for dtype in (torch.float32, torch.float64):
        assert run_kernel(op, [x], device, dtype).tobytes() == run_kernel(nodes, [x], device, dtype).tobytes()
    assert run_reference(op, [x]).tobytes() == run_reference(nodes, [x]).tobytes()
    assert run_on_cpu(op, [x]).tobytes() == run_on_cpu(nodes, [x]).tobytes()


@pytest.mark.parametrize("rows", [1, 2])
def test_plain_torch_leaves_its_parameters_as_they_are(rows: int) -> None:
    op = symmetric_trees(3, [4] * 5, 2)
    parameters = {name: torch.from_numpy(array.copy()) for name, array in op.plain_parameters().items()}
    x = torch.from_numpy(inputs_for([3], rows)[0])
    first = op.compute_on_cpu(parameters, x)
    assert torch.equal(op.compute_on_cpu(parameters, x), first)
    assert all(np.array_equal(parameters[name].numpy(), array) for name, array in op.plain_parameters().items())


def test_plans_keep_symmetric_trees(tmp_path: Any) -> None:
    op = symmetric_trees(3, [2, 5], 2, function="exp")
    write_plan(tmp_path / "1", Plan(3, (Step(op, (INPUT,), "v0"),), {"y": "v0"}))
    loaded = load_plan(tmp_path / "1").steps[0].operation
    (x,) = inputs_for([3], 5)
    assert run_reference(loaded, [x]).tobytes() == run_reference(op, [x]).tobytes()
    assert run_on_cpu(loaded, [x]).tobytes() == run_on_cpu(op, [x]).tobytes()
    assert loaded.describe() == op.describe() == "2 trees of 40 questions, up to 5 levels deep, then exp"


TREES = symmetric_trees(3, [2, 3])
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "questions": ({"missing": TREES.missing[1:]}, "feature, threshold and missing must be [questions]."),
    "feature": ({"feature": TREES.feature + 1}, "feature must be int32 in [0, 3)."),
    "feature below": ({"feature": TREES.feature - 1}, "feature must be int32 in [0, 3)."),
    "feature type": ({"feature": TREES.feature.astype(float)}, "feature must be int32 in [0, 3)."),
    "threshold": ({"threshold": TREES.feature}, "threshold must be float32 or float64, and not NaN."),
    "threshold NaN": ({"threshold": TREES.threshold * np.nan}, "threshold must be float32 or float64, and not NaN."),
    "missing": ({"missing": TREES.missing + np.uint8(1)}, "missing must be uint8, 0 or 1."),
    "missing type": ({"missing": TREES.missing > 0}, "missing must be uint8, 0 or 1."),
    "no trees": ({"depth": TREES.depth[:0]}, "depth must be int32 [trees], at least one."),
    "depth type": ({"depth": TREES.depth.astype(np.int64)}, "depth must be int32 [trees], at least one."),
    "too deep": ({"depth": np.array([2, 17], dtype=np.int32)}, "depth must lie in [0, 16]."),
    "depth below": ({"depth": np.array([-1, 6], dtype=np.int32)}, "depth must lie in [0, 16]."),
    "asked": ({"asked": TREES.asked[1:]}, "asked must be int32 [levels], as many as the trees' depths are together."),
    "asked range": ({"asked": TREES.asked + 40}, "asked must lie in [0, 40)."),
    "values": ({"values": TREES.values[1:]}, "values must be float64 [12, outputs], fewer than 2**31 rows."),
    "values shape": ({"values": TREES.values[:, 0]}, "values must be float64 [12, outputs], fewer than 2**31 rows."),
    "values type": ({"values": TREES.asked[:, None]}, "values must be float64 [12, outputs], fewer than 2**31 rows."),
    "values infinite": ({"values": TREES.values * np.inf}, "values must be finite."),
    "baseline": ({"baseline": np.ones(2)}, "baseline must be float64 [1]."),
    "function": ({"function": "sine"}, "There is no function 'sine'; the functions are"),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    changes, message = WRONG[case]
    with pytest.raises(PlanError) as raised:
        dataclasses.replace(TREES, **changes).check(3)
    assert message in str(raised.value)
    assert case == "function" or str(raised.value).startswith("symmetric_trees: ")


def test_more_leaves_than_are_numbered() -> None:
    many = dataclasses.replace(TREES, depth=np.full(2**15, 16, np.int32), asked=np.zeros(2**19, np.int32))
    with pytest.raises(PlanError, match=r"values must be float64 \[2147483648, outputs\], fewer than 2\*\*31 rows\."):
        many.check(3)
