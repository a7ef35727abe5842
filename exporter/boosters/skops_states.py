"""Checks boosters' models inside `.skops` files, before the library reads them while the file is loaded."""

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
    if "__model" in state:  # an estimator that is not fitted has none
        catboost_model.read_model(_of_type(state["__model"], bytes))


CHECKS: dict[str, tuple[str, str, Callable[[dict[str, Any]], None]]] = {
    "xgboost": ("xgboost.core", "Booster", _check_xgboost),
    "lightgbm": ("lightgbm.basic", "Booster", _check_lightgbm),
    "catboost": ("catboost.core", "_CatBoostBase", _check_catboost),
}
"""For each library, by its module name: the class whose `__setstate__` reads a model, and the check before that."""


@contextlib.contextmanager
def checked_models(libraries: Collection[str]) -> Iterator[None]:
    """Check each model in an object's state within the block, before one of these libraries reads it.

    The libraries' compiled code trusts its input. The check sits in the class's `__setstate__`, so that no file can
    bypass it.

    Raises:
        ImportError: one of them is not installed.
        ValueError: within the block, a model's numbers do not fit together.
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
    """Return a model if it has the type that its library writes.

    Raises:
        ValueError: it has another type.
    """
    if not isinstance(model, kind):
        raise ValueError("its model of a booster is missing")
    return model
