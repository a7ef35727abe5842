"""Everything that cannot be exported gets one sentence that names it and what is accepted, and writes nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingRegressor
from sklearn.feature_selection import SelectFpr, VarianceThreshold
from sklearn.linear_model import BayesianRidge, LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder, StandardScaler

from tests.exporter.conftest import Snapshot
from tests.exporter.data import diabetes, linnerud
from tests.modes import bound_by_modes
from triton_regressors import ExportError, export

X, y = diabetes()


class Doubled(Ridge):
    """A subclass that predicts something of its own."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        return 2 * super().predict(np.argsort(X, axis=1))


class Renamed(Ridge):
    """A subclass that predicts as its base does."""


class ScaledTwice(StandardScaler):
    """A subclass that transforms in a way of its own."""

    def transform(self, X: np.ndarray, copy: bool | None = None) -> np.ndarray:
        return 2 * super().transform(np.argsort(X, axis=1))


def centred(v: np.ndarray) -> np.ndarray:
    return v - v.mean()


def scaled_ridge() -> Pipeline:
    return make_pipeline(StandardScaler(), Ridge())


def half_fitted() -> Pipeline:
    return Pipeline([("scale", StandardScaler()), ("model", Ridge().fit(X, y))])


def refitted_on_fewer() -> Pipeline:
    pipeline = scaled_ridge().fit(X, y)
    pipeline[-1].fit(X[:, :3], y)
    return pipeline


def nothing_selected() -> Pipeline:
    pipeline = make_pipeline(VarianceThreshold(), Ridge()).fit(X, y)
    pipeline[0].variances_[:] = 0
    return pipeline


def transformed(**parameters: Any) -> Callable[[], Any]:
    return lambda: TransformedTargetRegressor(Ridge(), check_inverse=False, **parameters).fit(X, y - y.min() + 1)


