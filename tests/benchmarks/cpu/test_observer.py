"""The benchmark of observing: it loads an entry with each kind of observer, and its table shows the measured times."""

import json
import sys

import numpy as np
import pytest
import torch

from benchmarks.cpu import observer
from benchmarks.figures import tables
from triton_regressors.kernels.serving.observer import MOST_ROWS
from triton_regressors.scoring.backend_stub import UTILS


@pytest.fixture
def settings(monkeypatch):
    """Loading an entry sets these for its process."""
    monkeypatch.setitem(sys.modules, UTILS, None)
    threads, errors = torch.get_num_threads(), np.geterr()
    yield
    torch.set_num_threads(threads)
    np.seterr(**errors)


@pytest.mark.usefixtures("settings")
def test_what_is_measured_is_in_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(observer, "BLOCK_S", 0)
    monkeypatch.setattr(observer, "NAMES", ("ridge",))
    monkeypatch.setattr(observer, "ROWS", (1, 100))
    load_entry, seen = observer.load, {}

    def load(entry):
        model, found = load_entry(entry)
        seen.update(found)
        return model, found

    monkeypatch.setattr(observer, "load", load)
    document = json.loads(observer.run(tmp_path, quick=True).read_text())
    rounds = 2 * observer.QUICK_ROUNDS  # two requests each, of either size
    assert {mode: found.counts.rows for mode, found in seen.items() if mode != "off"} == {
        "sampled": 101 * rounds,
        "on": 101 * rounds,
    }
    step = -(-100 // MOST_ROWS)  # it divides 100: each observed row stands for this many
    columns = {
        mode: (found.counts.columns.rows, found.counts.columns.squares) for mode, found in seen.items() if mode != "off"
    }
    assert columns == {"sampled": (101 * rounds, (1 + 100 * step) * rounds), "on": (101 * rounds, 101 * rounds)}
    assert step > 1
    (model,) = document["models"]
    assert [point["rows"] for point in model["points"]] == [1, 100]
    point = {"rows": 1, "off_us": 20.0, "sampled_adds_us": [0.5, 1.0, 1.5], "on_adds_us": [1.0, 2.0, 3.0]}
    section = tables.markdown({"a-device": {"observer": document | {"models": [model | {"points": [point]}]}}})
    assert "| 20.0 | +1.0, +5.0% (+0.5 to +1.5) | +2.0, +10.0% (+1.0 to +3.0) |" in section
