"""UBJSON: what is read of each type, and what is refused."""

import struct

import numpy as np
import pytest

from triton_regressors.exporter.boosters.ubjson import parse_ubjson


def text(value: str) -> bytes:
    data = value.encode()
    return b"L" + struct.pack(">q", len(data)) + data


def test_numbers_texts_and_constants() -> None:
    document = b"{" + b"".join(
        [
            text("small") + b"i\xff",
            text("byte") + b"U\xff",
            text("short") + struct.pack(">ch", b"I", -300),
            text("whole") + struct.pack(">ci", b"l", -70_000),
            text("long") + struct.pack(">cq", b"L", 2**40),
            text("single") + struct.pack(">cf", b"d", 0.1),
            text("double") + struct.pack(">cd", b"D", 0.1),
            text("name") + b"S" + text("größe"),
            text("letter") + b"Cx",
            text("nothing") + b"Z",
            text("yes") + b"T",
            text("no") + b"F",
        ]
    )
    assert parse_ubjson(document + b"}") == {
        "small": -1,
        "byte": 255,
        "short": -300,
        "whole": -70_000,
        "long": 2**40,
        "single": float(np.float32(0.1)),
        "double": 0.1,
        "name": "größe",
        "letter": "x",
        "nothing": None,
        "yes": True,
        "no": False,
    }


@pytest.mark.parametrize(
    ("mark", "dtype"), [("i", "i1"), ("U", "u1"), ("I", "i2"), ("l", "i4"), ("d", "f4"), ("D", "f8")]
)
def test_an_array_of_one_type_is_a_numpy_array(mark: str, dtype: str) -> None:
    numbers = np.array([0, 1, 5, 100], dtype)
    data = b"[$" + mark.encode() + b"#L" + struct.pack(">q", 4) + numbers.astype(">" + dtype).tobytes()
    found = parse_ubjson(b"[" + data + data + b"]")
    assert [part.dtype.newbyteorder("=") for part in found] == [numbers.dtype, numbers.dtype]
    np.testing.assert_array_equal(found, [numbers, numbers])


def test_containers_with_and_without_a_count() -> None:
    assert parse_ubjson(b"[#i\x02T[]") == [True, []]
    assert parse_ubjson(b"[TF]") == [True, False]
    assert parse_ubjson(b"{#i\x01i\x01aT") == {"a": True}
    assert parse_ubjson(b"{}") == {}


@pytest.mark.parametrize(
    "data",
    [b"", b"[", b"{L", b"?", b"[$d#L" + struct.pack(">q", 9), b"[$d#i\xff", b"[$d", b"Si\xff", b"[#?", b"[" * 100_000],
)
def test_what_is_no_ubjson_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="it is not UBJSON"):
        parse_ubjson(data)


@pytest.mark.parametrize("mark", "ZTF")
@pytest.mark.parametrize("count", [1, 2 * 10**9, 5 * 10**11])
def test_an_array_of_constants_without_bytes_is_refused_before_it_is_built(mark: str, count: int) -> None:
    """A file of 12 bytes could claim an array of any length."""
    with pytest.raises(ValueError, match="it holds an array of constants without bytes, which XGBoost does not"):
        parse_ubjson(b"[$" + mark.encode() + b"#L" + struct.pack(">q", count))


@pytest.mark.parametrize("kind", [b"", b"$[", b"${", b"$C", b"$S", b"$i", b"$D"])
@pytest.mark.parametrize("container", [b"[", b"{"])
def test_a_count_beyond_the_data_ends_where_the_data_do(container: bytes, kind: bytes) -> None:
    with pytest.raises(ValueError, match="it is not UBJSON"):
        parse_ubjson(container + kind + b"#L" + struct.pack(">q", 5 * 10**11) + b"i\x01ai\x01" * 9)
