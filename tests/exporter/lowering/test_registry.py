"""A subclass, or an instance with methods of its own, is exported as its base only if it computes as that does."""

import functools
import typing
from typing import Any, TypeVar

import numpy as np
import pytest
from sklearn.base import RegressorMixin, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    GradientBoostingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator

X = np.random.default_rng(0).standard_normal((40, 3))
y = X @ [1.0, -2.0, 3.0]
T = TypeVar("T")


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
        return np.sort(super().predict(X))  # type: ignore[misc]


class Mixed(Mixin, Ridge):
    pass


class Clipping(RegressorMixin):
    """Shares an ancestor with Ridge, before which it stands even where Ridge is named first."""

    def predict(self, X: Any) -> Any:
        return np.sort(super().predict(X))  # type: ignore[misc]


class MixedBehind(Ridge, Clipping):
    pass


class Property(Ridge):
    @property
    def predict(self) -> Any:
        return lambda X: np.minimum(Ridge.predict(self, X), 100.0)


class Neighbors(KNeighborsRegressor):
    def kneighbors(self, X: Any = None, n_neighbors: Any = None, return_distance: bool = True) -> Any:
        return super().kneighbors(X, n_neighbors, return_distance)


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
    return compile_estimator(estimator).plan


@pytest.mark.parametrize(
    ("cls", "base", "name"),
    [
        (Capped, "Ridge", "_decision_function"),
        (CappedTwice, "Ridge", "_decision_function"),
        (CappedBoosting, "GradientBoostingRegressor", "_raw_predict"),
        (Watching, "Ridge", "__getattribute__"),
        (Mixed, "Ridge", "predict"),
        (MixedBehind, "Ridge", "predict"),
        (Property, "Ridge", "predict"),
        (Neighbors, "KNeighborsRegressor", "kneighbors"),
    ],
)
def test_a_subclass_that_overrides_what_its_base_computes_with_is_not_its_base(cls: type, base: str, name: str) -> None:
    why = rf"it is not treated as a {base}, because it overrides {name}; its class is .*\.{cls.__name__}"
    pattern = rf"no lowering is registered for it \({why}\)(, and line .*, cannot be traced: .*)?\. Write one, "
    with pytest.raises(ExportError, match=rf"^Cannot export {cls.__name__}: {pattern}"):
        compiled(cls().fit(X, y))
    with pytest.raises(
        ExportError, match=rf"^Cannot export {cls.__name__} \(step '{cls.__name__.lower()}'\): {pattern}"
    ):
        compiled(make_pipeline(StandardScaler(), cls()).fit(X, y))


def test_so_is_a_transformer_in_either_direction() -> None:
    with pytest.raises(
        ExportError, match=r"registered for it \(it is not treated as a StandardScaler, because it overrides _reset; "
    ):
        compiled(make_pipeline(Uncentred(), Ridge()).fit(X, y))
    with pytest.raises(
        ExportError,
        match=r"its inverse_transform \(it is not treated as a StandardScaler, because it overrides _reset; ",
    ):
        compiled(TransformedTargetRegressor(Ridge(), transformer=Uncentred()).fit(X, y))


def test_a_subclass_that_overrides_nothing_of_that_is_its_base() -> None:
    for model in (Own(), make_pipeline(StandardScaler(), Own()), FrozenEstimator(Own().fit(X, y))):
        assert compiled(model.fit(X, y)).n_features == 3


class Annotated(Ridge, typing.Generic[T]):
    """Has annotations, constants and a mixin that says nothing of predicting."""

    note: str = ""
    _parameter_constraints: typing.ClassVar = {**Ridge._parameter_constraints}


class Last:
    def predict(self, X: Any) -> Any:
        raise NotImplementedError


class MixedLast(Ridge, Last, TransformerMixin):
    """Predicts as Ridge does, which comes first."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)

    def __lt__(self, other: Any) -> bool:
        return self.alpha < other.alpha


class OneWay(StandardScaler):
    def inverse_transform(self, X: Any, copy: Any = None) -> Any:
        return np.argsort(super().inverse_transform(X))


class OtherWay(StandardScaler):
    def transform(self, X: Any, copy: Any = None) -> Any:
        return np.argsort(super().transform(X))


class Distances(KMeans):
    def predict(self, X: Any) -> Any:
        return 1 + super().predict(X)


@pytest.mark.parametrize(
    "make",
    [
        Annotated,
        MixedLast,
        lambda: make_pipeline(OneWay(), Ridge()),
        lambda: TransformedTargetRegressor(Ridge(), transformer=OtherWay()),
        lambda: make_pipeline(Distances(2, n_init=1), Ridge()),
    ],
)
def test_what_a_model_does_without_may_be_overridden(make: Any) -> None:
    assert compiled(make().fit(X, y)).n_features == 3


def test_the_way_that_is_overridden_is_refused() -> None:
    with pytest.raises(
        ExportError,
        match=r"its inverse_transform \(it is not treated as a StandardScaler, because it overrides inverse_tra",
    ):
        compiled(TransformedTargetRegressor(Ridge(), transformer=OneWay()).fit(X, y))
    with pytest.raises(
        ExportError,
        match=r"registered for it \(it is not treated as a StandardScaler, because it overrides transform; ",
    ):
        compiled(make_pipeline(OtherWay(), Ridge()).fit(X, y))


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
