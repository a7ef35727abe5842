"""pyGAM's regressors: sums of splines, factors and lines of single features, and products of splines of two.

A term's basis is asked for at numbers between its knots, where it is a polynomial.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.pieces import Pieces, add_pieces, first_where, note_range
from triton_regressors.exporter.lowering.registry import lowers
from triton_regressors.kernels.ops.columns.combine import Combine

FUNCTIONS = {"identity": "identity", "log": "exp", "inverse": "reciprocal"}
"""The inverse of each link."""


@lowers(
    "pygam.pygam.ExpectileGAM",
    "pygam.pygam.GAM",
    "pygam.pygam.GammaGAM",
    "pygam.pygam.InvGaussGAM",
    "pygam.pygam.LinearGAM",
    "pygam.pygam.PoissonGAM",
)
def lower_gam(gam: Any, x: Value, builder: Builder) -> Value:
    """`y = link⁻¹(Σₜ fₜ(x))`."""
    link = gam.link if isinstance(gam.link, str) else gam.link._name
    if link not in FUNCTIONS:
        raise builder.refuse(gam, f"its link is '{link}'; supported: {', '.join(map(repr, FUNCTIONS))}")
    coefficients = np.split(np.asarray(gam.coef_, dtype=np.float64), np.cumsum([t.n_coefs for t in gam.terms])[:-1])
    weight, intercept = np.zeros(x.width), 0.0
    source, functions, values = [], [], []
    for number, (term, own) in enumerate(zip(gam.terms, coefficients, strict=True)):
        with builder.at(f"terms[{number}]"):
            if term.isintercept:
                intercept += own[0]
            elif term._name == "linear_term":
                weight[term.feature] += own[0]
            elif term._name == "tensor_term":
                values.append(_tensor(gam, term, own, x, builder))
            elif term.by is not None:
                f = add_pieces(builder, x, [term.feature], [_summed(gam, term, own, x, builder)])
                values.append(builder.add(Combine("product"), f, builder.columns(x, [term.by])))
            else:
                source.append(term.feature)
                functions.append(_summed(gam, term, own, x, builder))
    if functions:
        values.insert(0, add_pieces(builder, x, source, functions))
    if weight.any() or not values:
        values.append(builder.affine(x, weight, 0.0))
    together = builder.concatenate(values)
    return builder.affine(together, np.ones(together.width), intercept, FUNCTIONS[link])


def _tensor(gam: Any, term: Any, coefficients: np.ndarray, x: Value, builder: Builder) -> Value:
    """Return `Σᵢⱼ cᵢⱼ Bᵢ(x₁) Bⱼ(x₂)`, one column."""
    parts: Sequence[Any] = term._terms
    plain = all(part._name == "spline_term" and part.by is None for part in parts)
    if len(parts) != 2 or term.by is not None or not plain:
        raise builder.refuse(gam, "it has a tensor term of other than two splines; supported: two splines")
    first, second = (
        add_pieces(builder, x, [part.feature] * part.n_coefs, _basis(gam, part, x, builder)) for part in parts
    )
    mixed = builder.affine(first, coefficients.reshape(parts[0].n_coefs, parts[1].n_coefs), 0.0)
    return builder.affine(builder.add(Combine("product"), mixed, second), np.ones(second.width), 0.0)


def _summed(gam: Any, term: Any, coefficients: np.ndarray, x: Value, builder: Builder) -> Pieces:
    """Return a term of one feature as one function."""
    basis = _basis(gam, term, x, builder)
    together = sum(weight * column.coefficients for weight, column in zip(coefficients, basis, strict=True))
    return Pieces(basis[0].starts, basis[0].origins, np.asarray(together))


def _basis(gam: Any, term: Any, x: Value, builder: Builder) -> list[Pieces]:
    """Return each function of a term's basis.

    A spline goes on in a line beyond its outermost knots. A factor has no answer there: pyGAM raises an error.
    """
    if term.basis != "ps":
        raise builder.refuse(gam, f"a term's basis is '{term.basis}'; supported: 'ps'")
    low, high = np.sort(np.asarray(term.edge_knots_, dtype=np.float64))[[0, -1]]
    order, width = term.spline_order, high - low or 1.0
    part = builder.columns(x, [term.feature])
    shares = np.linspace(0, 1, 1 + term.n_splines - order)
    knots = low + width * shares
    limits = shares + 1e-9 * (np.arange(len(shares)) == len(shares) - 1) * (order == 0)  # pyGAM's own end of the last
    if term.dtype == "categorical":
        builder.profile.note_choices(part.features[0] if part.features else -1, np.arange(np.ceil(low), high))
    else:
        note_range(builder, part, [low], [high])
    starts = np.concatenate([[-np.inf], first_where(lambda x: (x - low) / width >= limits, len(limits))])
    origins = np.concatenate([knots[:1], knots])
    steps = np.concatenate([[-width], np.diff(knots), [width]])
    terms = order + 1
    inner = (np.arange(terms) + 0.5) / terms
    points = origins[:, None] + steps[:, None] * inner
    rows = np.ones((points.size, x.width))
    rows[:, term.feature] = points.ravel()
    values = np.asarray(term.build_columns(rows).todense()).reshape(len(starts), terms, -1)
    scaled = np.linalg.solve(np.vander(inner, terms, increasing=True)[None], values)  # [pieces, terms, splines]
    scaled /= (steps[:, None] ** np.arange(terms))[:, :, None]
    if term.dtype == "categorical":
        scaled[[0, -1]] = 0.0
        scaled[[0, -1], 0] = np.nan
    return [Pieces(starts, origins, scaled[:, :, spline]) for spline in range(scaled.shape[2])]
