"""Linear projections and what else turns features into components: PCA and its kin, codes, pooled features.

If a transform solves a problem anew for each row (NMF, dictionaries, topics), there is no plan for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg
from sklearn.cluster import FeatureAgglomeration
from sklearn.cross_decomposition import CCA, PLSSVD, PLSCanonical, PLSRegression
from sklearn.decomposition import (
    NMF,
    PCA,
    DictionaryLearning,
    FactorAnalysis,
    FastICA,
    IncrementalPCA,
    LatentDirichletAllocation,
    MiniBatchDictionaryLearning,
    MiniBatchNMF,
    MiniBatchSparsePCA,
    SparseCoder,
    SparsePCA,
    TruncatedSVD,
)
from sklearn.linear_model import ridge_regression
from sklearn.preprocessing import KernelCenterer
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.products import product
from triton_regressors.exporter.lowering.registry import lowers, lowers_inverse, lowers_transform, refuses
from triton_regressors.kernels.ops.columns.pool import Pool

# Principal components


@lowers(PCA, IncrementalPCA)
def lower_pca(pca: Any, x: Value, builder: Builder) -> Value:
    """`z = x componentsᵀ − mean componentsᵀ`, divided by the components' standard deviations where `whiten` is set."""
    spread = np.sqrt((pca.components_**2 * pca.explained_variance_[:, None]).sum(0) + pca.noise_variance_)
    builder.profile.note_scale(x.features, pca.mean_, _positive(spread))
    # As scikit-learn does: what was fitted on float32 projects its mean in float32, and its answers show it.
    multiply = np.matmul if pca.components_.dtype == np.float32 else product
    weight, intercept = _float64(pca.components_.T), -_float64(multiply(pca.mean_.reshape(1, -1), pca.components_.T))[0]
    if pca.whiten:
        deviations = _float64(_deviations(pca))
        weight, intercept = weight / deviations, intercept / deviations
    return builder.affine(x, weight, intercept)


@lowers_inverse(PCA, IncrementalPCA)
def invert_pca(pca: Any, y: Value, builder: Builder) -> Value:
    """`x = z components + mean`, the components multiplied by their standard deviations where `whiten` is set."""
    weight = pca.components_
    if pca.whiten:
        weight = weight * np.sqrt(pca.explained_variance_)[:, None]
    return builder.affine(y, weight, pca.mean_)


@lowers(SparsePCA, MiniBatchSparsePCA)
def lower_sparse_pca(pca: Any, x: Value, builder: Builder) -> Value:
    """`z` minimises `‖x − mean − z components‖² + ridge_alpha ‖z‖²`, which is linear in `x − mean`."""
    builder.profile.note_scale(x.features, pca.mean_, 1.0)
    identity = np.eye(x.width)
    solution = ridge_regression(_float64(pca.components_).T, identity, pca.ridge_alpha, solver="cholesky")
    return builder.affine(builder.scale(x, pca.mean_, 1.0), solution, 0.0)


@lowers_inverse(SparsePCA, MiniBatchSparsePCA)
def invert_sparse_pca(pca: Any, y: Value, builder: Builder) -> Value:
    """`x = z components + mean`."""
    return builder.affine(y, pca.components_, pca.mean_)


@lowers(TruncatedSVD)
def lower_truncated_svd(svd: TruncatedSVD, x: Value, builder: Builder) -> Value:
    """`z = x componentsᵀ`."""
    return builder.affine(x, svd.components_.T, 0.0)


@lowers_inverse(TruncatedSVD, NMF, MiniBatchNMF)
def invert_by_components(transformer: Any, y: Value, builder: Builder) -> Value:
    """`x = z components`."""
    return builder.affine(y, transformer.components_, 0.0)


# Latent factors


