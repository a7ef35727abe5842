"""The engines' threads side by side, on toy sizes; what is timed is not looked at."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks.checking import WrongAnswerError
from benchmarks.cpu import one_thread
from benchmarks.timing import Effort

BRIEF = Effort(rounds=2, least_rounds=1, block_s=0.0, pause_s=0.0, warm_up_s=0.0)


def small(name: str) -> one_thread.Case:
    case = next(case for case in one_thread.CASES if case.name == name)
    return dataclasses.replace(case, rows=60)


@pytest.mark.parametrize("name", ["ridge", "gaussian_process_std", "matern_0.5"])
def test_each_is_checked_and_timed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = one_thread.measure(small(name), (1, 5), BRIEF)
    assert [point["rows"] for point in result["points"]] == [1, 5]
    for point in result["points"]:
        assert set(point["timings"]) == {"scikit-learn", "torch, checked", "torch"}
        assert point["max_error"] < one_thread.LIMIT
    assert " unsearched), " in capsys.readouterr().out


def test_a_wrong_answer_is_no_result() -> None:
    rows = np.ones((3, 2), dtype=np.float32)
    with pytest.raises(WrongAnswerError):
        one_thread.error(lambda x: {"y": x[:, :1]}, lambda x: x[:, 0] + 1e-3 * x[:, 1] + np.arange(len(x)), rows, rows)


def test_run_writes_the_figures(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_thread, "QUICK", BRIEF)
    path = one_thread.run(tmp_path, [small("ridge")], (1,), quick=True)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert [result["model"] for result in document["models"]] == ["ridge"]
