"""Transformers of columns: scalers, polynomials, selection, known NumPy functions; and inverses for targets."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special
from sklearn.feature_selection import (
    RFE,
    RFECV,
    GenericUnivariateSelect,
    SelectFdr,
    SelectFpr,
    SelectFromModel,
    SelectFwe,
    SelectKBest,
    SelectPercentile,
    SequentialFeatureSelector,
    VarianceThreshold,
)
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)

from triton_regressors.exporter.estimators.own_code import INSTEAD, lower_function
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers, lowers_inverse, lowers_transform
from triton_regressors.exporter.tracing.trace import NotTraced

FUNCTIONS: dict[Callable[..., Any], str] = {
    np.abs: "absolute",
    np.arccos: "arccos",
    np.arccosh: "arccosh",
    np.arcsin: "arcsin",
    np.arcsinh: "arcsinh",
    np.arctan: "arctan",
    np.arctanh: "arctanh",
    np.cbrt: "cbrt",
    np.ceil: "ceil",
    np.cos: "cos",
    np.cosh: "cosh",
    np.deg2rad: "radians",
    np.degrees: "degrees",
    np.exp: "exp",
    np.exp2: "exp2",
    np.expm1: "expm1",
    np.fabs: "absolute",
    np.floor: "floor",
    np.isnan: "isnan",
    np.log: "log",
    np.log10: "log10",
    np.log1p: "log1p",
    np.log2: "log2",
    np.negative: "negative",
    np.positive: "identity",
    np.rad2deg: "degrees",
    np.radians: "radians",
    np.reciprocal: "reciprocal",
    np.rint: "rint",
    np.sign: "sign",
    np.sin: "sin",
    np.sinh: "sinh",
    np.sqrt: "sqrt",
    np.square: "square",
    np.tan: "tan",
    np.tanh: "tanh",
    np.trunc: "trunc",
    special.cbrt: "cbrt",
    special.erf: "erf",
    special.erfc: "erfc",
    special.exp10: "exp10",
    special.exp2: "exp2",
    special.expit: "expit",
    special.expm1: "expm1",
    special.log1p: "log1p",
    special.log_expit: "log_expit",
    special.logit: "logit",
    special.ndtr: "ndtr",
    special.ndtri: "ndtri",
}
"""The NumPy and SciPy functions with a counterpart among the kernels' elementwise functions."""

EXACT = {
    *(np.abs, np.fabs, np.ceil, np.floor, np.isnan, np.negative, np.positive, np.reciprocal, np.rint, np.sign),
    *(np.square, np.trunc),
}
"""The functions whose answer is correctly rounded."""

ROUNDED_LAST = {
    *(np.sqrt, special.cbrt, special.erf, special.erfc, special.exp10, special.exp2, special.expm1, special.log1p),
    *(special.ndtr, special.ndtri),
}
"""The functions whose float32 answer is their float64 answer rounded to float32."""

TURNING = ("cos", "cosh", "sin", "tan")
"""The functions that are not monotonic."""

SELECTORS = (
    GenericUnivariateSelect,
    SelectFdr,
    SelectFpr,
    SelectFromModel,
    SelectFwe,
    SelectKBest,
    SelectPercentile,
    SequentialFeatureSelector,
    VarianceThreshold,
)
"""The transformers that select columns and predict nothing."""


@lowers(StandardScaler)
def lower_standard_scaler(scaler: StandardScaler, x: Value, builder: Builder) -> Value:
    """`z = (x − mean) / scale`."""
    mean = scaler.mean_ if scaler.with_mean else 0.0
    scale = scaler.scale_ if scaler.with_std else 1.0
    builder.profile.note_scale(x.features, _or(scaler.mean_, 0.0), _or(scaler.scale_, 1.0))
    if x.single and not x.sparse and _casts_parameters():
        mean, scale = (np.asarray(numbers, dtype=np.float32) for numbers in (mean, scale))
    return _divided(x, mean, scale, builder)


