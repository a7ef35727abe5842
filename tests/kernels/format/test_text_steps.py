"""Columns that an entry makes of a request's strings."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.format.inputs import UNKNOWN, Inputs, TextInput
from triton_regressors.kernels.format.records import from_json, to_json
from triton_regressors.kernels.format.text_steps import FEW, MadeColumn, MadeTexts, Texts, TextStep
from triton_regressors.kernels.serving.counting import ColumnCounts

STEPS = (
    TextStep("column", (), (0,)),
    TextStep("strip", (0,), (None,)),
    TextStep("casefold", (1,)),
    TextStep("column", (), (1,)),
    TextStep("append", (2,), ("/",)),
    TextStep("join", (4, 3)),
    TextStep("len", (5,)),
    TextStep("fill", (3,), ("?",)),
)
MADE = MadeTexts(
    STEPS,
    (
        MadeColumn(3, 2, ("bonn", "ulm"), closed=True),
        MadeColumn(4, 5, ("ulm/a",)),
        MadeColumn(5, 6),
        MadeColumn(6, 7, ("?", "a")),
    ),
    unread=(0,),
)
GROUP = TextInput("text", (0, 1), (("Bonn", " ULM"), ("a",)), (False, False), ("None",))
INPUTS = Inputs(7, (2,), (GROUP,), made=MADE)
NAN = np.nan


def encoded(*rows: tuple[bytes, bytes], most: float = np.inf) -> np.ndarray:
    text = np.array(rows, dtype=object).reshape(len(rows), 2)
    return INPUTS.encode({"X": np.full((len(rows), 1), 7.0, np.float32), "text": text}, most)


def test_columns_are_made_of_strings() -> None:
    found = encoded((b"Bonn", b"a"), ("\u00a0ulm\n".encode(), b"a"), (b" Rom ", b"b"), (b"", b"a"), (b"Bonn", b"None"))
    expected = [
        [0, 0, 7, 0, UNKNOWN, 6, 1],
        [UNKNOWN, 0, 7, 1, 0, 5, 1],
        [UNKNOWN, UNKNOWN, 7, UNKNOWN, UNKNOWN, 5, UNKNOWN],
        [NAN, 0, 7, NAN, NAN, NAN, 1],
        [0, NAN, 7, 0, NAN, NAN, 0],
    ]
    np.testing.assert_array_equal(found, expected)


def test_strings_that_no_step_may_read_make_infinity() -> None:
    found = encoded((b"\xff", b"a"), (b"Bonn", b"\xffb"), (b"x" * 9, b"a"), most=8)
    np.testing.assert_array_equal(np.isinf(found[:, 3:]), [[1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 0]])
    np.testing.assert_array_equal(found[:, 0], [UNKNOWN, 0, np.inf])


def test_a_row_is_the_same_in_every_batch() -> None:
    rng = np.random.default_rng(0)
    words = [b"Bonn", b" bonn", "Straße".encode(), b"", b"None", b"a", b"\xff"]
    for variety in (3, 10_000):
        rows = [
            (words[a] if a < 7 else b"%d" % a, words[b] if b < 7 else b"%d" % b)
            for a, b in rng.integers(0, 7 + variety, (3 * FEW, 2)).tolist()
        ]
        whole = encoded(*rows)
        for row in (0, 5, 3 * FEW - 1):
            np.testing.assert_array_equal(encoded(rows[row])[0], whole[row])
        assert encoded(*rows[5:300]).tobytes() == whole[5:300].tobytes()


@given(st.lists(st.sampled_from("abc") | st.text() | st.none(), max_size=40))
def test_rows_keep_their_values(values: list[str | None]) -> None:
    for repeated in (values, values * 30):
        found = Texts.of(repeated)
        assert [found.values[place] for place in found.rows] == repeated


def test_decoded_tensors_make_the_same_matrix() -> None:
    matrix = encoded((b"Bonn", b"a"), (b" ULM", b"a"), (b"", b""))
    np.testing.assert_array_equal(INPUTS.encode(INPUTS.decode(matrix)), matrix)


def test_the_users_columns_are_told_from_the_made_ones() -> None:
    assert INPUTS.n_given == 3
    assert INPUTS.columns() == {"X": (2,), "text": (0, 1)}
    assert INPUTS.closed == [3]
    assert INPUTS.coded == [0, 1, 3, 4, 5, 6]
    assert INPUTS.choosing == [1, 3, 4, 5, 6]
    assert [INPUTS.source(column) for column in range(7)] == [0, 1, 2, 0, 0, 0, 1]
    assert INPUTS.place(6) == ("text", 1)
    assert MADE.sources(MADE.columns[1]) == [0, 1]
    assert MADE.names(MADE.columns[1]) == ["strip", "casefold", "append", "join"]


def test_in_json() -> None:
    written = json.loads(json.dumps(to_json(INPUTS)))
    assert from_json(Inputs, written, names={"MadeTexts": MadeTexts, "IdColumns": object}) == INPUTS
    assert "made" not in to_json(Inputs.plain(3))


@pytest.mark.parametrize("name", ["eval", "__class__", "format", "join_all"])
def test_a_step_that_this_release_does_not_know_is_refused(name: str) -> None:
    made = MadeTexts((STEPS[0], TextStep(name, (0,))), (MadeColumn(3, 1),))
    with pytest.raises(PlanError, match=f"knows no step of strings '{name}'"):
        _ = made.functions


def test_unknown_categories_count_for_the_column_of_their_strings() -> None:
    counts = ColumnCounts(INPUTS, [0, 1], None)
    counts.count(encoded((b"Rom", b"b"), (b" bonn ", b"b"), (b"", b"a")), np.array([1, 10, 100]))
    # The column 3 is closed; 4 and the unread 0 have one user's column, and 1 and 6 another.
    assert counts.unknown.tolist() == [11, 11, 0]
    assert counts.nan.tolist() == [100, 0, 0]
