"""Linear projections: PCA and truncated SVD."""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA, TruncatedSVD

from triton_regressors.exporter.builder import Builder, Value
from triton_regressors.exporter.registry import lowers, lowers_inverse


@lowers(PCA)
def lower_pca(pca: PCA, x: Value, builder: Builder) -> Value:
    """`z = x componentsᵀ − mean componentsᵀ`, divided by the components' standard deviations where `whiten` is set."""
    spread = np.sqrt((pca.components_**2 * pca.explained_variance_[:, None]).sum(0) + pca.noise_variance_)
    builder.note_scale(x, pca.mean_, np.where(spread > 0, spread, 1.0))
    # As scikit-learn does: what was fitted on float32 projects its mean in float32, and its answers show it.
    weight, intercept = _float64(pca.components_.T), -_float64(pca.mean_.reshape(1, -1) @ pca.components_.T)[0]
    if pca.whiten:
        deviations = _float64(_deviations(pca))
        weight, intercept = weight / deviations, intercept / deviations
    return builder.affine(x, weight, intercept)


@lowers_inverse(PCA)
def invert_pca(pca: PCA, y: Value, builder: Builder) -> Value:
    """`x = z components + mean`, the components multiplied by their standard deviations where `whiten` is set."""
    weight = pca.components_
    if pca.whiten:
        weight = weight * np.sqrt(pca.explained_variance_)[:, None]
    return builder.affine(y, weight, pca.mean_)


@lowers(TruncatedSVD)
def lower_truncated_svd(svd: TruncatedSVD, x: Value, builder: Builder) -> Value:
    """`z = x componentsᵀ`."""
    return builder.affine(x, svd.components_.T, 0.0)


def _deviations(pca: PCA) -> np.ndarray:
    """Return the components' standard deviations, held off zero as scikit-learn does."""
    deviations = np.sqrt(pca.explained_variance_)
    held: np.ndarray = np.maximum(deviations, np.finfo(deviations.dtype).eps)
    return held


def _float64(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, dtype=np.float64)