ESTIMATORS: dict[str, tuple[Callable[[], Any], str]] = {
    "unfitted": (Ridge, r"^Cannot export Ridge: it is not fitted; call fit first\.$"),
    "unfitted pipeline": (scaled_ridge, r"^Cannot export Pipeline: it is not fitted; call fit first\.$"),
    "unfitted step": (
        half_fitted,
        r"^Cannot export StandardScaler \(step 'scale'\): it is not fitted; call fit first\.$",
    ),
    "unfitted step in a nested pipeline": (
        lambda: Pipeline(
            [("outer", Pipeline([("inner", StandardScaler()), ("end", "passthrough")])), *half_fitted().steps[1:]]
        ),
        r"^Cannot export (StandardScaler \(step 'outer\.inner'\)|Pipeline \(step 'outer'\)): it is not fitted",
    ),
    "unfitted search": (
        lambda: GridSearchCV(Ridge(), {"alpha": [1]}),
        r"^Cannot export GridSearchCV: it is not fitted; call fit first\.$",
    ),
    "search without refit": (
        lambda: GridSearchCV(Ridge(), {"alpha": [1]}, refit=False).fit(X, y),
        r"^Cannot export GridSearchCV: it has no best_estimator_; fit it with refit=True\.$",
    ),
    "unsupported": (
        lambda: Doubled().fit(X, y),
        r"^Cannot export Doubled: no lowering is registered for it \(it is not treated as a Ridge, because it "
        r"overrides predict; its class is .*\.Doubled\), and line \d+ of test_errors\.py, .* computes\. "
        r"Write one, a function of \(estimator, x, builder\) under @triton_regressors\.lowers\(Doubled\); on the "
        r"command line, --import my_module loads the module that holds it\.$",
    ),
    "unsupported and unfitted": (
        Doubled,
        r"^Cannot export Doubled: none of its attributes ends in '_', .* call fit first",
    ),
    "unsupported step": (
        lambda: make_pipeline(ScaledTwice(), Ridge()).fit(X, y),
        r"^Cannot export ScaledTwice \(step 'scaledtwice'\): no lowering is registered",
    ),
    "unsupported in a search in a pipeline": (
        lambda: make_pipeline(StandardScaler(), GridSearchCV(Doubled(), {"alpha": [1.0]}, cv=2)).fit(X, y),
        r"^Cannot export Doubled \(step 'gridsearchcv\.best_estimator_'\): no lowering is registered",
    ),
    "unsupported among several": (
        lambda: MultiOutputRegressor(Doubled()).fit(*linnerud()),
        r"^Cannot export Doubled \(step 'estimators_\[0\]'\): no lowering is registered",
    ),
    "unsupported in an ensemble": (
        lambda: BaggingRegressor(Doubled(), 2).fit(X, y),
        r"^Cannot export Doubled \(step 'estimators_\[0\]'\): no lowering is registered",
    ),
    "class": (lambda: Ridge, r"^Cannot export the class Ridge: export takes a fitted instance of it\.$"),
    "class of pipelines": (
        lambda: Pipeline,
        r"^Cannot export the class Pipeline: export takes a fitted instance of it\.$",
    ),
    "not an estimator": (
        lambda: 42,
        r"^Cannot export int: it neither predicts nor transforms new rows\. Give a regressor, or ",
    ),
    "nothing": (lambda: None, r"^Cannot export NoneType: it neither predicts nor transforms new rows\. "),
    "function": (lambda: centred, r"^Cannot export function: it neither predicts nor transforms new rows\. "),
    "lambda": (
        transformed(func=np.log, inverse_func=lambda v: np.exp(v - v.min())),
        r"^Cannot export FunctionTransformer \(step 'transformer_'\): its inverse_func cannot be exported: "
        r"line \d+ of test_errors\.py, `.*`, cannot be traced: it computes with several rows at once .*\. "
        r"Compute such numbers in fit and keep them as attributes\. Or make it a transformer class with a lowering of "
        r"its own under @triton_regressors\.lowers_inverse\.$",
    ),
    "function of the user's": (
        transformed(func=np.log, inverse_func=centred),
        r"^Cannot export FunctionTransformer \(step 'transformer_'\): its inverse_func cannot be exported: line ",
    ),
    "function with arguments": (
        transformed(transformer=FunctionTransformer(np.log, np.exp, inv_kw_args={"dtype": float})),
        r"its inverse_func cannot be exported: it cannot be traced: it calls numpy\.exp with dtype\. Use astype ",
    ),
    "feature function of the user's": (
        lambda: make_pipeline(FunctionTransformer(centred), Ridge()).fit(X, y),
        r"^Cannot export FunctionTransformer \(step 'functiontransformer'\): its func cannot be exported: line \d+ of ",
    ),
    "target transformer without a lowering": (
        transformed(transformer=OrdinalEncoder()),
        r"^Cannot export OrdinalEncoder \(step 'transformer_'\): no lowering is registered for "
        r"its inverse_transform\. Transform targets by one that has it, such as StandardScaler, PowerTransformer or "
        r"QuantileTransformer, or write one, a function under @triton_regressors\.lowers_inverse\(OrdinalEncoder\)\.$",
    ),
    "steps that do not fit": (
        refitted_on_fewer,
        r"^Cannot export Ridge \(step 'ridge'\): it was fitted on 3 features and would get 10\.$",
    ),
    "selects nothing": (
        nothing_selected,
        r"^Cannot export VarianceThreshold \(step 'variancethreshold'\): it selects no feature\.$",
    ),
    "transformer where a regressor belongs": (lambda: StandardScaler().fit(X), r"^Cannot export StandardScaler: "),
    "pipeline that ends in a transformer": (
        lambda: make_pipeline(StandardScaler(), PCA(3)).fit(X, y),
        r"^Cannot export (Pipeline|PCA \(step 'pca'\)): ",
    ),
    "unfitted with a search at its end": (
        lambda: make_pipeline(SelectFpr(alpha=1.0), GridSearchCV(Ridge(), {"alpha": [1]}, refit=False)),
        r"^Cannot export ",
    ),
}


@pytest.mark.parametrize("case", ESTIMATORS)
def test_estimators_that_cannot_be_exported(tmp_path: Path, snapshot: Snapshot, case: str) -> None:
    make, message = ESTIMATORS[case]
    estimator = make()
    for sample in (None, X):
        with pytest.raises(ExportError, match=message) as raised:
            export(estimator, tmp_path / "models", name="model", sample=sample)
        assert "\n" not in str(raised.value)
        assert str(raised.value).endswith(".")
    assert snapshot() == {}


