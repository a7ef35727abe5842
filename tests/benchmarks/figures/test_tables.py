"""Tables and crossovers from made-up results, and docs/benchmarks.md against the committed ones."""

import pytest

from benchmarks.cpu.predict import crossover, crossovers, fastest
from benchmarks.figures import tables
from benchmarks.figures.plots import draw
from benchmarks.figures.served_tables import fleets_section


def timing(median_us):
    return {"median_us": median_us, "p10_us": median_us * 0.9, "p90_us": median_us * 1.2, "max_error": 1e-7}


def point(rows, torch, scikit_learn, triton=None):
    timings = {
        "torch": timing(torch),
        "torch, checked": timing(torch + 1),
        "scikit-learn, float64, checked": timing(scikit_learn * 2),
        "scikit-learn, float32, unchecked": timing(scikit_learn),
    }
    if triton is not None:
        timings["triton"] = timing(triton)
        timings["triton FP64"] = timing(1.5 * triton)
    return {"rows": rows, "inputs": 4, "timings": timings}


ENVIRONMENT = {"device": "A device", "cores": 2, "versions": {"torch": "2.13.0"}}
PREDICT = {
    "benchmark": "predict",
    "environment": ENVIRONMENT,
    "settings": {"quick": False},
    "models": [
        {
            "model": "ridge",
            "title": "Ridge",
            "n_features": 64,
            "points": [point(1, 40, 80, 15), point(64, 45, 44, 16), point(4096, 1234.4, 2000, 20)],
        }
    ],
}
KERNELS = {
    "benchmark": "kernels",
    "environment": ENVIRONMENT,
    "settings": {"quick": True},
    "cases": [
        {
            "case": "polynomial_2",
            "title": "Polynomial",
            "rows": 1024,
            "copy_tb_per_s": 4.2,
            "bytes_us": 30.0,
            "contenders": {
                "triton_regressors, float64": timing(50.0) | {"share_of_copy": 0.6},
                "triton_regressors, float32, as exported": timing(100.0) | {"share_of_copy": 0.3},
                "torch.compile a": timing(450.0) | {"share_of_copy": 0.1},
                "torch.compile b": timing(400.0) | {"share_of_copy": 0.11},
            },
        }
    ],
}
SERVED = {
    "benchmark": "served",
    "environment": ENVIRONMENT,
    "settings": {"quick": False, "rounds": 3},
    "models": [
        {
            "model": "ridge",
            "title": "Ridge",
            "points": [
                {
                    "configuration": "dynamic batching",
                    "concurrency": 64,
                    "latency_p50_ms": 1.5,
                    "p50_over_floor_ms": 0.05,
                    "requests_per_s": 9000.0,
                    "throughput_of_floor": 0.93,
                    "throughput_of_floor_rounds": [0.91, 0.93, 0.96],
                    "mean_batch_size": None,
                    "stable": True,
                    "floor_stable": False,
                }
            ],
            "fp64_points": [
                {
                    "configuration": "dynamic batching",
                    "concurrency": 64,
                    "p50_of_fp32": 1.02,
                    "p50_of_fp32_rounds": [0.98, 1.02, 1.1],
                    "requests_per_s_of_fp32": None,
                    "requests_per_s_of_fp32_rounds": [],
                }
            ],
        }
    ],
}


def case(rows, peer, ours, theirs):
    contenders = {"triton_regressors": timing(ours)} | ({peer: timing(theirs)} if peer else {})
    beside = {"peer": peer, "peer_over_ours": theirs / ours if peer else None}
    return {"work": "Works", "rows": rows, "contenders": contenders, "max_error": 2e-7, **beside}


FAMILIES = {
    "benchmark": "families",
    "environment": ENVIRONMENT,
    "settings": {"quick": False},
    "cases": [case(1, "torch", 10.0, 25.0), case(4096, "torch", 250.0, 500.0), case(1, None, 5.0, None)],
}
UNLIKE_ROWS = {
    "benchmark": "unlike_rows",
    "environment": ENVIRONMENT,
    "settings": {"quick": False, "drift": 10.0, "far": 1e6, "furthest": 1e15},
    "cases": [
        {
            "work": "Search",
            "rows": 4096,
            "contenders": {"like": timing(55.0), "torch": timing(540.0)},
            "over_like": {
                "like": 1.0,
                "drifted": 0.97,
                "far": 1.01,
                "random bits": 0.69,
                "equal": 0.95,
                "beside": 1.03,
            },
        }
    ],
}
HOST_TO_HOST = {
    "benchmark": "host_to_host",
    "environment": ENVIRONMENT,
    "settings": {"quick": False},
    "cases": [
        {
            "work": "Ridge",
            "rows": rows,
            "launches": 1,
            "contenders": {"host to host": timing(400.0), "kernels": timing(9.0), "bus": timing(320.0)},
            "over_bound": 1.25,
        }
        for rows in (64, 65536)
    ],
}
DOCUMENTS = (PREDICT, KERNELS, FAMILIES, UNLIKE_ROWS, HOST_TO_HOST, SERVED)
RESULTS = {"a-device": {document["benchmark"]: document for document in DOCUMENTS}}


def test_rows_unlike_the_data_stand_beside_those_like_it():
    shown = tables.unlike_rows_section(UNLIKE_ROWS, "")
    assert "| Search | 4,096 | 55.0 | 540 | 0.97 | 1.01 | – | 0.69 | 0.95 | 1.03 |" in shown
    assert "1e+06 std away" in shown


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        ([1, 1, 1], 1),
        ([9, 1, 1], 64),
        ([1, 9, 1], 4096),  # faster at one row, but it does not stay so
        ([1, 1, 9], None),
        ([5, 5, 5], None),  # as fast is not faster
    ],
)
def test_crossover_is_where_ours_stays_faster(ours, expected):
    assert crossover([1, 64, 4096], ours, [5, 5, 5]) == expected


