"""A subclass, or an instance with methods of its own, is exported as its base only if it computes as that does."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from triton_regressors import ExportError, lowers
from triton_regressors.exporter import compiler
from triton_regressors.exporter.registry import _ANSWERS, _LOWERINGS, answers

X = np.random.default_rng(0).standard_normal((40, 3))
y = X @ [1.0, -2.0, 3.0]


class Capped(Ridge):
    """Differs from its base where no drawn row lies, by a hook that `predict` calls."""

    def _decision_function(self, X: Any) -> Any:
        return np.minimum(super()._decision_function(X), 100.0)


class CappedTwice(Capped):
    """Overrides nothing itself."""


class CappedBoosting(GradientBoostingRegressor):
    def _raw_predict(self, X: Any) -> Any:
        return np.minimum(super()._raw_predict(X), 100.0)


class Watching(Ridge):
    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)


class Mixin:
    def predict(self, X: Any) -> Any:
        return np.minimum(super().predict(X), 100.0)  # type: ignore[misc]


class Mixed(Mixin, Ridge):
    pass


class Uncentred(StandardScaler):
    def _reset(self) -> None:
        super()._reset()


class Own(Ridge):
    """Fits, scores and shows itself in ways of its own, takes a parameter more, and keeps what it computed."""

    def __init__(self, alpha: float = 1.0, note: str = "") -> None:
        super().__init__(alpha)
        self.note = note

    def fit(self, X: Any, y: Any, sample_weight: Any = None, more: Any = None) -> "Own":
        super().fit(X, y, sample_weight)
        assert self.norm >= 0
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        return 1.0

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return "Own()"

    def __sklearn_tags__(self) -> Any:
        return super().__sklearn_tags__()

    @functools.cached_property
    def norm(self) -> float:
        return float(np.linalg.norm(self.coef_))

    def explain(self) -> str:
        return f"{self.norm}"


def compiled(estimator: Any) -> Any:
    return compiler.compile_estimator(estimator).plan


@pytest.mark.parametrize(
    ("cls", "base", "name"),
    [
        (Capped, "Ridge", "_decision_function"),
        (CappedTwice, "Ridge", "_decision_function"),
        (CappedBoosting, "GradientBoostingRegressor", "_raw_predict"),
        (Watching, "Ridge", "__getattribute__"),
        (Mixed, "Ridge", "predict"),
    ],
)
def test_a_subclass_that_overrides_what_its_base_computes_with_is_not_its_base(cls: type, base: str, name: str) -> None:
    pattern = rf"no lowering is registered for it \(it is no {base}, as it overrides {name}\)\. Supported: "
    with pytest.raises(ExportError, match=rf"^Cannot export {cls.__name__}: {pattern}"):
        compiled(cls().fit(X, y))
    with pytest.raises(
        ExportError, match=rf"^Cannot export {cls.__name__} \(step '{cls.__name__.lower()}'\): {pattern}"
    ):
        compiled(make_pipeline(StandardScaler(), cls()).fit(X, y))


def test_so_is_a_transformer_in_either_direction() -> None:
    with pytest.raises(ExportError, match=r"registered for it \(it is no StandardScaler, as it overrides _reset\)"):
        compiled(make_pipeline(Uncentred(), Ridge()).fit(X, y))
    with pytest.raises(ExportError, match=r"its inverse_transform \(it is no StandardScaler, as it overrides _reset\)"):
        compiled(TransformedTargetRegressor(Ridge(), transformer=Uncentred()).fit(X, y))


def test_a_subclass_that_overrides_nothing_of_that_is_its_base() -> None:
    for model in (Own(), make_pipeline(StandardScaler(), Own()), FrozenEstimator(Own().fit(X, y))):
        assert compiled(model.fit(X, y)).n_features == 3


def test_a_registration_of_its_own_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_LOWERINGS, Capped, None)

    @lowers(Capped)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        return builder.elementwise(builder.affine(x, estimator.coef_, estimator.intercept_), "identity", high=100.0)

    assert len(compiled(CappedTwice().fit(X, y)).steps) == 2


@pytest.mark.parametrize("name", ["predict", "_decision_function"])
def test_a_method_set_on_the_instance_is_refused(name: str) -> None:
    model = Ridge().fit(X, y)
    setattr(model, name, lambda X: np.minimum(Ridge.predict(model, X), 100.0))
    with pytest.raises(
        ExportError, match=rf"^Cannot export Ridge: its attribute {name} stands in for the method of its"
    ):
        compiled(model)
    with pytest.raises(ExportError, match=r"^Cannot export Ridge \(step 'ridge'\): its attribute"):
        compiled(make_pipeline(StandardScaler().fit(X), model))
    delattr(model, name)
    model.fit = model.score = None  # nothing that an answer depends on
    assert compiled(model).n_features == 3


class Renaming(TransformerMixin, BaseEstimator):
    """Has a fitted attribute that no class has."""

    def fit(self, X: Any, y: Any = None) -> "Renaming":
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> Any:
        return X


def test_a_lowering_that_fails_is_one_sentence_with_its_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(_LOWERINGS, Renaming, None)

    @lowers(Renaming)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        return {"z": 1}["y"]

    with pytest.raises(ExportError) as raised:
        compiled(make_pipeline(Renaming(), Ridge()).fit(X, y))
    sentence = r"Cannot export Renaming (step 'renaming'): what it holds does not fit together (KeyError: 'y')."
    assert str(raised.value) == sentence
    assert isinstance(raised.value.__cause__, KeyError)


class Distant(Ridge):
    """Rounds what it predicts, as a model that is fitted in float32 would."""

    def predict(self, X: Any) -> Any:
        return super().predict(X).round(1)


def test_what_a_model_answers_can_be_registered_beside_its_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_LOWERINGS, Distant, None)
    monkeypatch.setitem(_ANSWERS, Distant, None)

    @lowers(Distant)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        return builder.affine(x, estimator.coef_, estimator.intercept_)

    @answers(Distant)
    def answer(estimator: Any, table: Any, outputs: Any) -> dict[str, Any]:
        return {"y": Ridge.predict(estimator, table)}

    alone = Distant().fit(X, y)
    search = GridSearchCV(make_pipeline(StandardScaler(), FrozenEstimator(alone)), {}, cv=2)
    for model in (alone, make_pipeline(StandardScaler(), Distant()), search):
        report = compiler.compile_estimator(model.fit(X, y), sample=X).report
        assert report.outputs["y"].within(1e-6)  # its own lie 0.02 away
