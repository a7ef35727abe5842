"""Kernel functions of rows and stored points, and the transformers made of them.

`kernel_function` reads scikit-learn's pairwise kernels; the lowerings of other families use it too.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.decomposition import KernelPCA
from sklearn.kernel_approximation import (
    AdditiveChi2Sampler,
    Nystroem,
    PolynomialCountSketch,
    RBFSampler,
    SkewedChi2Sampler,
)
from sklearn.kernel_ridge import KernelRidge

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.products import product
from triton_regressors.exporter.lowering.registry import lowers, lowers_inverse
from triton_regressors.kernels.ops.columns.combine import MAX_INPUTS, Combine
from triton_regressors.kernels.ops.points.pairwise import Pairwise

KERNELS = ("linear", "poly", "polynomial", "rbf", "laplacian", "sigmoid", "cosine", "chi2", "additive_chi2")
"""The names of `sklearn.metrics.pairwise.pairwise_kernels`."""

ROUNDING = 1e-9
SMALLEST_LOG = -745.0  # of the smallest positive float64: what log makes of zero is held there


@lowers(KernelRidge)
def lower_kernel_ridge(estimator: KernelRidge, x: Value, builder: Builder) -> Value:
    """`y = k(x, X_fit) dual_coef`."""
    parameters = {name: getattr(estimator, name) for name in ("gamma", "degree", "coef0")}
    kernel = kernel_function(estimator, x, estimator.kernel, estimator.X_fit_, parameters, builder)
    return kernel_sum(x, kernel, estimator.dual_coef_, 0.0, builder)


@lowers(Nystroem)
def lower_nystroem(transformer: Nystroem, x: Value, builder: Builder) -> Value:
    """`z = k(x, components) normalizationᵀ`."""
    given = {name: getattr(transformer, name) for name in ("gamma", "degree", "coef0")}
    parameters = {
        **(transformer.kernel_params or {}),
        **{name: value for name, value in given.items() if value is not None},
    }
    kernel = kernel_function(transformer, x, transformer.kernel, transformer.components_, parameters, builder)
    return builder.affine(kernel_matrix(x, kernel, builder), transformer.normalization_.T, 0.0)


@lowers(KernelPCA)
def lower_kernel_pca(transformer: KernelPCA, x: Value, builder: Builder) -> Value:
    """`z = (K − column means − its row means + mean) A`, which is affine in `K = k(x, X_fit)`."""
    kernel = _kernel_of_pca(transformer, x, transformer.X_fit_, builder)
    values, vectors = transformer.eigenvalues_, transformer.eigenvectors_
    positive = values > 0
    scaled = np.zeros_like(vectors)
    scaled[:, positive] = vectors[:, positive] / np.sqrt(values[positive])
    sums, centerer = scaled.sum(axis=0), transformer._centerer
    intercept = centerer.K_fit_all_ * sums - product(centerer.K_fit_rows_, scaled)
    return builder.affine(kernel_matrix(x, kernel, builder), scaled - sums / len(scaled), intercept)


@lowers_inverse(KernelPCA)
def invert_kernel_pca(transformer: KernelPCA, y: Value, builder: Builder) -> Value:
    """`x = k(z, X_transformed_fit) dual_coef`, the ridge that `fit_inverse_transform` fits."""
    if not transformer.fit_inverse_transform:
        raise builder.refuse(transformer, "it has no inverse_transform; fit it with fit_inverse_transform=True")
    kernel = _kernel_of_pca(transformer, y, transformer.X_transformed_fit_, builder)
    return kernel_sum(y, kernel, transformer.dual_coef_, 0.0, builder)


@lowers(RBFSampler)
def lower_rbf_sampler(sampler: RBFSampler, x: Value, builder: Builder) -> Value:
    """`z = √(2 / n) cos(x W + b)`."""
    cosine = builder.affine(x, sampler.random_weights_, sampler.random_offset_, "cos")
    return builder.scale(cosine, 0.0, np.sqrt(2.0 / sampler.n_components))


@lowers(SkewedChi2Sampler)
def lower_skewed_chi2_sampler(sampler: SkewedChi2Sampler, x: Value, builder: Builder) -> Value:
    """`z = √(2 / n) cos(log(x + skewedness) W + b)`; NaN where scikit-learn refuses `x`."""
    skewedness = float(sampler.skewedness)
    away = max(abs(skewedness), 1.0)
    builder.profile.note_scale(
        x.features, away - skewedness, away / 6
    )  # fitting keeps nothing of the data; they lie past −skewedness
    logarithm = builder.elementwise(builder.scale(x, -skewedness, 1.0), "log")
    cosine = builder.affine(logarithm, sampler.random_weights_, sampler.random_offset_, "cos")
    return builder.scale(cosine, 0.0, np.sqrt(2.0) / np.sqrt(sampler.n_components))


@lowers(AdditiveChi2Sampler)
def lower_additive_chi2_sampler(sampler: AdditiveChi2Sampler, x: Value, builder: Builder) -> Value:
    """`√(x L)`, then for `j = 1, …` `√(2 x L / cosh(π j L))` times the cosine and the sine of `j L log x`.

    `L` is the sample interval. All of it is zero for `x = 0`, and NaN for a negative `x`, which scikit-learn refuses;
    what scaling to [0, 1] may leave of a zero is not yet negative.
    """
    builder.profile.note_scale(x.features, 1.0, 1.0 / 6)  # fitting keeps nothing of the data; they are not negative
    interval = sampler.sample_interval
    if interval is None:
        interval = {1: 0.8, 2: 0.5, 3: 0.4}[sampler.sample_steps]
    held = builder.elementwise(x, "identity", low=0.0)
    negative = builder.elementwise(builder.scale(x, -ROUNDING, 1.0), "sqrt")
    root = builder.add(Combine("sum", (1.0, 0.0)), builder.elementwise(held, "sqrt"), negative)
    logarithm = builder.elementwise(held, "log", low=SMALLEST_LOG)
    values = [builder.scale(root, 0.0, np.sqrt(interval))]
    for j in range(1, sampler.sample_steps):
        angle = builder.scale(logarithm, 0.0, j * interval)
        factor = float(np.sqrt(2 * interval / np.cosh(np.pi * j * interval)))
        for function in ("cos", "sin"):
            wave = builder.elementwise(angle, function)
            values.append(builder.add(Combine("product", (factor, 1.0)), root, wave))
    return builder.concatenate(values)


@lowers(PolynomialCountSketch)
def lower_polynomial_count_sketch(sketch: PolynomialCountSketch, x: Value, builder: Builder) -> Value:
    """The circular convolution of `degree` count sketches of `√γ x` (and `√coef0`): the product of their spectra.

    A spectrum is affine in `x`. The product of complex numbers is written out in real ones: each choice of a real or an
    imaginary part from every factor is one product, `2^degree` for each frequency, and the inverse transform of their
    real and imaginary sums is affine. (Pham and Pagh, Fast and scalable polynomial kernels via explicit feature maps,
    2013.)
    """
    n, degree = sketch.n_components, sketch.degree
    frequencies = np.arange(n // 2 + 1)
    choices = list(itertools.product((0, 1), repeat=degree))  # 1 for the imaginary part
    factors = []
    for d in range(degree):
        waves = (
            np.exp(-2j * np.pi * (sketch.indexHash_[d][:, None] * frequencies % n) / n) * sketch.bitHash_[d][:, None]
        )
        parts = (waves.real, waves.imag)  # [features (and one), frequencies] each
        weight = np.concatenate([parts[choice[d]] for choice in choices], axis=1)
        constant = np.sqrt(sketch.coef0) * weight[x.width] if sketch.coef0 != 0 else 0.0
        factors.append(builder.affine(x, np.sqrt(sketch.gamma) * weight[: x.width], constant))
    product = combine("product", factors, builder)
    twice = np.where((frequencies == 0) | (2 * frequencies == n), 1.0, 2.0)[:, None] / n
    angle = 2 * np.pi * (frequencies[:, None] * np.arange(n) % n) / n
    real, imaginary = twice * np.cos(angle), -twice * np.sin(angle)  # [frequencies, n]
    # i^k for k imaginary parts: 1, i, −1, −i.
    turns = [(real, imaginary, -real, -imaginary)[sum(choice) % 4] for choice in choices]
    return builder.affine(product, np.concatenate(turns), 0.0)


def kernel_function(
    estimator: Any, x: Value, kernel: Any, points: Any, parameters: dict[str, Any], builder: Builder
) -> Pairwise:
    """Return scikit-learn's pairwise kernel between `x` and the points, and note where they lie.

    Args:
        estimator: whose kernel it is, for errors.
        x: `[rows, width]`.
        kernel: its name in `sklearn.metrics.pairwise`.
        points: `[points, width]`, dense or sparse.
        parameters: the kernel's keyword arguments; those that it does not take are passed over.
        builder: notes that rows lie where the points do.
    """
    if not isinstance(kernel, str) or kernel not in KERNELS:
        shown = f"'{kernel}'" if isinstance(kernel, str) else "a callable"
        raise builder.refuse(estimator, f"kernel is {shown}; supported: {', '.join(map(repr, KERNELS))}")
    s = dense(points)
    gamma = parameters.get("gamma")
    if gamma is None:
        gamma = 1.0 if kernel == "chi2" else 1.0 / s.shape[1]
    coef0, degree = float(parameters.get("coef0", 1)), float(parameters.get("degree", 3))
    note_points(x, s, builder, positive="chi2" in kernel)
    match kernel:
        case "linear":
            return function_of_points(s, "dot", "identity")
        case "poly" | "polynomial":
            return function_of_points(s, "dot", "power", gamma=float(gamma), coef0=coef0, exponent=degree)
        case "sigmoid":
            return function_of_points(s, "dot", "tanh", gamma=float(gamma), coef0=coef0)
        case "cosine":
            return function_of_points(s, "cosine", "identity")
        case "additive_chi2":
            return function_of_points(s, "chi2", "identity", gamma=-1.0)
    metric = {"rbf": "squared_euclidean", "laplacian": "manhattan", "chi2": "chi2"}[kernel]
    return function_of_points(s, metric, "exp", gamma=-float(gamma))


def function_of_points(points: np.ndarray, metric: str, profile: str, **numbers: Any) -> Pairwise:
    """Return the operation for points in the units of `x`."""
    width = points.shape[1]
    fields = {"shift": np.zeros(width), "factor": np.ones(width), **numbers}
    return Pairwise(points=points, metric=metric, profile=profile, **fields)


def kernel_matrix(x: Value, kernel: Pairwise, builder: Builder) -> Value:
    """Return `k(x, points)`, `[rows, points]`; the linear kernel is an affine map."""
    if _is_linear(kernel):
        return builder.affine(x, kernel.gamma * kernel.points.T, kernel.coef0)
    return builder.add(kernel, x)


def kernel_sum(x: Value, kernel: Pairwise, weight: ArrayLike, intercept: ArrayLike, builder: Builder) -> Value:
    """Return `k(x, points) @ weight + intercept`; `weight` is `[points]` or `[points, targets]`."""
    w = np.asarray(weight, dtype=np.float64).reshape(len(kernel.points), -1)
    if _is_linear(kernel):
        return builder.affine(x, kernel.gamma * product(kernel.points.T, w), kernel.coef0 * w.sum(axis=0) + intercept)
    return builder.affine(builder.add(kernel, x), w, intercept)


def combine(
    operation: str,
    values: list[Value],
    builder: Builder,
    factors: list[float] | None = None,
    offsets: list[float] | None = None,
) -> Value:
    """Return the sum or product of `factor · value + offset`, any number of them; by default `value` alone."""
    terms = list(zip(values, factors or [1.0] * len(values), offsets or [0.0] * len(values), strict=True))
    while len(terms) > 1 or terms[0][1:] != (1.0, 0.0):
        some, terms = terms[:MAX_INPUTS], terms[MAX_INPUTS:]
        inputs, f, o = zip(*some, strict=True)
        terms.insert(0, (builder.add(Combine(operation, f, o), *inputs), 1.0, 0.0))
    return terms[0][0]


def note_points(x: Value, points: np.ndarray, builder: Builder, *, positive: bool = False) -> None:
    """Note where the points lie; `positive` where the kernel takes no negative number, so that none is drawn."""
    if len(points):
        mean, spread = points.mean(axis=0), points.std(axis=0)
        builder.profile.note_scale(
            x.features, mean, np.minimum(spread, mean / 6) if positive else np.where(spread > 0, spread, 1.0)
        )


def dense(array: Any) -> np.ndarray:
    """Return a dense float64 matrix; scikit-learn keeps points sparse that it was given so."""
    return np.asarray(array.toarray() if hasattr(array, "toarray") else array, dtype=np.float64)


def _kernel_of_pca(transformer: KernelPCA, x: Value, points: Any, builder: Builder) -> Pairwise:
    parameters = {"gamma": transformer.gamma_, "degree": transformer.degree, "coef0": transformer.coef0}
    return kernel_function(transformer, x, transformer.kernel, points, parameters, builder)


def _is_linear(kernel: Pairwise) -> bool:
    return kernel.metric == "dot" and kernel.profile == "identity"