def test_the_fastest_way_to_call_a_peer_counts():
    assert fastest(point(1, 40, 80), "scikit-learn")["median_us"] == 80
    assert fastest(point(1, 40, 80), "scikit-learn", checked=True)["median_us"] == 160
    assert fastest(point(1, 40, 80), "torch", checked=True)["median_us"] == 41
    assert fastest(point(1, 40, 80), "onnxruntime") is None


def test_crossovers_leave_out_what_was_not_measured():
    points = PREDICT["models"][0]["points"]
    assert crossovers(points, "scikit-learn") == {"torch": 4096, "triton": 1}
    assert crossovers(points, "scikit-learn", checked=True) == {"torch": 1}
    assert crossovers([point(1, 40, 80)], "scikit-learn") == {"torch": 1}
    assert crossovers(points, "onnxruntime") == {}


def test_tables_hold_what_the_results_say():
    section = tables.markdown(RESULTS)
    assert "## A device" in section
    assert "| Ridge | 1 | 41.0 / 40.0 | 15.0 | 160 / 80.0 |" in section
    assert "|  | 4,096 | 1,235 / 1,234 | 20.0 | 4,000 / 2,000 |" in section
    assert "| Ridge | scikit-learn, both searching | always | – |" in section
    assert "|  | scikit-learn, neither searching | 4,096 rows | always |" in section
    assert "onnxruntime" not in section
    exported = "Polynomial (float32, as exported)"
    assert f"| {exported} | 1,024 | 100 | 30% | 1e-07 | torch.compile b | 400 | 1e-07 | 4.0 × |" in section
    assert "| work | 1 row | 4,096 rows |" in section
    assert "| Works (torch) | 10.0 / 25.0, 2.5 × | 250 / 500, 2.0 × |" in section
    assert "| Works (no peer) | 5.0 | – |" in section
    assert "| Ridge | 64 | 1 | 400 | 9.0 | 320 | – |" in section
    assert "|  | 65,536 | 1 | 400 | 9.0 | 320 | 1.25 × |" in section
    assert "| Ridge | dynamic batching | 64 | 1,500 | +50 | 9,000 | 93% (91%–96%) | – | no |" in section
    assert "| model | engine | 1 row | 64 rows | 4,096 rows |" in section
    assert "| Ridge | `triton` | 1.50 | 1.50 | 1.50 |" in section
    assert "`torch` | –" not in section
    assert "| work | 1 row | 4,096 rows |" in section
    assert "| Works (torch) | 10.0 / 25.0, 2.5 × | 250 / 500, 2.0 × |" in section
    assert "| Works (no peer) | 5.0 | – |" in section
    assert "| Ridge | 64 | 1 | 400 | 9.0 | 320 | – |" in section
    assert "|  | 65,536 | 1 | 400 | 9.0 | 320 | 1.25 × |" in section
    assert "| Ridge | dynamic batching | 64 | 1.02 (0.98–1.10) | – |" in section
    assert section.count("a quick run") == 1


def test_results_without_fp64_have_no_tables_of_it():
    old = {
        "served": {**SERVED, "models": [{"title": "Ridge", "points": SERVED["models"][0]["points"]}]},
        "predict": {**PREDICT, "models": [{**PREDICT["models"][0], "points": [point(1, 40, 80)]}]},
    }
    assert "FP64" not in tables.markdown({"a-device": old})


def test_fleets_measured_before_rows_and_ids_were_joined_have_no_figure_of_it():
    beside = {"requests_per_s": 950.0, "of_one_model": 0.95, "p50_over_one_model_us": 12.0}
    point = {"clients": 64, "fleet": {"requests_per_s": 800.0}, "of_one_model": 0.8, "p50_over_one_model_us": 90.0}
    memory = {name: {"load_s": 1.0, "gpu_bytes": 0, "rss_bytes": 0} for name in ("fleet", "one_model")}
    fleet = {"fleet": "ridge", "members": 10, "export_s": 1.0, "export_cores": 2, "entry_bytes": 10**6, "rounds": 3}
    fleet |= {"memory": memory, "busy_at_start": False}
    for points, shown in (
        ([point], "| 80% | +90 | – | – |"),
        ([point | {"fleet_joined": beside}], "| 95% | +12 | – |"),
        ([point | {"rounds": 15}], "| 15 | 64 | 800 |"),
    ):
        found = {"environment": ENVIRONMENT, "settings": {}, "fleets": [fleet | {"points": points}]}
        assert shown in fleets_section(found, "images")


def test_plots_are_drawn(tmp_path):
    (tmp_path / "a-device").mkdir()
    draw(RESULTS, tmp_path)
    assert (tmp_path / "a-device" / "predict.png").stat().st_size > 10_000
    assert (tmp_path / "a-device" / "kernels.png").stat().st_size > 5_000


def test_the_page_holds_what_the_committed_results_give():
    assert tables.PAGE.read_text(encoding="utf-8") == tables.page(tables.read_results())


def test_one_thread_against_one_thread():
    point = {"rows": 1, "timings": {"scikit-learn": {"median_us": 90.0}, "torch, checked": {"median_us": 30.0}}}
    document = {
        "environment": {"device": "A device", "cores": 2, "versions": {}},
        "settings": {"quick": False},
        "models": [{"title": "Ridge", "points": [point]}],
    }
    section = tables.markdown({"a-device": {"one_thread": document}})
    assert "| Ridge | 30.0 / 90.0, 3.00 × |" in section
