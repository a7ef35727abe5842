"""Kernel methods that cannot be exported, and promises of their exports beyond the catalogue."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import Birch, KMeans
from sklearn.decomposition import KernelPCA
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ConstantKernel, Matern, PairwiseKernel, WhiteKernel
from sklearn.kernel_approximation import AdditiveChi2Sampler, Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVR, NuSVR

from tests.exporter.data import linnerud
from tests.kernels.operations import run_plan
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.estimators.gaussian_process import matern_table
from triton_regressors.exporter.lowering.builder import Builder
from triton_regressors.exporter.passes.optimise import fuse
from triton_regressors.kernels.ops.points.pairwise import Pairwise
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine

X, targets = linnerud()
y = targets[:, 0]
K = X @ X.T + 1e4 * np.eye(len(X))

ALL = "'linear', 'poly', 'polynomial', 'rbf', 'laplacian', 'sigmoid', 'cosine', 'chi2', 'additive_chi2'"
FOUR = "'linear', 'poly', 'rbf', 'sigmoid'"
KERNELS = "Take scikit-learn's own kernels, such as RBF and Matern, and sums and products of them."
CLUSTERS = (
    "it predicts clusters, and only regressors are exported. Put it before a regressor in a Pipeline, which reads its "
    "distances to their centres."
)


class Halved(RBF):
    """A kernel of one's own."""

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        return super().__call__(X, Y, eval_gradient) / 2


def gaussian_process(kernel: Any) -> Callable[[], Any]:
    return lambda: GaussianProcessRegressor(kernel, alpha=1.0, optimizer=None).fit(X, y)


def compound() -> GaussianProcessRegressor:
    estimator = gaussian_process(RBF(50.0))()
    estimator.kernel_ = CompoundKernel([RBF(50.0)])
    return estimator


