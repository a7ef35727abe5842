"""`--import`: a user's module of the current directory registers a lowering before the estimator's file is read."""

import gc
import os
import subprocess
import sys

import joblib
import numpy as np
import pytest

from triton_regressors.__main__ import main
from triton_regressors.commands.lazy_imports import import_modules, loading
from triton_regressors.errors import TritonRegressorsError
from triton_regressors.exporter.lowering.registry import _LOWERINGS, qualified_name
from triton_regressors.kernels.entry import find_entry, read_document

MODEL = """
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin


class MyRegressor(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        self.weights_ = np.linalg.lstsq(X, y, rcond=None)[0]
        return self

    def predict(self, X):
        return np.tensordot(X, self.weights_, 1)
"""
LOWERINGS = """
import triton_regressors as tr
from my_models import MyRegressor


@tr.lowers(MyRegressor)
def lower(estimator, x, builder):
    return builder.affine(x, estimator.weights_, 0.0)
"""
PROGRAM = "import sys; sys.argv[0] = 'triton-regressors'; from triton_regressors.__main__ import main; main()"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with a model of a class of its own, and modules for it."""
    directory = tmp_path_factory.mktemp("own")
    modules = {
        "my_models": MODEL,
        "my_lowerings": LOWERINGS,
        "my_broken": "\nnothing = there\n",
        "my_unclosed": "def f(:\n",
        "my_script": "import sys\nsys.exit(3)\n",
        "my_needs": "import no_such_library\n",
    }
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)
    sys.path.insert(0, str(directory))
    try:
        from my_models import MyRegressor

        X = np.random.default_rng(0).normal(size=(40, 3))
        joblib.dump(MyRegressor().fit(X, X @ [1.0, 2.0, 3.0]), directory / "mine.joblib")
    finally:
        sys.path.remove(str(directory))
        del sys.modules["my_models"]
    return directory


@pytest.fixture
def here(folder, monkeypatch):
    """Has the directory as the current one; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("my_"):
            del sys.modules[name]
    for cls in [cls for cls in _LOWERINGS if qualified_name(cls).startswith("my_")]:
        del _LOWERINGS[cls]


@pytest.fixture
def run(here, monkeypatch, capsys):
    """Returns what runs the command line in this process: its error if there is one, and its output."""

    def run_command(*arguments):
        monkeypatch.setattr(sys, "argv", ["triton-regressors", *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        return exited.value.code or "", capsys.readouterr().out

    return run_command


def test_a_lowering_of_an_imported_module_is_used(folder):
    """By the installed program, which does not look for modules in the current directory by itself."""
    command = [sys.executable, "-c", PROGRAM, "export", "mine.joblib", "--trust-pickle", "--import", "my_lowerings"]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}  # as of Python 3.11; before, -c looks there too
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    document = read_document(find_entry(folder / "model_repository" / "mine").version_directory)
    assert [step["op"] for step in document.plan["steps"]] == ["affine"]


def test_several_modules_are_imported_to_describe_a_model(run):
    modules = ("--import", "my_models", "--import", "my_lowerings")
    error, out = run("describe", "mine.joblib", "--trust-pickle", "--passes", *modules)
    assert error == ""
    assert "affine" in out


def test_without_a_lowering_the_message_says_so(run):
    error, _ = run("export", "mine.joblib", "--trust-pickle", "--import", "my_models")
    assert error == (
        "Error: Cannot export MyRegressor: no lowering is registered for it (its class is "
        "my_models.MyRegressor), and line 13 of my_models.py, `return np.tensordot(X, self.weights_, 1)`, cannot "
        "be traced: it calls numpy.tensordot, which no kernel computes. Write one, a function of (estimator, x, "
        "builder) under "
        "@triton_regressors.lowers(MyRegressor); on the command line, --import my_module loads the module that holds "
        "it."
    )


REFUSED = {
    "my_nothing": "the module my_nothing is neither in {folder} nor installed",
    "my_nothing.sub": "the module my_nothing is neither in {folder} nor installed",
    "my_models.sub": "the module my_models.sub is neither in {folder} nor installed",
    "my_models.py": "--import takes a module's name, such as my_module, and not a path",
    "./my_models": "--import takes a module's name, such as my_module, and not a path",
    "my_broken": "NameError: name 'there' is not defined (my_broken.py, line 2)",
    "my_unclosed": "SyntaxError: invalid syntax (my_unclosed.py, line 1)",
    "my_script": "it ends the program when it is imported",
    "my_needs": "ModuleNotFoundError: No module named 'no_such_library' (my_needs.py, line 1)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_imported_is_said_in_one_sentence(here, name):
    with pytest.raises(TritonRegressorsError) as raised:
        import_modules([name])
    assert str(raised.value) == f"Cannot import {name}: {REFUSED[name].format(folder=here)}."


def test_nothing_to_import_leaves_the_path_alone(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    import_modules(None)
    assert sys.path == before


def test_garbage_collection_leaves_alone_what_is_imported_and_then_goes_on():
    class Imported(list): ...

    with loading():
        kept = Imported()
        assert not gc.isenabled()
    assert gc.isenabled()
    assert not any(each is kept for each in gc.get_objects())
    later = Imported()
    assert any(each is later for each in gc.get_objects())
