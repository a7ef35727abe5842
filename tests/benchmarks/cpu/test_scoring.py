"""The benchmark of scoring files on toy sizes, and its table from made-up results."""

import json

import numpy as np
import pytest

from benchmarks import run
from benchmarks.checking import WrongAnswerError
from benchmarks.cpu import scoring
from benchmarks.figures import tables
from benchmarks.models import model

WAYS = ("files", "read", "tables", "predict", "matrix", "frame", "float64")


def test_every_way_is_measured_on_rows_that_it_answers_alike(monkeypatch):
    monkeypatch.setattr(scoring, "rows_together", lambda _: 64)
    result = scoring.measure(model("linear_small"), 8, 1, 10.0, "cpu")
    assert result["case"] == "linear_small on a CPU"
    assert result["rows"] == dict.fromkeys(WAYS, 8 * 64)
    assert all(result["rows_per_s"][way] > 0 for way in WAYS)
    assert json.loads(json.dumps(result)) == result


def test_a_way_that_takes_long_is_given_fewer_tables():
    seen = []

    def way(number):
        seen.append(number)
        return np.full(3, number)

    answers, count = scoring.first_pass(way, 100, 0.0)
    assert (count, seen, answers.tolist()) == (1, [0], [0, 0, 0])
    answers, count = scoring.first_pass(way, 3, 60.0)
    assert (count, answers.tolist()) == (3, [0, 0, 0, 1, 1, 1, 2, 2, 2])


def test_answers_that_differ_are_not_timed():
    ours = np.linspace(0, 1, 8, dtype=np.float32)
    scoring.check("same", {"files": ours, "tables": ours[:4], "frame": ours[:4].astype(np.float64) + 1e-7})
    for way, wrong, why in (
        ("tables", np.nextafter(ours, 2), "tables has not the bits of files"),
        ("frame", ours + np.float32(1e-3), "scikit-learn's answers are others"),
        ("frame", np.full(8, np.nan), "scikit-learn's answers are others"),
    ):
        with pytest.raises(WrongAnswerError, match=why):
            scoring.check("wrong", {"files": ours, way: wrong})


def test_the_table_holds_rates_and_their_ratios():
    rates = {"files": 500_000, "read": 8_000_000, "tables": 7_000_000, "matrix": 10_000_000, "frame": 4_000_000}
    rates |= {"predict": 6_400_000, "float64": 16_000_000}
    document = {
        "environment": {"device": "A device", "cores": 2, "versions": {}},
        "settings": {"quick": False},
        "models": [{"title": "Ridge", "where": "torch on the CPU", "rows_per_s": rates}],
    }
    section = tables.markdown({"a-device": {"scoring": document}})
    figures = "500 | 8,000 | 7,000 | 6,400 | 10,000 | 4,000 | 16,000 | 1.25 | 0.80 | 2.00 | 0.50"
    assert f"| Ridge | torch on the CPU | {figures} |" in section


def test_scoring_is_measured_with_all_others(monkeypatch):
    assert "scoring" in run.BENCHMARKS
    assert run.missing("scoring") == ""
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None)
    assert run.missing("scoring") == "pyarrow is not installed"
