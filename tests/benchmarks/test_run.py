"""Benchmarks on a machine without the device that they need."""

from pathlib import Path

import pytest
import torch

from benchmarks import run
from benchmarks.cpu import libraries
from benchmarks.gpu import entry, families, host_to_host, kernels, unlike_rows


@pytest.mark.parametrize("benchmark", run.BENCHMARKS)
def test_each_benchmark_can_be_run_quickly(benchmark: str) -> None:
    """`benchmarks.run --quick` passes the option on."""
    source = Path(run.__file__).parent / f"{benchmark.replace('.', '/')}.py"
    assert 'add_argument("--quick"' in source.read_text(encoding="utf-8")


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds a CUDA device, and this is about none")
def test_an_engine_without_its_device_says_why():
    with libraries.Worker("triton") as worker:
        assert worker.load("ridge", 1) == "torch finds no CUDA GPU"
        assert not worker.able
    assert run.missing("gpu.kernels") == "torch finds no CUDA GPU"
    with pytest.raises(SystemExit, match="needs a CUDA GPU"):
        kernels.run(None)
    with pytest.raises(SystemExit, match="needs a CUDA GPU"):
        families.run(None, families.FAMILIES)
    with pytest.raises(SystemExit, match="needs a CUDA GPU"):
        unlike_rows.run(None, unlike_rows.FAMILIES)
    with pytest.raises(SystemExit, match="needs a CUDA GPU"):
        host_to_host.run(None, list(host_to_host.WORKS))
    with pytest.raises(SystemExit, match="needs a CUDA GPU"):
        entry.run([], [])
