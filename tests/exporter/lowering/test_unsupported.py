"""The refusal of an unsupported model: two sentences, its kind and a remedy that works."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.cluster import DBSCAN, KMeans
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import NMF, PCA
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.manifold import TSNE
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC

from triton_regressors import ExportError, answers, lowers, lowers_inverse
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.registry import _ANSWERS, _INVERSES, _LOWERINGS

X = np.random.default_rng(0).uniform(1.0, 2.0, (40, 3))
y = X @ [1.0, 2.0, 3.0]
LABELS = (y > y.mean()).astype(int)
WORDS = ["red big house", "blue small flat", "green garden house", "tiny red flat"] * 10
TABLE = pd.DataFrame({"text": WORDS, "age": np.arange(40.0)})
LONGEST = 440
"""The most characters of any of these messages, if the classes were those of a script."""


class MyRegressor(RegressorMixin, BaseEstimator):
    def fit(self, X: Any, y: Any) -> "MyRegressor":
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X: Any) -> Any:
        return np.i0(X)


class MyScaler(TransformerMixin, BaseEstimator):
    def fit(self, X: Any, y: Any = None) -> "MyScaler":
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> Any:
        return np.i0(X)


class Plain:
    """No estimator of scikit-learn's."""

    def fit(self, X: Any, y: Any) -> "Plain":
        return self

    def predict(self, X: Any) -> Any:
        return X[:, 0]


class PlainClassifier(Plain):
    def predict_proba(self, X: Any) -> Any:
        return X


def ordered(X: Any) -> Any:
    return np.i0(X)


def triple(v: Any) -> Any:
    return 3 * v


def boosted(module: str, name: str, base: type = MyRegressor) -> Any:
    """Return a fitted model of a class that bears the name of a boosting library's."""
    return type(name, (base,), {"__module__": module})().fit(X, y)


