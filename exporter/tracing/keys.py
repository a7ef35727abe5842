"""The keys of dictionaries and sets that a function's code may look a cell up in.

A look-up asks a cell for its hash, and knows nothing of the dictionary. The cell is therefore compared with every key
that the function can reach: in its literals, its globals, what it encloses, and the attributes of its object.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from triton_regressors.exporter.tracing.refusal import is_own

DISPLAYS = frozenset({"BUILD_MAP", "BUILD_SET", "MAP_ADD", "SET_ADD"})
"""Instructions of Python that make dictionaries and sets of single constants."""


def keys_of(function: Any) -> list[Any]:
    """Return the numbers and strings among the keys that a function can reach, each once."""
    return list(dict.fromkeys(_reached(function, set())))


def _reached(value: Any, seen: set[int]) -> Iterator[Any]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Mapping | set | frozenset):
        for key in value:
            yield from _parts(key)
    elif isinstance(value, functools.partial):
        for each in (value.func, *value.args, *value.keywords.values()):
            yield from _reached(each, seen)
    elif isinstance(value, types.MethodType):
        for each in (value.__func__, *vars(value.__self__).values()):
            yield from _reached(each, seen)
        for name in value.__func__.__code__.co_names:
            yield from _reached(getattr(type(value.__self__), name, None), seen)
    elif isinstance(value, types.FunctionType) and is_own(value.__code__.co_filename):
        yield from _of_code(value.__code__, value.__globals__, seen)
        for cell in value.__closure__ or ():
            yield from _reached(cell.cell_contents, seen)


def _of_code(code: types.CodeType, names: Mapping[str, Any], seen: set[int]) -> Iterator[Any]:
    displays = any(instruction.opname in DISPLAYS for instruction in dis.get_instructions(code))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _of_code(constant, names, seen)
        elif displays or isinstance(constant, tuple | frozenset):
            yield from _parts(constant)
    for name in code.co_names:
        yield from _reached(names.get(name), seen)


def _parts(key: Any) -> Iterator[Any]:
    if isinstance(key, tuple | frozenset):
        for part in key:
            yield from _parts(part)
    elif isinstance(key, str | int | float | np.number):
        yield key
