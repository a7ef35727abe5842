"""Checks boosters' models inside `.skops` files, where the library reads them while the file is loaded."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

from triton_regressors.exporter.boosters import catboost_model, lightgbm_model
from triton_regressors.exporter.boosters.ubjson import parse_ubjson
from triton_regressors.exporter.boosters.xgboost_check import check_document


def _check_xgboost(state: dict[str, Any]) -> None:
    check_document(parse_ubjson(_of_type(state.get("handle"), bytearray))["Model"])


def _check_lightgbm(state: dict[str, Any]) -> None:
    state["_handle"] = lightgbm_model.checked_text(_of_type(state.get("_handle"), str))


def _check_catboost(state: dict[str, Any]) -> None:
    if "__model" in state:  # one that is not fitted has none
        catboost_model.read_model(_of_type(state["__model"], bytes))


CHECKS: dict[str, tuple[str, str, Callable[[dict[str, Any]], None]]] = {
    "xgboost": ("xgboost.core", "Booster", _check_xgboost),
    "lightgbm": ("lightgbm.basic", "Booster", _check_lightgbm),
    "catboost": ("catboost.core", "_CatBoostBase", _check_catboost),
}
"""For each library, as it is imported: the class whose `__setstate__` reads a model, and the check before that."""


@contextlib.contextmanager
def checked_models(libraries: Collection[str]) -> Iterator[None]:
    """Have these libraries read no model, of those that states of their classes hold, that was not checked.

    Their compiled code trusts what it reads. What a class is given where it would read it is checked, so that no way
    of writing a file leads around it.

    Raises:
        ImportError: one of them is not installed.
        ValueError: while it lasts, a model's numbers do not fit together.
    """
    with contextlib.ExitStack() as stack:
        for library in libraries:
            module, name, check = CHECKS[library]
            kind = getattr(importlib.import_module(module), name)
            stack.callback(setattr, kind, "__setstate__", kind.__setstate__)
            kind.__setstate__ = _checked(kind.__setstate__, check)
        yield


def _checked(set_state: Callable[..., None], check: Callable[[dict[str, Any]], None]) -> Callable[..., None]:
    @functools.wraps(set_state)
    def checked(self: Any, state: dict[str, Any]) -> None:
        check(state)
        set_state(self, state)

    return checked


def _of_type(model: Any, kind: type) -> Any:
    """Return a model of the type that its library writes.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(model, kind):
        raise ValueError("its model of a booster is missing")
    return model
