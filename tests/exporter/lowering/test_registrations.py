"""Whose registration of a class holds, and what a registered lowering is measured against."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from triton_regressors import ExportError, lowers
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.estimators.compose import lower_pipeline
from triton_regressors.exporter.estimators.trees import lower_tree
from triton_regressors.exporter.lowering import registry
from triton_regressors.exporter.lowering.registry import _ANSWERS, _LOWERINGS, answers, find_lowering

X = np.random.default_rng(0).standard_normal((40, 3))
y = X @ [1.0, -2.0, 3.0]


class Capped(Ridge):
    """Differs from its base where no drawn row lies, by a hook that `predict` calls."""

    def _decision_function(self, X: Any) -> Any:
        return np.minimum(super()._decision_function(X), 100.0)


class CappedTwice(Capped):
    """Overrides nothing itself."""


def compiled(estimator: Any) -> Any:
    return compile_estimator(estimator).plan


LATE = """
import numpy as np
import triton_regressors as tr
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
mine = {}
for number in range(2):  # as where a notebook's cell runs twice
    for register, cls in (
        (tr.lowers, Ridge), (tr.lowers_transform, KMeans), (tr.lowers_inverse, StandardScaler), (tr.answers, Pipeline)
    ):
        mine[register.__name__] = register(cls)(lambda *arguments, name=register.__name__: name)
from triton_regressors.exporter.lowering import registry
assert "triton_regressors.exporter.estimators.linear" not in __import__("sys").modules
found = (
    registry.find_lowering(Ridge(), ""), registry.find_transform(KMeans(), ""),
    registry.find_inverse(StandardScaler(), ""), registry.find_answers(Pipeline([])),
)
assert "triton_regressors.exporter.estimators.linear" in __import__("sys").modules
print(found == tuple(mine.values()))
"""


def test_a_users_registration_holds_where_ours_loads_later() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_user_may_register_one_of_our_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = find_lowering(Ridge(), "")
    assert ours is not lower_tree
    monkeypatch.setitem(_LOWERINGS, Ridge, ours)
    lowers(Ridge)(lower_tree)
    assert find_lowering(Ridge(), "") is lower_tree


def test_a_class_can_be_registered_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{Capped.__module__}.Capped"
    for table in (_LOWERINGS, _ANSWERS):
        for key in (name, Capped):
            monkeypatch.setitem(table, key, None)
            del table[key]

    @lowers(name)
    def by_name(estimator: Any, x: Any, builder: Any) -> Any:
        return builder.elementwise(builder.affine(x, estimator.coef_, estimator.intercept_), "identity", high=100.0)

    @answers(name)
    def answer(estimator: Any, table: Any, outputs: Any) -> Any:
        return {"y": estimator.predict(table)}

    assert find_lowering(Capped(), "") is by_name
    assert registry.find_answers(Capped()) is answer
    assert name in registry.lowerings()

    @lowers(Capped)
    def by_class(estimator: Any, x: Any, builder: Any) -> Any:
        return x

    assert find_lowering(Capped(), "") is by_class
    with pytest.raises(TypeError, match="qualified names"):
        lowers("Capped")


def test_an_instance_of_a_class_that_was_defined_again_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def define() -> Any:
        class Cell(BaseEstimator):
            def fit(self, X: Any, y: Any) -> Any:
                self.n_features_in_ = 3
                return self

            def predict(self, X: Any) -> Any:
                return X[:, 0]

        return Cell

    first, second = define(), define()
    monkeypatch.setitem(_LOWERINGS, second, None)

    @lowers(second)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        return builder.columns(x, [0])

    sentences = (
        "its class was defined before the Cell that has a lowering, as when a notebook's cell ran twice. Fit it "
    )
    with pytest.raises(ExportError, match=f"^Cannot export Cell: {sentences}again, with the present Cell.$"):
        compiled(first().fit(X, y))
    assert compiled(second().fit(X, y)).n_features == 3


def test_a_registration_of_its_own_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_LOWERINGS, Capped, None)

    @lowers(Capped)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        return builder.elementwise(builder.affine(x, estimator.coef_, estimator.intercept_), "identity", high=100.0)

    assert len(compiled(CappedTwice().fit(X, y)).steps) == 2


class Renaming(TransformerMixin, BaseEstimator):
    """Has a fitted attribute that no class has."""

    def fit(self, X: Any, y: Any = None) -> "Renaming":
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> Any:
        return X


def test_a_lowering_that_fails_is_one_sentence_with_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_LOWERINGS, Renaming, None)

    @lowers(Renaming)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        return {"z": 1}["y"]

    with pytest.raises(ExportError) as raised:
        compiled(make_pipeline(Renaming(), Ridge()).fit(X, y))
    sentence = r"Cannot export Renaming (step 'renaming'): its fitted attributes do not fit together (KeyError: 'y')."
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
        report = compile_estimator(model.fit(X, y), sample=X).report
        assert report.outputs["y"].within(1e-6)  # its own lie 0.02 away


def test_an_output_that_nothing_asks_for_is_refused_until_its_answers_are_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(_LOWERINGS, Distant, None)
    monkeypatch.setitem(_ANSWERS, Distant, None)
    del _ANSWERS[Distant]

    @lowers(Distant)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        y = builder.affine(x, estimator.coef_, estimator.intercept_)
        return {"y": y, "odds": builder.elementwise(y, "exp")}

    model = make_pipeline(StandardScaler(), Distant()).fit(X, y)
    sentence = (
        "Cannot export Distant: its lowering returns the output odds, and nothing asks the estimator for it. "
        "Register a function that does with @triton_regressors.answers(Distant)."
    )
    for sample in (X, None):
        with pytest.raises(ExportError) as raised:
            compile_estimator(model, sample=sample)
        assert str(raised.value) == sentence

    @answers(Distant)
    def answer(estimator: Any, table: Any, outputs: Any) -> dict[str, Any]:
        found = Ridge.predict(estimator, table)
        return {"y": found, "odds": np.exp(found)}

    assert compile_estimator(model, sample=X).report.outputs["odds"].within(1e-5)


class Halving(Pipeline):
    """Predicts otherwise than its last step does."""

    def predict(self, X: Any, **parameters: Any) -> Any:
        return super().predict(X, **parameters) / 2


def test_a_subclass_is_measured_against_its_own_predict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Pipeline's answer is its last step's; a subclass of Pipeline with a predict of its own has another."""
    monkeypatch.setitem(_LOWERINGS, Halving, None)

    @lowers(Halving)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        return lower_pipeline(estimator, x, builder)

    model = Halving([("ridge", Ridge())]).fit(X, y)
    compilation = compile_estimator(model, sample=X)
    assert np.allclose(compilation.sample.expected["y"].ravel(), model.predict(X))
    assert not compilation.report.outputs["y"].within(0.1)
