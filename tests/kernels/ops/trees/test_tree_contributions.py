"""Shapley values of parts of trees: kernels, plain torch and references."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_trees import (
    OPERATIONS,
    background_contributions,
    path_contributions,
    tree_contributions,
)
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.trees import (
    cpu_path_walks,
    integer_sum,
    leaf_patterns,
    path_points,
    path_states,
    path_walks,
)
from triton_regressors.kernels.ops.trees import path_contributions as paths
from triton_regressors.kernels.ops.trees import tree_contributions as tables
from triton_regressors.kernels.ops.trees.launch import ContributionsTile, WalkTile, contributions_tile
from triton_regressors.kernels.ops.trees.leaf_patterns import Chunking, LeafPatterns
from triton_regressors.kernels.ops.trees.path_contributions import PathContributions
from triton_regressors.kernels.ops.trees.tree_contributions import TreeContributions

NAMES = [name for name, (op, _) in OPERATIONS.items() if isinstance(op, LeafPatterns | PathContributions)]
TILES = {
    "one row": (contributions_tile(1, 9), leaf_patterns.ASKED_ROWS),
    "many rows": (contributions_tile(65, 9), 0),
    "each part is asked": (contributions_tile(65, 9), leaf_patterns.ASKED_ROWS),
    "few entries": (ContributionsTile(32, 2, 1), 0),
    "two warps": (ContributionsTile(128, 4, 2), leaf_patterns.ASKED_ROWS),
}
"""Tiles, and the most rows that are asked the terms of each part."""


@pytest.mark.parametrize("name", NAMES)
def test_kernels_and_plain_torch_have_the_same_bits_near_the_reference(device: torch.device, name: str) -> None:
    op, widths = OPERATIONS[name]
    (x,) = inputs_for(widths, 19)
    x[1], x[2, 0], x[3:6, 1] = np.nan, np.nan, [np.inf, -np.inf, -1]
    x[6:12] = x[6:12].round()
    found = run_on_cpu(op, [x])
    assert run_kernel(op, [x], device, torch.float64).tobytes() == found.tobytes()
    assert np.array_equal(run_kernel(op, [x], device), found.astype(np.float32))
    size = 0.0 if isinstance(op, TreeContributions) else np.abs(op.values).sum()
    allowed = op.rounding_error() if isinstance(op, PathContributions) else 2.0**-46 * size
    assert np.abs(found - run_reference(op, [x])).max() <= allowed
    assert (isinstance(op, LeafPatterns) and not len(op.asked)) or not np.array_equal(found[0], found[1])


@pytest.mark.parametrize(("tile", "asked_rows"), TILES.values(), ids=list(TILES))
@pytest.mark.parametrize("name", ["tree contributions", "background contributions"])
def test_tiles_and_batches_do_not_change_a_bit(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, name: str, tile: ContributionsTile, asked_rows: int
) -> None:
    monkeypatch.setattr(leaf_patterns, "ASKED_ROWS", asked_rows)
    assert tile.together == 1 or TreeContributions.WHOLE % tile.block_entries == 0
    op, widths = OPERATIONS[name]
    (x,) = inputs_for(widths, 11)
    whole = run_on_cpu(op, [x])
    monkeypatch.setattr(leaf_patterns, "contributions_tile", lambda rows, entries: tile)
    assert run_kernel(op, [x], device, torch.float64).tobytes() == whole.tobytes()
    monkeypatch.setattr(integer_sum, "ADDED_THERE", integer_sum.ADDED_ACROSS)
    monkeypatch.setattr(leaf_patterns, "LARGEST_SCRATCH", 1)
    monkeypatch.setitem(leaf_patterns.CHUNKINGS, "fine_", Chunking(2, 448))
    chunks = op.parameters()["fine_first_chunk"]
    assert len(chunks) == op.output_width() + 1
    assert np.diff(chunks).max() > 2
    assert run_kernel(op, [x], device, torch.float64).tobytes() == whole.tobytes()
    monkeypatch.setattr(leaf_patterns, "FINE_ROWS", 0)
    assert run_kernel(op, [x], device, torch.float64).tobytes() == whole.tobytes()
    monkeypatch.setattr(tables, "NUMBERS", 1)
    assert run_on_cpu(dataclasses.replace(op), [x]).tobytes() == whole.tobytes()
    monkeypatch.setattr(tables, "LARGEST_PLACES", 1)
    assert run_on_cpu(dataclasses.replace(op), [x]).tobytes() == whole.tobytes()


def test_chunks_hold_all_entries_once_and_have_about_as_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(leaf_patterns.CHUNKINGS, "", Chunking(128, 224))
    monkeypatch.setattr(leaf_patterns, "MOST_CHUNKS", 8)
    op = tree_contributions(6, 5, [1, 2, 2, 3])
    output = np.repeat([0, 2, 3], [1000, 1, 3000])
    work = np.where(np.arange(len(output)) % 4000 < 2500, 1, 9)
    place, found = op.entry_places(output, work)
    assert place[[0, 999, 1000, 1001, 4000]].tolist() == [0, 999, 1000, 1004, 4003]
    assert found["first_entry"].tolist() == [0, 1000, 1000, 1004, 4004, 4004, 4004]
    assert found["first_chunk"].tolist() == [0, 8, 9, 10, 18, 19, 20]
    assert found["chunks"][[0, 8, 9, 10, 18, 19, -1]].tolist() == [0, 1000, 1000, 1004, 4004, 4004, 4004]
    assert (np.diff(found["chunks"]) >= 0).all()
    parts = np.add.reduceat(work, found["chunks"][10:18] - 3)
    assert parts.max() - parts.min() <= 2 * 9 * op.WHOLE
    assert (np.diff(found["fine_first_chunk"]) >= np.diff(found["first_chunk"])).all()
    monkeypatch.setitem(leaf_patterns.CHUNKINGS, "", Chunking(128, 4))
    assert op.entry_places(output, work)[1]["first_chunk"].tolist() == [0, 1, 2, 3, 6, 7, 8]


@pytest.mark.parametrize("name", leaf_patterns.CHUNKINGS)
def test_chunks_begin_at_whole_entries_and_some_entries_add_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(leaf_patterns.CHUNKINGS, name, Chunking(5, 224))
    op = tree_contributions(6, 5, [1, 2, 2, 3, 3, 4, 5], targets=2)
    found = op.parameters()
    chunks, factors = found[f"{name}chunks"], found["entry_factors"]
    assert (chunks % op.WHOLE == 0).all()
    assert found["first_entry"].tolist() == chunks[found[f"{name}first_chunk"]].tolist()
    assert len(factors) == chunks[-1] + tables.AHEAD
    own = np.flatnonzero(factors)
    assert sorted(factors[own]) == sorted(1 << op.shift.astype(np.int64))
    assert (chunks[-1] > own).all()
    starts = np.concatenate(
        [
            start + (np.arange((own.stop - own.start) * players * 2) << conditions)
            for (conditions, players, own), start in zip(op.groups, first_numbers(op), strict=True)
        ]
    )
    assert sorted(found["entry_starts"][own]) == starts.tolist()
    assert not found["entry_starts"][factors == 0].any()


def first_numbers(op: TreeContributions) -> list[int]:
    """Return where the numbers of each group of parts begin in the table."""
    sizes = [(own.stop - own.start) * players * len(op.base) << conditions for conditions, players, own in op.groups]
    return np.cumsum([0, *sizes])[:-1].tolist()


@pytest.mark.parametrize(
    ("tips", "fewest", "together", "bytes_of_tables"),
    [(1, 8, 8, 2**30), (5, 1, 4, 1), (256, 1, 8, 2**14), (256, 8, 4, 2**30)],
)
def test_walks_have_the_same_bits_however_they_are_divided(
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
    tips: int,
    fewest: int,
    together: int,
    bytes_of_tables: int,
) -> None:
    """Whether tips share chunks, have few leaves or many, need few points or many, and have them in parts.

    Nodes are asked in several windows.
    """
    monkeypatch.setattr(path_walks, "TIPS", tips)
    monkeypatch.setattr(path_walks, "FEWEST_TIPS", tips)
    monkeypatch.setattr(path_states, "WINDOW", 64)
    monkeypatch.setattr(path_walks, "LARGEST_TABLES", bytes_of_tables)
    monkeypatch.setattr(path_points, "LARGEST_ERROR", 0.0)
    monkeypatch.setattr(path_walks, "FEWEST_POINTS", fewest)
    monkeypatch.setattr(path_walks, "POINTS_TOGETHER", together)
    monkeypatch.setattr(cpu_path_walks, "PAIRS", 10)
    op = path_contributions(24, 23, 1, 10, outputs=2, stop=0.3, seed=1)
    op.check(24)
    assert len(op.describe().split(" and ")) == (2 if fewest == 1 else 1)
    (x,) = inputs_for([24], 6)
    x[0], x[1, :4] = np.nan, np.nan
    whole = run_on_cpu(op, [x])
    assert np.abs(whole - run_reference(op, [x])).max() <= op.rounding_error()
    monkeypatch.setattr(paths, "NUMBERS", 1)
    assert run_on_cpu(op, [x]).tobytes() == whole.tobytes()
    for tile in (WalkTile(1, 96), WalkTile(3, 96), WalkTile(2**11, 96)):
        monkeypatch.setattr(paths, "WALK_TILE", tile)
        assert run_kernel(op, [x], device, torch.float64).tobytes() == whole.tobytes()
    monkeypatch.setattr(paths, "LARGEST_STATES", 1)
    monkeypatch.setattr(paths, "LARGEST_STACKS", 1)
    assert run_kernel(op, [x[:3]], device, torch.float64).tobytes() == whole[:3].tobytes()


def test_trees_share_sums_that_would_be_too_large(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    op = path_contributions(6, 5, 20, 4, outputs=2, seed=2)
    shared = dataclasses.replace(op)
    (x,) = inputs_for([6], 4)
    whole = run_on_cpu(op, [x])
    monkeypatch.setattr(paths, "LARGEST_SUMS", 3 * 4 * 32 * op.output_width())
    found = run_on_cpu(shared, [x])
    assert (np.diff(shared.parameters()["first_chunk"]) == 3).all()
    assert shared.parameters()["unit"].min() > op.parameters()["unit"].min()
    assert np.abs(found - whole).max() <= shared.rounding_error()
    assert run_kernel(shared, [x], device, torch.float64).tobytes() == found.tobytes()


@pytest.mark.parametrize("players", [18, 25, 40])
def test_leaves_of_many_players_have_rules_in_parts(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, players: int
) -> None:
    """A chain: each node asks another player, its left child is a leaf, and the last leaf has all players."""
    monkeypatch.setattr(path_points, "LARGEST_ERROR", 0.0)
    rng, inner = np.random.default_rng(players), 2 * np.arange(players)
    feature = np.full(2 * players + 1, -1, np.int32)
    feature[inner] = np.arange(players)
    child = np.zeros(len(feature), np.int32)
    child[inner], child[feature < 0] = inner + 1, np.arange(players + 1)
    op = PathContributions(
        feature,
        rng.standard_normal(len(feature)).astype(np.float32),
        child,
        flags=np.zeros(len(feature), np.uint8),
        sets=np.zeros((0, 1), np.int32),
        roots=np.zeros(1, np.int32),
        player=np.maximum(feature, 0),
        share=rng.uniform(0, 1, len(feature)),
        values=rng.standard_normal((players + 1, 1)),
        base=np.zeros(1),
        columns=players,
        rounding="trunc",
    )
    op.check(players)
    x = (rng.standard_normal((5, players)) - 1.5).astype(np.float32)  # many rows go to the right, where the chain does
    found = run_on_cpu(op, [x])
    assert np.abs(found - run_reference(op, [x])).max() <= op.rounding_error()
    assert run_kernel(op, [x], device, torch.float64).tobytes() == found.tobytes()


OP = tree_contributions(6, 5, [1, 2, 2, 3])
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "terms": ({"lower": OP.lower[1:]}, "feature, lower, upper and flags must be [terms]."),
    "dtype": ({"lower": OP.lower.astype(np.float64)}, "lower and upper must both be float32 or float64."),
    "rounding": ({"rounding": "up"}, "rounding must be one of ('trunc', 'floor'), not 'up'."),
    "flags": ({"flags": OP.flags + np.uint8(4)}, "flags must be uint8 of at most 3."),
    "feature": ({"feature": OP.feature + 1}, "feature must be int32 in [0, 6)."),
    "sets": ({"sets": OP.sets.astype(float)}, "sets must be int32 [sets, words]."),
    "no set": ({"flags": OP.flags | np.uint8(2)}, "upper must be a row of sets where a term is categorical."),
    "parts": ({"asked": OP.asked[1:]}, "asked and players must have a row for each part, of at most 15 numbers."),
    "too many": ({"asked": np.tile(OP.asked, 6)}, "asked and players must have a row for each part, of at most 15"),
    "players": ({"players": OP.players + np.int32(1)}, "players must be int32 in [0, 5]."),
    "twice": ({"players": 0 * OP.players}, "the players of a part must differ."),
    "asked": ({"asked": OP.asked + np.int32(25)}, "asked must be fewer than 2**28 int32 in [-1, 25)."),
    "order": ({"asked": OP.asked[::-1]}, "parts must ascend in their number of conditions, and -1 stand past"),
    "others": ({"others": OP.others[:, 1:]}, "others must be int32 [others, 3]."),
    "no part": ({"others": OP.others + np.array([4, 0, 0], np.int32)}, "others must name parts and terms."),
    "no condition": ({"others": OP.others + np.array([0, 3, 0], np.int32)}, "others must name conditions of parts"),
    "table": ({"table": OP.table[1:]}, "table must be int32, a number for each target, player and pattern."),
    "shift": ({"shift": OP.shift + np.uint8(22)}, "shift must be uint8 of at most 22, one for each target and player."),
    "unit": ({"unit": OP.unit[1:]}, "unit must be float64 [outputs]."),
    "base": ({"base": OP.base[0]}, "base must be float64 [targets]."),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    changes, message = WRONG[case]
    with pytest.raises(PlanError) as raised:
        dataclasses.replace(OP, **changes).check(6)
    assert message in str(raised.value)
    assert str(raised.value).startswith("tree_contributions: ")


ROWS = background_contributions(6, 5, [1, 2, 2, 3])
WRONG_ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "values": ({"values": ROWS.values[1:]}, "values must be [leaves, targets]."),
    "infinite": ({"values": ROWS.values * np.inf}, "values must be finite float64."),
    "players": ({"players": ROWS.players[::-1]}, "a leaf must have a condition for each of its players."),
    "below": ({"unmet": ROWS.unmet - 8}, "unmet must be int64 [background patterns], not below 0."),
    "counts": ({"counts": ROWS.counts - ROWS.counts}, "counts must be int32 [background patterns], of 1 or more rows."),
    "from": ({"starts": ROWS.starts + 1}, "starts must be int64 [leaves + 1] from 0 on."),
    "starts": ({"starts": ROWS.starts // 2}, "starts must ascend to the number of background patterns."),
    "bits": ({"unmet": ROWS.unmet + 8}, "unmet must have bits for the players of its leaf alone."),
    "rows": ({"rows": 1}, "a leaf must have no more counts than background rows."),
}


@pytest.mark.parametrize("case", WRONG_ROWS)
def test_fields_of_background_rows_that_do_not_fit_are_named(case: str) -> None:
    changes, message = WRONG_ROWS[case]
    with pytest.raises(PlanError) as raised:
        dataclasses.replace(ROWS, **changes).check(6)
    assert str(raised.value) == f"background_contributions: {message}"


PATHS = path_contributions(6, 5, 2, 3)
WRONG_PATHS: dict[str, tuple[dict[str, Any], str]] = {
    "values": ({"values": PATHS.values[1:]}, "values must be [leaves, targets]."),
    "infinite": ({"values": PATHS.values * np.inf}, "values must be finite float64."),
    "base": ({"base": PATHS.base[0]}, "base must be float64 [targets]."),
    "rounding": ({"rounding": "up"}, "rounding must be one of ('trunc', 'floor'), not 'up'."),
    "no tree": (
        {"child": np.where(np.arange(len(PATHS.child)) == 3, PATHS.child[4], PATHS.child)},
        "a node must be a root or the child of one other node.",
    ),
    "player": ({"player": PATHS.player[1:]}, "player must be int32 [nodes]."),
    "players": ({"player": PATHS.player + np.int32(6)}, "player must lie in [0, 5]."),
    "share": ({"share": PATHS.share[1:]}, "share must be float64 [nodes]."),
    "shares": ({"share": PATHS.share + 1.0}, "share must lie in [0, 1]."),
}


@pytest.mark.parametrize("case", WRONG_PATHS)
def test_fields_of_paths_that_do_not_fit_are_named(case: str) -> None:
    changes, message = WRONG_PATHS[case]
    with pytest.raises(PlanError) as raised:
        dataclasses.replace(PATHS, **changes).check(6)
    assert str(raised.value) == f"path_contributions: {message}"
