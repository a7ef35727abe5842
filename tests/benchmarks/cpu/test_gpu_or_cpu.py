"""When a GPU makes sense: measured end to end on a small model, and pages and plots from made-up results."""

import json
import os
import time

import numpy as np
import pytest
import torch

from benchmarks.cpu import gpu_or_cpu
from benchmarks.cpu.libraries import ScikitLearn
from benchmarks.figures import gpu_or_cpu_page, tables
from benchmarks.figures.plots import draw
from benchmarks.models import FAMILIES, SIZES, model
from benchmarks.timing import Contender
from triton_regressors.advise import prices
from triton_regressors.advise.measured_models import shape_of


def timing(median_us):
    return {"median_us": median_us, "p10_us": median_us, "p90_us": median_us, "spread": 0.05, "max_error": 1e-7}


def point(rows, **us):
    names = {"learn": "scikit-learn, float64", "threads": "scikit-learn, 16 threads", "onnx": "onnxruntime"}
    return {"rows": rows, "timings": {names.get(name, name): timing(t) for name, t in us.items()}, "wrong": {}}


def made(title, points, **others):
    return {
        "size": "small",
        "title": title,
        "n_features": 8,
        "operation": "affine",
        "parameters": 9,
        "without": {},
        "points": points,
        **others,
    }


DOCUMENT = {
    "benchmark": "worth",
    "environment": {"device": "NVIDIA H200", "cores": 16, "versions": {"torch": "2.13.0"}},
    "settings": {"quick": False, "engine": "triton", "longest_s": 0.05, "busy_at_start": False},
    "families": [
        {
            "family": "linear",
            "title": "Ridge",
            "models": [
                made("Ridge", [point(1, triton=12, learn=80, onnx=5), point(1000, triton=20, learn=90, onnx=40)]),
                made(
                    "Ridge, wide",
                    [
                        point(1, triton=12, learn=80),
                        point(1000, triton=10, learn=900, threads=100),
                        point(4000, triton=20),
                    ],
                    without={"onnxruntime": "NotImplementedError: no"},
                ),
            ],
        },
        {"family": "svr", "title": "SVR", "models": [made("SVR", [point(1, triton=12, learn=8)])]},
    ],
}
DOCUMENT["families"][1]["models"][0]["points"][0]["wrong"] = {"onnxruntime": "onnxruntime is 1.0e+00 off."}
RESULTS = {"nvidia-h200": {"worth": DOCUMENT}, "a-cpu": {"worth": {**DOCUMENT, "settings": {"engine": "torch"}}}}
RIDGE, WIDE, SVR = gpu_or_cpu_page.models(DOCUMENT)


@pytest.fixture
def case_file(tmp_path):
    """A case as the benchmark writes it for the libraries' processes."""
    threads = torch.get_num_threads()
    gpu_or_cpu.make_case("network_small", 1024, tmp_path / "case", "torch")
    torch.set_num_threads(threads)
    return tmp_path / "case"


def test_a_run_writes_what_it_timed_and_what_the_model_is(tmp_path, case_file, monkeypatch):
    engine = "triton" if torch.cuda.is_available() else "torch"
    ours = gpu_or_cpu.libraries(engine)[engine]
    monkeypatch.setattr(gpu_or_cpu, "make_cases", lambda names, *others: dict.fromkeys(names, case_file))
    monkeypatch.setattr(gpu_or_cpu, "libraries", lambda engine: {engine: ours})
    monkeypatch.setattr(gpu_or_cpu, "QUICK_BATCH_SIZES", (1, 64, 2**24))
    document = json.loads(gpu_or_cpu.run(tmp_path, ["network"], ["small"], quick=True).read_text(encoding="utf-8"))
    (found,) = document["families"][0]["models"]
    assert found["operation"] == shape_of(model("network_small").plan()).operation
    assert (found["size"], found["n_features"], found["without"]) == ("small", 16, {})
    assert [point["rows"] for point in found["points"]] == [1, 64]  # more numbers than a batch may hold are left out
    assert found["points"][0]["timings"][engine]["max_error"] < 1e-5


