"""Sums of stacked operations have the order on a GPU that those of single models have, which the interpreter hides."""

import json
import subprocess
import sys

from tests.kernels.gpu_orders import ORDERED
from tests.kernels.test_gpu_compile import COMPILES, ROOT

WITH_SUMS = (
    *("affine", "functions of points by products", "linear leaves", "lookup summed", "network"),
    *("piecewise_affine", "points", "polynomial", "quadratic", "squared norm", "weighted_median"),
)
"""The first words of operations that add up, or look for the least; a map of one feature has nothing to add."""


def test_stacked_sums_have_the_layouts_of_one_model() -> None:
    command = [sys.executable, "-m", "tests.kernels.gpu_orders"]
    done = subprocess.run(command, cwd=ROOT, env=COMPILES, text=True, check=True, stdout=subprocess.PIPE)
    found = {each["name"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert found.keys() == ORDERED.keys()
    assert [name for name, each in found.items() if each["alone"] != each["together"]] == []
    for name, each in found.items():
        adds = name.startswith(WITH_SUMS) and name != "affine 1"
        assert all(bool(layouts) == adds for layouts in each["alone"]), name
