"""The builder of a plan, into which estimators are lowered."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import StackingRegressor, VotingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection._search import BaseSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from triton_regressors.exporter.boosters import fitted
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering import registry
from triton_regressors.exporter.lowering.input_columns import Profile
from triton_regressors.exporter.lowering.rounding import round_before_decisions
from triton_regressors.exporter.lowering.row_types import (
    columns_of,
    computes_in_float32,
    float32_columns,
    output_names,
    output_table,
    transformed,
)
from triton_regressors.exporter.lowering.soundness import one_line
from triton_regressors.exporter.lowering.sparsity import makes_sparse
from triton_regressors.exporter.lowering.text_columns import chosen_columns
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.polynomial import Polynomial
from triton_regressors.kernels.ops.linear.quadratic import Quadratic
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan, Step

HANDS_ON = (
    BaseSearchCV,
    ColumnTransformer,
    FeatureUnion,
    FrozenEstimator,
    FunctionTransformer,
    MultiOutputRegressor,
    Pipeline,
    StackingRegressor,
    TransformedTargetRegressor,
    VotingRegressor,
)
"""Estimators that read no column themselves and give each of their parts the columns that it takes.

A traced function notes itself what it reads."""


@dataclass(frozen=True)
class Value:
    """A value of the plan being built: a matrix `[rows, width]`.

    `features` gives for each column the feature of the model's input that it is, −1 for a column that a step computed;
    it is empty if steps computed all columns.
    `sparse` says that scikit-learn hands the value on as a sparse matrix.
    `rows` are the first rows of a sample with float32 columns as scikit-learn hands them on at this point. Other
    samples leave it None.
    `names` are the columns' names if scikit-learn hands the value on as a DataFrame, which is one `of_polars` or of
    pandas. `kinds` and `strings` are known of columns that own code made: the type of each, and the strings whose
    numbers it holds; None for other columns.
    """

    name: str
    width: int
    features: tuple[int, ...] = ()
    sparse: bool = False
    rows: Any = dataclasses.field(default=None, compare=False, repr=False)
    names: tuple[Any, ...] = ()
    kinds: tuple[Any, ...] = ()
    strings: tuple[Any, ...] = ()
    of_polars: bool = False

    @property
    def single(self) -> bool:
        """Return whether scikit-learn computes with this value in float32."""
        return computes_in_float32(self.rows)

    def holding(self, x: Value, columns: ArrayLike) -> Value:
        """Return this value, marked as holding these columns of `x`."""
        chosen = np.asarray(columns).tolist()
        features, names, kinds, strings = (
            tuple(known[column] for column in chosen) if known else ()
            for known in (x.features, x.names, x.kinds, x.strings)
        )
        return dataclasses.replace(
            self, features=features, names=names, kinds=kinds, strings=strings, of_polars=x.of_polars
        )


KNOWN: tuple[Callable[[Value], tuple[Any, ...]], ...] = (lambda value: value.kinds, lambda value: value.strings)
"""What is known of columns beside their features."""


@dataclasses.dataclass(frozen=True)
class Function:
    """A transformer's function of the columns of `input`, exact to the last bits of the estimator's own.

    `compute` maps a matrix `[n, input.width]` of the type that scikit-learn computes in to `[n, width]`. Each output
    column is a function of one input column, which `inputs`, `[width]`, names. This function is monotonic throughout,
    or up to the number `turns`, `[width]`, and then in the other direction; `compute` is None for all other functions.
    NaN becomes zero with `nan_is_zero`, otherwise NaN. `subject` names the transformer.
    """

    input: Value
    compute: Callable[[np.ndarray], np.ndarray] | None
    subject: str
    inputs: np.ndarray
    turns: np.ndarray | None = None
    nan_is_zero: bool = False

    @property
    def single(self) -> bool:
        """Return whether scikit-learn computes it in float32."""
        return self.input.single

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type in which scikit-learn computes it."""
        return np.dtype(np.float32 if self.single else np.float64)


