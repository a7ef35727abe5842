"""Prints the cost of rows of small models as JSON, for tests that know it by hand.

Compiled kernels need a process without TRITON_INTERPRET.
"""

import json

import numpy as np

from benchmarks.bounds.architectures import Work, bounds, load, ratio
from benchmarks.bounds.gpu_rates import GPUS, WARP, multiplications
from benchmarks.bounds.recording import record
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.quadratic import Quadratic
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

FEATURES, POINTS, ROWS = 32, 256, 4096


def operations():
    """Return a linear model, a quadratic form and an expansion by ten digits."""
    rng, one, zero = np.random.default_rng(0), np.ones(FEATURES), np.zeros(FEATURES)
    linear, form = np.ones((1, FEATURES)), np.ones((1, FEATURES, FEATURES))
    points, weight = rng.standard_normal((POINTS, FEATURES)), rng.standard_normal((POINTS, 1))
    return {
        "affine": Affine(linear.T, np.zeros(1)),
        "quadratic": Quadratic(zero, one, form, linear, np.zeros(1)),
        "expansion": PairwiseAffine(
            points=points,
            shift=zero,
            factor=one,
            metric="squared_euclidean",
            profile="exp",
            gamma=-0.1,
            weight=weight,
            intercept=np.zeros(1),
            precision="ten digits",
        ),
    }


def main():
    """Count each on three GPUs and print."""
    found = {}
    for name, operation in operations().items():
        plan = Plan(FEATURES, (Step(operation, (INPUT,), "y"),), {"y": "y"})
        for gpu in GPUS:
            if gpu.name not in ("T4", "L4", "H200"):
                continue
            cost = load(Work("", name, plan, ROWS), gpu, {})
            per_row = {"memory_bytes": cost.memory_bytes, "bus_bytes": cost.bus_bytes, "DFMA": 0.0, "F2F.F64.F32": 0.0}
            per_row |= {"DMMA": 0.0, "HMMA": 0.0}
            for opcode, count in cost.executed.items():  # HGMMA is an HMMA of four warps
                kind = opcode.split(".")[0].replace("HGMMA", "HMMA")
                each = multiplications(opcode) if kind in ("DMMA", "HMMA") else WARP
                for counted in {kind, opcode} & set(per_row):
                    per_row[counted] += count * each
            times = bounds(cost, gpu)
            launches, _ = record(plan, ROWS, gpu)
            found[f"{name} {gpu.name}"] = {
                **per_row,
                "ratio": ratio(times, bus=False),
                "way": next((one.arguments["WAY"] for one in launches if "WAY" in one.arguments), None),
            }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
