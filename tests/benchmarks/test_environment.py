"""Files of results: the models that they keep, and the machine and versions that they name."""

import json

import pytest

from benchmarks import environment
from benchmarks.models import MODELS


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


def test_the_share_in_use_is_that_of_this_process_cores():
    before = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 0 50 800 10 0 5 5 7 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 1\n"
    after = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 110 0 55 830 12 0 5 8 99 0\ncpu1 50 0 0 0 0 0 0 0 0 0\nintr 2\n"
    assert environment.share_in_use(before, after, {0}) == pytest.approx(18 / 50)
    assert environment.share_in_use(before, after, {0, 1}) == pytest.approx(68 / 100)
    assert environment.share_in_use(before, before, {0}) == 0


@pytest.mark.parametrize(("share", "busy"), [(0.0, False), (0.25, False), (0.26, True)])
def test_a_machine_is_busy_from_a_quarter_of_its_cores_on(share, busy, monkeypatch, capsys):
    monkeypatch.setattr(environment, "share_in_use", lambda before, after, cores: share)
    assert environment.busy() is busy
    assert ("the figures below are not worth keeping" in capsys.readouterr().out) is busy
