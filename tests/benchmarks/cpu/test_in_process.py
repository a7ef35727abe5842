"""The benchmark of models in the caller's process: its peers in torch, its figures, and its table."""

import json

import numpy as np
import pytest
import torch

from benchmarks import run
from benchmarks.cpu import in_process
from benchmarks.figures import tables
from benchmarks.models import model
from benchmarks.timing import ONE_CALL

SMALL = ("linear_small", "forest_small", "boosting_small", "svr_small", "network_small")


@pytest.mark.parametrize("name", SMALL)
def test_torch_computes_what_the_estimator_does(name, monkeypatch):
    """Also part by part, and where a number lies on a threshold."""
    monkeypatch.setattr(in_process, "TORCH_ROWS", 100)
    source = model(name)
    rows = source.rows(250, seed=5).astype(np.float32)
    rows[:50] = np.round(rows[:50], 1)
    wanted = source.estimator.predict(rows.astype(np.float64))
    found = in_process.peer(source.estimator, torch.device("cpu"))(torch.from_numpy(rows)).numpy()
    assert (found.dtype, found.shape) == (np.float32, wanted.shape)
    assert np.abs(found - wanted).max() / wanted.std() < 1e-4


def test_both_are_measured_and_put_into_a_table(tmp_path, capsys):
    found = in_process.measure(model("linear_small"), (1, 40), ONE_CALL, tmp_path)
    assert [(case["model"], case["rows"]) for case in found] == [("linear_small", 1), ("linear_small", 40)]
    document = {"environment": {"device": "A device", "cores": 2, "versions": {}}, "settings": {"quick": False}}
    document = json.loads(json.dumps({**document, "cases": found}))
    for case in document["cases"]:
        for name, timing in case["contenders"].items():
            timing["median_us"] = 5.0 if name == in_process.OURS else 12.5
        case["peer_over_ours"] = 2.5
    section = tables.markdown({"a-device": {"in_process": document}})
    assert "| model | 1 row | 40 rows |" in section
    assert f"| {model('linear_small').title} | 5.0 / 12.5, 2.50 × | 5.0 / 12.5, 2.50 × |" in section


def test_it_is_run_with_all_others():
    assert "in_process" in run.BENCHMARKS
    assert run.missing("in_process") == ""