def test_a_subclass_that_predicts_as_its_base_does_is_exported(tmp_path: Path) -> None:
    assert export(Renamed().fit(X, y), tmp_path).entry.name == "renamed"


ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "batch of zero": ({"max_batch_size": 0}, r"^max_batch_size must be a whole number of at least 1, not 0\.$"),
    "batch of a half": ({"max_batch_size": 0.5}, r"^max_batch_size must be a whole number of at least 1, not 0\.5\.$"),
    "batch in words": ({"max_batch_size": "8"}, r"^max_batch_size must be a whole number of at least 1, not '8'\.$"),
    "batch past the server's numbers": ({"max_batch_size": 2**31}, r"^max_batch_size must be "),
    "batch that no machine holds": (
        {"max_batch_size": 2**31 - 1},
        r"^max_batch_size 2147483647 × 10 features are 21,474,836,470 numbers in a batch; at most 268,435,456 are "
        r"accepted, which is a max_batch_size of 26843545\.$",
    ),
    "batch of True": ({"max_batch_size": True}, r"^max_batch_size must be a whole number of at least 1, not True\.$"),
    "negative delay": (
        {"max_queue_delay_us": -1},
        r"^max_queue_delay_us must be a whole number of at least 0, not -1\.$",
    ),
    "delay past the server's numbers": ({"max_queue_delay_us": 2**64}, r"^max_queue_delay_us must be "),
    "no instances": ({"instances": 0}, r"^instances must be a whole number of at least 1, not 0\.$"),
    "no versions": ({"versions": 0}, r"^versions must be a whole number of at least 1, not 0\.$"),
    "kind": ({"instance_kind": "tpu"}, r"^instance_kind must be one of auto, gpu, cpu, not 'tpu'\.$"),
    "gpu inputs": ({"gpu_inputs": "yes"}, r"^gpu_inputs must be true or false, not 'yes'\.$"),
    "engine": ({"engine": "cuda"}, r"^engine must be one of auto, triton, torch, interpret, not 'cuda'\.$"),
    "preferred size of zero": (
        {"preferred_batch_sizes": (0, 8)},
        r"^preferred_batch_sizes must be whole numbers of at least 1, not \[0, 8\]\.$",
    ),
    "preferred size alone": ({"preferred_batch_sizes": 8}, r"^preferred_batch_sizes must be "),
    "preferred size in words": ({"preferred_batch_sizes": "8"}, r"^preferred_batch_sizes must be "),
    "preferred size above the largest batch": (
        {"preferred_batch_sizes": (8, 128), "max_batch_size": 64},
        r"^preferred_batch_sizes holds 128, which is more than max_batch_size 64\.$",
    ),
    "preferred size above the default": (
        {"preferred_batch_sizes": (2**20,)},
        r"^preferred_batch_sizes holds 1048576, which is more than max_batch_size 4096\.$",
    ),
    "delay without batching": (
        {"dynamic_batching": False, "max_queue_delay_us": 5},
        r"^max_queue_delay_us and preferred_batch_sizes need dynamic_batching\.$",
    ),
    "missing strings as one": (
        {"missing_strings": "None"},
        r"^missing_strings must be a sequence of strings, not 'None'\.$",
    ),
    "tolerance of zero": ({"tolerance": 0}, r"^tolerance must lie between 0 and 1 standard deviations, not 0\.$"),
    "tolerance of NaN": ({"tolerance": float("nan")}, r"^tolerance must lie between 0 and 1 .*, not nan\.$"),
    "precision": ({"precision": "half"}, r"^precision must be one of exact, fast, not 'half'\.$"),
    "tolerance in words": ({"tolerance": "1e-5"}, r"^tolerance must lie between 0 and 1 .*, not '1e-5'\.$"),
    "sample of another width": (
        {"sample": X[:, :4]},
        r"^The sample has shape \(442, 4\); it must be two-dimensional, \[rows, 10\]\.$",
    ),
    "sample of one row only": (
        {"sample": X[0]},
        r"^The sample has shape \(10,\); it must be two-dimensional, \[rows, 10\]; \.reshape\(1, -1\) makes",
    ),
    "sample without rows": (
        {"sample": X[:0]},
        r"^The sample has no rows \(shape \(0, 10\)\); at least one is needed\.$",
    ),
    "sample of words": (
        {"sample": [["a"] * 10]},
        r"^The sample's columns 0, .* and 5 more must be numbers: 0 holds 'a' in row 0\.$",
    ),
    "sample of times": (
        {"sample": np.full((2, 10), np.datetime64("2026-01-01"))},
        r"^The sample's columns 0, .* and 5 more must be numbers: 0 holds np.datetime64\(.*\) in row 0\.$",
    ),
    "complex sample": (
        {"sample": X * 1j},
        r"^The sample's columns 0, .* and 5 more must be numbers: 0 holds .*j\)* in row 0\.$",
    ),
    "sample with infinity": (
        {"sample": np.where(np.arange(10) == 3, np.inf, X)},
        r"^The sample's column 3 must not hold infinity; give rows that the model can take\.$",
    ),
    "input of another type": ({"input": "fp16"}, r"^input must be one of auto, fp32, fp64, not 'fp16'\.$"),
    "ragged sample": ({"sample": [[1.0] * 10, [1.0] * 9]}, r"^The sample is not an array: .*\.$"),
    "sample with NaN": (
        {"sample": np.where(np.arange(10) == 3, np.nan, X)},
        r"^Cannot verify Ridge: it refuses the rows of the sample \(Input X contains NaN\)\.$",
    ),
    "sample past float32": (
        {"sample": X * 1e42},
        r"^Cannot verify Ridge: it predicts no finite number for the rows of the sample\.$",
    ),
    "name with a slash": (
        {"name": "a/b"},
        r"^The name 'a/b' cannot be a model's: use letters, digits, '\.', '_' and '-'\.$",
    ),
    "name that climbs": ({"name": ".."}, r"^The name '\.\.' cannot be a model's"),
    "empty name": ({"name": ""}, r"^The name '' cannot be a model's"),
    "name with a line break": ({"name": "ridge\n"}, r"^The name 'ridge\\n' cannot be a model's"),
    "name that is no text": ({"name": 5}, r"^The name 5 cannot be a model's"),
}


