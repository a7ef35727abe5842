"""The processes of libraries: their threads."""

import os
import subprocess
import sys

import pytest

from benchmarks.cpu.libraries import THREADS_APART

CORES = len(os.sched_getaffinity(0))


@pytest.mark.skipif(CORES == 1, reason="one core has one thread, whatever the order of imports")
@pytest.mark.parametrize("module", ["benchmarks.cpu.predict", "benchmarks.cpu.gpu_or_cpu"])
def test_torch_has_a_thread_for_each_core_where_threads_stay_apart(module: str) -> None:
    environment = {**os.environ, **THREADS_APART}
    environment.pop("OMP_NUM_THREADS", None)
    code = f"import {module}, torch; print(torch.get_num_threads())"
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(found.stdout) > 1
