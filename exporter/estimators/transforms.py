"""Transformers of numbers: powers, quantiles, bins, thresholds, row norms, term weights; and inverses for targets."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import Binarizer, KBinsDiscretizer, Normalizer, PowerTransformer, QuantileTransformer

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.pieces import (
    Pieces,
    add_pieces,
    constant_pieces,
    first_where,
    interpolation,
    note_range,
)
from triton_regressors.exporter.lowering.registry import lowers, lowers_inverse
from triton_regressors.kernels.ops.columns.power import Power
from triton_regressors.kernels.ops.columns.row_norm import RowNorm

BOUNDS_THRESHOLD = 1e-7
"""The distance within which scikit-learn's QuantileTransformer takes a number to be an end of its range."""


@lowers(Normalizer)
def lower_normalizer(normalizer: Normalizer, x: Value, builder: Builder) -> Value:
    """Each row divided by its norm, unless scikit-learn takes that for zero."""
    return builder.add(RowNorm(normalizer.norm, float(10 * np.finfo(np.float64).eps)), x)


@lowers(Binarizer)
def lower_binarizer(binarizer: Binarizer, x: Value, builder: Builder) -> Value:
    """1 above the threshold, else 0."""
    builder.profile.note_scale(x.features, binarizer.threshold, 1.0)
    threshold = as_numpy_compares(binarizer.threshold, x)
    above = constant_pieces([np.nextafter(np.float64(threshold), np.inf)], [0.0, 1.0])
    return add_pieces(builder, x, np.arange(x.width), [above] * x.width)


@lowers(TfidfTransformer)
def lower_tfidf(transformer: TfidfTransformer, x: Value, builder: Builder) -> Value:
    """Counts (or 1 + their logarithms, zero for none) times the terms' weights, divided by the row's norm."""
    builder.profile.note_scale(x.features, 3.0, 0.5)  # counts: a negative one has no logarithm
    if transformer.sublinear_tf:
        x = builder.elementwise(x, "sublinear")
    if hasattr(transformer, "idf_"):
        x = builder.scale(x, 0.0, transformer.idf_)
    if transformer.norm is None:
        return x
    return builder.add(RowNorm(transformer.norm, float(np.nextafter(0.0, 1.0))), x)


@lowers(PowerTransformer)
def lower_power(transformer: PowerTransformer, x: Value, builder: Builder) -> Value:
    """The power transform of each column, then the scaler. Where Box and Cox have none, of x ≤ 0, the answer is NaN."""
    _note_power(transformer, x, builder)
    alone = copy.copy(transformer)
    alone.standardize = False
    y = builder.computed(builder.add(_power(transformer), x), x, _of_matrix(alone), transformer)
    y = builder.stored(y, x, transformer)
    return builder.lower(transformer._scaler, y) if transformer.standardize else y


@lowers_inverse(PowerTransformer)
def invert_power(transformer: PowerTransformer, y: Value, builder: Builder) -> Value:
    """The scaler's inverse, then that of the power transform."""
    if transformer.standardize:
        y = builder.lower_inverse(transformer._scaler, y)
    return builder.add(_power(transformer, inverse=True), y)


@lowers(QuantileTransformer)
def lower_quantile(transformer: QuantileTransformer, x: Value, builder: Builder) -> Value:
    """The share of the training rows below a number, by interpolation; for "normal" the quantile of that share.

    If quantiles repeat, scikit-learn's answer is the mean of the first and the last share, at that number alone.
    """
    quantiles, shares = _quantiles(transformer, x, builder), transformer.references_
    low, high = quantiles[:, 0], quantiles[:, -1]
    note_range(builder, x, low, high)
    functions = [_shares_below(column, shares) for column in quantiles]
    if transformer.output_distribution == "uniform":
        return _as_computed(add_pieces(builder, x, np.arange(x.width), functions), x, transformer, builder)
    held = np.float32 if x.single else np.float64
    near = held(BOUNDS_THRESHOLD)
    first = first_where(lambda x: x.astype(held) - near >= low, x.width)
    last = first_where(lambda x: x.astype(held) + near > high, x.width)
    bounded = [f.between(a, b, 0.0, 1.0) for f, a, b in zip(functions, first, last, strict=True)]
    share = builder.stored(add_pieces(builder, x, np.arange(x.width), bounded), x, transformer)
    edge = BOUNDS_THRESHOLD - np.spacing(1)
    z = builder.elementwise(share, "ndtri", float(stats.norm.ppf(edge)), float(stats.norm.ppf(1 - edge)))
    return _as_computed(z, x, transformer, builder)


@lowers_inverse(QuantileTransformer)
def invert_quantile(transformer: QuantileTransformer, y: Value, builder: Builder) -> Value:
    """The quantile of a share, by interpolation; the share of a normal number is the normal distribution's."""
    quantiles, shares = _quantiles(transformer, y, builder), transformer.references_
    functions = [interpolation(shares, column, column[0], column[-1]) for column in quantiles]
    if transformer.output_distribution == "normal":
        y = builder.elementwise(y, "ndtr")
        (first,) = first_where(lambda x: x - BOUNDS_THRESHOLD >= 0.0, 1)
        (last,) = first_where(lambda x: x + BOUNDS_THRESHOLD > 1.0, 1)
        functions = [f.between(first, last, q[0], q[-1]) for f, q in zip(functions, quantiles, strict=True)]
    return add_pieces(builder, y, np.arange(y.width), functions)


