"""The output of an export: the files of an entry, versions, configuration, and all of it at once or nothing."""

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from tritonclient.grpc import model_config_pb2

from tests.documents import golden_of
from tests.exporter.catalogue.cases import CASES
from tests.exporter.conftest import Snapshot
from tests.exporter.data import as_frame, diabetes, linnerud
from tests.files import check_same_files, files
from triton_regressors import ExportError, export, lowers
from triton_regressors.exporter.lowering.registry import _LOWERINGS
from triton_regressors.exporter.publish import repository as repositories
from triton_regressors.exporter.publish.modules import modules_of
from triton_regressors.kernels import entry as entry_module
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.plan import plan as plan_module
from triton_regressors.kernels.plan.plan import load_plan

KIND = model_config_pb2.ModelInstanceGroup


def ridge(alpha: float = 1.0) -> Ridge:
    return Ridge(alpha).fit(*diabetes())


def read_config(entry: Path) -> Any:
    return text_format.Parse((entry / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def test_entry_holds_all_it_needs(tmp_path: Path) -> None:
    entry = export(ridge(), tmp_path, name="ridge").entry
    assert (entry.directory, entry.version, entry.version_directory) == (tmp_path / "ridge", 1, tmp_path / "ridge/1")
    written = set(files(entry.directory))
    kernels, version = Path(entry_module.__file__).parent, entry.version_directory
    carried = modules_of(load_plan(version), read_document(version))
    assert written == {
        "config.pbtxt",
        *(f"1/{name}" for name in ("model.py", "plan.json", "weights.safetensors", "golden.safetensors")),
        *(f"1/kernels/{path}" for path in carried),
    }
    for path in carried:
        assert (entry.version_directory / "kernels" / path).read_bytes() == (kernels / path).read_bytes()
    for path in (tmp_path / "ridge").rglob("*"):  # the server may run as another user
        needed = stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0)
        assert path.stat().st_mode & needed == needed & ~_umask(), path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("name", ["ridge", "ridge-targets", "bayesian-ridge", "polynomial-3", "frame-search"])
def test_golden_rows_are_the_estimators_own_answers(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    estimator, X = case.fitted()
    result = export(estimator, tmp_path, name=name, sample=X)
    sample, directory = result.compilation.sample, result.entry.version_directory
    golden = golden_of(directory)
    assert golden.X.dtype == np.float32
    assert np.array_equal(golden.X, X[: len(golden.X)].astype(np.float32))
    assert set(golden.outputs) == set(case.expected())
    for output, y in sample.rounded.items():
        assert golden.outputs[output].dtype == np.float64
        np.testing.assert_allclose(golden.outputs[output], y[: len(golden.X)], rtol=1e-12)
    found = Runner(load_plan(directory), engine="torch").predict(X.astype(np.float32))["y"]
    np.testing.assert_allclose(found, case.expected()["y"], rtol=1e-4, atol=1e-4 * case.expected()["y"].std())


def test_an_entry_of_an_estimator_that_holds_a_function_has_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    estimator, X = CASES["target-cbrt"].fitted()
    assert "func=<function cube at 0x" in repr(estimator)
    document = read_document(export(estimator, tmp_path, name="cubed", sample=X).entry.version_directory)
    assert "func=<function cube>" in document.provenance.estimator


def test_an_entry_says_where_it_came_from_and_how_near_it_is(tmp_path: Path) -> None:
    estimator = BayesianRidge().fit(*as_frame())
    document = read_document(export(estimator, tmp_path, name="bayes").entry.version_directory)
    assert document.plan["protocol"] == plan_module.PROTOCOL
    assert document.provenance.class_ == "sklearn.linear_model._bayes.BayesianRidge"
    assert document.provenance.feature_names == tuple(as_frame()[0].columns)
    assert document.parity.tolerance == 1e-5
    assert set(document.parity.outputs) == {"y", "std"}
    for output in document.parity.outputs.values():
        assert 0 <= output.max_error < 1e-5
        assert len(output.unit) == 1
    assert document.stages[0].stage == "lowered"


def test_config_as_the_protobuf_reads_it(tmp_path: Path) -> None:
    X, Y = linnerud()
    config = read_config(export(LinearRegression().fit(X, Y), tmp_path, name="many").entry.directory)
    assert (config.name, config.backend, config.max_batch_size) == ("many", "python", 4096)
    assert [(x.name, x.data_type, list(x.dims)) for x in config.input] == [("X", model_config_pb2.TYPE_FP32, [3])]
    assert [(y.name, y.data_type, list(y.dims)) for y in config.output] == [("y", model_config_pb2.TYPE_FP32, [3])]
    assert config.HasField("dynamic_batching")
    assert config.dynamic_batching.max_queue_delay_microseconds == 0
    assert [(group.count, group.kind) for group in config.instance_group] == [(1, KIND.KIND_AUTO)]
    assert config.version_policy.latest.num_versions == 1
    assert config.parameters["engine"].string_value == "auto"
    assert [warm_up.batch_size for warm_up in config.model_warmup] == [1, 4096]
    for warm_up in config.model_warmup:
        assert list(warm_up.inputs["X"].dims) == [3]


def test_a_std_is_an_output_of_its_own(tmp_path: Path) -> None:
    config = read_config(export(BayesianRidge().fit(*diabetes()), tmp_path, name="bayes").entry.directory)
    assert [(y.name, list(y.dims)) for y in config.output] == [("y", [1]), ("std", [1])]


def test_very_wide_rows_get_a_smaller_batch(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 2**14))
    config = read_config(export(Ridge().fit(X, X[:, 0]), tmp_path, name="wide").entry.directory)
    assert config.max_batch_size == 1024


OPTIONS: dict[str, dict[str, Any]] = {
    "batch": {"max_batch_size": 64},
    "no batching": {"dynamic_batching": False},
    "delay": {"max_queue_delay_us": 250, "preferred_batch_sizes": (8, 16)},
    "instances": {"instances": 3, "instance_kind": "cpu"},
    "inputs": {"gpu_inputs": True},
    "engine": {"engine": "torch"},
    "versions": {"versions": 2},
}


def expected_after(config: Any, options: dict[str, Any]) -> Any:
    """Return the configuration with the options in it, put there without the exporter's code."""
    for name, value in options.items():
        match name:
            case "max_batch_size":
                config.max_batch_size = value
                config.model_warmup[1].batch_size = value
            case "dynamic_batching":
                config.ClearField("dynamic_batching")
            case "max_queue_delay_us":
                config.dynamic_batching.max_queue_delay_microseconds = value
            case "preferred_batch_sizes":
                config.dynamic_batching.preferred_batch_size[:] = value
            case "instances":
                config.instance_group[0].count = value
            case "instance_kind":
                config.instance_group[0].kind = KIND.KIND_CPU
            case "gpu_inputs":
                config.parameters["FORCE_CPU_ONLY_INPUT_TENSORS"].string_value = "no"
            case "engine":
                config.parameters["engine"].string_value = value
            case "versions":
                config.version_policy.latest.num_versions = value
    return config


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_options_change_the_fields_they_name_alone(tmp_path: Path, options: dict[str, Any]) -> None:
    before = read_config(export(ridge(), tmp_path, name="ridge").entry.directory)
    fresh = read_config(export(ridge(), tmp_path / "fresh", name="ridge", **options).entry.directory)
    later = read_config(export(ridge(2.0), tmp_path, name="ridge", **options).entry.directory)
    assert fresh == later == expected_after(before, options)


def test_second_export_adds_a_version_and_leaves_the_rest(tmp_path: Path) -> None:
    first = export(ridge(), tmp_path, name="ridge").entry
    config = (first.directory / "config.pbtxt").read_bytes() + b"# tuned by hand\nresponse_cache { enable: true }\n"
    (first.directory / "config.pbtxt").write_bytes(config)
    before = files(first.version_directory)
    second = export(ridge(2.0), tmp_path, name="ridge").entry
    assert second.version == 2
    assert (second.directory / "config.pbtxt").read_bytes() == config
    assert files(first.version_directory) == before
    weights = [load_plan(entry.version_directory).to_tensors()["0.weight"] for entry in (first, second)]
    assert not np.array_equal(*weights)


def test_the_next_version_follows_the_newest_one_that_is_there(tmp_path: Path) -> None:
    directory = export(ridge(), tmp_path, name="ridge").entry.directory
    (directory / "1").rename(directory / "10")
    (directory / "notes").mkdir()
    assert export(ridge(), tmp_path, name="ridge").entry.version == 11


def test_tuned_fields_survive_an_option_that_is_not_theirs(tmp_path: Path) -> None:
    directory = export(ridge(), tmp_path, name="ridge").entry.directory
    tuned = read_config(directory)
    tuned.dynamic_batching.max_queue_delay_microseconds = 300
    tuned.optimization.priority = model_config_pb2.ModelOptimizationPolicy.PRIORITY_MAX
    del tuned.model_warmup[1]
    tuned.model_warmup[0].name = "our own"
    (directory / "config.pbtxt").write_text(text_format.MessageToString(tuned))
    export(ridge(), tmp_path, name="ridge", instances=2)
    tuned.instance_group[0].count = 2
    assert read_config(directory) == tuned


def test_an_option_goes_into_a_config_that_had_no_such_field(tmp_path: Path) -> None:
    directory = export(ridge(), tmp_path, name="ridge").entry.directory
    config = read_config(directory)
    del config.instance_group[:]
    config.ClearField("version_policy")
    (directory / "config.pbtxt").write_text(text_format.MessageToString(config))
    export(ridge(), tmp_path, name="ridge", instances=2, instance_kind="cpu")
    assert [(group.count, group.kind) for group in read_config(directory).instance_group] == [(2, KIND.KIND_CPU)]


@pytest.mark.parametrize("name", ["ridge", "bayesian-ridge-scaled", "polynomial-2", "frame-pipeline", "grid-search"])
def test_the_same_estimator_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    estimator, X = CASES[name].fitted()
    for sample in (None, X):
        directories = [
            export(estimator, tmp_path / f"{side}{sample is None}", name=name, sample=sample).entry.directory
            for side in "ab"
        ]
        check_same_files(*directories)


def test_default_name(tmp_path: Path) -> None:
    assert export(ridge(), tmp_path).entry.name == "ridge"
    assert export(CASES["grid-search"].fitted()[0], tmp_path).entry.name == "grid_search_cv"
    assert export(CASES["poisson-scaled"].fitted()[0], tmp_path).entry.name == "poisson_regressor"


# A user's own estimator


class Halver(RegressorMixin, BaseEstimator):
    """Predicts half of the first feature."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Halver":
        self.n_features_in_ = X.shape[1]
        self.fitted_ = True
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return 0.5 * np.asarray(X)[:, 0]


class Forgetful(Halver):
    """Does not say how many features it was fitted on."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Forgetful":
        self.fitted_ = True
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return 0.5 * np.asarray(X)[:, 0]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Registers for one test: register(cls, factor) lowers the class as factor · x₀."""

    def add(cls: type, factor: float) -> None:
        monkeypatch.setitem(_LOWERINGS, cls, None)  # so that the test's registration ends with it

        @lowers(cls)
        def lower(estimator: Any, x: Any, builder: Any) -> Any:
            return builder.affine(x, np.eye(x.width)[0] * factor, 0.0)

    return add


def test_a_registered_estimator_is_exported(tmp_path: Path, register: Any) -> None:
    register(Halver, 0.5)
    entry = export(Halver().fit(*diabetes()), tmp_path).entry
    assert entry.name == "halver"
    X = diabetes()[0].astype(np.float32)
    found = Runner(load_plan(entry.version_directory), engine="torch").predict(X)["y"]
    assert np.array_equal(found, 0.5 * X[:, :1])


@pytest.mark.parametrize("factor", [0.6, -0.5, 0.5001, np.nan])
def test_a_wrong_lowering_is_caught_and_nothing_written(
    tmp_path: Path, snapshot: Snapshot, register: Any, factor: float
) -> None:
    register(Halver, factor)
    with pytest.raises(
        ExportError, match=r"^Cannot export Halver: output 'y' differs from the estimator's own prediction by "
    ):
        export(Halver().fit(*diabetes()), tmp_path / "models")
    assert snapshot() == {}


def test_tolerance_is_the_users_to_choose(tmp_path: Path, register: Any) -> None:
    register(Halver, 0.5001)
    export(Halver().fit(*diabetes()), tmp_path, tolerance=1e-2)
    with pytest.raises(ExportError, match="the tolerance is 1e-06"):
        export(Halver().fit(*diabetes()), tmp_path, tolerance=1e-6)


def test_an_estimator_that_does_not_state_its_width_needs_a_sample(tmp_path: Path, register: Any) -> None:
    register(Forgetful, 0.5)
    X, y = diabetes()
    with pytest.raises(ExportError, match=r"^Cannot export Forgetful: it does not say how many .*; give a sample\.$"):
        export(Forgetful().fit(X, y), tmp_path)
    assert export(Forgetful().fit(X, y), tmp_path, sample=X).entry.version == 1


def test_width_is_found_behind_steps_that_do_nothing(tmp_path: Path) -> None:
    inner = Pipeline([("nothing", "passthrough"), ("model", Ridge())])
    for index, model in enumerate(
        [
            Pipeline([("nothing", None), ("inner", inner)]),
            GridSearchCV(inner, {"model__alpha": [1.0]}, cv=2),
            TransformedTargetRegressor(inner),
        ]
    ):
        assert export(model.fit(*diabetes()), tmp_path, name=f"model{index}").compilation.plan.n_features == 10


# All at once or nothing

FAILURES = ("save_file", "write_document", "write_text", "write_bytes", "copyfile", "rename", "replace", "mkdtemp")


def fail_at(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    owner = {
        "save_file": entry_module,
        "write_document": entry_module,
        "write_text": Path,
        "write_bytes": Path,
        "copyfile": entry_module.shutil,
        "rename": Path,
        "replace": repositories.os,
        "mkdtemp": repositories.tempfile,
    }[where]
    monkeypatch.setattr(owner, where, fail)


@pytest.mark.parametrize("where", [failure for failure in FAILURES if failure != "replace"])
def test_a_new_entry_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    fail_at(monkeypatch, where)
    with pytest.raises(ExportError, match=r"^Cannot write into the repository .*No space left on device"):
        export(ridge(), tmp_path / "models", name="ridge")
    assert snapshot() == {}


@pytest.mark.parametrize("where", FAILURES)
def test_a_new_version_that_cannot_be_written_leaves_the_entry_as_it_was(
    tmp_path: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    export(ridge(), tmp_path / "models", name="ridge")
    before = snapshot()
    fail_at(monkeypatch, where)
    with pytest.raises(ExportError, match=r"^Cannot write into the repository .*No space left on device"):
        export(ridge(2.0), tmp_path / "models", name="ridge", instances=2)
    assert snapshot() == before


def test_a_version_is_complete_when_it_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a polling server sees at any moment is a whole entry or none."""
    seen = []
    rename = Path.rename

    def watching(source: Path, target: Path) -> Path:
        assert not Path(target).exists()
        assert {"model.py", "plan.json", "weights.safetensors", "golden.safetensors", "kernels"} <= {
            path.name for path in source.rglob("*")
        }
        seen.append(Path(target).name)
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", watching)
    export(ridge(), tmp_path / "models", name="ridge")
    export(ridge(), tmp_path / "models", name="ridge")
    assert seen == ["ridge", "2"]