def of_words() -> GaussianProcessRegressor:
    estimator = GaussianProcessRegressor(WhiteKernel(), optimizer=None)
    return estimator.fit(np.array([["a"], ["b"]], dtype=object), [1.0, 2.0])


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "SVR precomputed": (
        lambda: SVR(kernel="precomputed").fit(K, y),
        f"Cannot export SVR: kernel is 'precomputed'; supported: {FOUR}.",
    ),
    "SVR callable": (
        lambda: SVR(kernel=linear_kernel, max_iter=9).fit(X, y),
        f"Cannot export SVR: kernel is a callable; supported: {FOUR}.",
    ),
    "NuSVR among several": (
        lambda: MultiOutputRegressor(NuSVR(kernel="precomputed")).fit(K, targets),
        f"Cannot export NuSVR (step 'estimators_[0]'): kernel is 'precomputed'; supported: {FOUR}.",
    ),
    "KernelRidge precomputed": (
        lambda: KernelRidge(kernel="precomputed").fit(K, y),
        f"Cannot export KernelRidge: kernel is 'precomputed'; supported: {ALL}.",
    ),
    "KernelRidge callable": (
        lambda: KernelRidge(kernel=lambda a, b: float(a @ b)).fit(X, y),
        f"Cannot export KernelRidge: kernel is a callable; supported: {ALL}.",
    ),
    "Nystroem callable": (
        lambda: make_pipeline(Nystroem(lambda a, b: float(a @ b), n_components=5), Ridge()).fit(X, y),
        f"Cannot export Nystroem (step 'nystroem'): kernel is a callable; supported: {ALL}.",
    ),
    "KernelPCA precomputed": (
        lambda: make_pipeline(KernelPCA(2, kernel="precomputed"), Ridge()).fit(K, y),
        f"Cannot export KernelPCA (step 'kernelpca'): kernel is 'precomputed'; supported: {ALL}.",
    ),
    "clustering": (
        lambda: KMeans(2, n_init=1).fit(X),
        f"Cannot export KMeans: {CLUSTERS}",
    ),
    "clustering at the end": (
        lambda: make_pipeline(StandardScaler(), Birch()).fit(X),
        f"Cannot export Birch (step 'birch'): {CLUSTERS}",
    ),
    "unfitted Gaussian process": (
        lambda: GaussianProcessRegressor(RBF()),
        "Cannot export GaussianProcessRegressor: it is not fitted; call fit first.",
    ),
    "Gaussian process of words": (
        of_words,
        "Cannot export GaussianProcessRegressor: it was fitted on something other than a matrix of numbers.",
    ),
    "compound kernel": (
        compound,
        f"Cannot export GaussianProcessRegressor: there is no lowering for its kernel CompoundKernel. {KERNELS}",
    ),
    "kernel of one's own": (
        gaussian_process(2.0 * Halved(50.0) + WhiteKernel()),
        f"Cannot export GaussianProcessRegressor: there is no lowering for its kernel Halved. {KERNELS}",
    ),
    "PairwiseKernel callable": (
        gaussian_process(PairwiseKernel(metric=lambda a, b, gamma: float(np.exp(-gamma * ((a - b) ** 2).sum())))),
        f"Cannot export GaussianProcessRegressor: PairwiseKernel has metric a callable; supported: {ALL}.",
    ),
    "Matern that overflows": (
        gaussian_process(Matern(50.0, nu=40.0)),
        "Cannot export GaussianProcessRegressor: Matern has nu=40, for which scikit-learn's own formula overflows.",
    ),
    "constants alone, without a sample": (
        gaussian_process(ConstantKernel(2.0)),
        "Cannot export GaussianProcessRegressor: it does not say how many features it was fitted on; give a sample.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_why(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(make())
    assert str(raised.value) == message


def test_a_kernel_pca_without_inverse_is_refused_for_targets() -> None:
    builder = Builder(3)
    with pytest.raises(ExportError) as raised:
        builder.lower_inverse(KernelPCA(2, kernel="rbf").fit(targets), builder.input)
    assert str(raised.value) == (
        "Cannot export KernelPCA: it has no inverse_transform; fit it with fit_inverse_transform=True."
    )


def test_a_gaussian_process_of_constants_is_exported_with_a_sample() -> None:
    estimator = gaussian_process(ConstantKernel(2.0))()
    plan = compile_estimator(estimator, sample=X).plan
    mean, std = estimator.predict(X, return_std=True)
    found = run_plan(plan, X.astype(np.float32))
    assert np.allclose(found["y"][:, 0], mean, rtol=1e-12)
    assert np.allclose(found["std"][:, 0], std, rtol=1e-12)


@pytest.mark.parametrize(
    "transformer", [AdditiveChi2Sampler(sample_steps=2), Nystroem("chi2", n_components=5, random_state=0)]
)
def test_zeros_that_scaling_leaves_are_not_negative_and_negative_rows_get_nan(transformer: Any) -> None:
    """scikit-learn's scaler takes the smallest training row to zero exactly; ours may be off by a rounding error."""
    rng = np.random.default_rng(0)
    rows = (1000 + rng.uniform(-1, 1, (50, 6))).astype(np.float32)
    double = rows.astype(np.float64)
    estimator = make_pipeline(MinMaxScaler(), transformer, Ridge()).fit(double, double.sum(axis=1))
    plan = compile_estimator(estimator, sample=double).plan
    assert np.allclose(run_plan(plan, rows)["y"][:, 0], estimator.predict(double), rtol=1e-9)
    assert np.isnan(run_plan(plan, rows - 10)["y"]).all()
    with pytest.raises(ValueError, match=r"[Nn]egative values"):  # in float32 its own scaler leaves -4e-6
        estimator.predict(rows)
    with pytest.raises(
        ExportError, match=r"^Cannot verify Pipeline: it refuses the rows of the sample \(.*egative val"
    ):
        compile_estimator(estimator, sample=rows)


def test_without_noise_the_std_is_as_sure_as_scikit_learns() -> None:
    """Near its training rows the variance of a noise-free process is the difference of numbers as large as its prior.

    With a prior variance of 1, float64 leaves an error of some 1e-15 times the rows' weights, while the standard
    deviation itself is 1e-5 (√alpha): scikit-learn's own answer is certain to about 1e-8 at most. The mean does not
    cancel in this way.
    """
    rng = np.random.default_rng(0)
    rows = rng.uniform(-3, 3, (25, 1)).astype(np.float32).astype(np.float64)
    estimator = GaussianProcessRegressor(RBF(0.5), optimizer=None).fit(rows, np.sin(rows[:, 0]))
    asked = np.concatenate([rows, rng.uniform(-3, 3, (75, 1))]).astype(np.float32)
    plan = compile_estimator(estimator, sample=asked).plan
    mean, std = estimator.predict(asked.astype(np.float64), return_std=True)
    found = run_plan(plan, asked)
    assert np.abs(found["y"][:, 0] - mean).max() <= 1e-10
    assert np.abs(found["std"][:, 0] - std).max() <= 5e-8
    assert std.min() < 2e-5


@pytest.mark.parametrize("nu", [0.01, 0.3, 0.7, 1.0, 1.25, 3.5, 9.9, 19.0])
def test_matern_tables_are_the_function_to_1e_12(nu: float) -> None:
    """At distances from nothing to far beyond the last piece, and where pieces meet."""
    distances = np.concatenate([[0.0], np.logspace(-20, 4, 5001), 2.0 ** np.arange(-40, 8), 1.25 * 2.0 ** np.arange(9)])
    table = matern_table(nu)
    op = Pairwise(
        points=np.zeros((1, 1)), shift=np.zeros(1), factor=np.ones(1), metric="euclidean", profile="table", table=table
    )  # fmt: skip
    builder = Builder(1)
    found = run_plan(builder.plan({"y": builder.add(op, builder.input)}), distances[:, None])["y"]
    expected = Matern(1.0, nu=nu)(np.maximum(distances, 2.0**-52)[:, None], np.zeros((1, 1)))
    assert np.abs(found - expected).max() <= 1e-12


@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
def test_fifty_thousand_support_vectors_are_lowered_in_a_moment(kernel: str) -> None:
    rng = np.random.default_rng(0)
    estimator = SVR(kernel=kernel, max_iter=10).fit(rng.standard_normal((30, 20)), rng.standard_normal(30))
    estimator.support_vectors_ = rng.standard_normal((50_000, 20))
    estimator._dual_coef_ = estimator.dual_coef_ = rng.uniform(-1, 1, (1, 50_000))
    builder = Builder(20)
    plan = fuse(builder.plan(builder.lower_outputs(estimator, builder.input)))
    rows = rng.standard_normal((4, 20)).astype(np.float32)
    vectors, weight = estimator.support_vectors_, estimator.dual_coef_.T
    matrix = {
        "rbf": lambda: rbf_kernel(rows, vectors, gamma=estimator._gamma),
        "poly": lambda: (estimator._gamma * rows @ vectors.T) ** 3,
        "linear": lambda: rows @ vectors.T,
    }[kernel]()
    assert np.allclose(run_plan(plan, rows)["y"], matrix @ weight + estimator.intercept_, rtol=1e-9, atol=1e-9)
    # No program goes through all of them.
    launched = plan.on_device(torch.device("cpu")).steps
    parts = {step.operation.parts for step in launched if isinstance(step.operation, PairwiseAffine)}
    assert parts == (set() if kernel == "linear" else {49})
