"""The memory of a Triton server and its models' processes: what is added up, and which processes count."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from sklearn.linear_model import Ridge

from tests.servers import triton_server
from triton_regressors import export
from triton_regressors.deploy.server_memory import Resident, ServingMemory, family, measure, resident
from triton_regressors.errors import TritonRegressorsError


def test_memory_counts_what_is_shared_once() -> None:
    memory = ServingMemory(Resident(100, 50, 7), [Resident(200, 80, 5), Resident(300, 80, 5)], gpu=False)
    assert memory.total() == 100 + 200 + 300 + 80 + 7
    assert memory.total(least=250) == memory.total() + 50


def test_processes_are_found_with_their_children() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        found = family(os.getpid())
        assert found[0] == os.getpid()
        assert child.pid in found
        assert resident(os.getpid()).own > 10 * 2**20 > resident(child.pid).own
    finally:
        child.kill()
        child.wait()
    with pytest.raises(TritonRegressorsError, match=f"The memory of process {child.pid} cannot be read: No such file"):
        resident(child.pid)


@pytest.mark.server
def test_memory_is_that_of_a_server_with_its_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triton_regressors.deploy.server_memory.TritonServer", triton_server)  # which it ends at once
    export(Ridge().fit([[0.0], [1.0]], [0.0, 1.0]), tmp_path, name="ridge", max_batch_size=8)
    found = measure(tmp_path)
    assert len(found.instances) == 1
    assert found.instances[0].own > 50 * 2**20, "it has imported torch"
    assert found.total() > found.instances[0].own + found.server.own
