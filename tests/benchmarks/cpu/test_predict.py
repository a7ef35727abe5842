"""In-process latency on a small model: checked answers of every library, and answers that are wrong."""

import contextlib

import numpy as np
import pytest

from benchmarks.checking import WrongAnswerError
from benchmarks.cpu import libraries, predict
from benchmarks.models import model
from benchmarks.timing import Effort

BRIEF = Effort(rounds=2, least_rounds=1, block_s=0.0, pause_s=0.0, warm_up_s=0.0)


def test_predict_measures_checked_answers_of_every_library():
    names = ["torch", "torch FP64", "scikit-learn"]
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(libraries.Worker(name)) for name in names]
        result = predict.measure_model(workers, model("ridge"), [1, 5], BRIEF)
    assert [point["rows"] for point in result["points"]] == [1, 5]
    for point in result["points"]:
        assert len(point["timings"]) == 8
        assert {"torch FP64", "torch FP64, checked"} < point["timings"].keys()
        assert point["timings"]["torch"]["max_error"] < libraries.OURS_LIMIT
        assert all(timing["median_us"] > 0 for timing in point["timings"].values())
        assert predict.cost_of_fp64(point, "torch") > 0


@pytest.mark.usefixtures("_torch_threads")
def test_an_engine_is_given_rows_of_its_type_which_are_not_the_other_s():
    made = {}
    for name in ("torch", "torch FP64"):
        library = libraries.LIBRARIES[name]()
        library.load("ridge", 8)
        assert library.prepare(8, 1)[name] < 1e-6
        made[name] = library.inputs[0]
    assert [rows.dtype.name for rows in made.values()] == ["float32", "float64"]
    assert (made["torch FP64"].astype(np.float32) == made["torch"]).all()
    assert (made["torch FP64"] != made["torch"]).all()


@pytest.mark.usefixtures("_torch_threads")
def test_a_library_that_answers_wrongly_is_not_timed():
    library = libraries.Ours("torch")
    library.load("ridge", 8)
    library.runner.predict = lambda X: {"y": X[:, :1]}
    with pytest.raises(WrongAnswerError, match=r"torch is .* from the float64 answer"):
        library.prepare(8, 2)


def test_a_peer_that_answers_wrongly_is_left_out(monkeypatch, capsys):
    library = libraries.ScikitLearn()
    library.load("ridge", 8)
    exact = library.model.estimator.predict

    def rounding(x):
        return exact(x) + (x.dtype == np.float32)

    monkeypatch.setattr(library.model.estimator, "predict", rounding)
    assert set(library.prepare(8, 2)) == {f"scikit-learn, float64, {way}" for way in ("checked", "unchecked")}
    assert "8 rows: without scikit-learn, float32, checked is " in capsys.readouterr().out
