"""Fitted models inside a traced class: what they answer is a step of the plan."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from triton_regressors.exporter.tracing.cells import Cell, algebra, as_cells, holds_cells, of, row_of
from triton_regressors.exporter.tracing.expressions import FLOAT, Kind
from triton_regressors.exporter.tracing.numpy_functions import unframed
from triton_regressors.exporter.tracing.patches import patches
from triton_regressors.exporter.tracing.refusal import Untraceable


class TracedModel:
    """Stands for a fitted estimator, in an attribute `name` of a class, while the class is traced."""

    def __init__(self, estimator: Any, name: str) -> None:
        self._estimator, self._name = estimator, name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._estimator, name)

    def predict(self, X: Any) -> Any:
        """Return the estimator's predictions for a table of cells."""
        return self._called(X, "predict")

    def transform(self, X: Any) -> Any:
        """Return the estimator's output for a table of cells."""
        return self._called(X, "transform")

    def inverse_transform(self, X: Any) -> Any:
        """Return the estimator's inverse for a table of cells."""
        return self._called(X, "inverse_transform")

    def _called(self, X: Any, method: str) -> Any:
        if not hasattr(self._estimator, method):
            raise Untraceable(f"it calls {method} of a {type(self._estimator).__name__}, which has none")
        table, own = unframed(X), algebra()
        if np.ndim(table) != 2:
            raise Untraceable(f"it calls {method} with an array of {np.ndim(table)} dimensions")
        width, flat = self._shape(X, method)
        found = np.empty((len(table), width), dtype=object)
        for place, row in enumerate(np.asarray(table, dtype=object).view(np.ndarray).tolist()):
            terms = [own.expression(of(value)) for value in row]
            for column in range(width):
                key = (id(self._estimator), method)
                made = own.graph.make(
                    "model", *terms, key, self._name, column, _Holder(self._estimator), kind=Kind(FLOAT)
                )
                found[place, column] = Cell(made, row_of(row))
        return as_cells(found[:, 0] if flat else found)

    def _shape(self, X: Any, method: str) -> tuple[int, bool]:
        """Return how many columns the estimator answers, and whether it answers them as one without a width."""
        zeros: Any = np.zeros((2, X.shape[1]))
        if hasattr(X, "columns"):
            import pandas as pd

            zeros = pd.DataFrame(zeros, columns=X.columns)
        try:
            shape = np.shape(getattr(self._estimator, method)(zeros))
        except Exception as error:
            raise Untraceable(f"{type(self._estimator).__name__}.{method} refuses numbers ({error})") from None
        return (1, True) if len(shape) == 1 else (shape[1], False)


@contextlib.contextmanager
def answering_cells(estimator: Any, base: type | None, method: str) -> Iterator[None]:
    """Have a base class's method take cells, as an estimator's class calls it by `super()`: that of a fitted `base`."""
    owner = next((cls for cls in (base.__mro__ if base else ()) if method in vars(cls)), None)
    if base is None or owner is None:
        yield
        return
    original = vars(owner)[method]

    @functools.wraps(original)
    def answer(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not holds_cells(X):
            return original(self, X, *args, **kwargs)
        plain = copy.copy(estimator)
        plain.__class__ = base
        return getattr(TracedModel(plain, base.__name__), method)(X)

    with patches() as active:
        active.put(owner, method, answer)
        yield


class _Holder:
    """Holds an estimator in an expression, apart from the expression's key."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def __call__(self) -> Any:
        return self.estimator


def with_models(owner: Any, has_lowering: Callable[[Any], bool]) -> Any:
    """Return an object whose attributes that hold fitted models, in lists and dictionaries too, are traced ones."""

    def replaced(value: Any, name: str) -> Any:
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            return type(value)(replaced(each, f"{name}[{place}]") for place, each in enumerate(value))
        if isinstance(value, dict):
            return {key: replaced(each, f"{name}[{key!r}]") for key, each in value.items()}
        fitted = hasattr(value, "fit") and (hasattr(value, "predict") or hasattr(value, "transform"))
        return TracedModel(value, name) if fitted and not isinstance(value, type) and has_lowering(value) else value

    for name, value in list(getattr(owner, "__dict__", {}).items()):
        owner.__dict__[name] = replaced(value, name)
    return owner
