"""The benchmark of several GPUs: its entries answer on one server with the same bits, and what its table says."""

import pytest

from benchmarks.figures import tables
from benchmarks.served import several_gpus
from benchmarks.served.requests import SOURCES
from benchmarks.served.several_gpus import ALL, LOADS, NOTHING, ON_CPU
from tests.servers import triton_server


@pytest.mark.server
def test_every_place_answers_with_the_same_bits(tmp_path, monkeypatch):
    source, where = SOURCES[0], {"GPU 0": [0], ALL: [0, 1]}
    several_gpus.write_repository(tmp_path, [source], where, ON_CPU)
    with triton_server([tmp_path]) as server:
        assert several_gpus.demand_same_bits(server.grpc_url, source, where) <= 1e-6
        monkeypatch.setattr(
            several_gpus, "served_name", lambda model, place: f"{model if place == ALL else NOTHING}_{ALL}"
        )
        with pytest.raises(ValueError, match=r"on all: some rows have other bits than on GPU 0\.$"):
            several_gpus.demand_same_bits(server.grpc_url, source, where)


def test_the_table_holds_what_the_results_say():
    rounds = [
        {"svr": {"GPU 0": a, "GPU 1": 800.0, ALL: 1500.0}, NOTHING: {"GPU 0": 2000.0, "GPU 1": 1900.0, ALL: 2200.0}}
        for a in (900.0, 1000.0, 1200.0)
    ]
    point = several_gpus.summary(LOADS[0], rounds, "svr")
    document = {
        "environment": {"device": "A device", "cores": 2, "versions": {}},
        "settings": {"quick": False},
        "models": [{"title": "SVR", "max_error": 1e-7, "points": [point]}],
    }
    section = tables.markdown({"a-device": {"several_gpus": document}})
    assert "| SVR | 64 × 1 | 1,000 | 800 | 1,500 | 1.50 × | 1.10 × |" in section


def test_one_gpu_is_not_enough(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(SystemExit, match=r"needs two GPUs, and torch finds 1; --dry-run"):
        several_gpus.run(None)


def test_a_gpu_alone_and_all_of_them_are_places():
    assert several_gpus.places(3) == {"GPU 0": [0], "GPU 1": [1], "GPU 2": [2], ALL: [0, 1, 2]}
