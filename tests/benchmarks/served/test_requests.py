"""The benchmark of requests: its entries answer on one server; the round that it keeps of several."""

import pytest

from benchmarks.figures import tables
from benchmarks.served import requests
from benchmarks.served.requests import LOADS, NOTHING, OURS, READING, SKLEARN
from tests.servers import triton_server
from triton_regressors.clients.compare.figures.measurement import Settings

FIGURES = {"requests_per_s": 9000.0, "rows_per_s": 9000.0, "p50_ms": 1.5, "p99_ms": 2.0, "stable": True}


def found(share: float, over: float) -> dict:
    names = {OURS: FIGURES, NOTHING: FIGURES, SKLEARN: {**FIGURES, "p50_ms": 3.0}}
    return {**names, "of_nothing": share, "of_scikit_learn": 2.5, "p50_over_nothing_us": over}


@pytest.mark.server
def test_ours_scikit_learn_s_and_the_do_nothing_model_answer_on_one_server(tmp_path, monkeypatch, capsys):
    source = requests.SOURCES[0]
    requests.write_repository(tmp_path, [source])
    settings = Settings(warmup_s=0.05, window_s=0.05, max_windows=1)
    with (
        triton_server([tmp_path]) as server,
        requests.measuring(server.grpc_url, settings, "builtin") as measure,
    ):
        point = requests.measure_round(measure, source, LOADS[0], 0, (NOTHING, SKLEARN, READING))
        assert all(point[who]["requests_per_s"] > 0 for who in (OURS, NOTHING, SKLEARN, READING))
        assert point["reading_of_nothing"] > 0
        wrong = requests.checked_rows(source, OURS).zeros()
        monkeypatch.setattr(requests, "checked_rows", lambda source, who: wrong)
        with pytest.raises(ValueError, match=r"^ridge: .*values differ"):
            requests.measure_round(measure, source, LOADS[0], 0)
    assert "of do-nothing" in capsys.readouterr().out


def test_the_round_with_the_median_share_is_kept_whole():
    point = requests.median_point(LOADS[1], [found(0.97, 30), found(0.93, 50), found(0.95, 40)])
    assert (point["rows"], point["clients"], point["of_nothing"], point["p50_over_nothing_us"]) == (1, 64, 0.95, 40)
    assert point["of_nothing_rounds"] == [0.93, 0.95, 0.97]
    assert point["p50_over_nothing_us_rounds"] == [30, 40, 50]


def test_the_table_holds_what_the_results_say():
    environment = {"device": "A device", "cores": 2, "versions": {}}
    points = [requests.median_point(load, [found(0.95, 40), found(0.96, 42)]) for load in LOADS[:2]]
    points.append(requests.median_point(LOADS[2], [{**found(0.8, 300), "reading_of_nothing": 0.9}]))
    models = [{"model": "ridge", "title": "Ridge", "points": points}]
    document = {"environment": environment, "settings": {"quick": False}, "models": models}
    section = tables.markdown({"a-device": {"requests": document}})
    assert "| Ridge | 1 × 1 | 9,000 | 95% (95%–96%) | 2.50 | 1,500 | +40 | 3,000 |" in section
    assert "|  | 64 × 1 | 9,000 |" in section
    assert "answers zeros reaches this share of the do-nothing model's requests: 16 × 1,024 90%." in section