@lowers(KBinsDiscretizer)
def lower_k_bins(discretizer: KBinsDiscretizer, x: Value, builder: Builder) -> Value:
    """The number of the bin that holds a number, whose edge is in it; or one column a bin, 1 in that bin."""
    edges = [np.asarray(edges, dtype=np.float64) for edges in discretizer.bin_edges_]
    note_range(builder, x, [e[0] for e in edges], [e[-1] for e in edges])
    inner = [e[1:-1] for e in edges]
    if discretizer.dtype == np.float32:  # the numbers are rounded before they are compared
        inner = [first_where(lambda x, e=e: x.astype(np.float32) >= e, len(e)) for e in inner]  # type: ignore[misc]
    if discretizer.encode == "ordinal":
        return add_pieces(builder, x, np.arange(x.width), [constant_pieces(e, np.arange(len(e) + 1)) for e in inner])
    bins = [np.eye(len(e) + 1) for e in inner]
    functions = [constant_pieces(e, row) for e, rows in zip(inner, bins, strict=True) for row in rows]
    return add_pieces(builder, x, np.repeat(np.arange(x.width), [len(rows) for rows in bins]), functions)


def _as_computed(z: Value, x: Value, transformer: QuantileTransformer, builder: Builder) -> Value:
    """Return `z`, whose float64 last bits are the transformer's own where a decision follows."""
    if x.single:
        return z

    def compute(X: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that columns have no names
            return np.asarray(transformer.transform(X))

    return builder.computed(z, x, compute, transformer)


def _of_matrix(transformer: PowerTransformer) -> Callable[[np.ndarray], np.ndarray]:
    """Return what a transformer makes of a matrix without names; where Box and Cox have no answer it is NaN."""
    positive = transformer.method == "box-cox"

    def compute(X: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that columns have no names
            return np.asarray(transformer.transform(np.where(X > 0, X, np.nan) if positive else X))

    return compute


def as_numpy_compares(number: float, x: Value) -> float:
    """Return the number with which numpy compares `x`: a Python number is rounded to float32 beside float32."""
    return float(np.float32(number)) if x.single and not isinstance(number, np.generic) else float(number)


def _power(transformer: PowerTransformer, inverse: bool = False) -> Power:
    """Return the operation; what was fitted on float32 keeps float32, in which 2 − λ is rounded."""
    lambdas = transformer.lambdas_
    return Power(_float64(lambdas), _float64(2 - lambdas), transformer.method, inverse)


def _shares_below(quantiles: np.ndarray, shares: np.ndarray) -> Pieces:
    """Return `½ (interp(x, q, s) − interp(−x, −q, −s))`, with 0 at the first quantile and 1 at the last one."""
    places, first = np.unique(quantiles, return_index=True)
    last = np.append(first[1:], len(quantiles)) - 1
    at = (shares[first] + shares[last]) / 2
    at[-1], at[0] = 1.0, 0.0  # in this order
    slopes = np.append((shares[first[1:]] - shares[last[:-1]]) / np.diff(places), 0.0)
    after = np.where(at == shares[last], places, np.nextafter(places, np.inf))
    pieces = np.stack([at, 0 * at, shares[last], slopes], axis=1).reshape(-1, 2)  # at a place, and from it on
    return Pieces(
        np.append(-np.inf, np.stack([places, after], axis=1)),
        np.append(places[0], np.repeat(places, 2)),
        np.concatenate([[[shares[0], 0.0]], pieces]),
    )


def _quantiles(transformer: QuantileTransformer, x: Value, builder: Builder) -> np.ndarray:
    """Return the quantiles of each column, `[width, quantiles]`, ascending."""
    quantiles = _float64(transformer.quantiles_).T
    if np.isnan(quantiles).any():
        column = int(np.flatnonzero(np.isnan(quantiles).any(axis=1))[0])
        raise builder.refuse(
            transformer,
            f"{builder.profile.called(x.features, column)} held nothing but NaN, and so it has no quantiles",
        )
    ascending: np.ndarray = np.maximum.accumulate(quantiles, axis=1)
    return ascending


def _note_power(transformer: PowerTransformer, x: Value, builder: Builder) -> None:
    """Record where the features lie if the scaler knows; for Box and Cox so that no drawn number is below zero."""
    positive = transformer.method == "box-cox"
    location, scale = np.full(x.width, float(positive)), np.ones(x.width)
    if transformer.standardize:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # that some are NaN
            low, middle, high = transformer.inverse_transform(np.outer([-1.0, 0.0, 1.0], np.ones(x.width)))
        location = np.where(np.isfinite(middle), middle, location)
        spread = (high - low) / 2
        scale = np.where(np.isfinite(spread) & (spread > 0), spread, scale)
    builder.profile.note_scale(x.features, location, np.minimum(scale, location / 6) if positive else scale)


def _float64(array: Any) -> np.ndarray:
    return np.asarray(array, dtype=np.float64)