@lowers_inverse(StandardScaler)
def invert_standard_scaler(scaler: StandardScaler, y: Value, builder: Builder) -> Value:
    """`x = z · scale + mean`."""
    mean = scaler.mean_ if scaler.with_mean else 0.0
    scale = np.asarray(scaler.scale_ if scaler.with_std else 1.0)
    return builder.scale(y, -mean / scale, scale)


@lowers(MinMaxScaler)
def lower_min_max_scaler(scaler: MinMaxScaler, x: Value, builder: Builder) -> Value:
    """`z = x · scale + min`, clipped to the feature range if `clip` is set."""
    middle, width = (scaler.data_min_ + scaler.data_max_) / 2, scaler.data_max_ - scaler.data_min_
    builder.profile.note_scale(x.features, middle, np.where(width > 0, width / 4, 1.0))
    z = builder.multiply(x, scaler.scale_, scaler.min_)
    if not scaler.clip:
        return z
    low, high = (np.float32(limit) if x.single else limit for limit in scaler.feature_range)
    return builder.elementwise(z, "identity", float(low), float(high))


@lowers_inverse(MinMaxScaler)
def invert_min_max_scaler(scaler: MinMaxScaler, y: Value, builder: Builder) -> Value:
    """`x = (z − min) / scale`."""
    return builder.scale(y, scaler.min_, 1.0 / _float64(scaler.scale_))


@lowers(MaxAbsScaler)
def lower_max_abs_scaler(scaler: MaxAbsScaler, x: Value, builder: Builder) -> Value:
    """`z = x / scale`, clipped to [−1, 1] if `clip` is set."""
    builder.profile.note_scale(x.features, 0.0, scaler.scale_ / 2)
    z = _divided(x, 0.0, scaler.scale_, builder)
    return builder.elementwise(z, "identity", -1.0, 1.0) if getattr(scaler, "clip", False) else z


@lowers_inverse(MaxAbsScaler)
def invert_max_abs_scaler(scaler: MaxAbsScaler, y: Value, builder: Builder) -> Value:
    """`x = z · scale`."""
    return builder.scale(y, 0.0, scaler.scale_)


@lowers(RobustScaler)
def lower_robust_scaler(scaler: RobustScaler, x: Value, builder: Builder) -> Value:
    """`z = (x − center) / scale`."""
    builder.profile.note_scale(x.features, _or(scaler.center_, 0.0), _or(scaler.scale_, 1.0))
    return _divided(x, _or(scaler.center_, 0.0), _or(scaler.scale_, 1.0), builder)


@lowers_inverse(RobustScaler)
def invert_robust_scaler(scaler: RobustScaler, y: Value, builder: Builder) -> Value:
    """`x = z · scale + center`."""
    scale = _or(scaler.scale_, 1.0)
    return builder.scale(y, -_or(scaler.center_, 0.0) / scale, scale)


@lowers(PolynomialFeatures)
def lower_polynomial_features(transformer: PolynomialFeatures, x: Value, builder: Builder) -> Value:
    """One column for each monomial, in scikit-learn's order: by degree, then lexicographically."""
    degree = transformer.degree
    low, high = (0, degree) if isinstance(degree, int | np.integer) else degree
    choose = itertools.combinations if transformer.interaction_only else itertools.combinations_with_replacement
    monomials = [()] if transformer.include_bias else []
    for size in range(max(1, low), high + 1):
        monomials.extend(choose(range(x.width), size))  # type: ignore[arg-type]
    width = max(high, 1)
    indices = np.full((len(monomials), width), x.width, dtype=np.int32)  # x.width stands for the constant one
    for row, monomial in zip(indices, monomials, strict=True):
        row[: len(monomial)] = monomial[::-1] if x.single else monomial  # the last two are multiplied first
    return builder.polynomial(x, indices)


@lowers_transform(RFE, RFECV)
@lowers(*SELECTORS)
def lower_selector(selector: Any, x: Value, builder: Builder) -> Value:
    """The columns that the selector supports, in order."""
    indices = np.flatnonzero(selector.get_support())
    if not len(indices):
        raise builder.refuse(selector, "it selects no feature")
    return builder.columns(x, indices)