def test_scikit_learn_is_asked_in_every_way_and_answers_the_same(case_file, monkeypatch):
    monkeypatch.setattr(gpu_or_cpu, "SOON_S", 60.0)
    library = gpu_or_cpu.WholeScikitLearn()
    library.load_case(case_file)
    errors, wrong = library.prepare_batch(1000, ())
    cores = len(os.sched_getaffinity(0))
    ways = [f"scikit-learn, {way}" for way in ("float64", "float32", f"{cores} threads")]
    assert set(errors) == {*ways, *(f"{way}, assume_finite" for way in ways)}
    assert max(errors.values()) < 1e-5
    assert not wrong


def test_a_case_finds_one_wrong_answer_among_those_that_it_looks_at():
    case = gpu_or_cpu.Case.of(model("network_small"), 1000)
    right = case.model.estimator.predict(case.rows()[1000:1500].astype(np.float64))
    assert case.error(1, right.astype(np.float32)) < 1e-5
    looked_at = case.places[(case.places > 1100) & (case.places < 1500)][0] - 1000
    right[looked_at] += 1
    assert case.error(1, right) > 0.1
    right[3] = np.nan
    assert np.isnan(case.error(1, right))


def test_a_way_that_answers_wrong_is_said_and_not_timed():
    class Off(gpu_or_cpu.CaseLibrary, ScikitLearn):
        def contend(self, inputs):
            return [Contender("off by one", lambda i: self.model.estimator.predict(inputs[i]) + 1)]

    library = Off()
    library.case = gpu_or_cpu.Case.of(model("network_small"), 8)
    library.model, library.all_rows = library.case.model, library.case.rows()
    errors, wrong = library.prepare_batch(4, ())
    assert errors == {}
    assert wrong["off by one"].startswith("off by one is ")
    assert library.prepare_batch(4, ("off by one",)) == ({}, {})


def test_what_would_take_too_long_by_its_growth_is_left_out():
    points = [
        {"rows": 1, "timings": {"slow": timing(1e4), "flat": timing(1e4), "once": timing(1.0)}, "wrong": {"bad": "."}},
        {"rows": 100, "timings": {"slow": timing(3e4), "flat": timing(1e4)}, "wrong": {}},
        {"rows": 200, "timings": {"flat": timing(1e4)}, "wrong": {}},
    ]
    assert gpu_or_cpu.left_out(points, 1000) == {"slow", "bad"}
    assert gpu_or_cpu.left_out(points[:1], 1000) == {"bad"}
    assert gpu_or_cpu.left_out([{"rows": 1024, "timings": {"threads": timing(3e4)}, "wrong": {}}], 16384) == {"threads"}


def test_of_ways_to_ask_a_library_the_hopeless_ones_are_not_timed(monkeypatch):
    class Ways(gpu_or_cpu.CaseLibrary, ScikitLearn):
        def contend(self, inputs):
            predict = self.model.estimator.predict
            return [
                Contender("fast", lambda i: predict(inputs[i])),
                Contender("slow", lambda i: time.sleep(0.1) or predict(inputs[i])),
            ]

    library = Ways()
    library.case = gpu_or_cpu.Case.of(model("network_small"), 8)
    library.model, library.all_rows = library.case.model, library.case.rows()
    assert set(library.prepare_batch(4, ())[0]) == {"fast"}
    monkeypatch.setattr(gpu_or_cpu, "SOON_S", 10.0)
    assert set(library.prepare_batch(4, ())[0]) == {"fast", "slow"}


def test_families_have_every_size_and_models_of_their_own_names():
    names = [found.name for _, models in FAMILIES.values() for found in models]
    assert len(set(names)) == len(FAMILIES) * len(SIZES)
    assert all(name.rpartition("_")[2] in SIZES for name in names)


