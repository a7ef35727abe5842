"""Counts of rows, against counting them one by one."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from triton_regressors.kernels.format.inputs import UNKNOWN, Inputs, IntegerInput, TextInput
from triton_regressors.kernels.format.row_profile import AnswerProfile, RowProfile
from triton_regressors.kernels.serving.counting import AnswerCounts, ColumnCounts, Ring, pieces

TEXT = TextInput("shop", (2, 3), (("a", "b"), ("a", "b")), (False, True))
INPUTS = Inputs(6, (0, 1, 4), (TEXT,), "float32", IntegerInput((5,), ((7, 9),), (False,)), categorical=(4,))


def ones(rows: np.ndarray) -> np.ndarray:
    return np.ones(len(rows), np.int64)


def some_rows(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, 6))
    X[:, [2, 3, 5]] = rng.integers(0, 2, (count, 3))
    X[:, 4] = rng.choice([0.5, 2.0, 7.0], count)
    return X


def test_columns_are_counted_as_one_by_one() -> None:
    profile = RowProfile.of(some_rows(200, 0), {}, {4: np.array([7.0, 0.5, np.nan, 2.0])}, INPUTS.coded)
    X = some_rows(5000, 1) * [1.5, 1, 1, 1, 1, 1]
    rng = np.random.default_rng(2)
    X[rng.random(len(X)) < 0.3, 0] = np.nan
    X[::9, 4], X[::7, 4] = 3.0, np.nan
    X[::3, 2] = X[::4, 5] = UNKNOWN
    counts = ColumnCounts(INPUTS, (0, 2, 4), profile)
    for piece in pieces(X):
        counts.count(piece, ones(piece))
    assert (counts.rows, counts.squares) == (5000, 5000)
    for column in range(6):
        numbers = X[:, column].tolist()
        low, high = profile.low[column], profile.high[column]
        assert counts.nan[column] == sum(number != number for number in numbers)
        assert counts.below[column] == sum(number < low for number in numbers)
        assert counts.above[column] == sum(number > high for number in numbers)
        known = {4: {0.5, 2.0, 7.0}, 2: {0, 1}, 5: {0, 1}}.get(column)
        strange = sum(number == number and number not in known for number in numbers) if known else 0
        assert counts.unknown[column] == strange
    assert counts.below[0] > 0
    assert counts.above[0] > 0
    assert [counts.unknown[column] > 0 for column in (2, 4, 5)] == [True] * 3
    places = {name: places for name, _, places in counts.by_name()}
    assert places == {
        "nan_total": [0, 2, 4],
        "below_range_total": [0, 1],
        "above_range_total": [0, 1],
        "unknown_category_total": [2, 4, 5],
    }


def test_a_row_of_a_weight_counts_as_often_as_the_row_repeated() -> None:
    profile = RowProfile.of(some_rows(200, 0), {}, {4: np.array([0.5, 2.0])}, INPUTS.coded)
    X, weights = some_rows(300, 1) * [2.0, 1, 1, 1, 1, 1], np.random.default_rng(2).integers(1, 200, 300)
    X[::5, 0] = np.nan
    X[::3, 2] = X[::4, 5] = UNKNOWN
    weighted, repeated = (ColumnCounts(INPUTS, (0, 2, 4), profile) for _ in range(2))
    weighted.count(X, weights)
    whole = np.repeat(X, weights, axis=0)
    repeated.count(whole, ones(whole))
    for name in ("nan", "below", "above", "unknown"):
        assert getattr(weighted, name).tolist() == getattr(repeated, name).tolist()
        assert getattr(weighted, name).dtype == np.int64
    assert weighted.rows == repeated.rows == weights.sum()
    assert weighted.squares == (weights**2).sum()
    y = np.append(np.random.default_rng(3).standard_normal(299), np.nan)
    answers = AnswerProfile.of(y)
    assert answers is not None
    assert answers.rows == 299
    of_weights, of_copies = AnswerCounts(answers), AnswerCounts(answers)
    of_weights.count(y[:, None], weights)
    copies = np.repeat(y, weights)[:, None]
    of_copies.count(copies, ones(copies))
    assert of_weights.bins.tolist() == of_copies.bins.tolist()
    assert of_weights.squares == (weights[:-1] ** 2).sum()


def test_without_a_profile_what_needs_none_is_counted() -> None:
    counts = ColumnCounts(INPUTS, (0,), None)
    X = np.full((10, 6), 1e9)
    X[:4, 0], X[:3, 2] = np.nan, UNKNOWN
    counts.count(X, ones(X))
    assert (counts.nan.sum(), counts.unknown.sum(), counts.below.sum(), counts.above.sum()) == (4, 3, 0, 0)


@pytest.mark.parametrize(
    ("answers", "bins"),
    [
        (np.random.default_rng(0).standard_normal(5000), 10),
        (np.random.default_rng(1).poisson(0.4, 1000).astype(float), 3),  # the lower deciles are all 0
        (np.repeat([1.0, 2.0], [50, 950]), 1),  # a decile ends with a bin of its own
        (np.full(9, 3.25), 1),
        (np.array([1.0, 2.0, 3.0, np.nan]), 3),
    ],
    ids=["normal", "counts", "two", "one", "few"],
)
def test_bins_hold_the_shares_of_the_profile(answers: np.ndarray, bins: int) -> None:
    profile = AnswerProfile.of(answers)
    assert profile is not None
    assert len(profile.shares) == len(profile.edges) + 1 == bins
    assert (profile.shares > 0).all()
    counts = AnswerCounts(profile)
    near = np.nextafter(answers.astype(np.float32), np.float32(np.inf))  # another processor's last place
    for given in (answers.astype(np.float32), near):
        before = counts.bins.copy()
        counts.count(given[:, None], ones(given))
        assert (counts.bins - before).tolist() == (profile.shares * np.isfinite(answers).sum()).round().tolist()


def test_answers_that_are_not_finite_have_no_profile() -> None:
    assert AnswerProfile.of(np.array([np.nan, np.inf])) is None


def test_a_full_ring_takes_what_it_has_room_for() -> None:
    ring, taken, stood_for = Ring(2**18, np.dtype(np.float32)), list[float](), list[int]()
    rows = np.broadcast_to(np.arange(100, dtype=np.float32)[:, None], (100, 2**18))

    def take(piece: np.ndarray, weights: np.ndarray) -> None:
        taken.extend(piece[:, 0].tolist())
        stood_for.extend(weights.tolist())

    assert ring.lay(rows[:60]) == 60
    assert ring.take(take) == 0  # nothing is kept yet
    ring.keep(60)
    assert ring.lay(rows[60:]) == 4
    ring.keep(4)
    assert ring.lay(rows) == 0
    assert ring.take(take) == 64
    for start in range(0, 90, 30):  # across the end
        assert ring.lay(rows[start : start + 30], 2 + start) == 30
        ring.keep(30)
        ring.take(take)
    assert taken == [*range(64), *range(90)]
    assert stood_for == [1] * 64 + [2] * 30 + [32] * 30 + [62] * 30


def test_a_ring_hands_rows_from_thread_to_thread() -> None:
    ring, seen, done = Ring(3, np.dtype(np.float64)), list[np.ndarray](), threading.Event()

    def read() -> None:
        while not done.is_set() or ring.take(lambda piece, _: seen.append(piece.copy())):
            ring.take(lambda piece, _: seen.append(piece.copy()))

    reader = threading.Thread(target=read)
    reader.start()
    sent = 0
    rng = np.random.default_rng(0)
    while sent < 50_000:
        count = int(rng.integers(1, 400))
        numbers = np.arange(sent, sent + count, dtype=np.float64)
        laid = ring.lay(np.stack([numbers] * 3, axis=1))
        ring.keep(laid)
        sent += laid
    done.set()
    reader.join(60)
    assert (np.concatenate(seen) == np.arange(sent)[:, None]).all()


def test_columns_that_are_no_inputs_have_no_counters() -> None:
    inputs = Inputs(3, (0, 2))
    matrix = inputs.encode({"X": np.arange(10, dtype=np.float32).reshape(5, 2)})
    counts = ColumnCounts(inputs, (0,), RowProfile.of(matrix, {}, {}, []))
    assert [places for _, _, places in counts.by_name()] == [[0], [0, 2], [0, 2], []]
    assert not inputs.plain_matrix