@lowers(FactorAnalysis)
def lower_factor_analysis(analysis: FactorAnalysis, x: Value, builder: Builder) -> Value:
    """`z = (x − mean) Ψ⁻¹Wᵀ (I + W Ψ⁻¹ Wᵀ)⁻¹`, the mean of the factors given `x`; Ψ is the noise variance."""
    components, noise = analysis.components_, analysis.noise_variance_
    builder.profile.note_scale(x.features, analysis.mean_, _positive(np.sqrt((components**2).sum(0) + noise)))
    weighted = components / noise
    covariance = linalg.inv(np.eye(len(components)) + product(weighted, components.T))
    return builder.affine(builder.scale(x, analysis.mean_, 1.0), product(_float64(weighted.T), covariance), 0.0)


@lowers(FastICA)
def lower_fast_ica(ica: FastICA, x: Value, builder: Builder) -> Value:
    """`z = (x − mean) componentsᵀ`; without `whiten` there is no mean."""
    if ica.whiten:
        spread = np.linalg.norm(ica.mixing_, axis=1) if ica.whiten == "unit-variance" else np.ones(x.width)
        builder.profile.note_scale(x.features, ica.mean_, _positive(spread))
        x = builder.scale(x, ica.mean_, 1.0)
    return builder.affine(x, ica.components_.T, 0.0)


@lowers_inverse(FastICA)
def invert_fast_ica(ica: FastICA, y: Value, builder: Builder) -> Value:
    """`x = z mixingᵀ + mean`; without `whiten` there is no mean."""
    return builder.affine(y, ica.mixing_.T, ica.mean_ if ica.whiten else 0.0)


@lowers_transform(PLSRegression, PLSCanonical, CCA)
def transform_by_partial_least_squares(estimator: Any, x: Value, builder: Builder) -> Value:
    """`z = (x − x_mean) / x_std · x_rotations`, the scores of `x`."""
    builder.profile.note_scale(x.features, estimator._x_mean, estimator._x_std)
    scaled = builder.scale(x, estimator._x_mean, 1.0 / estimator._x_std)
    return builder.affine(scaled, estimator.x_rotations_, 0.0)


@lowers(PLSSVD)
def lower_pls_svd(estimator: PLSSVD, x: Value, builder: Builder) -> Value:
    """`z = (x − x_mean) / x_std · x_weights`, the scores of `x`."""
    builder.profile.note_scale(x.features, estimator._x_mean, estimator._x_std)
    scaled = builder.scale(x, estimator._x_mean, 1.0 / estimator._x_std)
    return builder.affine(scaled, estimator.x_weights_, 0.0)


# Random projections and pooled features


@lowers(GaussianRandomProjection, SparseRandomProjection)
def lower_random_projection(projection: Any, x: Value, builder: Builder) -> Value:
    """`z = x componentsᵀ`."""
    return builder.affine(x, projection.components_.T, 0.0)


@lowers_inverse(GaussianRandomProjection, SparseRandomProjection)
def invert_random_projection(projection: Any, y: Value, builder: Builder) -> Value:
    """`x = z (components⁺)ᵀ`, by the pseudo-inverse."""
    inverse = getattr(projection, "inverse_components_", None)
    if inverse is None:
        inverse = projection._compute_inverse_components()
    return builder.affine(y, inverse.T, 0.0)


POOLS: dict[Any, str] = {
    np.mean: "mean",
    np.sum: "sum",
    np.max: "max",
    np.amax: "max",
    np.min: "min",
    np.amin: "min",
    np.median: "median",
}


@lowers(FeatureAgglomeration)
def lower_feature_agglomeration(agglomeration: FeatureAgglomeration, x: Value, builder: Builder) -> Value:
    """One column for each cluster of features: the mean, or another function, of the features in it."""
    pool = POOLS.get(agglomeration.pooling_func)
    if pool is None:
        shown = getattr(agglomeration.pooling_func, "__name__", repr(agglomeration.pooling_func))
        raise builder.refuse(
            agglomeration, f"pooling_func is {shown}; supported: numpy's mean, sum, max, amax, min, amin, median"
        )
    labels, inverse = np.unique(agglomeration.labels_, return_inverse=True)
    belongs = inverse[:, None] == np.arange(len(labels))  # [features, clusters]
    sizes = belongs.sum(axis=0)
    if pool in ("mean", "sum"):
        return builder.affine(x, belongs / (sizes if pool == "mean" else 1), 0.0)
    members = np.full((len(labels), sizes.max()), -1, dtype=np.int32)
    for row, inside in zip(members, belongs.T, strict=True):
        row[: inside.sum()] = np.flatnonzero(inside)
    return builder.add(Pool(members, pool), x)


