"""Frozen dataclasses as JSON and back: one object for each, whose keys are its fields.

A field that is named after a Python keyword ends in an underscore, which its key does not have. A field that is None
has no key. Keys without a field in the class are not read.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Return the JSON value of a record, of a tuple or mapping of them, or of a plain value."""
    if dataclasses.is_dataclass(value):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name.rstrip("_"): to_json(found) for name, found in fields if found is not None}
    if isinstance(value, Mapping):
        return {name: to_json(found) for name, found in value.items()}
    if isinstance(value, tuple):
        return [to_json(found) for found in value]
    return value


def from_json(kind: type[T], value: Any, where: str = "", names: Mapping[str, Any] | None = None) -> T:
    """Return the record of this class that a JSON object holds.

    Fields may be records, `str`, `int`, `float`, `bool`, `tuple[X, ...]`, `Mapping[str, X]`, `X | None` and `Any`.

    Args:
        kind: the class, a dataclass.
        value: what `json.loads` returned.
        where: the path to the object, for errors.
        names: the names in annotations that the class's module imports for type checkers only.

    Raises:
        ValueError: the object does not fit the class; the message has the path to the error.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'it'} must be an object")
    hints = get_type_hints(kind, localns=dict(names or {}))
    found = {}
    for name, hint in hints.items():
        key = name.rstrip("_")
        if key not in value and not _optional(hint):
            raise ValueError(f"{where or 'it'} lacks {key!r}")
        found[name] = _value(hint, value.get(key), f"{where}.{key}".lstrip("."), names)
    return kind(**found)


def _value(hint: Any, value: Any, where: str, names: Mapping[str, Any] | None) -> Any:
    """Return the value of an annotated field."""
    if dataclasses.is_dataclass(hint):
        return from_json(hint, value, where, names)  # type: ignore[arg-type]  # a class, which `is_dataclass` asks too
    origin, of = get_origin(hint), get_args(hint)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(of[0], found, f"{where}[{place}]", names) for place, found in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {name: _value(of[1], found, f"{where}[{name!r}]", names) for name, found in value.items()}
    if _optional(hint):
        return None if value is None else _value(of[0], value, where, names)
    if hint is Any:
        return value
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        expected = {tuple: "a list", Mapping: "an object"}.get(origin, getattr(hint, "__name__", str(hint)))
        raise ValueError(f"{where} must be {expected}")
    return value


def _optional(hint: Any) -> bool:
    """Return whether an annotation is `X | None`."""
    return get_origin(hint) in (Union, types.UnionType)
