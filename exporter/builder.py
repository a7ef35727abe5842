"""Builds a plan while estimators are lowered into it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from triton_regressors.exporter import registry
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.soundness import one_line
from triton_regressors.exporter.text import TextColumns
from triton_regressors.kernels.ops.affine import Affine
from triton_regressors.kernels.ops.columns import Columns
from triton_regressors.kernels.ops.combine import Combine
from triton_regressors.kernels.ops.concatenate import Concatenate
from triton_regressors.kernels.ops.elementwise import Elementwise
from triton_regressors.kernels.ops.polynomial import Polynomial
from triton_regressors.kernels.ops.quadratic import Quadratic
from triton_regressors.kernels.ops.scale import Scale
from triton_regressors.kernels.plan import INPUT, Operation, Plan, Step


@dataclass(frozen=True)
class Value:
    """A value of the plan being built: a matrix `[rows, width]`."""

    name: str
    width: int


class Builder:
    """Collects steps. Lowerings call its methods; each returns the new value.

    `location` and `scale_of_input` are where the fitted model says its input features lie, `[n_features]` each, NaN
    where it does not say; `choices` are the only numbers that a feature takes, `integers` those of them whose choices
    are whole numbers by their dtype, and `text` are the features that are strings. The exporter draws rows from them
    when it is given none.
    """

    def __init__(self, n_features: int) -> None:
        self.input = Value(INPUT, n_features)
        self.location = np.full(n_features, np.nan)
        self.scale_of_input = np.full(n_features, np.nan)
        self.choices: dict[int, np.ndarray] = {}
        self.integers: set[int] = set()
        self.text = TextColumns()
        self._origins = {INPUT: np.arange(n_features)}
        self._guards: list[Value] = []
        self._steps: list[Step] = []
        self._path: list[str] = []

    def plan(self, outputs: Mapping[str, Value]) -> Plan:
        """Return the plan that ends in these outputs, NaN where a guard is."""
        if any(step.operation.hides_nan() for step in self._steps):
            for guard in self._guards:
                outputs = {name: self.add(Combine("sum"), value, guard) for name, value in outputs.items()}
        plan = Plan(self.input.width, tuple(self._steps), {name: value.name for name, value in outputs.items()})
        return Plan(self.input.width, plan.steps_for(tuple(outputs)), plan.outputs)

    def apart(self, width: int) -> Builder:
        """Return a builder of its own for a part of the model that reads `width` columns, with this one's place."""
        builder = Builder(width)
        builder._path = list(self._path)
        return builder

    # Estimators

    def lower(self, estimator: Any, x: Value) -> Value:
        """Return what a fitted estimator predicts, or a fitted transformer's output, for `x`."""
        return self.lower_outputs(estimator, x)["y"]

    def lower_outputs(self, estimator: Any, x: Value) -> dict[str, Value]:
        """Return every output that the estimator has for `x`: `y`, and for some also `std`."""
        return self._lowered(registry.find_lowering(estimator, self.subject(estimator)), estimator, x)

    def lower_transform(self, transformer: Any, x: Value) -> Value:
        """Return a fitted transformer's output for `x`, also where the transformer predicts something else."""
        return self._lowered(registry.find_transform(transformer, self.subject(transformer)), transformer, x)["y"]

    def _lowered(self, lowering: registry.Lowering, estimator: Any, x: Value) -> dict[str, Value]:
        self._check_fitted(estimator)
        expected = getattr(estimator, "n_features_in_", x.width)
        if expected != x.width:
            raise self.refuse(estimator, f"it was fitted on {expected} features and would get {x.width}")
        try:
            result = lowering(estimator, x, self)
        except Exception as error:  # whatever fitted attributes that do not fit together make of it
            if isinstance(error, ExportError):
                raise
            raise self.refuse(estimator, f"what it holds does not fit together ({one_line(error)})") from error
        return result if isinstance(result, dict) else {"y": result}

    def lower_inverse(self, transformer: Any, y: Value) -> Value:
        """Return the fitted transformer's `inverse_transform` of `y`."""
        lowering = registry.find_inverse(transformer, self.subject(transformer))
        self._check_fitted(transformer)
        return lowering(transformer, y, self)

    @contextlib.contextmanager
    def at(self, step: str) -> Iterator[None]:
        """Name the part of the model being lowered, for error messages."""
        self._path.append(step)
        try:
            yield
        finally:
            self._path.pop()

    def subject(self, estimator: Any) -> str:
        """Return how an error names the estimator: its class, and where it stands in the model."""
        name = type(estimator).__name__
        return f"{name} (step '{'.'.join(self._path)}')" if self._path else name

    def refuse(self, estimator: Any, reason: str) -> ExportError:
        """Return the error that says why this estimator cannot be exported."""
        return ExportError(f"Cannot export {self.subject(estimator)}: {reason}.")

    def note_scale(self, x: Value, location: ArrayLike, scale: ArrayLike) -> None:
        """Record where the features of `x` lie, those that are features of the model's input and not yet known."""
        for numbers, known in ((location, self.location), (scale, self.scale_of_input)):
            given = np.broadcast_to(np.asarray(numbers, dtype=np.float64), (x.width,))
            for feature, number in zip(self._origins.get(x.name, ()), given, strict=False):
                if np.isnan(known[feature]) and np.isfinite(number):
                    known[feature] = number

    def note_choices(self, x: Value, column: int, numbers: ArrayLike) -> None:
        """Record the only numbers that a column of `x` takes, if it is a feature of the model's input."""
        given = np.asarray(numbers)
        if x.name in self._origins and len(given):
            feature = int(self._origins[x.name][column])
            self.choices.setdefault(feature, _float64(given))
            if given.dtype.kind in "iu":
                self.integers.add(feature)

    def name_columns(self, x: Value, name: str) -> None:
        """Name the tensor that brings the columns of `x` if they are strings of the model's input."""
        self.text.group(self._origins.get(x.name, ()), name)

    def number_strings(self, estimator: Any, x: Value, column: int, values: Sequence[Any]) -> np.ndarray:
        """Return the numbers that the plan has for strings of a column of `x`, NaN for a missing one."""
        if x.name not in self._origins:
            raise self.refuse(estimator, "it reads strings that another step makes; supported: strings of the input")
        origin = int(self._origins[x.name][column])
        if self._path:
            self.text.group([origin], self._path[-1])
        try:
            return self.text.numbers(origin, values)
        except ValueError as error:
            raise self.refuse(estimator, f"feature {column} holds {error}; supported: strings, or numbers") from None

    def number_integers(self, estimator: Any, x: Value, column: int, integers: np.ndarray) -> np.ndarray:
        """Return the numbers that the plan has for whole numbers of a column of `x` that float64 does not hold."""
        if x.name not in self._origins:
            reason = f"feature {column}, which another step makes, has categories beyond 2⁵³ that float64 merges"
            raise self.refuse(estimator, reason)
        return self.text.places(int(self._origins[x.name][column]), integers.tolist())

    def refuse_unknown_strings(self, x: Value, column: int) -> None:
        """Have requests refused that hold another string than those that were numbered in a column of `x`."""
        self.text.close(int(self._origins[x.name][column]))

    def keep_columns(self, value: Value, x: Value, columns: ArrayLike) -> None:
        """Note that `value` has, in another way, these columns of `x`."""
        if x.name in self._origins:
            self._origins[value.name] = self._origins[x.name][np.asarray(columns, dtype=np.int64)]

    def guard(self, value: Value) -> None:
        """Make every output NaN where `value`, one column of zeros, is NaN, even if nothing of it goes through."""
        self._guards.append(value)

    # Operations

    def add(self, operation: Operation, *inputs: Value) -> Value:
        """Append a step and return the value it makes."""
        width = operation.checked_width(*(value.width for value in inputs))
        value = Value(f"v{len(self._steps)}", width)
        self._steps.append(Step(operation, tuple(v.name for v in inputs), value.name))
        return value

    def affine(self, x: Value, weight: ArrayLike, intercept: ArrayLike, function: str = "identity") -> Value:
        """Return `function(x @ weight + intercept)`.

        `weight` is `[width]` or `[width, targets]`; `intercept` is a number or `[targets]`.
        """
        w = _float64(weight).reshape(x.width, -1)
        return self.add(Affine(w, np.broadcast_to(_float64(intercept), w.shape[1:]).copy(), function), x)

    def scale(self, x: Value, shift: ArrayLike, factor: ArrayLike) -> Value:
        """Return `(x − shift) · factor`; numbers stand for every column."""
        return self.add(Scale(_vector(shift, x.width), _vector(factor, x.width)), x)

    def divide(self, x: Value, shift: ArrayLike, divisor: ArrayLike) -> Value:
        """Return `(x − shift) / divisor`, rounded as numpy rounds it; numbers stand for every column."""
        below = _vector(divisor, x.width)
        return self.add(Scale(_vector(shift, x.width), 1.0 / below, "divisor", below), x)

    def multiply(self, x: Value, factor: ArrayLike, offset: ArrayLike) -> Value:
        """Return `x · factor + offset`, rounded as numpy rounds it; numbers stand for every column."""
        by, added = _vector(factor, x.width), _vector(offset, x.width)
        return self.add(Scale(-added / by, by, "offset", added), x)

    def columns(self, x: Value, indices: ArrayLike) -> Value:
        """Return the selected columns."""
        chosen = np.asarray(indices, dtype=np.int32)
        value = self.add(Columns(chosen), x)
        self.keep_columns(value, x, chosen)
        return value

    def elementwise(self, x: Value, function: str, low: float | None = None, high: float | None = None) -> Value:
        """Return `function(x)`, clipped to `[low, high]` where these are given."""
        return self.add(Elementwise(function, low, high), x)

    def polynomial(self, x: Value, indices: ArrayLike) -> Value:
        """Return one column for each row of `indices`: the product of those columns of `x`; `x.width` means one."""
        return self.add(
            Polynomial(np.asarray(indices, dtype=np.int32), np.zeros(x.width), np.ones(x.width)),
            x,
        )

    def quadratic(self, x: Value, shift: ArrayLike, matrix: ArrayLike, intercept: float, function: str) -> Value:
        """Return `function((x − shift)ᵀ matrix (x − shift) + intercept)`, one column."""
        form = _float64(matrix)
        upper = np.triu(form) + np.tril(form, -1).T
        zero, one = np.zeros((1, x.width)), np.ones(x.width)
        return self.add(
            Quadratic(_vector(shift, x.width), one, upper[None], zero, np.array([float(intercept)]), function), x
        )

    def concatenate(self, values: list[Value]) -> Value:
        """Return the values side by side."""
        return values[0] if len(values) == 1 else self.add(Concatenate(), *values)

    def _check_fitted(self, estimator: Any) -> None:
        try:
            check_is_fitted(estimator)
        except NotFittedError:
            raise self.refuse(estimator, "it is not fitted; call fit first") from None
        except TypeError as error:
            raise self.refuse(estimator, f"it is not a fitted estimator ({error})") from None


def _vector(numbers: ArrayLike, width: int) -> np.ndarray:
    """Return `width` float64 numbers; one number stands for all of them."""
    vector: np.ndarray = np.broadcast_to(_float64(numbers), (width,)).copy()
    return vector


def _float64(array: ArrayLike) -> np.ndarray:
    """Return a dense float64 array; scikit-learn keeps some coefficients sparse."""
    dense = array.toarray() if hasattr(array, "toarray") else array
    return np.asarray(dense, dtype=np.float64)