@lowers_inverse(FeatureAgglomeration)
def invert_feature_agglomeration(agglomeration: FeatureAgglomeration, y: Value, builder: Builder) -> Value:
    """Each feature is its cluster's value."""
    return builder.columns(y, np.unique(agglomeration.labels_, return_inverse=True)[1])


@lowers(KernelCenterer)
def lower_kernel_centerer(centerer: KernelCenterer, x: Value, builder: Builder) -> Value:
    """`z = x − mean(x) − K_fit_rows + K_fit_all` for a row of kernel values with each of the training rows."""
    weight = np.eye(x.width) - 1.0 / x.width
    return builder.affine(x, weight, centerer.K_fit_all_ - _float64(centerer.K_fit_rows_))


# Codes


@lowers(DictionaryLearning, MiniBatchDictionaryLearning, SparseCoder)
def lower_dictionary(coder: Any, x: Value, builder: Builder) -> Value:
    """`z = sign(c) · max(|c| − alpha, 0)` for `c = x dictionaryᵀ`, by `transform_algorithm="threshold"`.

    That is `max(c − alpha, 0) − max(−c − alpha, 0)`, two columns with `split_sign`; `positive_code` keeps the first.
    """
    if coder.transform_algorithm != "threshold":
        reason = "its transform is an iterative solver for each row"
        raise builder.refuse(
            coder, f"transform_algorithm is '{coder.transform_algorithm}', {reason}; supported: 'threshold'"
        )
    dictionary = _float64(_dictionary(coder))
    alpha = getattr(coder, "alpha", 1.0) if coder.transform_alpha is None else coder.transform_alpha
    signs = [1.0] if coder.positive_code else [1.0, -1.0]
    parts = builder.affine(x, np.hstack([sign * dictionary.T for sign in signs]), -alpha, "relu")
    one = np.eye(len(dictionary))
    mix = np.eye(parts.width, 2 * len(one)) if coder.split_sign else np.vstack([sign * one for sign in signs])
    return builder.affine(parts, mix, 0.0)


@lowers_inverse(DictionaryLearning, MiniBatchDictionaryLearning, SparseCoder)
def invert_dictionary(coder: Any, y: Value, builder: Builder) -> Value:
    """`x = z dictionary`, the columns of the two signs taken from each other before where `split_sign` is set."""
    dictionary = _float64(_dictionary(coder))
    return builder.affine(y, np.vstack([dictionary, -dictionary]) if coder.split_sign else dictionary, 0.0)


refuses(
    "its transform is an iterative solver, run for each row until it converges",
    "Take a projection in its place, such as PCA, TruncatedSVD or FactorAnalysis.",
    NMF,
    MiniBatchNMF,
    LatentDirichletAllocation,
)


def _dictionary(coder: Any) -> Any:
    return coder.dictionary if isinstance(coder, SparseCoder) else coder.components_


def _deviations(pca: Any) -> np.ndarray:
    """Return the components' standard deviations, held off zero as scikit-learn does."""
    deviations = np.sqrt(pca.explained_variance_)
    held: np.ndarray = np.maximum(deviations, np.finfo(deviations.dtype).eps)
    return held


def _positive(spread: np.ndarray) -> np.ndarray:
    """Return a spread with one in place of zero."""
    return np.where(spread > 0, spread, 1.0)


def _float64(array: Any) -> np.ndarray:
    return np.asarray(array, dtype=np.float64)
