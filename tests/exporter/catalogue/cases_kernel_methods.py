"""Cases of support vectors, kernel ridge, Gaussian processes, kernel approximations and distances to clusters."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.cluster import Birch, BisectingKMeans, KMeans, MiniBatchKMeans
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import KernelPCA
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)
from sklearn.kernel_approximation import (
    AdditiveChi2Sampler,
    Nystroem,
    PolynomialCountSketch,
    RBFSampler,
    SkewedChi2Sampler,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVR, NuSVR

from tests.exporter.catalogue.case import add
from tests.exporter.data import (
    Data,
    far_from_zero,
    in_float32,
    linnerud,
    several_targets,
    small,
    unit_scale,
)


def rows_of(data: Callable[[], Data], rows: int) -> Callable[[], Data]:
    def make() -> Data:
        X, y = data()
        return X[:rows], y[:rows]

    return make


def one_feature() -> Data:
    """60 × 1, a noisy wave."""
    rng = np.random.default_rng(11)
    X = rng.uniform(-3, 3, (60, 1))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(60)


def many_features() -> Data:
    """80 × 40, more than are compared one by one."""
    rng = np.random.default_rng(12)
    X = rng.standard_normal((80, 40)) + rng.uniform(-3, 3, 40)
    return X, X[:, 0] * X[:, 1] + X[:, 2]


def many_rows() -> Data:
    """1,030 × 3, so that the sum over the points is made in parts."""
    rng = np.random.default_rng(13)
    X = rng.standard_normal((1030, 3))
    return X, np.stack([X[:, 0] * X[:, 1], np.cos(X[:, 2])], axis=1) + 0.1 * rng.standard_normal((1030, 2))


def single_row() -> Data:
    return np.array([[1.0, 2.0, 3.0]]), np.array([4.0])


def positive() -> Data:
    """80 × 4 of mean 8, none of it negative, and a column of zeros."""
    rng = np.random.default_rng(14)
    X = np.abs(8 + rng.standard_normal((80, 4)))
    X[:, 3] = 0
    return X, X[:, 0] * X[:, 1] / 8 + 0.1 * rng.standard_normal(80)


def half_zero() -> Data:
    """40 × 5, half of it zero."""
    rng = np.random.default_rng(15)
    X = rng.standard_normal((40, 5)) * (rng.uniform(size=(40, 5)) < 0.5)
    return X, X[:, 0] - X[:, 1] * X[:, 2]


def fitted_on_sparse(estimator: Any) -> Any:
    X, y = half_zero()
    return estimator.fit(sparse.csr_matrix(X), y)


def noisy_targets() -> Data:
    """40 × 2, two targets of different scale, far from zero."""
    rng = np.random.default_rng(16)
    X = rng.uniform(-2, 2, (40, 2))
    y = np.stack([50 + np.sin(X[:, 0]), 1000 * X[:, 1] ** 2], axis=1)
    return X, y + rng.standard_normal((40, 2)) * [0.1, 30]


def one_noisy_target() -> Data:
    X, y = noisy_targets()
    return X, y[:, 0]


# Support vectors

for name, svr in {
    "rbf": SVR(),
    "rbf-auto": SVR(gamma="auto", C=3),
    "rbf-gamma": SVR(gamma=0.03, C=100, epsilon=0.2),
    "poly": SVR(kernel="poly", coef0=1),
    "poly-0": SVR(kernel="poly", degree=0),
    "sigmoid": SVR(kernel="sigmoid", coef0=-0.2, gamma=0.01),
    "nu-rbf": NuSVR(nu=0.3),
    "nu-poly": NuSVR(kernel="poly", degree=5, coef0=0.5, gamma=0.05),
}.items():
    add(f"svm-{name}", "steps", make_pipeline(StandardScaler(), svr), rows_of(small, 90))
add("svm-linear", "affine", SVR(kernel="linear", max_iter=1000), unit_scale)
add("svm-nu-linear", "affine", make_pipeline(StandardScaler(), NuSVR(kernel="linear", max_iter=1000)), far_from_zero)
add("svm-no-support-vectors", "affine", SVR(epsilon=1e4), small)
add("svm-scaled-far", "steps", make_pipeline(StandardScaler(), SVR()), far_from_zero)
add("svm-one-feature", "steps", SVR(), one_feature)
add("svm-many-features", "steps", SVR(C=10), many_features)
add("svm-float32", "steps", SVR(), in_float32(unit_scale))
add("svm-sparse", "steps", SVR(), half_zero, after_fit=fitted_on_sparse)
add("svm-targets", "steps", make_pipeline(StandardScaler(), MultiOutputRegressor(SVR())), linnerud)

# Kernel ridge

for name, ridge in {
    "poly": KernelRidge(kernel="poly"),
    "polynomial-2-5": KernelRidge(kernel="polynomial", degree=2.5, gamma=0.01, coef0=2, alpha=0.1),
    "rbf": KernelRidge(kernel="rbf"),
    "rbf-gamma": KernelRidge(kernel="rbf", gamma=0.7, alpha=0.1),
    "laplacian": KernelRidge(kernel="laplacian"),
    "sigmoid": KernelRidge(kernel="sigmoid", gamma=0.02, coef0=-1),
    "cosine": KernelRidge(kernel="cosine", alpha=0.1),
}.items():
    add(f"kernel-ridge-{name}", "steps", make_pipeline(StandardScaler(), ridge), rows_of(several_targets, 70))
add("kernel-ridge-linear", "affine", KernelRidge(alpha=0.5), several_targets)
add("kernel-ridge-chi2", "steps", KernelRidge(kernel="chi2", gamma=0.1), positive)
add("kernel-ridge-additive-chi2", "steps", KernelRidge(kernel="additive_chi2", alpha=10), positive)
add(
    "kernel-ridge-alphas",
    "steps",
    KernelRidge(kernel="rbf", alpha=[0.1, 1, 2, 3], gamma=0.1),
    rows_of(several_targets, 90),
)
add("kernel-ridge-single-row", "steps", KernelRidge(kernel="laplacian"), single_row)
add("kernel-ridge-sparse", "steps", KernelRidge(kernel="rbf"), half_zero, after_fit=fitted_on_sparse)
add("kernel-ridge-parts", "steps", KernelRidge(kernel="rbf", gamma=0.5), many_rows)
add("kernel-ridge-many-features", "steps", KernelRidge(kernel="poly", gamma=0.01), many_features)

# Gaussian processes; fixed hyperparameters fit in no time, and some are optimised

noise = WhiteKernel(0.05)
for name, kernel in {
    "rbf": RBF(1.2) + noise,
    "scaled-rbf": 2.5 * RBF([0.8, 3.0]) + noise,
    "matern-0-5": Matern([1.0, 2.0], nu=0.5) + noise,
    "matern-1-5": Matern(1.5) + noise,
    "matern-2-5": 4.0 * Matern([1.0, 2.0], nu=2.5) + noise,
    "matern-0-2": Matern(1.3, nu=0.2) + noise,
    "matern-7-3": Matern(2.0, nu=7.3) + noise,
    "rational-quadratic": RationalQuadratic(1.1, 0.7) + noise,
    "dot-product": DotProduct(0.7) + noise,
    "dot-product-squared": DotProduct(0.7) ** 2 + noise,
    "sum": 0.5 * RBF(0.5) + RBF(3.0) * 2 + 0.3 * DotProduct() + 0.7 + noise,
    "product-of-sums": (RBF(2.0) + 0.5) * (DotProduct() + Matern(1.0)) * 0.5 + noise,
    "power": (RBF(2.0) + 0.3 * Matern(1.0)) ** 1.5 + noise,
    "white-in-product": (RBF(1.0) + noise) * (RBF(3.0) + 0.5),
    "pairwise": PairwiseKernel(metric="linear") * 0.1
    + PairwiseKernel(0.3, metric="laplacian")
    + PairwiseKernel(metric="cosine")
    + noise,
    "pairwise-poly": PairwiseKernel(0.2, metric="poly", pairwise_kernels_kwargs={"degree": 2, "coef0": 1.5}) + noise,
    "pairwise-sigmoid": PairwiseKernel(0.01, metric="sigmoid") + noise + 2,
}.items():
    add(f"gaussian-process-{name}", "std", GaussianProcessRegressor(kernel, optimizer=None), one_noisy_target)
add(
    "gaussian-process-pairwise-chi2",
    "std",
    GaussianProcessRegressor(
        PairwiseKernel(0.1, metric="chi2") + 0.01 * PairwiseKernel(metric="additive_chi2") + 1.0 + noise, optimizer=None
    ),
    rows_of(positive, 30),
)
for name, kernel in {
    "exp-sine-squared": ExpSineSquared(0.9, 2.3) + noise,
    "product": 1.5 * RBF(2.0) * ExpSineSquared(1.0, 3.0) + Matern(1.3, nu=np.inf) + noise,
}.items():
    add(f"gaussian-process-{name}", "std", GaussianProcessRegressor(kernel, optimizer=None), one_feature)
add(
    "gaussian-process-constant",
    "std",
    make_pipeline(
        StandardScaler(),
        GaussianProcessRegressor(ConstantKernel(2.0) ** 2 * ConstantKernel(0.5) + noise, optimizer=None),
    ),
    one_noisy_target,
)
add("gaussian-process", "std", GaussianProcessRegressor(alpha=0.01, normalize_y=True), rows_of(one_feature, 12))
add(
    "gaussian-process-optimised",
    "std",
    GaussianProcessRegressor(1.0 * RBF(1.0) + WhiteKernel(), normalize_y=True),
    rows_of(one_feature, 30),
)
add(
    "gaussian-process-targets",
    "std",
    GaussianProcessRegressor(RBF(1.0) * 2 + noise, normalize_y=True, optimizer=None),
    noisy_targets,
)
add(
    "gaussian-process-targets-unscaled",
    "std",
    GaussianProcessRegressor(RBF(1.0) + Matern(1.0) + noise, optimizer=None),
    noisy_targets,
)
add(
    "gaussian-process-column-target",
    "std",
    GaussianProcessRegressor(RBF(1.0), alpha=np.linspace(0.1, 1, 40), optimizer=None),
    lambda: (one_noisy_target()[0], one_noisy_target()[1][:, None]),
)
add(
    "gaussian-process-far",
    "std",
    GaussianProcessRegressor(RBF(2.0) + noise, optimizer=None, normalize_y=True),
    rows_of(far_from_zero, 50),
)
add(
    "gaussian-process-many-features",
    "std",
    GaussianProcessRegressor(RBF(8.0) + noise, optimizer=None),
    many_features,
)
add("gaussian-process-single-row", "std", GaussianProcessRegressor(RBF(2.0), alpha=0.1, optimizer=None), single_row)

# Transformers before a Ridge

for name, transformer in {
    "nystroem": Nystroem(n_components=20, random_state=0),
    "nystroem-rbf-gamma": Nystroem(gamma=0.05, n_components=200, random_state=0),
    "nystroem-params": Nystroem(
        "poly", kernel_params={"gamma": 0.3, "degree": 2.5, "coef0": 9}, n_components=15, random_state=0
    ),
    "nystroem-cosine": Nystroem("cosine", n_components=5, random_state=0),
    "rbf-sampler": RBFSampler(n_components=50, random_state=0),
    "rbf-sampler-scale": RBFSampler(gamma="scale", n_components=7, random_state=0),
    "count-sketch": PolynomialCountSketch(n_components=30, random_state=0),
    "count-sketch-1": PolynomialCountSketch(degree=1, coef0=2, n_components=9, random_state=0),
    "count-sketch-3": PolynomialCountSketch(degree=3, gamma=0.3, coef0=1.5, n_components=25, random_state=0),
    "count-sketch-5": PolynomialCountSketch(degree=5, gamma=0.1, coef0=1, n_components=10, random_state=0),
    "kernel-pca-poly": KernelPCA(5, kernel="poly", gamma=0.05),
    "kernel-pca-rbf": KernelPCA(6, kernel="rbf", gamma=0.1),
    "kernel-pca-sigmoid": KernelPCA(3, kernel="sigmoid", gamma=0.01, coef0=0.3),
    "kernel-pca-all": KernelPCA(kernel="rbf", gamma=0.5, fit_inverse_transform=True),
    "k-means": KMeans(6, n_init=1, random_state=0),
    "k-means-mini-batch": MiniBatchKMeans(4, n_init=1, random_state=0),
    "k-means-bisecting": BisectingKMeans(5, random_state=0),
    "birch": Birch(threshold=3.0, n_clusters=None),
}.items():
    add(f"before-ridge-{name}", "steps", make_pipeline(StandardScaler(), transformer, Ridge()), rows_of(small, 60))
add(
    "before-ridge-nystroem-linear",
    "affine",
    make_pipeline(Nystroem("linear", n_components=3, random_state=0), Ridge()),
    unit_scale,
)
add("before-ridge-kernel-pca-linear", "affine", make_pipeline(KernelPCA(3), Ridge()), unit_scale)
add(
    "before-ridge-nystroem-chi2",
    "steps",
    make_pipeline(Nystroem("chi2", n_components=9, random_state=0), Ridge()),
    positive,
)
add(
    "before-ridge-nystroem-additive-chi2",
    "steps",
    make_pipeline(Nystroem("additive_chi2", n_components=2, random_state=0), Ridge()),
    positive,
)
add(
    "before-ridge-nystroem-sparse",
    "steps",
    make_pipeline(Nystroem(n_components=9, random_state=0), Ridge()),
    half_zero,
    after_fit=fitted_on_sparse,
)
add(
    "before-ridge-skewed-chi2",
    "steps",
    make_pipeline(SkewedChi2Sampler(skewedness=8, n_components=20, random_state=0), Ridge()),
    unit_scale,
)
for steps, interval in ((1, None), (2, None), (3, None), (4, 0.3)):
    sampler = AdditiveChi2Sampler(sample_steps=steps, sample_interval=interval)
    add(f"before-ridge-additive-chi2-{steps}", "steps", make_pipeline(sampler, Ridge()), positive)
add(
    "before-ridge-additive-chi2-clipped",
    "steps",
    make_pipeline(MinMaxScaler(clip=True), AdditiveChi2Sampler(), LinearRegression()),
    small,
)
add(
    "before-ridge-k-means-bisecting-unscaled",
    "steps",
    make_pipeline(BisectingKMeans(3, random_state=0), Ridge()),
    rows_of(several_targets, 50),
)
add(
    "kernel-pca-of-targets",
    "steps",
    TransformedTargetRegressor(
        Ridge(),
        transformer=make_pipeline(StandardScaler(), KernelPCA(3, kernel="rbf", gamma=0.3, fit_inverse_transform=True)),
        check_inverse=False,
    ),
    noisy_targets,
)
