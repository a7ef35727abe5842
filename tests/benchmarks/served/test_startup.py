"""The benchmark of starts: what it writes and starts, and what its table says."""

import pytest

from benchmarks.figures import tables
from benchmarks.served import startup


def test_without_a_gpu_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"benchmarks\.startup needs a GPU"):
        startup.run(tmp_path)


@pytest.mark.server
def test_a_repository_that_compiles_nothing_is_timed_and_cannot_be_warmed(tmp_path, monkeypatch):
    startup.write_repository(tmp_path / "models", startup.NOTHING)
    found = startup.measure(tmp_path / "models", 1, compiles=False)
    assert list(found) == ["empty_s"]
    assert 0 < found["empty_s"][0] < startup.LONGEST_S
    with pytest.raises(RuntimeError, match=r"docker/warm\.py compiled nothing for .*models"):
        startup.warm(tmp_path / "models", tmp_path / "cache")


def test_the_table_holds_what_the_results_say():
    models = [
        {"title": "A model that does nothing", "empty_s": [4.5]},
        {"title": "Ridge", "empty_s": [6.0, 6.4], "ahead_s": [5.0, 5.0]},
    ]
    document = {
        "environment": {"device": "A device", "cores": 2, "versions": {}},
        "settings": {"quick": False},
        "models": models,
    }
    section = tables.markdown({"a-device": {"startup": document}})
    assert "| A model that does nothing | 4.5 | – |" in section
    assert "| Ridge | 6.2 (6.0–6.4) | 5.0" in section
