"""What is replaced while a function is traced, and put back afterwards.

Methods of pandas' tables are replaced on their classes: they behave as before on tables without cells. Functions that
make arrays, such as numpy.asarray, are replaced in the modules of the user's own code alone, because compiled code
calls them too.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from triton_regressors.exporter.tracing.refusal import is_own

_ABSENT = object()


class Patches:
    """Replacements that are undone together."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute of a class or a module."""
        before = vars(owner).get(name, _ABSENT)
        self._undo.append(
            functools.partial(delattr, owner, name)
            if before is _ABSENT
            else functools.partial(setattr, owner, name, before)
        )
        setattr(owner, name, value)

    def put_in(self, names: dict[str, Any], replacements: dict[int, Any]) -> None:
        """Replace objects, given by their ids, in the globals of a module."""
        for name, value in list(names.items()):
            replacement = replacements.get(id(value))
            if replacement is not None:
                self._undo.append(functools.partial(names.__setitem__, name, value))
                names[name] = replacement

    def hide(self, names: dict[str, Any], builtins: Mapping[str, Any]) -> None:
        """Give a module names of its own for built-in ones, where it has none yet."""
        for name, value in builtins.items():
            if name not in names:
                self._undo.append(functools.partial(names.pop, name))
                names[name] = value

    def undo(self) -> None:
        """Put everything back."""
        for step in reversed(self._undo):
            step()


@contextlib.contextmanager
def patches() -> Iterator[Patches]:
    """Yield replacements that end with the block."""
    found = Patches()
    try:
        yield found
    finally:
        found.undo()


class Stand(types.ModuleType):
    """Stands for a module in the user's own code: some of its functions are others."""

    def __init__(self, module: types.ModuleType, others: dict[str, Any]) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(others)
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


class StandingType(type):
    """The metaclass of types that stand for another, `original`, in the user's own code: its instances are theirs.

    So are the values that the type `holds`.
    """

    original: type

    def holds(cls, value: Any) -> bool:
        """Return whether a value is one of the cells that the type stands for."""
        return False

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.original) or cls.holds(value)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.original)


def own_globals(function: Any) -> list[dict[str, Any]]:
    """Return the globals of a function's code, and those of the loaded modules that are the user's own."""
    found: dict[int, dict[str, Any]] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(module, types.ModuleType) and (module.__name__ == "__main__" or (file and is_own(file))):
            found[id(module.__dict__)] = module.__dict__
    for code in _functions(function):
        if is_own(code.__code__.co_filename):
            found[id(code.__globals__)] = code.__globals__
    return list(found.values())


def _functions(function: Any) -> Iterator[types.FunctionType]:
    """Yield the Python functions that a callable consists of."""
    if isinstance(function, functools.partial):
        yield from _functions(function.func)
    elif isinstance(function, types.MethodType):
        for cls in type(function.__self__).__mro__:
            yield from (each for each in vars(cls).values() if isinstance(each, types.FunctionType))
    elif isinstance(function, types.FunctionType):
        yield function
    elif isinstance(function, np.vectorize):
        yield from _functions(function.pyfunc)
    else:
        own = vars(type(function)).get("__call__")
        if isinstance(own, types.FunctionType):
            yield own