class Builder:
    """Collects steps. Lowerings call its methods; each returns the new value.

    `profile` is the record of the input, which lowerings fill; the builder itself does not read it. `misfit` is the
    error to raise if `n_features` is a guess that does not fit.

    `rows` are the first rows of a sample with float32 columns. The plan then rounds to float32 as scikit-learn does,
    before decisions or `round_everywhere`. `sums` lists the transformers that sum in float32 before a decision; it is
    known once the plan is made. `functions` maps a value to the transformer's function that it approximates, if only
    the transformer itself computes that function to the last bit.

    `makers` names the estimator that each step computes. `covers` are the training covers of trees, float64 `[nodes]`,
    of symmetric ones `[leaves]`, by the value of their step; they are noted if the argument of this name is set.
    """

    def __init__(
        self,
        n_features: int,
        profile: Profile | None = None,
        misfit: ExportError | None = None,
        rows: Any | None = None,
        round_everywhere: bool = False,
        covers: bool = False,
    ) -> None:
        names = () if profile is None else tuple(profile.names)
        of_polars = profile is not None and profile.polars is not None
        self.input = Value(INPUT, n_features, tuple(range(n_features)), rows=rows, names=names, of_polars=of_polars)
        self.sums: tuple[str, ...] = ()
        self._round_everywhere = round_everywhere
        self.functions: dict[str, Function] = {}
        self._rounding: dict[str, str] = {}
        self.profile = Profile(n_features) if profile is None else profile
        self.misfit = misfit
        self.covers: dict[str, np.ndarray] = {}
        self.makers: dict[str, str] = {}
        self._keeps_covers, self._maker = covers, ""
        self._guards: list[Value] = []
        self._steps: list[Step] = []
        self._path: list[str] = []

    def plan(self, outputs: Mapping[str, Value]) -> Plan:
        """Return the plan that ends in these outputs, which are NaN in the rows where a guard is NaN."""
        if any(step.operation.hides_nan() for step in self._steps):
            for guard in self._guards:
                outputs = {name: self.add(Combine("sum"), value, guard) for name, value in outputs.items()}
        values = {name: value.name for name, value in outputs.items()}
        made, width = self.profile.text.made_count, self.input.width
        steps: Sequence[Step] = given_apart(self._steps, width) if made else self._steps
        if self.input.rows is not None or self._rounding:
            exact = np.append(float32_columns(self.input.rows, width), np.zeros(made, dtype=bool))
            steps, renamed, self.sums = round_before_decisions(steps, self._rounding, exact, self._round_everywhere)
            values = {name: renamed.get(value, value) for name, value in values.items()}
            for name, function in self.functions.items():
                read = dataclasses.replace(function.input, name=renamed.get(function.input.name, function.input.name))
                self.functions[name] = dataclasses.replace(function, input=read)
        plan = Plan(width + made, tuple(steps), values)
        return Plan(width + made, plan.steps_for(tuple(outputs)), plan.outputs)

    def apart(self, width: int) -> Builder:
        """Return a separate builder for a part of the model that reads `width` columns, at the same place as this."""
        builder = Builder(width)
        builder._path = list(self._path)
        return builder

    # Estimators

    def lower(self, estimator: Any, x: Value) -> Value:
        """Return a fitted estimator's prediction, or a fitted transformer's output, for `x`."""
        return self.lower_outputs(estimator, x)["y"]

    def lower_outputs(self, estimator: Any, x: Value) -> dict[str, Value]:
        """Return every output that the estimator has for `x`: `y`, and for some also `std`."""
        return self._lowered(registry.find_lowering(estimator, self.subject(estimator)), estimator, x)

    def lower_transform(self, transformer: Any, x: Value) -> Value:
        """Return a fitted transformer's output for `x`, even if its `predict` gives something else."""
        z = self._lowered(registry.find_transform(transformer, self.subject(transformer)), transformer, x)["y"]
        rows = z.rows if x.rows is None else transformed(transformer, x.rows)
        names, of_polars = z.names, z.of_polars
        if not registry.hands_on(transformer):
            names, of_polars = output_names(transformer), output_table(transformer) == "polars"
        sparse = makes_sparse(transformer, x.sparse)
        z = dataclasses.replace(z, sparse=sparse, rows=rows, names=names, of_polars=of_polars)
        return self.rounded(z, self.subject(transformer), float32_columns(rows, z.width))

    def _lowered(self, lowering: registry.Lowering, estimator: Any, x: Value) -> dict[str, Value]:
        own = isinstance(lowering, registry.OwnCode)
        if not own or registry.registered_base(estimator, "predict") is not None:
            self._check_fitted(estimator)  # own code alone may keep nothing of a fit
        if own and self.misfit is not None:  # it is not run on a guess
            raise self.misfit
        counting = registry.find_count(estimator)
        stated = getattr(estimator, "n_features_in_", None) if counting is None else counting(estimator)
        expected = stated or x.width  # a loaded CatBoost model says 0
        if expected != x.width:
            misfit = self.refuse(estimator, f"it was fitted on {expected} features and would get {x.width}")
            raise self.misfit or misfit
        if not isinstance(estimator, HANDS_ON) and not isinstance(lowering, registry.OwnCode):
            self.profile.note_read(x.features)
        maker, self._maker = self._maker, self.subject(estimator)
        try:
            result = lowering(estimator, x, self)
        except Exception as error:  # fitted attributes that do not fit together can raise almost anything
            if isinstance(error, ExportError):
                raise
            raise self.refuse(estimator, f"its fitted attributes do not fit together ({one_line(error)})") from error
        finally:
            self._maker = maker
        return result if isinstance(result, dict) else {"y": result}

    def lower_inverse(self, transformer: Any, y: Value) -> Value:
        """Return the fitted transformer's `inverse_transform` of `y`."""
        lowering = registry.find_inverse(transformer, self.subject(transformer))
        if not isinstance(lowering, registry.OwnCode):
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

    @property
    def place(self) -> str:
        """The name of the innermost part being lowered; empty for the model itself."""
        return self._path[-1] if self._path else ""

    def subject(self, estimator: Any) -> str:
        """Return the name of the estimator in errors: its class, and its step in the model."""
        name = type(estimator).__name__
        return f"{name} (step '{'.'.join(self._path)}')" if self._path else name

    def refuse(self, estimator: Any, reason: str) -> ExportError:
        """Return the error that says why this estimator cannot be exported."""
        return ExportError(f"Cannot export {self.subject(estimator)}: {reason}.")

    def guard(self, value: Value) -> None:
        """Make every output NaN in the rows where `value`, one column of zeros, is NaN, even if no step reads it."""
        self._guards.append(value)

    # Operations

    def add(self, operation: Operation, *inputs: Value) -> Value:
        """Append a step and return its value."""
        width = operation.checked_width(*(value.width for value in inputs))
        value = Value(f"v{len(self._steps)}", width)
        self._steps.append(Step(operation, tuple(v.name for v in inputs), value.name))
        self.makers[value.name] = self._maker
        return value

    def note_cover(self, value: Value, cover: Callable[[], np.ndarray]) -> None:
        """Record the training covers of the trees that compute a value, if covers are asked for."""
        if self._keeps_covers:
            self.covers[value.name] = cover()

    def affine(self, x: Value, weight: ArrayLike, intercept: ArrayLike, function: str = "identity") -> Value:
        """Return `function(x @ weight + intercept)`.

        Args:
            x: `[rows, width]`.
            weight: `[width]` or `[width, targets]`.
            intercept: a number or `[targets]`.
            function: one of `kernels.numerics.functions.FUNCTIONS`.
        """
        w = _float64(weight).reshape(x.width, -1)
        return self.add(Affine(w, np.broadcast_to(_float64(intercept), w.shape[1:]).copy(), function), x)

    def rounded(self, x: Value, subject: str, columns: np.ndarray) -> Value:
        """Return the value as scikit-learn holds it: the marked columns rounded to float32, if a decision follows.

        Args:
            x: the value.
            subject: the transformer that rounds it.
            columns: the mask of the float32 columns, `[width]` bool.
        """
        if not columns.any():
            return x
        some = np.zeros(0, dtype=np.uint8) if columns.all() else columns.astype(np.uint8)
        value = self.add(Float32(some), x)
        self._rounding[value.name] = subject
        return dataclasses.replace(x, name=value.name)

    def computed(
        self,
        z: Value,
        x: Value,
        compute: Callable[[np.ndarray], np.ndarray] | None,
        transformer: Any,
        inputs: ArrayLike | None = None,
        turns: ArrayLike | None = None,
        nan_is_zero: bool = False,
    ) -> Value:
        """Return `z`, the plan's value for a transformer's function of `x`, and record the function itself.

        The two may differ in the last bits. The arguments are those of `Function`.
        """
        self.functions[z.name] = Function(
            x,
            compute,
            self.subject(transformer),
            np.arange(z.width) if inputs is None else np.asarray(inputs),
            None if turns is None else _float64(turns),
            nan_is_zero,
        )
        return z

    def stored(self, z: Value, x: Value, transformer: Any) -> Value:
        """Return `z` as a transformer stores it: in an array of the dtype and the width of `x`."""
        z = dataclasses.replace(z, rows=x.rows)
        return self.rounded(z, self.subject(transformer), np.full(z.width, x.single))

    def scale(self, x: Value, shift: ArrayLike, factor: ArrayLike) -> Value:
        """Return `(x − shift) · factor`; a single number applies to every column."""
        return self.add(Scale(_vector(shift, x.width), _vector(factor, x.width)), x)

    def divide(self, x: Value, shift: ArrayLike, divisor: ArrayLike) -> Value:
        """Return `(x − shift) / divisor`, rounded as numpy does in place; a single number applies to every column."""
        below = _vector(divisor, x.width)
        return self.add(Scale(_vector(shift, x.width), 1.0 / below, "divisor", below, x.single), x)

    def multiply(self, x: Value, factor: ArrayLike, offset: ArrayLike) -> Value:
        """Return `x · factor + offset`, rounded as numpy does in place; a single number applies to every column."""
        by, added = _vector(factor, x.width), _vector(offset, x.width)
        return self.add(Scale(-added / by, by, "offset", added, x.single), x)

    def columns(self, x: Value, indices: ArrayLike) -> Value:
        """Return the selected columns."""
        chosen = np.asarray(indices, dtype=np.int32)
        value = self.add(Columns(chosen), x).holding(x, chosen)
        return dataclasses.replace(value, sparse=x.sparse, rows=columns_of(x.rows, chosen))

    def made(self, columns: Sequence[tuple[int, bool]]) -> Value:
        """Return columns that the entry makes of strings: each is its number and whether it holds strings."""
        places = [column for column, _ in columns]
        features = tuple(column if text else -1 for column, text in columns)
        return dataclasses.replace(self.columns(Value(INPUT, max(places) + 1), places), features=features)

    def elementwise(self, x: Value, function: str, low: float | None = None, high: float | None = None) -> Value:
        """Return `function(x)`, clipped to `[low, high]` if these are given."""
        return self.add(Elementwise(function, low, high), x)

    def polynomial(self, x: Value, indices: ArrayLike) -> Value:
        """Return one column for each row of `indices`: the product of those columns of `x`; `x.width` means one."""
        return self.add(
            Polynomial(np.asarray(indices, dtype=np.int32), np.zeros(x.width), np.ones(x.width), x.single), x
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
        if len(values) == 1:
            return values[0]
        features = [feature for value in values for feature in value.features or (-1,) * value.width]
        beside = self.add(Concatenate(), *values)
        kinds, strings = (
            [each for value in values for each in known(value) or (None,) * value.width] for known in KNOWN
        )
        return dataclasses.replace(
            beside,
            features=tuple(features) if max(features) >= 0 else (),
            kinds=tuple(kinds) if any(kinds) else (),
            strings=tuple(strings) if any(known is not None for known in strings) else (),
        )

    def _check_fitted(self, estimator: Any) -> None:
        try:
            check_is_fitted(estimator)
        except NotFittedError:
            if fitted.says_fitted(estimator):
                return
            reason = "it is not fitted; call fit first"
            if not hasattr(estimator, "__sklearn_is_fitted__") and not type(estimator).__module__.startswith(
                ("sklearn.", "catboost.")
            ):
                reason = "none of its attributes ends in '_', as those of a fitted one do; call fit first, or give its "
                reason += "class a __sklearn_is_fitted__"
            raise self.refuse(estimator, reason) from None
        except (AttributeError, TypeError):
            pass  # the estimator or a part of it is not a BaseEstimator: scikit-learn cannot tell


def given_apart(steps: Sequence[Step], width: int) -> list[Step]:
    """Return steps that read the first `width` columns of the input in place of the whole input."""
    first = Step(Columns(np.arange(width, dtype=np.int32)), (INPUT,), "given")
    chosen = [step if chosen_columns(step.operation) is not None else _renamed(step, first.output) for step in steps]
    return [first, *chosen] if any(new is not old for new, old in zip(chosen, steps, strict=True)) else chosen


def _renamed(step: Step, name: str) -> Step:
    if INPUT not in step.inputs:
        return step
    return Step(step.operation, tuple(name if each == INPUT else each for each in step.inputs), step.output)


def _vector(numbers: ArrayLike, width: int) -> np.ndarray:
    """Return `width` float64 numbers; a single number is repeated."""
    vector: np.ndarray = np.broadcast_to(_float64(numbers), (width,)).copy()
    return vector


def _float64(array: ArrayLike) -> np.ndarray:
    """Return a dense float64 array; scikit-learn keeps some coefficients sparse."""
    dense = array.toarray() if hasattr(array, "toarray") else array
    return np.asarray(dense, dtype=np.float64)
