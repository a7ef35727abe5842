"""Tree ensembles: kernels against references, references against a walk down each tree, and exact sums."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.documents import write_plan
from tests.kernels.examples import examples
from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_trees import grouped, tree_ensemble
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.trees import integer_sum
from triton_regressors.kernels.ops.trees.launch import Tile, tree_tile
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL, MISSING_LEFT, integer_leaves, node_layout
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step, load_plan

CPU = torch.device("cpu")

drawn = examples(10)
rows = st.integers(0, 20)
seeds = st.integers(0, 2**32 - 1)
dtypes = st.sampled_from([np.float32, np.float64])


def walk(op: TreeEnsemble, root: int, x: np.ndarray) -> int:
    """Return the leaf that one row reaches in one tree, as the operation's documentation says."""
    node = root
    while op.feature[node] >= 0:
        value, flags = op.threshold.dtype.type(x[op.feature[node]]), op.flags[node]
        if np.isnan(value):
            left = bool(flags & MISSING_LEFT)
        elif flags & CATEGORICAL:
            bits = [int(word) >> bit & 1 for word in op.sets[int(op.threshold[node])] for bit in range(32)]
            category = np.trunc(value) if op.rounding == "trunc" else np.floor(value)
            left = bool(bits[int(category)] if 0 <= category < len(bits) else bits[-1])
        else:
            left = bool(value <= op.threshold[node])
        node = op.child[node] + (not left)
    return int(op.child[node])


def leaves(op: TreeEnsemble, x: np.ndarray) -> np.ndarray:
    return np.array([[walk(op, root, row) for root in op.roots] for row in x], dtype=int).reshape(-1, len(op.roots))


def expected(op: TreeEnsemble, x: np.ndarray) -> np.ndarray:
    """Return the operation's answer, sums rounded once."""
    reached = leaves(op, x)
    if op.output == "leaves":
        return np.stack([np.isin(np.arange(len(op.values)), row) for row in reached]).astype(float)
    values = op.values[reached]  # [rows, trees, outputs]
    if op.output == "each":
        return values.reshape(len(x), -1)
    sums = [[math.fsum([op.baseline[k], *row[:, k]]) for k in range(values.shape[2])] for row in values]
    return np.array(sums) / op.divisor


def check(op: TreeEnsemble, x: np.ndarray, device: torch.device) -> None:
    """The kernel gives the reference's bits, and these are the exact answer but for a few roundings."""
    double = run_reference(op, [x.astype(np.float64)])
    if len(x):
        exact = expected(op, x)
        assert (np.abs(double - exact) <= 4 * np.spacing(np.abs(op.values).max() * len(op.roots))).all()
    assert np.array_equal(run_reference(op, [x]), double)
    assert np.array_equal(run_on_cpu(op, [x]), double)
    assert np.array_equal(run_kernel(op, [x.astype(np.float64)], device, torch.float64), double)
    assert np.array_equal(run_kernel(op, [x], device), double.astype(np.float32))


@drawn
@given(
    features=st.integers(1, 40),
    trees=st.integers(1, 20),
    outputs=st.integers(1, 5),
    dtype=dtypes,
    rows=rows,
    seed=seeds,
)
def test_sum(device: torch.device, features: int, trees: int, outputs: int, dtype: type, rows: int, seed: int) -> None:
    op = tree_ensemble(features, trees, 4, outputs, seed, dtype, divisor=float(trees))
    check(op, inputs_for([features], rows, seed)[0], device)


@drawn
@given(features=st.integers(1, 9), trees=st.integers(1, 20), outputs=st.integers(1, 3), rows=rows, seed=seeds)
def test_each(device: torch.device, features: int, trees: int, outputs: int, rows: int, seed: int) -> None:
    op = tree_ensemble(features, trees, 4, outputs, seed, output="each")
    check(op, inputs_for([features], rows, seed)[0], device)


@drawn
@given(features=st.integers(1, 9), trees=st.integers(1, 9), depth=st.integers(0, 7), rows=rows, seed=seeds)
def test_leaves(device: torch.device, features: int, trees: int, depth: int, rows: int, seed: int) -> None:
    op = tree_ensemble(features, trees, depth, 1, seed, output="leaves")
    check(op, inputs_for([features], rows, seed)[0], device)


