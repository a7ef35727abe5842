"""The benchmark scripts run end to end on toy sizes; what they time is not looked at."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import environment, run
from benchmarks.checking import WrongAnswerError
from benchmarks.cpu import libraries, predict
from benchmarks.gpu import families, host_to_host, kernels, unlike_rows
from benchmarks.models import DTYPES, MODELS, model
from benchmarks.served.batching import beside, median_round, same_points
from benchmarks.timing import Effort

ROOT = Path(__file__).parents[2]
BRIEF = Effort(rounds=2, least_rounds=1, block_s=0.0, pause_s=0.0, warm_up_s=0.0)


@pytest.mark.parametrize("input", DTYPES)
@pytest.mark.parametrize("name", [found.name for found in MODELS if found.name not in ("boosting", "scaled_forest")])
def test_each_model_but_the_trees_is_one_step_of_either_type(name, input):
    plan = model(name).plan(input)
    assert len(plan.steps) == 1
    assert plan.dtype == DTYPES[input]


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


@pytest.fixture
def _torch_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


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


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds a CUDA device, and this is about none")
def test_an_engine_without_its_device_says_why():
    with libraries.Worker("triton") as worker:
        assert worker.load("ridge", 1) == "torch finds no CUDA GPU"
        assert not worker.able
    assert run.missing("kernels_gpu") == "torch finds no CUDA GPU"
    with pytest.raises(SystemExit, match="needs a CUDA GPU"):
        kernels.run(None)
    with pytest.raises(SystemExit, match="needs a CUDA GPU"):
        families.run(None, families.FAMILIES)
    with pytest.raises(SystemExit, match="needs a CUDA GPU"):
        unlike_rows.run(None, unlike_rows.FAMILIES)
    with pytest.raises(SystemExit, match="needs a CUDA GPU"):
        host_to_host.run(None, list(host_to_host.WORKS))


@pytest.mark.usefixtures("_torch_threads")
def test_kernel_cases_agree_with_float64_on_toy_sizes(capsys):
    kernels.run(None, dry_run=True)
    printed = capsys.readouterr().out
    assert "X·w, 13 features" in printed
    assert "triton_regressors, float64, as exported" in printed
    assert "(pairs @ W · z).sum" in printed


@pytest.mark.usefixtures("_torch_threads")
def test_rows_unlike_the_data_are_drawn_for_every_kind_of_work(capsys):
    unlike_rows.run(None, ["neighbors", "layers"], "5 of 1,100 × 4, euclidean", dry_run=True)
    unlike_rows.run(None, ["layers"], dry_run=True)
    unlike_rows.run(None, ["trees"], "symmetric trees", dry_run=True)
    printed = capsys.readouterr().out
    for kind in unlike_rows.KINDS:
        assert kind in printed
    assert "layers 4-8-1: 5 rows" in printed
    assert "symmetric trees, 5 of depth 6: 5 rows" in printed


def test_borders_of_symmetric_trees_are_asked_by_rows_beside_them():
    work = unlike_rows.symmetric(toy=True)
    (step,) = work.plan.steps
    x = unlike_rows.rows_of(work, "beside", 50, 0)
    for feature in range(x.shape[1]):
        borders = step.operation.threshold[step.operation.feature == feature]
        assert (np.isin(x[:, feature], borders) | np.isin(np.nextafter(x[:, feature], -np.inf), borders)).all()


@pytest.mark.usefixtures("_torch_threads")
def test_every_family_agrees_with_its_reference_on_toy_sizes(capsys):
    families.run(None, families.FAMILIES, dry_run=True)
    printed = capsys.readouterr().out
    for work in ("5 of 1,100 × 4, manhattan", "RBF, 60 points × 3", "forest of 5, grown out", "layers 4-8-1"):
        assert work in printed


@pytest.mark.usefixtures("_torch_threads")
def test_host_to_host_agrees_with_scikit_learn_on_toy_sizes(capsys):
    host_to_host.run(None, ["ridge", "boosting", "one_hot"], dry_run=True)
    printed = capsys.readouterr().out
    assert printed.count(" × the larger") == 6
    assert "one-hot + scaler + degree 2 + Ridge: 5 rows" in printed


def test_compiling_a_model_needs_no_server_client():
    """The GPU scripts run where tritonclient is not installed."""
    code = (
        "import sys; sys.modules['tritonclient'] = None\n"
        "import benchmarks.kernels_gpu, benchmarks.predict as p\n"
        "from benchmarks.models import model\n"
        "print(len(model('ridge').plan().steps))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1", done.stderr


def test_served_keeps_the_median_round_whole():
    rounds = [{"throughput_of_floor": share, "requests_per_s": rate} for share, rate in ((0.9, 1), (0.8, 2), (0.95, 3))]
    expected = {"throughput_of_floor": 0.9, "requests_per_s": 1, "throughput_of_floor_rounds": [0.8, 0.9, 0.95]}
    assert median_round(rounds) == expected


def test_served_fp64_is_compared_round_by_round():
    def served(rate, p50, clients=64):
        return {
            "configuration": "dynamic batching",
            "concurrency": clients,
            "requests_per_s": rate,
            "latency_p50_ms": p50,
            "throughput_of_floor": rate / 1000,
        }

    single = [
        [served(1, 1, 1), served(100, 2.0)],
        [served(1, 1, 1), served(200, 1.0)],
        [served(1, 1, 1), served(80, 0)],
    ]
    double = [served(90, 2.2), served(190, 1.3), served(80, 3.0)]
    found = beside(double, same_points(single, double[0]))
    assert found["requests_per_s_of_fp32_rounds"] == [0.9, 0.95, 1.0]
    assert found["requests_per_s_of_fp32"] == 0.95
    assert found["p50_of_fp32_rounds"] == [1.1, 1.3]
    assert found["requests_per_s"] == 90


@pytest.mark.parametrize(("quick", "kept"), [(True, ["ridge", "poisson"]), (False, ["poisson"])])
def test_models_measured_alone_stand_beside_the_others_of_the_same_settings(tmp_path, quick, kept):
    order = [found.name for found in MODELS]
    for setting, name in ((True, "ridge"), (quick, "poisson")):
        path = environment.save_models(tmp_path, "predict", {"quick": setting}, [{"model": name}], order)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert [result["model"] for result in document["models"]] == kept


def test_the_cases_of_a_family_measured_anew_replace_those_before(tmp_path):
    runs = [[("trees", 1), ("trees", 64), ("layers", 1)], [("neighbors", 1), ("trees", 128)]]
    for cases in runs:
        found = [{"family": family, "rows": rows} for family, rows in cases]
        order = ("neighbors", "trees", "layers")
        path = environment.save_models(tmp_path, "families", {}, found, order, among="cases", key="family")
    held = [(case["family"], case["rows"]) for case in json.loads(path.read_text(encoding="utf-8"))["cases"]]
    assert held == [("neighbors", 1), ("trees", 128), ("layers", 1)]


def test_results_carry_versions_and_no_dates(tmp_path):
    path = environment.save(tmp_path / "made", "toy", {"quick": True}, {"points": []})
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["environment"]["versions"]["torch"]
    assert not any("date" in key or "time" in key for key in document["environment"])


def test_slugs_are_directory_names():
    assert environment.slug("NVIDIA H200") == "nvidia-h200"
    assert environment.slug("Intel Xeon Processor, 2 cores") == "intel-xeon-processor-2-cores"
