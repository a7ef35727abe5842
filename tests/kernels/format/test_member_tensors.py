"""Rows of a fleet and the ids of their models in one tensor, bit for bit."""

from collections.abc import Callable

import numpy as np
import pytest

from triton_regressors.kernels.format.member_tensors import MOST_ID_BYTES, JoinedIds

WHOLE = [0, -1, -(2**63), 2**63 - 1, 0x7FA00001_FF800001 - 2**62, 0x7FF00000_00000001, 0x7FC00000_7F800000, -(2**52)]
"""Ids among which are the bits of float32's and float64's infinities, quiet and signalling NaN."""

TEXTS = ["", "a", "Zürich", "a\0b", "\0", "0123456789abcdef"]
TYPES = pytest.mark.parametrize("numbers", ["FP32", "FP64"])


def rows(numbers: str, count: int, layout: Callable[[np.ndarray], np.ndarray] = np.asfortranarray) -> np.ndarray:
    """Return three columns of all kinds of bits, which need not lie row by row."""
    bits = np.random.default_rng(0).integers(0, 2**31, (count, 3, 1 + (numbers == "FP64")), dtype=np.int32)
    bits[0, 0] = 0x7FA00001  # a signalling NaN
    return layout(bits.view(np.float64 if numbers == "FP64" else np.float32)[..., 0])


@TYPES
def test_whole_numbers_and_rows_keep_their_bits(numbers: str) -> None:
    joined = JoinedIds("shop", 3, numbers, "INT64")
    assert joined.name == f"X_shop_{numbers}x3_INT64"
    ids = np.array(WHOLE, dtype=np.int64)[:, None]
    for count in (1, len(ids)):
        X, width = rows(numbers, count), joined.width(tuple(WHOLE))
        both = joined.join(X, ids[:count], width)
        assert both is not None
        assert both.shape == (count, 3 * X.itemsize // 4 + 2)
        found = joined.apart(np.frombuffer(both.tobytes(), dtype=np.int32).reshape(both.shape))
        assert found["X"].tobytes() == X.tobytes()
        assert found["shop"].tolist() == ids[:count].tolist()
    assert [joined.takes(width + more) for more in (-2, -1, 0, 1)] == [False, False, True, False]


@TYPES
def test_strings_are_those_that_were_sent_or_are_not_joined(numbers: str) -> None:
    joined = JoinedIds("shop", 3, numbers, "BYTES")
    width = joined.width(("a", "0123456789abc"))  # of 13 bytes, in a multiple of 8
    assert [joined.takes(each) for each in (joined.id_at, width)] == [False, True]
    for text in TEXTS:
        X, ids = rows(numbers, 2), np.array([[b"a"], [text.encode()]], dtype=object)
        both = joined.join(X, ids, width)
        assert (both is None) == text.endswith("\0")  # it would be read as the string without this byte
        if both is not None:
            found = joined.apart(both)
            assert found["X"].tobytes() == X.tobytes()
            assert found["shop"].tolist() == ids.tolist()
    assert joined.join(X, np.array([[b"a"], [b"0123456789abcdefg"]], dtype=object), width) is None


def test_other_shapes_are_not_joined() -> None:
    joined, ids = JoinedIds("shop", 3, "FP32", "INT64"), np.zeros((2, 1), np.int64)
    assert joined.join(rows("FP32", 2)[:, :2], ids, 5) is None
    assert joined.join(rows("FP32", 2), np.hstack([ids, ids]), 5) is None


@pytest.mark.parametrize(("longest", "size"), [(0, 8), (8, 8), (9, 16), (MOST_ID_BYTES, 64), (1000, 64)])
def test_one_long_id_does_not_make_all_requests_long(longest: int, size: int) -> None:
    assert JoinedIds("shop", 3, "FP32", "BYTES").width(("x" * longest, "")) == 3 + size // 4
