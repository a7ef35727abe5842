"""The GPU memory of a process that serves an entry, measured in a new process.

    python -m triton_regressors.commands.gpu_memory VERSION_DIRECTORY MAX_ROWS      prints it as JSON

Most of it is the bare CUDA context that every process on a GPU needs; the driver reports the memory of each process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from triton_regressors.errors import TritonRegressorsError

QUERY = ("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
MIB = 2**20


@dataclass(frozen=True)
class GpuMemory:
    """Bytes of a GPU's memory: of a process with nothing but a CUDA context, of the weights, and of the whole."""

    device: str
    context: int
    weights: int
    process: int

    def text(self) -> str:
        """Return the memory as a sentence."""
        rest = self.process - self.context - self.weights
        return (
            f"GPU memory of a process that serves the entry: {self.process / MIB:,.0f} MiB, of which a CUDA context "
            f"takes {self.context / MIB:,.0f}, weights {self.weights / MIB:,.1f}, and the rest {rest / MIB:,.0f} "
            f"({self.device})."
        )


def measure(version: Path, max_rows: int) -> GpuMemory:
    """Measure the memory for a version of an entry, on the first GPU.

    Raises:
        TritonRegressorsError: the memory cannot be measured here; the message says why.
    """
    command = [sys.executable, "-m", __spec__.name, str(version.resolve()), str(max_rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise TritonRegressorsError(
            f"A GPU's memory cannot be measured here: {said[-1] if said else f'exit code {done.returncode}'}"
        )
    return GpuMemory(**json.loads(done.stdout))


def used_by(process: int, answer: str) -> int:
    """Return the bytes that a process uses, from the lines "PID, MiB" of `nvidia-smi`.

    Raises:
        LookupError: the process is not listed, as in a container with its own process numbers.
    """
    rows = [line.split(",") for line in answer.splitlines() if "," in line]
    found = [memory.strip() for number, memory in rows if number.strip() == str(process)]
    if not found or not found[0].isdigit():
        raise LookupError("nvidia-smi does not list this process")
    return int(found[0]) * MIB


def _used() -> int:
    return used_by(os.getpid(), subprocess.run(QUERY, capture_output=True, text=True, check=True).stdout)


def _measure_here(version: Path, max_rows: int) -> GpuMemory:
    import torch

    from triton_regressors.kernels.engine.input_check import Allowed
    from triton_regressors.kernels.engine.program import bind_parameters
    from triton_regressors.kernels.engine.runner import Runner
    from triton_regressors.kernels.plan.plan import load_plan

    torch.cuda.set_device(0)
    torch.cuda.mem_get_info()  # makes the context, and nothing else
    context = _used()
    plan = load_plan(version)
    runner = Runner(plan, engine="triton", device="cuda:0", max_rows=max_rows, gathered=Allowed(plan.n_features, ()))
    runner.warm_up([tuple(plan.outputs)])
    process = _used()
    parameters = bind_parameters(plan, torch.device("cpu")).values()
    weights = sum(tensor.nbytes for tensors in parameters for tensor in tensors.values())
    return GpuMemory(torch.cuda.get_device_name(), context, weights, process)


if __name__ == "__main__":
    try:
        print(json.dumps(asdict(_measure_here(Path(sys.argv[1]), int(sys.argv[2])))))
    except (AssertionError, LookupError, OSError, RuntimeError) as error:
        sys.exit(str(error) or type(error).__name__)
