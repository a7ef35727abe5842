"""Estimators that derive from nothing of scikit-learn's work by their registered lowering, or are refused in words."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import AdaBoostRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from triton_regressors import ExportError, lowers
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.registry import _LOWERINGS

X = np.random.default_rng(0).standard_normal((40, 3))
y = X @ [1.0, -2.0, 3.0]


class Plain:
    """Fits and predicts, and has nothing else."""

    def fit(self, X: Any, y: Any) -> "Plain":
        self.weights = np.linalg.lstsq(X, y, rcond=None)[0]
        return self

    def predict(self, X: Any) -> Any:
        return np.asarray(X) @ self.weights


class Counting(Plain):
    """Says how many features it was fitted on, and can be cloned."""

    def fit(self, X: Any, y: Any) -> "Counting":
        self.n_features_in_ = X.shape[1]
        super().fit(X, y)
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {}

    def set_params(self) -> "Counting":
        return self


class Predicting:
    """Was never fitted: a model of elsewhere."""

    def __init__(self) -> None:
        self.weights = np.array([1.0, -2.0, 3.0])

    def predict(self, X: Any) -> Any:
        return np.asarray(X) @ self.weights


class Unknowing(Plain):
    """Has the count's name, and no count."""

    n_features_in_ = None


class Mixed(RegressorMixin, Plain):
    """Has scikit-learn's mixin without its base."""


class Doubling:
    """A transformer that says nothing of its width."""

    def fit(self, X: Any, y: Any = None) -> "Doubling":
        return self

    def transform(self, X: Any) -> Any:
        return 2 * X


class Unmarked(BaseEstimator):
    """scikit-learn's, but nothing that it learns has a name that ends in an underscore."""

    def fit(self, X: Any, y: Any) -> "Unmarked":
        self.weights = np.ones(3)
        return self

    def predict(self, X: Any) -> Any:
        return np.asarray(X) @ self.weights


@pytest.fixture(autouse=True)
def lowerings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers lowerings of these classes for one test."""
    for cls in (Plain, Predicting, Doubling, Unmarked):
        monkeypatch.setitem(_LOWERINGS, cls, None)

    @lowers(Plain, Predicting, Unmarked)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        return builder.affine(x, estimator.weights, 0.0)

    @lowers(Doubling)
    def double(transformer: Any, x: Any, builder: Any) -> Any:
        return builder.scale(x, 0.0, 2.0)


def fitted(model: Any) -> Any:
    """Return a Pipeline of it that is not asked by scikit-learn whether it is fitted."""
    return Pipeline([("scale", StandardScaler().fit(X)), ("model", model.fit(X, y))])


@pytest.mark.parametrize(
    ("model", "steps"),
    [
        (Plain().fit(X, y), 1),
        (Counting().fit(X, y), 1),
        (Predicting(), 1),
        (Mixed().fit(X, y), 1),
        (Unknowing().fit(X, y), 1),
        (fitted(Plain()), 2),
        (fitted(Counting()), 2),
        (make_pipeline(Plain().fit(X, y)), 1),
        (Pipeline([("double", Doubling()), ("ridge", Ridge().fit(2 * X, y))]), 2),
        (AdaBoostRegressor(Counting(), n_estimators=2, random_state=0).fit(X, y), 3),
    ],
)
def test_what_is_no_estimator_of_scikit_learns_is_exported_by_its_lowering(model: Any, steps: int) -> None:
    compilation = compile_estimator(model, sample=X)
    assert len(compilation.stages[0][1].steps) >= steps
    assert compilation.report.outputs["y"].within(1e-5)


@pytest.mark.parametrize("model", [Plain(), make_pipeline(Plain()), make_pipeline(Doubling(), Ridge())])
def test_without_a_width_it_needs_a_sample(model: Any) -> None:
    """A width that was guessed ended in a mismatch of a later step."""
    parts = [model] if isinstance(model, Plain) else [step for _, step in model.steps]
    for part in parts:
        part.fit(X, y)
    name = type(model).__name__
    with pytest.raises(ExportError) as raised:
        compile_estimator(model)
    assert (
        str(raised.value) == f"Cannot export {name}: it does not say how many features it was fitted on; give a sample."
    )
    assert compile_estimator(model, sample=X).plan.n_features == 3


def test_with_a_width_it_needs_none() -> None:
    assert compile_estimator(Counting().fit(X, y)).plan.n_features == 3
    assert compile_estimator(fitted(Plain())).plan.n_features == 3


def test_where_scikit_learn_itself_does_not_predict_with_it_that_is_said() -> None:
    model = TransformedTargetRegressor(Counting(), func=np.cbrt, inverse_func=np.exp, check_inverse=False).fit(X, y)
    try:
        model.predict(X)
    except AttributeError:
        expected = (
            "Cannot export TransformedTargetRegressor: its own predict fails, because a part of it is not a "
            "scikit-learn estimator. Derive the class of that part from sklearn.base.BaseEstimator, and fit it again."
        )
        with pytest.raises(ExportError) as raised:
            compile_estimator(model, sample=X)
        assert str(raised.value) == expected
    else:  # older releases of scikit-learn ask for no tags here
        assert compile_estimator(model, sample=X).report.outputs["y"].within(1e-5)


def test_unfitted_it_is_refused_in_words() -> None:
    with pytest.raises(
        ExportError, match=r"^Cannot export Counting: its fitted attributes do not fit together \(.*weights'"
    ):
        compile_estimator(Counting(), sample=X)
    expected = (
        "Cannot export Unmarked: none of its attributes ends in '_', as those of a fitted one do; call fit first, or "
        "give its class a __sklearn_is_fitted__."
    )
    with pytest.raises(ExportError) as raised:
        compile_estimator(Unmarked().fit(X, y), sample=X)
    assert str(raised.value) == expected