@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_that_are_wrong(tmp_path: Path, snapshot: Snapshot, case: str, existing: bool) -> None:
    arguments, message = ARGUMENTS[case]
    estimator = Ridge().fit(X, y)
    if existing:
        export(estimator, tmp_path / "models", name="model")
    before = snapshot()
    with pytest.raises(ExportError, match=message) as raised:
        export(estimator, tmp_path / "models", **{"name": "model", **arguments})
    assert "\n" not in str(raised.value)
    assert snapshot() == before


def test_a_sample_that_the_estimator_answers_with_nothing_finite(tmp_path: Path, snapshot: Snapshot) -> None:
    model = TransformedTargetRegressor(Ridge(), func=np.exp, inverse_func=np.log, check_inverse=False)
    model.fit(X, np.linspace(0, 1, len(X)))
    model.regressor_.coef_ *= 0
    model.regressor_.intercept_ = np.array([-1.0])
    with pytest.raises(
        ExportError, match=r"^Cannot verify TransformedTargetRegressor: it predicts no finite number for"
    ):
        export(model, tmp_path / "models", name="model")
    assert snapshot() == {}


@pytest.mark.parametrize(
    ("other", "had", "has"),
    [
        (lambda: Ridge().fit(X[:, :3], y), r"input X FP32 \[10\]", r"input X FP32 \[3\]"),
        (lambda: LinearRegression().fit(X, np.stack([y, y], 1)), r"output y \[1\]", r"output y \[2\]"),
        (lambda: BayesianRidge().fit(X, y), r"output y \[1\]", r"output y \[1\], std \[1\]"),
    ],
)
def test_a_new_version_must_keep_the_interface(
    tmp_path: Path, snapshot: Snapshot, other: Callable[[], Any], had: str, has: str
) -> None:
    export(Ridge().fit(X, y), tmp_path / "models", name="model")
    before = snapshot()
    with pytest.raises(ExportError, match=rf"^The entry 'model' exists with {had}.*this model has {has}.*;"):
        export(other(), tmp_path / "models", name="model")
    assert snapshot() == before


def refused(repository: Path, message: str, name: str = "model") -> None:
    with pytest.raises(ExportError, match=message) as raised:
        export(Ridge().fit(X, y), repository, name=name)
    assert "\n" not in str(raised.value)


def test_a_directory_that_is_no_entry(tmp_path: Path, snapshot: Snapshot) -> None:
    (tmp_path / "models" / "model").mkdir(parents=True)
    (tmp_path / "models" / "file").write_text("")
    before = snapshot()
    refused(
        tmp_path / "models", r"models/model exists and is not an entry \(it has no config\.pbtxt\); choose another name"
    )
    refused(tmp_path / "models", r"models/file exists and is not an entry", name="file")
    assert snapshot() == before


@pytest.mark.parametrize("content", [b"name: {", b'name: "m" colour: "red"', b"\xff\xfe\x00"])
def test_a_config_that_cannot_be_read(tmp_path: Path, snapshot: Snapshot, content: bytes) -> None:
    directory = tmp_path / "models" / "model"
    directory.mkdir(parents=True)
    (directory / "config.pbtxt").write_bytes(content)
    before = snapshot()
    refused(tmp_path / "models", r"config\.pbtxt cannot be read: ")
    assert snapshot() == before


def test_a_repository_that_is_a_file_or_inside_one(tmp_path: Path, snapshot: Snapshot) -> None:
    (tmp_path / "models").write_text("")
    before = snapshot()
    refused(tmp_path / "models", r"^The repository .*models is not a directory\.$")
    refused(tmp_path / "models" / "inner", r"models/inner")
    assert snapshot() == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system where no one can make a directory")
def test_a_repository_where_nobody_can_write() -> None:
    refused(Path("/proc/models"), r"^Cannot write into the repository /proc/models: ")


@pytest.mark.parametrize("locked", ["models", "."])
def test_a_read_only_repository(tmp_path: Path, snapshot: Snapshot, locked: str) -> None:
    export(Ridge().fit(X, y), tmp_path / "models", name="model")
    before = snapshot()
    for name in ("models/model", "models", locked):
        (tmp_path / name).chmod(0o500)
    try:
        with bound_by_modes():
            refused(tmp_path / "models", r"^Cannot write into the repository ")
            refused(tmp_path / "models", r"^Cannot write into the repository ", name="other")
    finally:
        for name in (".", "models", "models/model"):
            (tmp_path / name).chmod(0o700)
    assert snapshot() == before
