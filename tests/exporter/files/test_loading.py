"""Reading fitted estimators from files, safely."""

import os
import sys
import threading
from types import ModuleType

import joblib
import numpy as np
import pytest
import skops.io
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge

from tests.exporter.catalogue.cases import CASES
from triton_regressors import ExportError
from triton_regressors.defaults import MODEL_FILES
from triton_regressors.errors import MissingExtra
from triton_regressors.exporter.files import loading
from triton_regressors.exporter.files.loading import load_estimator

X = np.random.default_rng(0).normal(size=(30, 3))


class Stranger(RegressorMixin, BaseEstimator):
    """An estimator that skops has no reason to trust."""

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self


@pytest.fixture
def ridge():
    return Ridge().fit(X, X[:, 0])


def test_skops_round_trip(ridge, tmp_path):
    skops.io.dump(ridge, tmp_path / "m.skops")
    assert np.array_equal(load_estimator(tmp_path / "m.skops").coef_, ridge.coef_)


@pytest.mark.parametrize("suffix", [".joblib", ".pkl", ".pickle"])
def test_pickles_are_refused_with_the_reason_unless_trusted(ridge, tmp_path, suffix):
    path = tmp_path / f"m{suffix}"
    joblib.dump(ridge, path)
    with pytest.raises(ExportError, match=r"runs whatever code is in it.*--trust-pickle"):
        load_estimator(path)
    assert np.array_equal(load_estimator(path, trust_pickle=True).coef_, ridge.coef_)


def test_a_refused_pickle_runs_nothing(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    joblib.dump(Bomb(), tmp_path / "m.pkl")
    with pytest.raises(ExportError):
        load_estimator(tmp_path / "m.pkl")
    assert not (tmp_path / "exploded").exists()


def test_untrusted_types_are_named_and_can_be_trusted(tmp_path):
    path = tmp_path / "m.skops"
    skops.io.dump(Stranger().fit(X, X[:, 0]), path)
    with pytest.raises(ExportError, match=r"Stranger.*--trust-type"):
        load_estimator(path)
    (name,) = skops.io.get_untrusted_types(file=path)
    assert load_estimator(path, trusted_types=[name]).n_features_in_ == 3


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("missing.skops", None, "There is no file"),
        ("m.onnx", b"x", r"accepted: \.skops, .*, \.ubj\."),
        ("m.skops", b"not a zip", "Cannot read"),
        ("empty.skops", b"", "Cannot read"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ExportError, match=sentence):
        load_estimator(tmp_path / name)


def test_a_damaged_pickle_gets_one_sentence(tmp_path):
    (tmp_path / "m.pkl").write_bytes(b"garbage")
    with pytest.raises(ExportError, match="Cannot read"):
        load_estimator(tmp_path / "m.pkl", trust_pickle=True)


class Elsewhere(Ridge):
    """A class whose module is missing when the estimator is read."""


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (
            "my_models",
            "it holds a class of the module my_models, which is not installed. If that is a module of yours, say "
            "--import my_models in its directory.",
        ),
        (
            "__main__",
            "it holds a class of a script or a notebook (AttributeError: {error}). Move the class to a module of its "
            "own, save the estimator again, and name the module with --import.",
        ),
    ],
)
@pytest.mark.parametrize("suffix", [".skops", ".joblib"])
def test_a_class_that_is_not_there_gets_what_to_do(tmp_path, monkeypatch, module, sentence, suffix):
    monkeypatch.setattr(Elsewhere, "__module__", module)
    path = tmp_path / f"m{suffix}"
    with monkeypatch.context() as there:
        there.setitem(sys.modules, module, sys.modules.get(module, ModuleType(module)))
        there.setattr(sys.modules[module], "Elsewhere", Elsewhere, raising=False)
        (skops.io.dump if suffix == ".skops" else joblib.dump)(Elsewhere().fit(X, X[:, 0]), path)
    with pytest.raises(ExportError) as raised:
        load_estimator(path, trust_pickle=True, trusted_types=[f"{module}.Elsewhere"])
    assert str(raised.value) == f"Cannot read {path}: {sentence.format(error=str(raised.value.__cause__).rstrip('.'))}"


def test_a_directory_gets_one_sentence(tmp_path):
    with pytest.raises(ExportError, match="is a directory"):
        load_estimator(tmp_path)


