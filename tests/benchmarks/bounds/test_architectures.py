"""Counts from machine code equal the formulas of kernels, on each architecture."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.bounds.architectures import limit, ratio
from benchmarks.bounds.gpu_rates import GPUS, access_bytes, float64_instructions, multiplications, seconds
from benchmarks.bounds.loop_counts import count
from benchmarks.figures import architectures_table
from benchmarks.gpu.neighbor_workloads import neighbors
from tests.benchmarks.bounds.counted_by_hand import FEATURES, POINTS, ROWS
from triton_regressors.kernels.numerics.dot import INTERPRETED

BY_NAME = {gpu.name: gpu for gpu in GPUS}
CODED = ("T4", "L4", "H200")


@pytest.fixture(scope="module")
def counted():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.benchmarks.bounds.counted_by_hand"]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("gpu", CODED)
def test_a_linear_model_converts_and_multiplies_each_feature_once(counted, gpu):
    found = counted[f"affine {gpu}"]
    assert found["DFMA"] == found["F2F.F64.F32"] == FEATURES
    assert found["bus_bytes"] == 4 * FEATURES
    assert found["memory_bytes"] == pytest.approx(4 * FEATURES + 4 + 8 * (FEATURES + 1) / ROWS)


def test_a_quadratic_form_multiplies_all_pairs(counted):
    for gpu in ("T4", "L4"):
        assert counted[f"quadratic {gpu}"]["DFMA"] == pytest.approx(FEATURES**2, rel=0.05)
    assert counted["quadratic H200"]["DMMA"] == FEATURES**2


def test_digits_are_six_products_on_matrix_units_where_there_are_any(counted):
    for gpu in ("L4", "H200"):
        assert counted[f"expansion {gpu}"]["HMMA"] == 6 * POINTS * FEATURES
        assert counted[f"expansion {gpu}"]["way"] == "digits"
    assert counted["expansion T4"]["HMMA"] == 0
    assert counted["expansion T4"]["way"] == "expanded"
    assert counted["expansion T4"]["DFMA"] >= POINTS * FEATURES


def test_float64_costs_most_where_there_are_few_units_for_it(counted):
    assert counted["expansion L4"]["ratio"] > 4 > counted["expansion H200"]["ratio"]


def test_loops_that_rows_decide_are_counted_in_the_interpreter():
    if not INTERPRETED:
        pytest.skip("with a GPU this process compiles kernels; the interpreter needs one without")
    found = count(next(iter(neighbors(torch.device("cpu"), True))))
    assert found
    assert all(0 < passes <= 40 for passes in found.values())


def test_the_table_says_what_bounds_and_by_how_much():
    times = {"float64": 30.0, "load_store": 4.0, "memory": 1.0, "bus": 10.0}
    assert limit(times, bus=True) == (30.0, "float64")
    assert ratio(times, bus=True) == 3.0
    assert ratio(times, bus=False) == 7.5
    case = {"work": "a forest", "rows": 65536, "gpus": {"T4": {"ns_per_row": times}}}
    other = {**case, "gpus": {"L4": {"ns_per_row": {"memory": 2.0, "bus": 8.0}}}}
    page = architectures_table.section({"cases": [case, other]})
    assert "| a forest | 65,536 | 30 float64 (3.0 ×) | – |" in page
    assert "| 30 float64 (7.5 ×) |" in page
    assert "| T4 | 7.5 | 8.1 | 0.25 | 65 | – | 320 | 16 |" in page
    assert "A100" not in page


def test_published_rates_follow_from_units_and_clocks():
    published = {"T4": 8.1, "A10": 31.2, "L4": 30.3, "L40S": 91.6, "A100": 19.5, "H100": 66.9, "H200": 66.9}
    assert {name: gpu.float32_tflops for name, gpu in BY_NAME.items()} == pytest.approx(published, rel=0.01)


def test_each_instruction_takes_a_pipe():
    found = float64_instructions({"DADD": 1, "F2F.F64.F32": 2, "F2F.F32.F64": 3, "F2F.F16.F32": 4, "DMMA.8x8x4": 5})
    assert found == {"arithmetic": 1, "matrix": 5, "conversions": 5}
    assert multiplications("HMMA.16816.F32") == 2048
    assert multiplications("HGMMA.64x128x16.F32") == 64 * 128 * 16 // 4
    assert [access_bytes(opcode) for opcode in ("LDG.E.128", "LDS.64", "SHFL.BFLY", "LDSM.16.M88.4")] == [16, 8, 4, 16]
    a10 = BY_NAME["A10"]
    times = seconds({"DFMA": 1.0, "FFMA": 1.0}, 2.0, a10)
    assert times["float64"] == pytest.approx(64 * times["float32"])
