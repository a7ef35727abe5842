"""Input tensors of strings, numbers and dates, and the matrix that a plan reads."""

import json
from typing import Any

import numpy as np

from triton_regressors.kernels.engine.input_check import Allowed
from triton_regressors.kernels.format.id_columns import IdColumns, id_text
from triton_regressors.kernels.format.inputs import (
    NAT,
    UNKNOWN,
    DateColumn,
    Inputs,
    IntegerInput,
    TextInput,
    microseconds,
    nanoseconds,
)
from triton_regressors.kernels.format.records import from_json, to_json

NAMES = {"MadeTexts": Any, "IdColumns": IdColumns}
CITY = TextInput("cat", (0, 3), (("Paris", "Zürich"), ("", "cook", "unknown")), (True, False))
MIXED = Inputs(5, (1, 4), (CITY,))


def strings(*rows: tuple[str, str]) -> np.ndarray:
    return np.array([[text.encode() for text in row] for row in rows], dtype=object)


def test_strings_become_their_numbers() -> None:
    X = np.array([[1.5, 2.5], [3.5, 4.5], [5.5, 6.5]], dtype=np.float32)
    matrix = MIXED.encode({"X": X, "cat": strings(("Zürich", "cook"), ("Rome", ""), ("", "judge"))})
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(
        matrix, [[1, 1.5, 0, 1, 2.5], [UNKNOWN, 3.5, 0, 0, 4.5], [np.nan, 5.5, 0, UNKNOWN, 6.5]]
    )


def test_spellings_of_a_missing_value_are_missing_where_they_are_no_category() -> None:
    group = TextInput("cat", (0, 1), (("None", "Paris"), ("",)), (True, False), ("None", "nan"))
    found = group.encode(strings(("None", "None"), ("nan", "nan"), ("", ""), ("NONE", "na")))
    np.testing.assert_array_equal(found, [[0, np.nan], [np.nan, np.nan], [np.nan, 0], [UNKNOWN, UNKNOWN]])


def test_strings_that_are_too_long_are_no_number_that_is_allowed() -> None:
    sent = strings(("Paris", "Zürich"), ("Lyon", "x" * 6), ("London", "x" * 5))
    np.testing.assert_array_equal(
        CITY.encode(sent, max_bytes=5), [[0, np.inf], [UNKNOWN, np.inf], [np.inf, UNKNOWN]]
    )  # "Zürich" is no category of the second column, and has 7 bytes; those of the first are never too long
    np.testing.assert_array_equal(CITY.encode(strings(("Zürich", "cook")), max_bytes=1), [[1, 1]])
    rows = MIXED.encode({"X": np.zeros((3, 2), np.float32), "cat": sent}, 5)
    allowed = Allowed(5, (0, 3))
    assert not allowed.holds(rows.reshape(-1))
    assert allowed.first_wrong(rows) == (0, 3)


def test_decoded_tensors_make_the_same_matrix() -> None:
    matrix = np.array(
        [[1, 1.5, 0, 0, 2.5], [UNKNOWN, 3.5, 0, UNKNOWN, 4.5], [np.nan, 5.5, 0, 2, 6.5]], dtype=np.float32
    )
    tensors = MIXED.decode(matrix)
    assert {name: values.shape for name, values in tensors.items()} == {"X": (3, 2), "cat": (3, 2)}
    assert tensors["cat"].tolist() == strings(("Zürich", ""), ("unknown", "unknown?"), ("", "unknown")).tolist()
    np.testing.assert_array_equal(MIXED.encode(tensors), matrix)


def test_a_model_of_strings_alone_has_no_tensor_of_numbers() -> None:
    inputs = Inputs(4, (), (CITY,))
    assert inputs.columns() == {"cat": (0, 3)}
    np.testing.assert_array_equal(inputs.encode({"cat": strings(("Paris", "cook"))}), [[0, 0, 0, 1]])


def test_places() -> None:
    assert MIXED.columns() == {"X": (1, 4), "cat": (0, 3)}
    assert [MIXED.place(column) for column in (0, 1, 3, 4)] == [("cat", 0), ("X", 0), ("cat", 1), ("X", 1)]
    assert MIXED.closed == [0]


