"""The same under every processor's BLAS kernels: `python -m tests.processors` tries every case of the catalogue.

Cases are fitted once and exported in a process for each core type of OpenBLAS, NumPy's and SciPy's BLAS, which reads
OPENBLAS_CORETYPE once, when it is loaded; a type that it does not have for this machine means the machine's own.
Differences are printed, and are a failure if exporter/lowering/products.py does not announce them.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

CORE_TYPES = ("Haswell", "Zen", "Sandybridge", "Prescott", "SkylakeX")
NUS = (0.2, 0.7, 1.0, 2.0, 3.5, 7.3)
MAY_DIFFER = (
    *("factor-analysis", "float32-pca", "gaussian-process", "knn-mahalanobis", "sparse-pca"),
    "targets-random-projection",
)
WITHOUT_AVX = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}  # torch and its BLAS, as on old processors
QUADRATICS = ("quadratic 5 to 2 in float32", "quadratic 33 to 1 in float32")


def tried(core_type: str, names: Iterable[str]) -> dict[str, Any]:
    """Return what `measured` finds in a process where OpenBLAS has that core type."""
    from tests.exporter.catalogue.cases import CASES

    estimators = pickle.dumps({name: CASES[name].fitted() for name in names})
    given = {"OPENBLAS_CORETYPE": core_type, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment = {**os.environ, **given, **(WITHOUT_AVX if core_type == "Prescott" else {})}
    command = [sys.executable, "-m", "tests.processors", "measured"]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, env=environment, input=estimators, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(estimators: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Return the BLAS, a hash of each entry's plan and weights and of Matern tables, and what varies with the row."""
    from threadpoolctl import threadpool_info  # scikit-learn needs it

    from tests.kernels.operations import OPERATIONS, inputs_for, run_kernel, run_on_cpu
    from triton_regressors.exporter.compile import compile_estimator
    from triton_regressors.exporter.estimators.gaussian_process import matern_table

    hashes = {f"matern {nu:g}": _hash([matern_table(nu)]) for nu in NUS}
    for name, (estimator, rows) in estimators.items():
        plan = compile_estimator(estimator, sample=rows).plan
        hashes[name] = _hash([json.dumps(plan.to_json()), *plan.to_tensors().values()])
    varying = []
    for name in QUADRATICS:
        op, widths = OPERATIONS[name]
        (rows,) = inputs_for(widths, 64)
        rolled = np.roll(rows, 5, axis=0)
        kernel = [run_kernel(op, [X], torch.device("cpu")) for X in (rows, rolled)]
        on_cpu = [run_on_cpu(op, [X]) for X in (rows, rolled)]
        for engine, (found, moved) in {"interpret": kernel, "torch": on_cpu}.items():
            if np.roll(moved, -5, axis=0).tobytes() != found.tobytes():
                varying.append(f"{name} ({engine})")
    kinds = {info["architecture"] for info in threadpool_info() if info["internal_api"] == "openblas"}
    return {"blas": sorted(kinds), "hashes": hashes, "varying": varying}


def _hash(parts: Iterable[str | np.ndarray]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part.tobytes())
    return digest.hexdigest()


def _picklable(name: str) -> bool:
    from tests.exporter.catalogue.cases import CASES

    try:
        return bool(pickle.dumps(CASES[name].fitted()))
    except (AttributeError, pickle.PicklingError):  # a function without a name
        return False


def main() -> int:
    """Print what differs between core types, or, in a process of its own, what was measured."""
    if sys.argv[1:] == ["measured"]:
        json.dump(measured(pickle.load(sys.stdin.buffer)), sys.stdout)
        return 0
    from tests.exporter.catalogue.cases import CASES

    names = [name for name in CASES if _picklable(name)]
    first, bad = None, False
    for kind in CORE_TYPES:
        report = tried(kind, names)
        first = first or report["hashes"]
        differing = [name for name, value in report["hashes"].items() if value != first[name]]
        print(f"{kind} ({', '.join(report['blas'])}): {len(first)} hashes, {len(differing)} unlike {CORE_TYPES[0]}'s")
        print("".join(f"  {name}\n" for name in differing), end="")
        print("".join(f"  varies with the row's place: {name}\n" for name in report["varying"]), end="", flush=True)
        bad |= bool(report["varying"]) or not all(name.startswith(MAY_DIFFER) for name in differing)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