@drawn
@given(
    trees=st.integers(1, 9),
    sets=st.integers(1, 5),
    words=st.sampled_from([1, 2, 8, 63]),
    dtype=dtypes,
    rounding=st.sampled_from(["trunc", "floor"]),
    rows=rows,
    seed=seeds,
)
def test_categories_and_missing(
    device: torch.device, trees: int, sets: int, words: int, dtype: type, rounding: str, rows: int, seed: int
) -> None:
    """Rows hold categories, numbers that are no category, fractions and NaN, at numeric and categorical nodes alike."""
    op = tree_ensemble(4, trees, 4, 1, seed, dtype, sets, words=words, rounding=rounding)
    last = 32 * words - 1
    asked = [0, -0.0, 1, 31, 32, 7.25, last - 2, last - 1, last - 0.5, last, last + 1, 2**24, 2**31, 2**32 + 1, 1e30]
    asked += [-1, -0.5, -1e-45, np.nextafter(np.float32(-1), np.float32(0)), -2.5, -(2**32), -1e30, np.nan]
    x = np.random.default_rng(seed).choice([*asked, np.inf, -np.inf], (rows, 4)).astype(np.float32)
    check(op, x, device)


@pytest.mark.parametrize(("form", "parts"), [("plain", False), ("quads", False), ("quads", True)])
def test_rows_with_missing_numbers_among_others(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, form: str, parts: bool
) -> None:
    """A tile of complete rows descends through nodes of its own; other tiles use nodes that know where NaN goes."""
    monkeypatch.setattr(integer_sum, "tree_tile", lambda *_: Tile(8 if parts else 16, 8, 1, 8, form, 4, parts=parts))
    op = tree_ensemble(6, 20, 5)
    assert len(op.parameters()[form])
    (x,) = inputs_for([6], 100)
    reference = run_reference(op, [x])
    assert np.array_equal(run_kernel(op, [x], device, torch.float64), reference)
    x[5, 2] = x[90] = np.nan
    found = run_kernel(op, [x], device, torch.float64)
    assert np.array_equal(found, run_reference(op, [x]))
    assert np.array_equal(found, run_on_cpu(op, [x]))
    complete = ~np.isnan(x).any(axis=1)
    assert np.array_equal(found[complete], reference[complete])


def test_a_number_at_a_threshold_goes_left_and_the_next_float_goes_right(device: torch.device) -> None:
    for dtype in (np.float32, np.float64):
        op = tree_ensemble(2, 4, 3, 1, 3, dtype)
        at = np.repeat(op.threshold[op.feature >= 0], 3)
        at[1::3], at[2::3] = np.nextafter(at[1::3], dtype(np.inf)), np.nextafter(at[2::3], dtype(-np.inf))
        x = np.stack([at, at[::-1]], axis=1).astype(np.float64)
        found = run_kernel(op, [x], device, torch.float64)
        assert np.array_equal(found, run_reference(op, [x]))
        assert np.array_equal(found, run_on_cpu(op, [x]))
        assert np.allclose(found, expected(op, x), rtol=0, atol=1e-14)


def test_float32_thresholds_compare_with_the_nearest_float32(device: torch.device) -> None:
    one, step = np.float32(1), np.float64(2.0**-23)
    op = TreeEnsemble(
        np.array([0, -1, -1], dtype=np.int32),
        np.array([one, 0, 0]),
        np.array([1, 0, 1], dtype=np.int32),
        np.zeros(3, dtype=np.uint8),
        np.zeros((0, 8), dtype=np.int32),
        np.zeros(1, dtype=np.int32),
        np.array([[-1.0], [1.0]]),
        np.zeros(1),
    )
    x = 1 + step * np.array([[-1], [0], [0.25], [0.5], [0.5 + 1e-6], [1]])  # half a step is rounded to even, down
    for dtype, right in ((np.float32, [0, 0, 0, 0, 1, 1]), (np.float64, [0, 0, 1, 1, 1, 1])):
        typed = dataclasses.replace(op, threshold=op.threshold.astype(dtype))
        for found in (run_reference(typed, [x]), run_on_cpu(typed, [x]), run_kernel(typed, [x], device, torch.float64)):
            assert found.ravel().tolist() == [2 * r - 1 for r in right]


