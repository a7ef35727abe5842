"""CityHash64, version 1, by Geoff Pike and Jyrki Alakuijala: the hash by which CatBoost identifies strings."""

from __future__ import annotations

import struct

_WORD = 2**64 - 1
_K0, _K1 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273
_K2, _K3 = 0x9AE16A3B2F90404F, 0xC949D7C7509E6557
_MULTIPLIER = 0x9DDFEA08EB382D69

_Pair = tuple[int, int]


def city_hash_64(text: bytes) -> int:
    """Return the hash of a string, 0 to 2⁶⁴ − 1."""
    size = len(text)
    if size > 64:
        return _of_many(text)
    if size > 32:
        return _of_33_to_64(text)
    if size > 16:
        a, b, c, d = _at(text, 0) * _K1, _at(text, 8), _at(text, size - 8) * _K2, _at(text, size - 16) * _K0
        return _of_two(_turn(a - b, 43) + _turn(c, 30) + d, a + _turn(b ^ _K3, 20) - c + size)
    if size > 8:
        a, b = _at(text, 0), _at(text, size - 8)
        return _of_two(a, _turn(b + size, size)) ^ b
    if size >= 4:
        first, last = struct.unpack_from("<I", text, 0)[0], struct.unpack_from("<I", text, size - 4)[0]
        return _of_two(size + (first << 3), last)
    if size:
        y, z = text[0] + (text[size >> 1] << 8), size + (text[-1] << 2)
        return _fold((y * _K2 ^ z * _K3) & _WORD) * _K2 & _WORD
    return _K2


def _of_33_to_64(text: bytes) -> int:
    size = len(text)
    tail = _at(text, size - 16)
    low, high = _halves(_at(text, 0) + (size + tail) * _K0, _at(text, 8), _at(text, 16), _at(text, 24))
    low_of_end, high_of_end = _halves(
        _at(text, 16) + _at(text, size - 32), _at(text, size - 24), tail, _at(text, size - 8)
    )
    mixed = _fold(((low + high_of_end) * _K2 + (low_of_end + high) * _K0) & _WORD)
    return _fold((mixed * _K0 + high) & _WORD) * _K2 & _WORD


def _halves(a: int, second: int, third: int, last: int) -> _Pair:
    """Return two sums over 32 bytes; `a` holds the first 8."""
    turned = _turn(a + last, 52) + _turn(a, 37) + _turn(a + second, 7)
    a += second + third
    return a + last & _WORD, turned + _turn(a, 31) & _WORD


def _of_many(text: bytes) -> int:
    """Return the hash of more than 64 bytes: the end first, then 64 at a time."""
    size = len(text)
    x, y, z = _at(text, 0), _at(text, size - 16) ^ _K1, _at(text, size - 56) ^ _K0
    v = _weak(text, size - 64, size, y)
    w = _weak(text, size - 32, size * _K1, _K0)
    z += _fold(v[1]) * _K1
    x, y = _turn(z + x, 39) * _K1, _turn(y, 33) * _K1
    for start in range(0, (size - 1) & ~63, 64):
        x = _turn(x + y + v[0] + _at(text, start + 16), 37) * _K1 & _WORD ^ w[1]
        y = _turn(y + v[1] + _at(text, start + 48), 42) * _K1 & _WORD ^ v[0]
        z = _turn(z ^ w[0], 33)
        v = _weak(text, start, v[1] * _K1, x + w[0])
        w = _weak(text, start + 32, z + w[1], y)
        x, z = z, x
    return _of_two(_of_two(v[0], w[0]) + _fold(y & _WORD) * _K1 + z, _of_two(v[1], w[1]) + x)


def _weak(text: bytes, start: int, a: int, b: int) -> _Pair:
    """Return two sums over 32 bytes and two seeds."""
    first, second, third, last = struct.unpack_from("<4Q", text, start)
    a += first
    b = _turn(b + a + last, 21)
    inner = a + second + third
    return inner + last & _WORD, b + _turn(inner, 44) + a & _WORD


def _of_two(low: int, high: int) -> int:
    """Return the hash of 16 bytes, the lowest 64 bits of two numbers."""
    low, high = low & _WORD, high & _WORD
    a = _fold((low ^ high) * _MULTIPLIER & _WORD)
    return _fold((high ^ a) * _MULTIPLIER & _WORD) * _MULTIPLIER & _WORD


def _at(text: bytes, start: int) -> int:
    number: int = struct.unpack_from("<Q", text, start)[0]
    return number


def _turn(number: int, bits: int) -> int:
    """Return the lowest 64 bits of a number rotated right."""
    number &= _WORD
    return (number >> bits | number << (64 - bits)) & _WORD


def _fold(number: int) -> int:
    return number ^ number >> 47