def test_unknown_strings_are_refused_in_closed_columns_alone() -> None:
    allowed = Allowed(5, (3,), MIXED.closed)
    rows = np.zeros((3, 5), dtype=np.float32)
    rows[1, 3] = UNKNOWN
    rows[2, 3] = np.nan
    rows[0, 4] = UNKNOWN  # an ordinary number for the input
    assert allowed.holds(rows.reshape(-1))
    assert allowed.first_wrong(rows) is None
    rows[2, 0] = UNKNOWN
    assert not allowed.holds(rows.reshape(-1))
    assert allowed.first_wrong(rows) == (2, 0)


DATED = Inputs(
    3, (1,), integers=IntegerInput((0, 2), ((), ()), (False, False), (DateColumn("us", "Europe/Berlin"), None))
)
EARLIEST, LATEST = -(2**63) + 1, 2**63 - 1


def test_dates_become_microseconds_rounded_down() -> None:
    times = np.array([0, 999, 1000, -1, -1000, -1001, NAT, EARLIEST, LATEST])
    found = DATED.encode({"X": np.zeros((9, 1), np.float32), "integers": np.stack([times, times], axis=1)})
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found[:, 0], [0, 0, 1, -1, -1, -2, np.nan, EARLIEST // 2000 * 2, LATEST // 2000 * 2])
    np.testing.assert_array_equal(found[:, 2], times.astype(np.float64))  # an ordinary number
    assert list(DATED.dates) == [0]
    assert (DATED.coded, DATED.closed) == ([], [])


def test_dates_beyond_the_precision_of_float64_are_never_rounded_up() -> None:
    times = np.append(np.random.default_rng(0).integers(EARLIEST, LATEST, 10_000), [EARLIEST, LATEST])
    whole = microseconds(times)
    exact = [time // 1000 for time in times.tolist()]
    assert all(number in (time, time - 1) for number, time in zip(whole.tolist(), exact, strict=True))
    near = [number == time for number, time in zip(whole.tolist(), exact, strict=True) if abs(time) <= 2**53]
    assert len(near) > 9000
    assert all(near)


def test_decoded_dates_make_the_same_matrix() -> None:
    times = np.append(np.random.default_rng(0).integers(EARLIEST, LATEST, 1000), [NAT, EARLIEST, LATEST, -1])
    numbers = microseconds(times)
    np.testing.assert_array_equal(microseconds(nanoseconds(numbers)), numbers)
    matrix = np.column_stack([numbers[-4:], np.arange(4.0), np.arange(4.0)])
    np.testing.assert_array_equal(DATED.encode(DATED.decode(matrix)), matrix)


def test_dates_in_json() -> None:
    assert from_json(Inputs, json.loads(json.dumps(to_json(DATED))), names=NAMES) == DATED
    plain = IntegerInput((0,), ((),), (False,))
    assert "dates" not in to_json(plain)  # as entries without dates have it
    assert from_json(IntegerInput, to_json(plain)) == plain


IDS = Inputs(
    5,
    (1,),
    (TextInput("town", (3,), (("Bonn", "Ulm"),), (True,)),),
    integers=IntegerInput((0, 2), ((2**60, 2**60 + 1), ()), (False, False), (None, DateColumn("us"))),
    numbered="shop_number",
    whole_ids=IntegerInput((4,), ((7, -(2**62) - 1, 8),), (True,), name="shop"),
)


def test_ids_that_are_whole_numbers_have_a_tensor_beside_integers() -> None:
    assert IDS.datatypes() == {"X": "FP32", "integers": "INT64", "shop": "INT64", "town": "BYTES"}
    assert IDS.columns() == {"X": (1,), "integers": (0, 2), "shop": (4,), "town": (3,)}
    assert (IDS.ids, IDS.models) == (("shop",), (7, -(2**62) - 1, 8))
    assert (IDS.closed, IDS.coded, list(IDS.dates)) == ([4, 3], [0, 4, 3], [2])
    assert [IDS.place(column) for column in (0, 2, 4)] == [("integers", 0), ("integers", 1), ("shop", 0)]
    tensors = {
        "X": np.arange(4, dtype=np.float32)[:, None],
        "integers": np.array([[2**60 + 1, 1000], [2**60, NAT], [2**60 + 2, -1000], [7, 0]]),
        "town": np.array([[b"Ulm"], [b"Bonn"], [b"Rom"], [b"Ulm"]], dtype=object),
    }
    shops = np.array([[8], [-(2**62) - 1], [-(2**62)], [2**60]])
    found = IDS.encode({**tensors, "shop": shops})
    expected = [[1, 0, 1, 1, 2], [0, 1, np.nan, 0, 1], [UNKNOWN, 2, -1, UNKNOWN, UNKNOWN], [UNKNOWN, 3, 0, 1, UNKNOWN]]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(IDS.encode(IDS.decode(found)), found)
    numbers = IDS.encode({**tensors, "shop_number": np.array([[2], [1], [3], [-1]], dtype=np.int32)})
    np.testing.assert_array_equal(numbers, expected)
    assert np.isnan(IDS.encode(tensors)[:, 4]).all()


def test_ids_in_json() -> None:
    assert from_json(Inputs, json.loads(json.dumps(to_json(IDS))), names=NAMES) == IDS
    assert "whole_ids" not in to_json(DATED)  # as entries of one model have it


KNOWN = (("north", 7), ("south", 7), ("north", 8), ("north",), ("é,", -(2**63)))
SEVERAL = Inputs(
    2,
    (0,),
    numbered="region_shop_number",
    id_columns=IdColumns(("region", "shop"), (False, True), (1,), (KNOWN,), (True,)),
)


def test_ids_in_several_columns_have_a_tensor_for_each() -> None:
    """Rows of unknown ids that begin as a shorter one have its number; long and missing strings are refused anyway."""
    assert SEVERAL.datatypes() == {"X": "FP32", "region": "BYTES", "shop": "INT64"}
    assert SEVERAL.columns() == {"X": (0,), "region": (1,), "shop": (1,)}
    assert (SEVERAL.ids, SEVERAL.models) == (("region", "shop"), KNOWN)
    assert (SEVERAL.closed, SEVERAL.coded, SEVERAL.groups) == ([1], [1], (SEVERAL.id_columns,))
    assert from_json(Inputs, json.loads(json.dumps(to_json(SEVERAL))), names=NAMES) == SEVERAL
    asked = [("south", 7), ("north", 9), ("é,", -(2**63)), ("south", 8), ("n" * 99, 7), ("north", 7), ("", 7)]
    X = np.arange(7, dtype=np.float32)[:, None]
    tensors = {
        "X": X,
        "region": np.array([[region.encode()] for region, _ in asked], dtype=object),
        "shop": np.array([[shop] for _, shop in asked]),
    }
    expected = [1, 3, 4, UNKNOWN, UNKNOWN, 0, np.nan]
    np.testing.assert_array_equal(SEVERAL.encode(tensors), np.hstack([X, np.array(expected)[:, None]]))
    np.testing.assert_array_equal(SEVERAL.encode(tensors, 98)[:, 1], [1, 3, 4, UNKNOWN, np.nan, 0, np.nan])
    matrix = np.column_stack([np.arange(5), np.arange(5)]).astype(np.float32)
    np.testing.assert_array_equal(SEVERAL.encode(SEVERAL.decode(matrix)), matrix)
    numbers = {"X": X, "region_shop_number": np.array([[4], [5], [-1], [0], [1], [2], [3]], dtype=np.int32)}
    assert SEVERAL.encode(numbers)[:, 1].tolist() == [4, UNKNOWN, UNKNOWN, 0, 1, 2, 3]
    assert np.isnan(SEVERAL.encode({"X": X})[:, 1]).all()


def test_ids_as_texts() -> None:
    assert [id_text(each) for each in ("a,b", 7, ("a,b", 7), ('a"b', "c"), ("a",), ())] == [
        "a,b",
        "7",
        '"a,b",7',
        '"a""b",c',
        "a",
        "()",
    ]


def test_ids_alone_need_no_float64() -> None:
    alone = Inputs(3, (0, 1), numbered="n", whole_ids=IntegerInput((2,), ((2**60,),), (True,), name="shop"))
    found = alone.encode({"X": np.ones((1, 2), np.float32), "shop": np.array([[2**60]])})
    assert (found.dtype, found.tolist(), alone.plain_matrix) == (np.float32, [[1, 1, 0]], False)


def test_missing_dates_are_refused_where_the_model_takes_none() -> None:
    rows = DATED.encode({"X": np.zeros((2, 1), np.float32), "integers": np.array([[0, 1], [NAT, 1]])})
    assert Allowed(3, (), DATED.closed).first_wrong(rows) == (1, 0)
    assert Allowed(3, (0,), DATED.closed).first_wrong(rows) is None