def test_nodes_that_need_more_bits_than_a_narrow_node_has(device: torch.device) -> None:
    features = 100_000
    op = tree_ensemble(features, 2, 13, 1, stop=0.02)
    assert node_layout(op.feature, op.threshold, op.child) == (True, 0)
    x = np.random.default_rng(0).standard_normal((3, features)).astype(np.float32)
    x[1, ::3] = np.nan
    check(op, x, device)


@pytest.mark.parametrize("output", ["sum", "each"])
def test_many_outputs(device: torch.device, output: str) -> None:
    op = tree_ensemble(3, 3, 3, 40, output=output)
    assert tree_tile(5, 3, 40, 3, 30, True, CPU).block_outputs < 40
    check(op, inputs_for([3], 5)[0], device)


def test_which_sums_are_written_in_whole_rows() -> None:
    """A program adds up one group, and so one number of each row."""
    assert tree_ensemble(3, 4, 3, 5).writes_rows_whole()
    assert not grouped(tree_ensemble(3, 4, 3), [0, 1, 4]).writes_rows_whole()
    assert not tree_ensemble(3, 4, 3, output="leaves").writes_rows_whole()


def test_tiles_do_not_change_a_bit(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of rows chooses the tile; sums of integers do not depend on it."""
    tiles = [tree_tile(rows, 40, 2, 3, 400, True, CPU) for rows in (1, 1_000, 20_000)]
    assert all(first != second for first, second in itertools.combinations(tiles, 2))
    (x,) = inputs_for([3], 40)
    for outputs in (1, 2):
        op = tree_ensemble(3, 40, 3, outputs, divisor=3.0)
        reference = run_reference(op, [x])
        for sizes in (
            (64, 1, 2, 4, "quads"),
            (32, 16, 2, 4, "plain"),
            (4, 32, 1, None, "quads"),
            (8, 64, 1, 8, "plain"),
            (8, 16, 1, 4, "quads", 4, None, True),
            (16, 16, 2, None, "quads", 4, None, True),
        ):
            tile = Tile(*sizes) if len(sizes) > 5 else Tile(*sizes, num_warps=4)
            monkeypatch.setattr(integer_sum, "tree_tile", lambda *_, tile=tile: tile)
            assert np.array_equal(run_kernel(op, [x], device, torch.float64), reference)


def test_a_tree_of_very_unequal_paths(device: torch.device) -> None:
    """A chain: each node's left child is a leaf. Some rows leave at once, some at its end."""
    levels = 60
    feature, threshold = np.full(2 * levels + 1, -1), np.zeros(2 * levels + 1)
    inner = np.append(0, np.arange(2, 2 * levels, 2))
    feature[inner], threshold[inner] = 0, np.arange(levels)
    child = np.empty(2 * levels + 1, dtype=np.int32)
    child[inner] = np.arange(1, 2 * levels, 2)
    child[feature < 0] = np.arange(levels + 1)
    op = TreeEnsemble(
        feature.astype(np.int32),
        threshold.astype(np.float32),
        child,
        np.zeros(len(child), dtype=np.uint8),
        np.zeros((0, 8), dtype=np.int32),
        np.zeros(1, dtype=np.int32),
        np.arange(levels + 1.0)[:, None],
        np.zeros(1),
    )
    x = np.array([[-5.0], [0], [0.5], [30], [58.5], [59], [1e9]], dtype=np.float32)
    check(op, x, device)
    assert run_reference(op, [x]).ravel().tolist() == [0, 0, 1, 30, 59, 59, 60]
    assert run_on_cpu(op, [x]).ravel().tolist() == [0, 0, 1, 30, 59, 59, 60]


@pytest.mark.parametrize("scale", [1e-300, 1e-20, 1.0, 1e300])
def test_integer_leaves_hold_any_magnitude(scale: float) -> None:
    values = scale * np.random.default_rng(0).standard_normal((50, 2))
    integers, unit = integer_leaves(values, np.arange(0, 51, 5))
    assert np.abs(integers).reshape(10, 5, 2).max(axis=1).astype(float).sum(axis=0).max() <= 2.0**62
    assert (np.abs(integers * unit - values) <= np.maximum(unit, scale * 1e-17)).all()


def test_plans_keep_ensembles_with_empty_arrays(tmp_path) -> None:
    """Neither sets nor values: arrays without elements go through safetensors."""
    op = tree_ensemble(3, 2, 2, output="leaves")
    op = dataclasses.replace(op, values=op.values[:, :0], baseline=op.baseline[:0])
    plan = Plan(3, (Step(op, (INPUT,), "v0"),), {"y": "v0"})
    write_plan(tmp_path / "1", plan)
    loaded = load_plan(tmp_path / "1").steps[0].operation
    (x,) = inputs_for([3], 5)
    assert np.array_equal(run_reference(loaded, [x]), expected(op, x))
    assert np.array_equal(run_on_cpu(loaded, [x]), expected(op, x))
    assert loaded.describe() == op.describe()


def test_float32(device: torch.device) -> None:
    x = np.random.default_rng(0).standard_normal((30, 3)) * 10.0 ** np.arange(-20, 10)[:, None]
    assert np.array_equal(run_reference(Float32(), [x]), x.astype(np.float32))
    assert np.array_equal(run_kernel(Float32(), [x], device, torch.float64), x.astype(np.float32))


TREE = tree_ensemble(3, 2, 3, seed=1)
LEAVES = len(TREE.values)
WRONG = {
    "nodes": ({"flags": TREE.flags[1:]}, "feature, threshold, child and flags must be [nodes], at least one."),
    "threshold": ({"threshold": TREE.child}, "threshold must be float32 or float64, not int32."),
    "flags": ({"flags": TREE.flags | np.uint8(4)}, "flags must be uint8 of at most 3."),
    "flags of another type": ({"flags": TREE.flags.astype(np.int64)}, "flags must be uint8 of at most 3."),
    "feature": ({"feature": np.where(TREE.feature == 0, 3, TREE.feature)}, "feature must lie in [-1, 3)."),
    "values": ({"values": np.ones((LEAVES + 1, 1))}, "values must have a row for each node whose feature is -1."),
    "values shape": ({"values": np.ones(LEAVES)}, "values must be [leaves, outputs / groups], and baseline [outputs]."),
    "baseline": ({"baseline": np.ones(2)}, "values must be [leaves, outputs / groups], and baseline [outputs]."),
    "roots twice": ({"roots": np.array([0, 0])}, "roots must be [trees], at least one and no two the same."),
    "roots": ({"roots": np.array([0, 1000])}, f"roots must lie in [0, {len(TREE.feature)}), and node 0 must be one."),
    "roots order": ({"roots": TREE.roots[::-1], "output": "leaves"}, "roots must ascend where the output is 'leaves'."),
    "child": ({"child": np.where(TREE.feature >= 0, 0, TREE.child)}, "child must come after its parent, and another"),
    "child of another tree": (
        {"child": np.where(TREE.feature >= 0, len(TREE.child) - 2, TREE.child)},
        "child must come after its parent, and another node of the tree after it.",
    ),
    "leaf": ({"child": np.where(TREE.feature < 0, 0, TREE.child)}, "child at a leaf must be a row of values, those in"),
    "sets": ({"sets": np.zeros((1, 7), dtype=np.int64)}, "sets must be int32 [sets, words], at most 16777216 sets of"),
    "sets without words": ({"sets": np.zeros((1, 0), dtype=np.int32)}, "sets must be int32 [sets, words], at most"),
    "rounding": ({"rounding": "ceil"}, "rounding must be one of ('trunc', 'floor'), not 'ceil'."),
    "set": ({"flags": TREE.flags | CATEGORICAL}, "threshold must be a row of sets where a node is categorical."),
    "output": ({"output": "mean"}, "output must be one of ('sum', 'ordered', 'each', 'leaves'), not 'mean'."),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    changes, message = WRONG[case]
    with pytest.raises(PlanError) as raised:
        dataclasses.replace(TREE, **changes).check(3)
    assert f"tree_ensemble: {message}" in str(raised.value)
