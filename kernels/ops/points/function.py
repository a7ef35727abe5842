"""A kernel function or distance of each row and each stored point: `k(z_r, sᵢ) = f(γ · m(z_r, sᵢ) + c)`.

`z_r = (x_r − shift) · factor`. `x`: `[rows, F]` float32 or float64; `points`: `[P, F]` float64, `sᵢ` in the units of
`z`; `shift`, `factor`: `[F]` float64; `out`: `[rows, P]`. `γ` is `gamma`, `c` is `coef0`; everything is float64.

The metric `m(z, s)`:
    dot                 `z · s`
    cosine              `z · s / (‖z‖ ‖s‖)`, and 0 where either is zero
    squared_euclidean   `‖z − s‖²`
    euclidean           `‖z − s‖`
    manhattan           `Σⱼ |zⱼ − sⱼ|`
    chi2                `Σⱼ (zⱼ − sⱼ)² / (zⱼ + sⱼ)`, where 0 / 0 = 0, NaN for `zⱼ < −1e-9` and less is 0

The profile `f(u)`, with `p` the exponent:
    identity, exp, tanh   as in `numerics/functions.py`
    power                 `uᵖ`
    matern_3_2            `(1 + u) exp(−u)`
    matern_5_2            `(1 + u + u² / 3) exp(−u)`
    sine                  `exp(−p sin² u)`
    table                 any smooth function of `u > 0`, as polynomials on pieces; see `metrics.table_profile`

These make scikit-learn's kernels: rbf is exp of `−γ · squared_euclidean`, laplacian exp of `−γ · manhattan`, a rational
quadratic the power `−α` of `1 + ‖z − s‖² / (2 α l²)`, and so on.

Differences are taken feature by feature. With many features the products go through the float64 matrix units instead,
with `‖z − s‖² = ‖z‖² − 2 z · s + ‖s‖²` about the points' mean, which is off by some 1e-16 of `‖z‖² + ‖s‖²`. The
distance itself, whose square root would enlarge that error, comes from differences (with ten digits, only near zero).

The above is the precision "float64". With "ten digits" the functions come from `numerics/fast_math.py`. There `z · s`
is a product of digits (`numerics/fp16_digits.py`) if the profile is smooth in it or in the distance, which again comes
from differences near zero: a function of a row and a point is then off by some 1e-10. Manhattan and chi2 come from
columns of numbers prepared for them (`l1_chi2.py`), off by some 1e-9 of the largest. "float32", for manhattan and for
smooth profiles, multiplies two digits and computes functions in float32, off by some 1e-7. Between the two, "float32
pairs" has three digits, or columns (`l1_chi2_pairs.py`), and functions that are sums of two float32 numbers
(`numerics/double_float.py`), off by some 1e-9 to 1e-8. It needs no float64 arithmetic for a row and a point.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import triton

from ...cpu.tiles import matmul
from ...format.errors import PlanError
from ...numerics.fast_math import LOG2_E, emulated_exp2
from ...numerics.fp16_digits import DIGITS, common_unit, digits_of, product_of_digits, product_of_two_digits, split
from ...numerics.powers import whole
from ...plan.plan import Operation, Parameters
from . import pairs_host
from .cpu_function import PointMatrix, differences, plain_profile
from .l1_chi2 import PointColumns, emulated_metric, point_columns
from .l1_chi2_pairs import emulated_pair_metric, pair_columns
from .launch import FEW_FEATURES
from .near_zero import NEAR
from .row_digits import TINY_NORM

METRICS = ("dot", "cosine", "squared_euclidean", "euclidean", "manhattan", "chi2")
PROFILES = ("identity", "exp", "tanh", "power", "matern_3_2", "matern_5_2", "sine", "table")

MANY_FEATURES = 16
MOST_DIGIT_FEATURES = 128  # a program holds the digits of all its rows up to this many
MOST_DIGITS = 2**31
SPLIT_AT_ONCE = 4096  # points whose float64 digits are in memory at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class PointFunction(Operation):
    """The base of `Pairwise` and `PairwiseAffine`: the points, and the function of a row and a point."""

    points: np.ndarray
    shift: np.ndarray
    factor: np.ndarray
    metric: str
    profile: str
    gamma: float = 1.0
    coef0: float = 0.0
    exponent: float = 1.0
    table: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((1, 1)))
    precision: str = "float64"

    PRECISIONS: ClassVar[tuple[str, ...]] = ("float64", "ten digits", "float32 pairs", "float32")

    def check_points(self, features: int) -> None:
        """Raise `PlanError` unless the fields fit a matrix of `features` columns."""
        kind = self.kind()
        if self.points.ndim != 2 or not len(self.points) or self.points.shape[1] != features:
            raise PlanError(f"{kind}: points must be [points, {features}], not {list(self.points.shape)}.")
        for name in ("shift", "factor"):
            if getattr(self, name).shape != (features,):
                raise PlanError(f"{kind}: {name} must be [{features}], not {list(getattr(self, name).shape)}.")
        if self.metric not in METRICS:
            raise PlanError(f"{kind}: metric must be one of {', '.join(METRICS)}, not '{self.metric}'.")
        if self.profile not in PROFILES:
            raise PlanError(f"{kind}: profile must be one of {', '.join(PROFILES)}, not '{self.profile}'.")
        if self.table.ndim != 2 or not self.table.size:
            raise PlanError(f"{kind}: table must be [pieces, terms], not {list(self.table.shape)}.")
        self.check_precision()

    def precisions(self) -> tuple[str, ...]:
        """Return the precisions in which the function has an approximation, "float32" only if that is faster."""
        approximate = self.profile not in ("sine", "table") and self.exponent != 0.0  # u⁰ is 1 for NaN too
        if self.profile == "power" and whole(self.exponent) is None:  # `log2` takes only positive numbers
            approximate = self.metric not in ("dot", "cosine") and self.gamma >= 0 and self.coef0 > 0
        if self._smooth_way() is None:
            short = self.metric == "manhattan" and self._by_columns
        else:
            short = not self.by_distance()
        kept = ["float64"] + approximate * ["ten digits"] + (approximate and short) * ["float32"]
        return tuple(name for name in self.PRECISIONS if name in kept)

    def digits(self) -> int:
        """Return the number of digits of a number."""
        return 2 if self.precision == "float32" else DIGITS

    def digits_shape(self) -> tuple[int, int]:
        """Return the number of digits of a number, and of the features of points' digits."""
        return self.digits(), digit_features(self.points.shape[1])

    def way(self) -> str:
        """Return how the metric is computed: by "products", "digits", "columns", "expanded" or "features".

        Precisions other than "float64" use the first two for functions smooth in `z · s` or in the distance: with few
        features float64 products are the fastest. They use the third for metrics that are no product.
        """
        if self.precision != "float64":
            smooth = "columns" if self._by_columns else self._smooth_way()
            if smooth is not None:
                return smooth
        return "expanded" if self.expanded() else "features"

    def _smooth_way(self) -> str | None:
        """Return how `z · s` is computed if the function is smooth in it, except at distance zero, else None."""
        points, features = self.points.shape
        smooth = self.metric in ("dot", "cosine", "squared_euclidean") or (
            self.metric == "euclidean" and self.profile in ("matern_3_2", "matern_5_2")
        )
        smooth |= self.by_distance() and (features > MANY_FEATURES or self.precision == "float32 pairs")
        if smooth and features <= FEW_FEATURES and self.metric != "cosine" and self.precision != "float32 pairs":
            return "products"
        if smooth and features <= MOST_DIGIT_FEATURES and DIGITS * points * digit_features(features) < MOST_DIGITS:
            return "digits"
        return None

    @functools.cached_property
    def _by_columns(self) -> bool:
        """Return whether the metric uses columns: with enough features, and for chi2 without negative points."""
        if self.points.shape[1] <= FEW_FEATURES:
            return False
        return self.metric == "manhattan" or (self.metric == "chi2" and bool(self.points.min() >= 0))

    def by_distance(self) -> bool:
        """Return whether the function is of a distance that comes from products except near zero."""
        return self.metric == "euclidean" and self.profile == "exp"

    def expanded(self) -> bool:
        """Return whether the metric is computed from matrix products."""
        metrics: tuple[str, ...] = ("dot", "cosine", "squared_euclidean")
        if self.precision != "float64":
            metrics += ("euclidean",)
        return self.points.shape[1] > MANY_FEATURES and self.metric in metrics

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the points by columns: about their mean if distances are expanded, of length 1 for the cosine."""
        points, shift = np.array(self.points.T, order="C"), self.shift  # the one copy, changed in place
        by_products, by_columns = self.way() in ("products", "digits"), self.way() == "columns"
        if self.metric == "cosine":
            length = np.sqrt(np.einsum("fp,fp->p", points, points))
            points /= np.where(length < TINY_NORM.value, 1.0, length)
        elif self.metric != "dot" and (by_products or self.expanded()):
            centre = np.where(self.factor != 0, self.points.mean(axis=0), 0.0)
            points -= centre[:, None]
            shift = shift + centre / np.where(self.factor != 0, self.factor, 1.0)
        norms, scale = np.einsum("fp,fp->p", points, points), self._scale()
        numbers = [self.gamma * scale, self.coef0 * scale, self.exponent]
        more: dict[str, np.ndarray] = {}
        if by_products:
            more, of_products = self._products(points, norms)
            numbers += of_products
        elif by_columns:
            columns, per_unit = self._columns, self.gamma * scale
            numbers += [1.0 / columns.unit, columns.unit * per_unit, per_unit, *columns.ends.ravel()]
            more = {"products": columns.table, "offsets": columns.terms * per_unit + self.coef0 * scale}
        return {
            "shift": shift,
            "factor": self.factor,
            "points": points,
            "norms": norms,
            "numbers": np.array(numbers, dtype=np.float64),
            "table": self.table,
            **more,
        }

    @functools.cached_property
    def _columns(self) -> PointColumns:
        """Return the points by columns, a whole number of blocks."""
        if self.precision == "float32 pairs":
            return pair_columns(self.points, self.metric, self.columns(), -self.gamma * self._scale())
        return point_columns(self.points, self.metric, self.columns())

    def columns(self) -> int:
        """Return the number of the points' columns, with padding."""
        return len(self.points)

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return no parameters: `plain` holds the tables of plain torch."""
        return {}

    def _scale(self) -> float:
        """Return the factor that turns `u` into the exponent that `approximate_profile` takes."""
        return {"exp": LOG2_E, "tanh": 2.0 * LOG2_E}.get(self.profile, 1.0) if self.precision != "float64" else 1.0

    def _products(self, points: np.ndarray, norms: np.ndarray) -> tuple[dict[str, np.ndarray], list[float]]:
        """Return the tables for products with the points `[features, points]`, and three numbers.

        With `u = product · z · s + norm · ‖z‖² + offset` the numbers are the points' unit, the product of that unit and
        `product`, and `norm`. `u` is the profile's argument, scaled to a power of two if it is an exponent; for the
        euclidean metric it is the squared distance.
        """
        unit, scale, (features, count) = common_unit(points.T), self._scale(), points.shape
        match self.metric:
            case "squared_euclidean":
                norm, product = self.gamma * scale, -2.0 * self.gamma * scale
                offsets = (self.gamma * norms + self.coef0) * scale
            case "euclidean":
                norm = (self.gamma * LOG2_E) ** 2 if self.precision == "float32 pairs" else 1.0
                product, offsets = -2.0 * norm, norm * norms
            case _:
                product, offsets = self.gamma * scale, np.full(count, self.coef0 * scale)
                norm = product**2 * float(norms.max()) if self.precision == "float32 pairs" else 0.0
        tables = {"offsets": offsets}
        if self.way() == "products":
            tables["products"] = points * product
            return tables, [unit, product * unit, norm]
        place, vectors, of_vectors = product * unit, points.T, unit
        if self.precision == "float32 pairs":  # these products allow only a power of two as a factor
            vectors = points.T * product
            place = of_vectors = common_unit(vectors)
        tables["digits"] = np.zeros((self.digits(), count, digit_features(features)), dtype=np.float16)
        for start in range(0, count, SPLIT_AT_ONCE):
            some = slice(start, start + SPLIT_AT_ONCE)
            tables["digits"][:, some, :features] = split(vectors[some], of_vectors)[: self.digits()]
        return tables, [unit, place, norm]

    def function_of_pairs(self) -> pairs_host.Function:
        """Return the metric, the profile and their numbers."""
        return pairs_host.Function(self.metric, self.profile, self.gamma, self.coef0, self.exponent)

    def plain(self, columns: int = 0) -> PointMatrix:
        """Return the function in plain torch, for `columns` columns or slightly more than there are points."""
        names = ("points", "shift", "factor", "metric", "profile", "gamma", "coef0", "exponent", "table")
        expanded = self.metric == "squared_euclidean" and self.expanded()
        return PointMatrix(**{name: getattr(self, name) for name in names}, expanded=expanded, columns=columns)

    def values(self, x: torch.Tensor) -> torch.Tensor:
        """Return the function of each row and each point by its definition, float64 `[rows, points]`."""
        z = (x.double() - torch.tensor(self.shift)) * torch.tensor(self.factor)
        points = torch.tensor(self.points)
        if self.metric == "dot":
            m = z @ points.T
        elif self.metric == "cosine":
            of_rows, of_points = (vectors.norm(dim=1, keepdim=True) for vectors in (z, points))
            m = (z / torch.where(of_rows < TINY_NORM.value, 1.0, of_rows)) @ (
                points / torch.where(of_points < TINY_NORM.value, 1.0, of_points)
            ).T
        else:
            m = differences(z, points.T, self.metric, out=torch.empty(len(z), len(points), dtype=torch.float64))
            m = m.sqrt() if self.metric == "euclidean" else m
        return plain_profile(m * self.gamma + self.coef0, self.profile, self.exponent, torch.tensor(self.table))

    def _metric(self, parameters: Parameters, x: torch.Tensor) -> torch.Tensor:
        """Return the metric as the kernels compute it in float64, by products if it is expanded."""
        points, z = parameters["points"], (x - parameters["shift"]) * parameters["factor"]
        if self.metric == "euclidean" or (not self.expanded() and self.metric not in ("dot", "cosine")):
            m = differences(z, points, self.metric, out=torch.empty(len(z), points.shape[1], dtype=torch.float64))
            return m.sqrt_() if self.metric == "euclidean" else m
        m, square = matmul(z, points), (z * z).sum(1)[:, None]
        if self.metric == "squared_euclidean":
            m = torch.clamp_min(square - 2.0 * m + parameters["norms"], 0.0)
        elif self.metric == "cosine":
            length = square.sqrt()
            m = m / torch.where(length < TINY_NORM.value, 1.0, length)
        return m

    def emulated(
        self, x: np.ndarray, parameters: Mapping[str, np.ndarray] | None = None, points: slice = slice(None)
    ) -> np.ndarray:
        """Return the function of each row and each point as the kernels compute it, float64 `[rows, points]`.

        Args:
            x: rows.
            parameters: the result of `parameters`, if the caller has it.
            points: the points to compute, if the function's way is "products" or "digits"; otherwise all are computed.
        """
        parameters = PointFunction.parameters(self) if parameters is None else parameters
        if self.precision == "float32 pairs" and self.way() == "columns":
            rows = (x - parameters["shift"]) * parameters["factor"]
            metric = emulated_pair_metric(rows, self._columns, self.metric)
            return pairs_host.emulated_power(metric * parameters["numbers"][0])
        if self.precision == "float32 pairs":
            return pairs_host.emulated(self.function_of_pairs(), parameters, x, points)
        numbers, offsets = parameters["numbers"], parameters.get("offsets", np.zeros(1))
        if self.way() in ("expanded", "features"):
            tensors = {name: torch.from_numpy(array) for name, array in parameters.items()}
            m = self._metric(tensors, torch.from_numpy(x).double())
            if self.precision == "float64":
                plain = plain_profile(m * self.gamma + self.coef0, self.profile, self.exponent, tensors["table"])
                return np.asarray(plain.numpy())
            return self._emulated_profile(m.numpy() * numbers[0] + numbers[1])
        number = np.float32 if self.precision == "float32" else np.float64
        z = (x - parameters["shift"]) * parameters["factor"]
        if self.way() == "columns":
            given = emulated_metric(z, self._columns, self.metric) * numbers[0] + numbers[1]
            return self._emulated_profile(given.astype(number))
        norm = np.einsum("rf,rf->r", z, z)[:, None]
        u = np.tile(offsets[points].astype(number), (len(x), 1))
        if self.way() == "products":
            for column, products in zip(z.T.astype(number), parameters["products"], strict=True):
                u += column[:, None] * products[points].astype(number)
        else:
            digits, unit = digits_of(z, numbers[3])
            place = (unit * numbers[4])[:, None]
            if self.metric == "cosine":
                length = np.sqrt(norm)
                place = place / np.where(length < TINY_NORM.value, 1.0, length)
            of_points = parameters["digits"][:, points, : x.shape[1]].astype(np.float64)
            if number is np.float32:
                u += product_of_two_digits(digits[:2], of_points) * place.astype(number)
            else:
                whole_part, small = product_of_digits(digits, of_points)
                u += whole_part * place + small * place
        u += (norm * numbers[5]).astype(number)
        if self.by_distance():
            exact = torch.empty(u.shape, dtype=torch.float64)
            differences(torch.from_numpy(z), torch.from_numpy(parameters["points"][:, points]), self.metric, exact)
            u = np.where(u < norm * NEAR.value, exact.numpy(), u)
        if self.metric == "euclidean":
            u = np.sqrt(np.maximum(u, 0)) * number(numbers[0]) + number(numbers[1])
        return self._emulated_profile(u)

    def _emulated_profile(self, u: np.ndarray) -> np.ndarray:
        """Return the result of `approximate_profile`, in the dtype of `u`."""
        number = u.dtype.type
        match self.profile:
            case "exp":
                return emulated_exp2(u)
            case "tanh":
                return 1 - 2 / (emulated_exp2(np.clip(u, -40, 40)) + 1)
            case "matern_3_2":
                return (1 + u) * emulated_exp2(number(-LOG2_E) * u)
            case "matern_5_2":
                return (1 + u + u * u * number(1 / 3)) * emulated_exp2(number(-LOG2_E) * u)
            case "power":
                if whole(self.exponent) is None:
                    return emulated_exp2(number(self.exponent) * np.log2(u))
                power: np.ndarray = u ** number(self.exponent)
                return power
        return u

    def constants(self) -> dict[str, object]:
        """Return the compile-time arguments shared by all kernels of functions of rows and points."""
        points, features = self.points.shape
        return {
            "FEATURES": features,
            "POINTS": points,
            "METRIC": self.metric,
            "PROFILE": self.profile,
            "WHOLE": whole(self.exponent),
        }

    def what(self, points: int = 0) -> str:
        """Return the function and the points in a few words; there may be more points than those of this one."""
        shown = "" if self.profile == "identity" else f"{self.profile} of "
        precision = "" if self.precision == "float64" else f" in {self.precision}"
        return f"{shown}{self.metric.replace('_', ' ')} to {points or len(self.points)} points{precision}"


def digit_features(features: int) -> int:
    """Return the features of a point's digits, padded with zeros."""
    found: int = max(16, triton.next_power_of_2(features))
    return found