@lowers_inverse(RFE, RFECV, *SELECTORS)
def invert_selector(selector: Any, y: Value, builder: Builder) -> Value:
    """The columns in their places, and zero in the others."""
    return builder.affine(y, np.eye(len(selector.get_support()))[selector.get_support()], 0.0)


@lowers(FunctionTransformer)
def lower_function_transformer(transformer: FunctionTransformer, x: Value, builder: Builder) -> Value:
    """`z = func(x)` for a function with a counterpart."""
    return _apply(transformer, "func", "kw_args", x, builder)


@lowers_inverse(FunctionTransformer)
def invert_function_transformer(transformer: FunctionTransformer, y: Value, builder: Builder) -> Value:
    """`x = inverse_func(z)` for a function with a counterpart."""
    return _apply(transformer, "inverse_func", "inv_kw_args", y, builder)


def _apply(transformer: FunctionTransformer, parameter: str, keywords: str, x: Value, builder: Builder) -> Value:
    """Apply the function in one of the transformer's parameters; None is the identity."""
    function, more = getattr(transformer, parameter), getattr(transformer, keywords) or {}
    if function is None:
        return x
    if function is np.clip:
        limits = {key.removeprefix("a_"): value for key, value in more.items() if value is not None}
        if set(limits) <= {"min", "max"} and all(np.ndim(value) == 0 for value in limits.values()):
            low, high = (None if value is None else float(value) for value in map(limits.get, ("min", "max")))
            builder.profile.note_read(x.features)
            return builder.elementwise(x, "identity", low, high)
    try:
        name = None if more else FUNCTIONS.get(function)
    except TypeError:  # an unhashable callable
        name = None
    if name is None:
        return _traced(transformer, parameter, functools.partial(function, **more), x, builder)
    builder.profile.note_read(x.features)
    z = builder.elementwise(x, name)
    if function in EXACT or (x.single and function in ROUNDED_LAST):
        return z
    return builder.computed(z, x, None if name in TURNING else function, transformer)


def _traced(
    transformer: FunctionTransformer, parameter: str, function: Callable[..., Any], x: Value, builder: Builder
) -> Value:
    """Return what a function of the user's makes of `x`: a DataFrame if the transformer was fitted on one."""
    framed = not transformer.validate and hasattr(transformer, "feature_names_in_")
    names = tuple(transformer.feature_names_in_) if framed and parameter == "func" else ()
    try:
        return lower_function(function, transformer, x, builder, names)
    except NotTraced as error:
        if parameter == "inverse_func":
            instead = "Or make it a transformer class with a lowering of its own under "
            instead += "@triton_regressors.lowers_inverse"
        else:
            instead = INSTEAD
        raise builder.refuse(transformer, f"its {parameter} cannot be exported: {error}. {instead}") from error


def _divided(x: Value, shift: Any, divisor: Any, builder: Builder) -> Value:
    """Return `(x − shift) / divisor`; scikit-learn multiplies a sparse float32 matrix by the inverse instead."""
    if x.single and x.sparse:
        return builder.multiply(x, 1.0 / _float64(divisor), 0.0)
    return builder.divide(x, shift, divisor)


@functools.cache
def _casts_parameters() -> bool:
    """Return whether this release's StandardScaler rounds its parameters to float32 for float32 rows."""
    mean = 1.0 + 2.0**-30
    scaler = StandardScaler().fit([[mean - 1.0], [mean + 1.0]])
    return bool(scaler.transform(np.ones((1, 1), dtype=np.float32))[0, 0] == 0.0)


def _or(array: Any, default: float) -> np.ndarray:
    """Return a fitted attribute in float64, or the default if scikit-learn left it None for an option that is off."""
    return _float64(default if array is None else array)


def _float64(array: Any) -> np.ndarray:
    """Return a fitted attribute in float64; a fit on float32 leaves it float32, which would round the arithmetic."""
    return np.asarray(array, dtype=np.float64)