def test_rates_money_and_crossovers_of_a_model():
    assert gpu_or_cpu_page.rate(RIDGE, "triton") == pytest.approx(50e6)
    assert gpu_or_cpu_page.worth_from(RIDGE, "scikit-learn") == (0, 1)
    assert gpu_or_cpu_page.worth_from(RIDGE, "onnxruntime") == (1, 1000)
    assert gpu_or_cpu_page.worth_from(SVR, "scikit-learn") is None
    assert gpu_or_cpu_page.ratio(RIDGE, 1000, "onnxruntime") == (2.0, True)
    assert gpu_or_cpu_page.ratio(WIDE, 4000, "scikit-learn") == (20.0, False)  # 100 µs for 1,000 rows
    assert gpu_or_cpu_page.why_not(WIDE, "onnxruntime") == "does not convert"
    assert gpu_or_cpu_page.why_not(SVR, "onnxruntime") == "answers wrong"
    assert gpu_or_cpu_page.cost(RIDGE, "triton", 3600.0) == pytest.approx(0.02)
    assert gpu_or_cpu_page.cheapest_cpu(RIDGE) == pytest.approx(prices.CPU.usd_per_hour / 3600 / 25)
    expected = gpu_or_cpu_page.CHEAP.usd_per_hour / prices.CPU.usd_per_hour / 2
    assert gpu_or_cpu_page.needed_share(RIDGE, gpu_or_cpu_page.CHEAP) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([(1, 10, 10.4), (2, 10, 20), (4, 10, 40)], "from 2 rows"),  # 4 % is less than the spread of 5 %
        ([(1, 10, 11), (2, 10, 20)], "always"),
        ([(1, 10, 9), (8, 10, 20)], "from between 1 and 8 rows"),
        ([(1, 10, 20), (2, 10, 10.4)], "not by more than the spread"),
        ([(1, 10, 20), (2, 10, 8)], "never"),
        ([(1, 10, 20), (2, 10, 5), (4, 10, 30)], "from 4 rows"),
    ],
)
def test_faster_is_what_is_so_by_more_than_the_spread_and_stays_so(times, words):
    model = made("Ridge", [point(rows, triton=ours, onnx=theirs) for rows, ours, theirs in times])
    assert gpu_or_cpu_page.since(model, "onnxruntime") == words


def test_linear_models_do_not_pay_only_if_the_figures_say_so():
    dear = made("Ridge", [point(1, triton=12, onnx=5), point(1000, triton=20, onnx=10)])
    document = {**DOCUMENT, "families": [{"family": "linear", "title": "Ridge", "models": [dear]}]}
    factor = prices.price_of("NVIDIA H200").usd_per_hour / prices.CPU.usd_per_hour * 2
    text = gpu_or_cpu_page.page({"nvidia-h200": {"worth": document}})
    assert text.index("**Linear models do not pay on a GPU.**") < text.index("It depends on the family")
    assert f"a million rows cost {factor:.0f} to {factor:.0f} times as much" in text
    assert gpu_or_cpu_page.linear(DOCUMENT) == ""  # where one is faster from 1,000 rows on
    assert "do not pay" not in gpu_or_cpu_page.page(RESULTS)


def test_the_page_holds_what_the_results_say_and_no_cpu_s():
    text = gpu_or_cpu_page.page(RESULTS)
    assert text.count("## Time: ") == 1
    assert "| Ridge | 12.0 | 20.0 (1,000 rows) | 20.0 (1,000 rows) | always | from between 1 and 1,000 rows |" in text
    assert "- SVR, 1 row: onnxruntime is 1.0e+00 off." in text
    assert "| c7i.4xlarge | 16 vCPUs | 0.714 |" in text
    assert "| Ridge | 50 | 11 | 25 |" in text


def test_plots_are_drawn(tmp_path):
    (tmp_path / "nvidia-h200").mkdir()
    draw({"nvidia-h200": RESULTS["nvidia-h200"]}, tmp_path)
    for name in ("worth.png", "money.png"):
        assert (tmp_path / "nvidia-h200" / name).stat().st_size > 10_000


def test_the_page_and_the_table_are_what_the_committed_results_give():
    for path, text in gpu_or_cpu_page.wanted(tables.read_results()).items():
        assert path.read_text(encoding="utf-8") == text, "run `make pages`"
