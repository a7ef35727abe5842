"""Cases of projections, codes and pooled features before a Ridge, and of their inverses for targets."""

import functools
from typing import Any

import numpy as np
from sklearn.cluster import FeatureAgglomeration
from sklearn.compose import TransformedTargetRegressor
from sklearn.cross_decomposition import CCA, PLSSVD, PLSCanonical, PLSRegression
from sklearn.decomposition import (
    NMF,
    DictionaryLearning,
    FactorAnalysis,
    FastICA,
    IncrementalPCA,
    MiniBatchDictionaryLearning,
    MiniBatchNMF,
    MiniBatchSparsePCA,
    SparseCoder,
    SparsePCA,
    TruncatedSVD,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KernelCenterer, MinMaxScaler, PolynomialFeatures, StandardScaler
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from tests.exporter.catalogue.case import add
from tests.exporter.data import Data, far_from_zero, in_float32, linnerud, several_targets, small

PROJECTIONS: dict[str, Any] = {
    "ipca": IncrementalPCA(3),
    "ipca-all": IncrementalPCA(batch_size=40),
    "ipca-whiten": IncrementalPCA(3, whiten=True),
    "sparse-pca": SparsePCA(3, alpha=0.1, ridge_alpha=0.1, max_iter=20, random_state=0),
    "sparse-pca-dead": SparsePCA(3, alpha=30, max_iter=5, random_state=0),
    "sparse-pca-mini-batch": MiniBatchSparsePCA(3, alpha=0.5, max_iter=10, random_state=0),
    "factor-analysis": FactorAnalysis(2),
    "factor-analysis-varimax": FactorAnalysis(3, rotation="varimax", svd_method="lapack"),
    "ica": FastICA(3, random_state=0),
    "ica-arbitrary": FastICA(3, whiten="arbitrary-variance", algorithm="deflation", fun="cube", random_state=0),
    "ica-no-whiten": FastICA(whiten=False, random_state=0),
    "random-projection": GaussianRandomProjection(4, random_state=0),
    "random-projection-sparse": SparseRandomProjection(3, random_state=0),
    "random-projection-dense": SparseRandomProjection(3, density=1.0, dense_output=True, random_state=0),
    "agglomeration": FeatureAgglomeration(3),
    "agglomeration-sum": FeatureAgglomeration(2, pooling_func=np.sum),
    "agglomeration-one": FeatureAgglomeration(1, linkage="average", metric="cosine"),
}
for name, transformer in PROJECTIONS.items():
    add(name, "affine", make_pipeline(StandardScaler(), transformer, Ridge(1e-3)), small)
for name in ("ipca", "ipca-whiten", "sparse-pca", "factor-analysis", "ica"):
    add(f"{name}-far", "affine", make_pipeline(PROJECTIONS[name], Ridge()), far_from_zero)
for name in ("ipca", "ipca-whiten", "factor-analysis", "ica", "random-projection"):
    add(f"{name}-float32", "affine", make_pipeline(PROJECTIONS[name], Ridge()), in_float32(small))


def kernel_values() -> Data:
    """A kernel of each row of `small` with each of the first forty."""
    X, y = small()
    scaled = (X[:40] - X.mean(axis=0)) / X.std(axis=0)
    return np.exp(-0.1 * ((scaled[:, None] - scaled) ** 2).sum(axis=2)), y[:40]


add("kernel-centerer", "affine", make_pipeline(KernelCenterer(), Ridge(0.1)), kernel_values)
add("ipca-polynomial", "polynomial", make_pipeline(IncrementalPCA(2), PolynomialFeatures(2), Ridge()), small)


# Pooled features

for statistic in (np.max, np.amax, np.min, np.amin, np.median):
    transformer = FeatureAgglomeration(3, pooling_func=statistic)
    add(
        f"agglomeration-{statistic.__name__}",
        "steps",
        make_pipeline(StandardScaler(), transformer, Ridge()),
        far_from_zero,
    )
add(
    "agglomeration-median-of-all",
    "steps",
    make_pipeline(FeatureAgglomeration(1, pooling_func=np.median), Ridge()),
    small,
)


# Scores of partial least squares, whose transform of two matrices no Pipeline can fit


@functools.cache
def scores(name: str, scale: bool) -> FrozenEstimator:
    X, y = several_targets()
    transformers = {"pls": PLSRegression, "pls-canonical": PLSCanonical, "cca": CCA, "pls-svd": PLSSVD}
    return FrozenEstimator(transformers[name](2, scale=scale).fit(X, y))


for name in ("pls", "pls-canonical", "cca", "pls-svd"):
    for scale in (True, False):
        suffix = "" if scale else "-unscaled"
        add(f"{name}-scores{suffix}", "affine", make_pipeline(scores(name, scale), Ridge()), several_targets)


# Codes


@functools.cache
def dictionary() -> np.ndarray:
    atoms = np.random.default_rng(0).standard_normal((6, 5))
    return np.asarray(atoms / np.linalg.norm(atoms, axis=1, keepdims=True))


LEARN = {"n_components": 3, "max_iter": 1, "transform_algorithm": "threshold", "random_state": 0}
CODES: dict[str, Any] = {
    "coder": SparseCoder(dictionary(), transform_algorithm="threshold"),
    "coder-alpha": SparseCoder(dictionary(), transform_algorithm="threshold", transform_alpha=0.2),
    "coder-zero": SparseCoder(dictionary(), transform_algorithm="threshold", transform_alpha=0.0),
    "coder-split": SparseCoder(dictionary(), transform_algorithm="threshold", transform_alpha=0.2, split_sign=True),
    "coder-positive": SparseCoder(
        dictionary(), transform_algorithm="threshold", transform_alpha=0.2, positive_code=True
    ),
    "coder-both": SparseCoder(
        dictionary(), transform_algorithm="threshold", transform_alpha=0.2, split_sign=True, positive_code=True
    ),
    "dictionary": DictionaryLearning(alpha=0.3, **LEARN),
    "dictionary-alpha": DictionaryLearning(alpha=0.3, transform_alpha=0.1, **LEARN),
    "dictionary-mini-batch": MiniBatchDictionaryLearning(alpha=0.3, split_sign=True, **LEARN),
}
for name, coder in CODES.items():
    add(f"code-{name}", "steps", make_pipeline(StandardScaler(), coder, Ridge()), small)
add("code-polynomial", "steps", make_pipeline(CODES["coder-split"], PolynomialFeatures(2), Ridge()), small)


# Inverses, for targets


def positive_targets() -> Data:
    X, y = several_targets()
    return X, np.exp(y / (4 * y.std(axis=0)))


INVERSES: dict[str, Any] = {
    "ipca": IncrementalPCA(3, whiten=True),
    "svd": TruncatedSVD(3, random_state=0),
    "sparse-pca": SparsePCA(3, alpha=0.1, max_iter=5, random_state=0),
    "sparse-pca-mini-batch": MiniBatchSparsePCA(2, max_iter=5, random_state=0),
    "ica": FastICA(3, random_state=0),
    "ica-no-whiten": FastICA(whiten=False, random_state=0),
    "random-projection": GaussianRandomProjection(3, random_state=0),
    "random-projection-sparse": SparseRandomProjection(3, density=1.0, compute_inverse_components=True, random_state=0),
    "agglomeration": FeatureAgglomeration(2),
    "nmf": NMF(2, max_iter=50, init="random", random_state=0),
    "nmf-mini-batch": MiniBatchNMF(2, max_iter=5, init="random", random_state=0),
    "dictionary": DictionaryLearning(alpha=0.3, split_sign=True, **LEARN),
    "dictionary-mini-batch": MiniBatchDictionaryLearning(**{**LEARN, "transform_algorithm": "omp"}),
    "coder": SparseCoder(np.eye(4)[:3] + 0.1),
}
for name, transformer in INVERSES.items():
    add(
        f"targets-{name}",
        "affine",
        TransformedTargetRegressor(
            make_pipeline(MinMaxScaler(), Ridge()), transformer=transformer, check_inverse=False
        ),
        positive_targets,
    )
add(
    "targets-pipeline",
    "affine",
    TransformedTargetRegressor(
        Ridge(), transformer=make_pipeline(StandardScaler(), FastICA(2, random_state=0)), check_inverse=False
    ),
    linnerud,
)