def test_a_directory_of_autogluon_has_to_be_trusted_and_needs_autogluon(tmp_path, monkeypatch):
    (tmp_path / "predictor.pkl").write_bytes(b"")
    (tmp_path / "version.txt").write_text("1.6.3")
    for path in (tmp_path, tmp_path / "predictor.pkl"):
        with pytest.raises(ExportError, match=r"holds pickles of AutoGluon, .* say --trust-pickle"):
            load_estimator(path)
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"`pip install 'autogluon\.tabular==1\.6\.3'` brings it"):
        load_estimator(tmp_path, trust_pickle=True)


UNREADABLE = {"sgd-sparse", "columns-callable"}  # skops writes a one-dimensional sparse coef_ and a lambda, no more
UNWRITABLE = {
    *("before-ridge-birch", "union-two", "union-pandas"),  # it cannot write Birch, nor some of their parts
    # nor tables and indices of pandas, as these and category_encoders keep
    *("fe-eliminated", "fe-added", "fe-probe", "fe-matched", "skrub-dissimilar"),
    *("glum-categories-convert", "glum-categories-zero"),  # nor dtypes of pandas
    *(name for name in CASES if name.startswith("ce-") and name != "ce-nothing"),
    *(name for name in CASES if name.startswith(("torch-", "skorch-", "flaml-"))),  # nor tensors, nor AutoML
}
UNTRUSTED = {"opt-strings", "opt-options-codes", "opt-options-metrics"}  # they keep arrays of pyarrow, native code
OTHER_LIBRARIES = (
    *("category_encoders.", "feature_engine.", "glum.", "interpret.", "ngboost.", "optbinning.", "pygam."),
    *("quantile_forest.", "skrub.", "sklearn.metrics.", "pandas.DatetimeTZDtype", "zoneinfo.ZoneInfo"),
)


@pytest.mark.parametrize("name", [name for name in CASES if name not in UNREADABLE | UNWRITABLE | UNTRUSTED])
def test_every_estimator_of_the_catalogue_loads_without_naming_types(tmp_path, name):
    estimator, _ = CASES[name].fitted()
    path = tmp_path / "m.skops"
    skops.io.dump(estimator, path)
    # Code of these libraries trusts what such a file holds: its user has to trust the file.
    named = ("tests.", "catboost.core.", "xgboost.", "lightgbm.", "collections.OrderedDict", *OTHER_LIBRARIES)
    own = [kind for kind in skops.io.get_untrusted_types(file=path) if kind.startswith(named)]
    assert type(load_estimator(path, trusted_types=own)) is type(estimator)


@pytest.mark.parametrize("name", sorted(UNREADABLE))
def test_what_skops_cannot_read_back_gets_one_sentence(tmp_path, name):
    path = tmp_path / "m.skops"
    skops.io.dump(CASES[name].fitted()[0], path)
    own = [kind for kind in skops.io.get_untrusted_types(file=path) if kind.startswith("tests.")]
    with pytest.raises(ExportError, match=r"Cannot read .*m\.skops"):
        load_estimator(path, trusted_types=own)


@pytest.mark.parametrize("name", sorted(UNTRUSTED))
def test_arrays_of_native_code_are_not_trusted(tmp_path, name):
    path = tmp_path / "m.skops"
    skops.io.dump(CASES[name].fitted()[0], path)
    with pytest.raises(ExportError, match=r"holds types that are not trusted: .*, pyarrow\.lib\."):
        load_estimator(path)


@pytest.mark.parametrize("name", sorted(UNWRITABLE))
def test_what_skops_cannot_write(tmp_path, name):
    """Nothing that this project could change; the day it can, the names above go."""
    with pytest.raises((TypeError, RuntimeError, skops.io.exceptions.UnsupportedTypeException)):
        skops.io.dump(CASES[name].fitted()[0], tmp_path / "m.skops")


@pytest.mark.parametrize("suffix", MODEL_FILES)
@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "device"])
def test_only_regular_files_are_read(tmp_path, suffix, kind):
    """A pipe may never end, nor does /dev/zero, which a failure of this test would read until memory runs out."""
    path, pipe = tmp_path / f"m{suffix}", tmp_path / "pipe"
    if kind == "device":
        path.symlink_to("/dev/null")
        writer = None
    else:
        os.mkfifo(path if kind == "pipe" else pipe)
        if kind != "pipe":
            path.symlink_to(pipe)
        writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # whoever reads the pipe comes to its end, after a second
        threading.Timer(1, os.close, [writer]).start()
    options = {"missing": float("nan")} if suffix == ".json" else {}
    with pytest.raises(
        ExportError, match=rf"m{suffix} is a pipe, a device or a socket; a fitted estimator is a regular"
    ):
        load_estimator(path, trust_pickle=True, **options)