REGISTER = (
    "Fit a regressor, or register a number to serve, such as {0}, with @triton_regressors.lowers({1}) and "
    "@triton_regressors.answers({1})."
)
WRITE = (
    "Write one, a function of (estimator, x, builder) under @triton_regressors.{0}; on the command line, --import "
    "my_module loads the module that holds it."
)
STEPS = (
    "Transform rows before they are sent: export the steps behind it, as in pipeline[1:], and send what pipeline[:1] "
    "makes of the rows."
)
TEXT = "it reads text, and an entry reads strings only as whole categories. " + STEPS
LINE = (
    "line 0 of test_unsupported.py, `return np.i0(X)`, cannot be traced: it calls numpy.i0, which no kernel computes."
)
IN_FRONT = (
    "Or keep the step in front of the client: export the steps behind it, pipeline[k:], and send "
    "pipeline[:k].transform(rows) (docs/own_code.md)."
)
CLASS = "Or make it a transformer class with a lowering of its own under @triton_regressors.lowers_inverse."
REGRESSOR = "Give a regressor, or a Pipeline that ends in one."
MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "classifier": (
        lambda: SVC().fit(X, LABELS),
        "SVC: it is a classifier, and only regressors are exported. " + REGISTER.format("a probability", "SVC"),
    ),
    "unfitted classifier": (
        SVC,
        "SVC: it is a classifier, and only regressors are exported. " + REGISTER.format("a probability", "SVC"),
    ),
    "classifier in a search in a Pipeline": (
        lambda: make_pipeline(StandardScaler(), GridSearchCV(RandomForestClassifier(2), {"max_depth": [2]}, cv=2)).fit(
            X, LABELS
        ),
        "RandomForestClassifier (step 'gridsearchcv.best_estimator_'): it is a classifier, and only regressors are "
        "exported. " + REGISTER.format("a probability", "RandomForestClassifier"),
    ),
    "classifier of no library": (
        lambda: PlainClassifier().fit(X, LABELS),
        "PlainClassifier: it is a classifier, and only regressors are exported. "
        + REGISTER.format("a probability", "PlainClassifier"),
    ),
    "ranker of XGBoost": (
        lambda: boosted("xgboost.sklearn", "XGBRanker"),
        "XGBRanker: it ranks rows within groups, and a request has no groups. Export an XGBRegressor.",
    ),
    "XGBoost's own class": (
        lambda: boosted("xgboost.core", "Booster", Plain),
        "Booster: it does not record which number means a missing value. Save it with save_model, load it with "
        "load_model of an XGBRegressor, and export that.",
    ),
    "subclass of LightGBM's ranker in a Pipeline": (
        lambda: make_pipeline(
            StandardScaler(), type("Mine", (type(boosted("lightgbm.sklearn", "LGBMRanker")),), {})()
        ).fit(X, y),
        "Mine (step 'mine'): it ranks rows within their groups, and only regressors are exported. Fit an "
        "LGBMRegressor, or serve this one with the Triton server's FIL backend.",
    ),
    "LightGBM's own class": (
        lambda: boosted("lightgbm.basic", "Booster", Plain),
        "Booster: it is a Booster of LightGBM, and not an estimator. Save it with save_model as a .txt file, and "
        "export that file.",
    ),
    "classifier of CatBoost": (
        lambda: boosted("catboost.core", "CatBoostClassifier", Plain),
        "CatBoostClassifier: it is a classifier of CatBoost, and only regressors are exported. Fit a "
        "CatBoostRegressor, or load the model as a catboost.CatBoost, whose predict answers raw scores.",
    ),
    "counts of words": (
        lambda: make_pipeline(CountVectorizer(), Ridge()).fit(WORDS, y),
        f"CountVectorizer (step 'countvectorizer'): {TEXT}",
    ),
    "hashed words": (
        lambda: make_pipeline(HashingVectorizer(n_features=8), Ridge()).fit(WORDS, y),
        f"HashingVectorizer (step 'hashingvectorizer'): {TEXT}",
    ),
    "weights of words in columns": (
        lambda: make_pipeline(
            make_column_transformer((TfidfVectorizer(), "text"), remainder="passthrough"), Ridge()
        ).fit(TABLE, y),
        f"TfidfVectorizer (step 'columntransformer.tfidfvectorizer'): {TEXT}",
    ),
    "dictionaries": (
        lambda: make_pipeline(DictVectorizer(), Ridge()).fit([{"a": 1.0}] * 40, y),
        f"DictVectorizer (step 'dictvectorizer'): it reads dictionaries. {STEPS}",
    ),
    "own function": (
        lambda: make_pipeline(FunctionTransformer(ordered), Ridge()).fit(X, y),
        f"FunctionTransformer (step 'functiontransformer'): its func cannot be exported: {LINE} {IN_FRONT}",
    ),
    "function for targets": (
        lambda: TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=ordered, check_inverse=False).fit(X, y),
        f"FunctionTransformer (step 'transformer_'): its inverse_func cannot be exported: {LINE} {CLASS}",
    ),
    "own regressor": (
        lambda: MyRegressor().fit(X, y),
        f"MyRegressor: no lowering is registered for it (its class is {__name__}.MyRegressor), and {LINE} "
        + WRITE.format("lowers(MyRegressor)"),
    ),
    "own regressor in a Pipeline": (
        lambda: make_pipeline(StandardScaler(), MyRegressor()).fit(X, y),
        "MyRegressor (step 'myregressor'): no lowering is registered for it (its class is "
        f"{__name__}.MyRegressor), and {LINE} " + WRITE.format("lowers(MyRegressor)"),
    ),
    "own transformer": (
        lambda: make_pipeline(MyScaler(), Ridge()).fit(X, y),
        f"MyScaler (step 'myscaler'): no lowering is registered for it (its class is {__name__}.MyScaler), and "
        f"{LINE} Keep the step in front of the client: export the steps behind it, pipeline[k:], and send "
        "pipeline[:k].transform(rows) (docs/own_code.md), or write a lowering under "
        "@triton_regressors.lowers(MyScaler).",
    ),
    "transformer of targets": (
        lambda: TransformedTargetRegressor(Ridge(), transformer=OrdinalEncoder(), check_inverse=False).fit(X, y),
        "OrdinalEncoder (step 'transformer_'): no lowering is registered for its inverse_transform. Transform targets "
        "by one that has it, such as StandardScaler, PowerTransformer or QuantileTransformer, or write one, a function "
        "under @triton_regressors.lowers_inverse(OrdinalEncoder).",
    ),
    "clusterer": (
        lambda: DBSCAN().fit(X),
        "DBSCAN: it is a clusterer, and only regressors are exported. "
        + REGISTER.format("the distance to a centre", "DBSCAN"),
    ),
    "clusterer that transforms": (
        lambda: make_pipeline(StandardScaler(), KMeans(2, n_init=1)).fit(X),
        "KMeans (step 'kmeans'): it predicts clusters, and only regressors are exported. Put it before a regressor in "
        "a Pipeline, which reads its distances to their centres.",
    ),
    "outlier detector": (
        lambda: IsolationForest(n_estimators=2).fit(X),
        "IsolationForest: it is an outlier detector, and only regressors are exported. "
        + REGISTER.format("its score", "IsolationForest"),
    ),
    "density estimator": (
        lambda: GaussianMixture(2).fit(X),
        "GaussianMixture: it is a density estimator, and only regressors are exported. "
        + REGISTER.format("a log-likelihood", "GaussianMixture"),
    ),
    "iterative transformer": (
        lambda: make_pipeline(MinMaxScaler(), NMF(2, max_iter=5), Ridge()).fit(X, y),
        "NMF (step 'nmf'): its transform is an iterative solver, run for each row until it converges. Take a "
        "projection in its place, such as PCA, TruncatedSVD or FactorAnalysis.",
    ),
    "transformer alone": (
        lambda: StandardScaler().fit(X),
        f"StandardScaler: it transforms rows, and has no predict. {REGRESSOR}",
    ),
    "Pipeline of transformers": (
        lambda: make_pipeline(StandardScaler(), PCA(2)).fit(X),
        f"Pipeline: it transforms rows, and has no predict. {REGRESSOR}",
    ),
    "map of the training rows": (
        lambda: TSNE(2, perplexity=3, max_iter=250).fit(X),
        f"TSNE: it neither predicts nor transforms new rows. {REGRESSOR}",
    ),
    "no model": (lambda: {"model": Ridge()}, f"dict: it neither predicts nor transforms new rows. {REGRESSOR}"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", MODELS)
def test_a_model_that_is_not_supported_is_told_what_it_is_and_what_to_do(case: str) -> None:
    make, message = MODELS[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(make())
    assert re.sub(r"line \d+", "line 0", str(raised.value)) == f"Cannot export {message}"
    sentences = re.split(r"\. (?=[A-Z])", str(raised.value))
    assert len(sentences) == 2
    assert len(str(raised.value).replace(__name__, "__main__")) <= LONGEST


def test_what_stands_behind_text_is_exported_as_the_message_says() -> None:
    columns = make_column_transformer((TfidfVectorizer(), "text"), remainder="passthrough", sparse_threshold=0.0)
    pipeline = make_pipeline(columns, Ridge()).fit(TABLE, y)
    compilation = compile_estimator(pipeline[1:], sample=pipeline[:1].transform(TABLE))
    assert np.allclose(compilation.sample.expected["y"].ravel(), pipeline.predict(TABLE))


class Tripled(TransformerMixin, BaseEstimator):
    """The function of a FunctionTransformer as a class."""

    def fit(self, X: Any, y: Any = None) -> "Tripled":
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> Any:
        return X / 3

    def inverse_transform(self, X: Any) -> Any:
        return triple(X)


def test_a_function_of_ones_own_is_exported_as_a_class_as_the_message_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (_LOWERINGS, _INVERSES):
        monkeypatch.setitem(table, Tripled, None)

    @lowers(Tripled)
    def lower(transformer: Any, x: Any, builder: Any) -> Any:
        return builder.scale(x, 0.0, 1 / 3)

    @lowers_inverse(Tripled)
    def invert(transformer: Any, y: Any, builder: Any) -> Any:
        return builder.scale(y, 0.0, 3.0)

    model = TransformedTargetRegressor(make_pipeline(Tripled(), Ridge()), transformer=Tripled()).fit(X, y)
    assert compile_estimator(model, sample=X).report.outputs["y"].within(1e-5)


@pytest.mark.parametrize("make", [LogisticRegression, lambda: make_pipeline(StandardScaler(), LogisticRegression())])
def test_a_classifiers_probability_is_exported_as_the_message_says(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any]
) -> None:
    for table in (_LOWERINGS, _ANSWERS):
        monkeypatch.setitem(table, LogisticRegression, None)  # so that the test's registration ends with it

    @lowers(LogisticRegression)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        return builder.affine(x, estimator.coef_[0], estimator.intercept_[0], "expit")

    @answers(LogisticRegression)
    def answer(estimator: Any, table: Any, outputs: Any) -> dict[str, Any]:
        return {"y": estimator.predict_proba(table)[:, 1]}

    model = make().fit(X, LABELS)
    compilation = compile_estimator(model, sample=X)
    assert compilation.report.outputs["y"].within(1e-5)
    assert np.allclose(compilation.sample.expected["y"].ravel(), model.predict_proba(X)[:, 1])
