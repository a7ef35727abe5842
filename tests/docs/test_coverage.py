"""docs/coverage.json holds every case of the catalogue, within its promise, and docs/coverage.md is made from it."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from docs import coverage, coverage_contributions, coverage_page, peers
from tests.exporter.catalogue.cases import CASES, Case
from tests.exporter.catalogue.compiled import compiled

EXPLAINED = (
    "ridge",
    "gradient-default",
    "before-ridge-nystroem",
    "ada-linear",
    "kernel-ridge-many-features",
    "own-table-joined",
)
"""A case for each way of computing contributions, and one that is refused."""

MEASURE = "run `python -m docs.coverage measure`, or with `--only NAME`, and `python -m docs.coverage write`"


@pytest.fixture(scope="module")
def results() -> coverage.Results:
    return coverage.read_results()


def test_results_are_of_the_catalogue_as_it_is(results: coverage.Results) -> None:
    assert coverage.outdated(results) == [], MEASURE


def test_page_is_what_write_makes_of_the_results(results: coverage.Results) -> None:
    written = coverage.PAGE.read_text(encoding="utf-8")
    assert coverage_page.render(results) == written, "run `python -m docs.coverage write`"


def test_every_answer_is_within_its_promise(results: coverage.Results) -> None:
    missed = {
        f"{name}, {engine}": misses
        for name, case in results["cases"].items()
        for engine in coverage.ENGINES
        if engine in case and (misses := coverage.missed_promises(case[engine]))
    }
    assert missed == {}


def test_every_case_says_both_types(results: coverage.Results) -> None:
    for name, case in results["cases"].items():
        for engine in coverage.ENGINES:
            if engine in case:
                assert {*coverage.TYPES, coverage.AUTO, case[engine][coverage.AUTO]} == case[engine].keys(), name


@pytest.mark.parametrize(
    ("error", "ulp", "ops", "kept"),
    [
        (9e-6, 50.0, ["affine"], True),
        (1.1e-5, 1.1, ["affine"], False),
        (1.1e-5, 0.5, ["affine"], True),
        (9e-6, 50.0, ["scale", "tree_ensemble"], False),
        (9e-7, 50.0, ["tree_ensemble"], True),
        (None, None, ["affine"], False),
    ],
)
def test_promise(error: float | None, ulp: float | None, ops: list[str], kept: bool) -> None:
    assert (coverage.missed_promise({"error": error, "ulp": ulp, "ops": ops}) == "") == kept


def test_a_promise_is_of_the_chosen_type_and_of_fp64() -> None:
    right, wrong = ({"y": {"error": error, "ulp": 9.0, "ops": ["affine"]}} for error in (1e-7, 1e-3))
    found = {"auto": "FP32", "FP32": wrong, "FP64": wrong}
    assert [miss[:8] for miss in coverage.missed_promises(found)] == ["y, FP32:", "y, FP64:"]
    assert coverage.missed_promises({"auto": "FP64", "FP32": wrong, "FP64": right}) == []
    assert coverage.missed_promises({"auto": "FP64", "FP32": "refused, because", "FP64": right}) == []


@pytest.mark.parametrize(
    ("figures", "cell"),
    [
        ({"error": 3.2e-7, "ulp": 0.5, "ops": ["affine"]}, "3e-07"),
        ({"error": 3.2e-4, "ulp": 0.5, "ops": ["affine"]}, "3e-04 (0.5 ulp)"),
        ({"error": 3.2e-4, "ulp": 700.0, "ops": ["affine"]}, "**3e-04**"),
        ({"error": None, "ulp": None, "ops": ["affine"]}, "**NaN**"),
        ({"error": 3.2e-7, "ulp": 0.5, "ops": ["affine"], "unsent": 48}, "3e-07, 48 unsent"),
        ("Cannot export Pipeline: two categories are one number in FP32.", "refused"),
        (None, ""),
    ],
)
def test_a_types_column_says_what_it_costs(figures: Any, cell: str) -> None:
    assert coverage_page.error_cell(figures) == cell


def test_what_a_gpu_measured_stands_in_columns_of_its_own(results: coverage.Results) -> None:
    ridge, lasso = results["cases"]["ridge"], {**results["cases"]["lasso"]}
    lasso.pop("triton", None)  # not measured there
    versions = {**results["versions"], "triton": {"GPU": "NVIDIA H200", "triton": "3.6.0"}}
    both = {"versions": versions, "cases": {"ridge": {**ridge, "triton": ridge["interpret"]}, "lasso": lasso}}
    head, _, first, second = coverage_page._cases_table(both, ["ridge", "lasso"]).splitlines()
    columns = [cell.strip() for cell in head.split("|")][3:11]
    assert columns == ["input", "FP32", "FP64", "FP32, GPU", "FP64, GPU", "float32 table", "kernels", "contributions"]
    measured, missing = ([cell.strip() for cell in line.split("|")][4:8] for line in (first, second))
    assert measured[:2] == measured[2:]
    assert missing[2:] == ["", ""]
    assert "Measured on an NVIDIA H200 (Triton language 3.6.0)." in coverage_page._introduction(both)


def test_a_type_that_the_exporter_refuses_has_the_reason(engine: str) -> None:
    rows = np.repeat(np.array([[0.0], [2.0**24], [2.0**24 + 1]]), 40, axis=0)
    estimator = make_pipeline(OneHotEncoder(handle_unknown="ignore"), Ridge()).fit(rows, np.arange(120.0))
    case = Case("ids", "steps", estimator, lambda: (rows, np.arange(120.0)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CASES, "ids", case)
        found = coverage.measure_case(case, engine)
    assert found[coverage.AUTO] == "FP64"
    assert "are one number in FP32" in found["FP32"]
    assert found["FP64"]["y"]["error"] < 1e-6


def test_every_regressor_has_a_case_or_a_reason() -> None:
    assert coverage.missing("regressor") == coverage.REGRESSORS_WITHOUT_A_CASE


def test_every_transformer_has_a_case_or_a_reason() -> None:
    assert [name for name, reason in coverage.missing("transformer").items() if not reason] == []


# Cases whose fit has the same figures by the kernels of every processor that OPENBLAS_CORETYPE names.
@pytest.mark.parametrize("name", ["ridge", "voting-mixed", "bayesian-ridge-far", "strings-one-hot-ignore"])
def test_measured_again_the_figures_are_the_recorded_ones(results: coverage.Results, name: str, engine: str) -> None:
    found = coverage.measure_case(CASES[name], engine)
    recorded = results["cases"][name][engine]
    assert found.keys() == recorded.keys()
    assert found.pop("auto") == recorded["auto"]
    for kind, outputs in found.items():
        assert outputs.keys() == recorded[kind].keys()
        for output, figures in outputs.items():
            for key in ("error", "ulp"):
                assert figures.pop(key) == pytest.approx(recorded[kind][output][key], rel=0.06, abs=1e-9)
            assert figures.items() <= recorded[kind][output].items()


@pytest.mark.parametrize("name", EXPLAINED)
@pytest.mark.filterwarnings("ignore")
def test_contributions_measured_again_are_the_recorded_ones(results: coverage.Results, name: str) -> None:
    found = coverage_contributions.contributions_case(CASES[name])
    recorded = results["cases"][name]["contributions"]
    assert found.keys() == recorded.keys()
    for game, figures in found.items():
        if isinstance(figures, str):
            assert figures == recorded[game]
        else:
            assert [figures[key] for key in ("how", "launches")] == [recorded[game][key] for key in ("how", "launches")]
            assert coverage_page.contributions_error(figures) <= coverage.TOLERANCE


def test_every_case_says_how_its_contributions_are_exact_or_why_not(results: coverage.Results) -> None:
    page = coverage.PAGE.read_text(encoding="utf-8")
    for name, case in results["cases"].items():
        assert case.get("contributions"), f"{name}: run `python -m docs.coverage contributions --missing` and `write`"
        for game, figures in case["contributions"].items():
            if isinstance(figures, str):
                assert figures.startswith("Cannot export "), name
                assert game == "path" or f". {coverage_page.refusal(figures)}\n" in page
            else:
                assert set(figures["how"]) <= {"sum", *coverage_contributions.WAYS.values()}, name
                assert coverage_page.contributions_error(figures) <= coverage.TOLERANCE, name
                assert figures["additivity"] <= coverage.TOLERANCE, name


@pytest.mark.parametrize(
    ("figures", "cell"),
    [
        ({"background": {"how": ["trees"]}, "path": {"how": ["trees"]}}, "exact, trees, path"),
        ({"background": {"how": ["trees"]}, "path": "Cannot export A with contributions: no covers."}, "exact, trees"),
        ({"background": {"how": ["sum", "points"]}}, "exact, sum + points"),
        ({"background": {"how": ["sum", "permutations"]}}, "sum + permutations"),
        ({"background": "Cannot export A with contributions: too many columns."}, "– (1)"),
        (None, ""),
    ],
)
def test_the_column_of_contributions_says_how(figures: Any, cell: str) -> None:
    assert coverage_page.contributions_cell(figures, {"too many columns": 1}) == cell


def test_every_plan_is_the_one_that_was_measured(results: coverage.Results) -> None:
    for name, case in CASES.items():
        compilation = compiled(case)
        kind, plan = coverage.type_of(compilation.inputs), compilation.plan
        for engine in results["cases"][name].keys() & set(coverage.ENGINES):
            found = results["cases"][name][engine]
            assert found["auto"] == kind, f"{name} has changed: run `make coverage`"
            for output in plan.outputs:
                ops = [step.operation.kind() for step in plan.steps_for((output,))]
                assert found[kind][output]["ops"] == ops, f"{name} has changed: run `make coverage`"


def test_measuring_some_cases_keeps_the_rest_and_drops_what_is_no_longer_so(
    results: coverage.Results, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage, "RESULTS", tmp_path / "coverage.json")
    of_outputs = {"y": {"error": 1e-8, "ulp": 0.5, "launches": 1, "ops": ["affine"]}}
    figures = {"auto": "FP32", "FP32": of_outputs, "FP64": of_outputs}
    coverage.record("interpret", {"numpy": "2"}, {"ridge": figures, "lasso": figures})
    coverage.record("peers", {"treelite": "4"}, {"ridge": {"treelite": {"y": {"float32": 0.5}}}})
    coverage.record("peers", {"skl2onnx": "1"}, {"ridge": {"skl2onnx": {"y": {"float32": 0.1}}}})
    both = coverage.read_results()
    more = {**figures, "auto": "FP32 and INT64", "FP32 and INT64": of_outputs}
    coverage.record("interpret", {}, {"lasso": more})
    coverage.record("interpret", {}, {"lasso": figures})  # earlier figures do not stay beside it
    assert coverage.read_results() == both
    assert both["versions"] == {"interpret": {"numpy": "2"}, "peers": {"skl2onnx": "1", "treelite": "4"}}
    assert both["cases"]["lasso"] == {"interpret": figures, "what": "Lasso(alpha=0.1)"}
    assert both["cases"]["ridge"]["peers"].keys() == {"skl2onnx", "treelite"}
    changed = {**CASES, "ridge": CASES["lasso"]}
    del changed["lasso"]
    monkeypatch.setattr(coverage, "CASES", changed)
    coverage.record("interpret", {}, {"ridge": figures})
    assert coverage.read_results()["cases"] == {"ridge": {"interpret": figures, "what": "Lasso(alpha=0.1)"}}
    assert coverage.measured_as_they_are(coverage.read_results(), "interpret") == {"ridge"}
    assert coverage.measured_as_they_are(coverage.read_results(), "triton") == set()


@pytest.mark.parametrize(
    ("found", "state", "cell"),
    [
        ({"float32": 3.2e-7}, "right", "3e-07"),
        ({"float32": "raises: Error", "float64": 3.2e-7}, "right", "3e-07*"),
        ({"float32": 0.24}, "wrong", "WRONG 2e-01"),
        ({"float32": 0.24, "float64": 3e-7}, "wrong32", "WRONG 2e-01, 3e-07*"),
        ({"float32": None, "float64": "raises: Error"}, "wrong", "WRONG NaN"),
        ({"float32": "shape [72], not [24, 3]"}, "wrong", "WRONG shape"),
        ({"float32": "does not convert: Error"}, "none", "–"),
    ],
)
def test_what_a_peer_answers_is_told_apart(found: dict[str, Any], state: str, cell: str) -> None:
    figures = {"skl2onnx": found}
    assert coverage_page.state(figures, "skl2onnx") == state
    assert coverage_page.cell(figures, "skl2onnx") == cell
    assert coverage_page.state(figures, "treelite") == "absent"


def test_a_peers_best_answer_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = CASES["ridge"].expected()["y"][: coverage.ROWS]

    def fails() -> None:
        raise RuntimeError("no <object at 0x7f00>\n  more")

    def does_not_convert() -> None:
        with peers.converting():
            fails()

    def attempts(*ways: tuple[str, Any]) -> dict[str, Any]:
        def peer(estimator: Any, X: np.ndarray, output: str) -> Iterator[tuple[str, Any]]:
            yield from ways

        monkeypatch.setitem(peers.PEERS, "peer", peer)
        return peers.ask("peer", "ridge")["y"]

    def right() -> np.ndarray:
        return expected[:, 0]

    off = ("float32", lambda: expected + expected.std())
    assert attempts(off, ("float32", lambda: expected + 100 * expected.std()))["float32"] == pytest.approx(1, abs=0.3)
    assert attempts(("float32", fails), ("float32", right), off)["float32"] < 1e-6
    assert attempts(("float32", fails), ("float32", lambda: expected.T)) == {"float32": "shape [1, 24], not [24, 1]"}
    assert attempts(("float32", fails), ("float64", fails)) == {"float32": "raises: RuntimeError: no <object at > more"}
    assert attempts(("float32", does_not_convert))["float32"].startswith("does not convert: RuntimeError: no")
    assert attempts(("float32", lambda: expected * np.nan)) == {"float32": None}


@pytest.mark.parametrize("name", ["bayesian-ridge-far", "strings-stacked"])
def test_peers_are_asked_rows_rounded_to_float32_and_held_to_the_answers_to_these(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    case = CASES[name]
    rounded = peers.in_float32(case.fitted()[1])

    def peer(estimator: Any, X: Any, output: str) -> Iterator[tuple[str, Any]]:
        yield "float64", lambda: case.answers(X)[output]

    monkeypatch.setitem(peers.PEERS, "peer", peer)
    assert max(found["float64"] for found in peers.ask("peer", case.name).values()) < 1e-5
    numbers = rounded.select_dtypes("number").to_numpy() if case.tabular else rounded
    assert numbers.dtype == np.float64
    np.testing.assert_array_equal(numbers, numbers.astype(np.float32))


def test_a_peer_that_crashes_or_hangs_is_recorded_and_the_next_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = peers.Worker()
    assert worker.ask("no such peer", "ridge") == {"y": {"float32": "crashes"}}
    with monkeypatch.context() as patch:
        patch.setattr(peers, "SECONDS", 0.0)
        os.kill(worker._process.pid, signal.SIGSTOP)  # hangs
        assert worker.ask("treelite", "ridge") == {"y": {"float32": "does not end within 0 s"}}
    assert worker.ask("treelite", "ridge")["y"]["float32"].startswith("does not convert: ")
