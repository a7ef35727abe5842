"""The models that benchmarks measure: their plans, and compiling them where there is no client of a server."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.models import DTYPES, MODELS, model

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("input", DTYPES)
@pytest.mark.parametrize("name", [found.name for found in MODELS if found.name not in ("boosting", "scaled_forest")])
def test_each_model_but_the_trees_is_one_step_of_either_type(name, input):
    plan = model(name).plan(input)
    assert len(plan.steps) == 1
    assert plan.dtype == DTYPES[input]


def test_compiling_a_model_needs_no_server_client():
    """The GPU scripts run where tritonclient is not installed."""
    code = (
        "import sys; sys.modules['tritonclient'] = None\n"
        "import benchmarks.gpu.kernels, benchmarks.cpu.predict as p\n"
        "from benchmarks.models import model\n"
        "print(len(model('ridge').plan().steps))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1", done.stderr
