"""Device time of the kernels alone, beside a copy of memory, torch and torch.compile, all in the same run.

    python -m benchmarks.kernels_gpu [--quick] [--output DIR]     needs a CUDA GPU
    python -m benchmarks.kernels_gpu --dry-run                    tries the script out on a CPU, on toy sizes, and with
                                                                  TRITON_INTERPRET=1 the kernels too

Every case is a set of contenders on the same rotating inputs, a copy of memory among them: what a case reaches is its
bytes (rows read once, answers written once) per time, as a share of what that copy reached (bytes read and written).
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.checking import demand, error_of_arrays, error_of_tensors, poison
from benchmarks.environment import default_directory, device_name, save
from benchmarks.gpu.torch_polynomials import cubic_forms, quadratic_forms
from benchmarks.models import Model, model
from benchmarks.timing import Contender, time_on_device
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.polynomial_affine import PolynomialAffine
from triton_regressors.kernels.ops.linear.quadratic import Quadratic
from triton_regressors.kernels.plan.plan import Operation

INPUTS = 4
AFFINE_FEATURES = (1, 3, 13, 32, 64, 100, 256)
AFFINE_SHAPES = ((64, 8), (64, 16), (256, 64))
OURS_LIMIT = 1e-4
PEERS_LIMIT = 1e-2
ESTIMATOR_ROWS = 4096
COPY = "copy"
OURS = "triton_regressors"

Tensor = torch.Tensor


@dataclass(frozen=True)
class Sizes:
    """How large the cases are."""

    affine_bytes: int  # of X in the affine cases
    rows: int  # of the polynomial cases
    copy_bytes: int
    rounds: int


FULL = Sizes(affine_bytes=2**30, rows=2**20, copy_bytes=2**31, rounds=20)
QUICK = Sizes(affine_bytes=2**28, rows=2**20, copy_bytes=2**31, rounds=8)
TOY = Sizes(affine_bytes=2**14, rows=256, copy_bytes=2**14, rounds=2)


@dataclass(frozen=True)
class Case:
    """One table row's worth: contenders on the same inputs, and the float64 answer to hold them to.

    The names of our own contenders begin with `OURS`. `expected` maps float64 rows to float64 answers, making
    `elements_per_row` intermediate numbers; `model` is the estimator behind our parameters, where there is one.
    """

    name: str
    title: str
    inputs: Sequence[Tensor]
    targets: int
    contenders: Sequence[Contender]
    expected: Callable[[Tensor], Tensor]
    elements_per_row: int
    model: Model | None = None

    @property
    def bytes_moved(self) -> int:
        """The fewest bytes that pass through memory: the rows and the answers, once each."""
        rows, features = self.inputs[0].shape
        return 4 * rows * (features + self.targets)


class Bench:
    """The device, the sizes and the copy of memory that every case is measured beside."""

    def __init__(self, device: torch.device, sizes: Sizes, tune: bool) -> None:
        self.device, self.sizes, self.tune = device, sizes, tune
        self._source = torch.rand(sizes.copy_bytes // 4, device=device)
        self._target = torch.empty_like(self._source)

    def measure(self, case: Case) -> dict[str, Any]:
        """Check every contender, time them beside the copy, print and return the case as JSON."""
        errors = {contender.name: self._error(case, contender) for contender in case.contenders}
        # Not as a graph, whose copy nodes reached two thirds of the bandwidth that a copy reaches when it is called.
        copy = Contender(COPY, lambda i: self._target.copy_(self._source), graph=False)
        found = time_on_device([copy, *case.contenders], len(case.inputs), self.device, rounds=self.sizes.rounds)
        bandwidth = 2 * self.sizes.copy_bytes / found[COPY].median_us  # bytes per µs
        floor_us = case.bytes_moved / bandwidth
        print(f"{case.title}: {len(case.inputs[0]):,} rows, bytes alone {floor_us:,.1f} µs")
        contenders = {}
        for name, error in errors.items():
            timing = found[name]
            share = floor_us / timing.median_us
            print(f"  {name:<52} {timing.median_us:10,.1f} µs  {share:6.1%} of copy  error {error:.1e}")
            contenders[name] = timing.to_json() | {"share_of_copy": round(share, 4), "max_error": float(f"{error:.2g}")}
        return {
            "case": case.name,
            "title": case.title,
            "rows": len(case.inputs[0]),
            "n_features": case.inputs[0].shape[1],
            "targets": case.targets,
            "copy_tb_per_s": round(bandwidth / 1e6, 4),
            "bytes_us": float(f"{floor_us:.4g}"),
            "contenders": contenders,
        }

    def _error(self, case: Case, contender: Contender) -> float:
        ours = contender.name.startswith(OURS)
        limit = OURS_LIMIT if ours else PEERS_LIMIT
        answers = []
        for i in range(len(case.inputs)):
            answer = contender.call(i)
            poison([answer])  # the same memory where the output is given, and an earlier answer's where it is not
            answers.append(contender.call(i).clone())
        error = error_of_tensors(answers, case.inputs, case.expected, case.elements_per_row)
        if case.model is not None and ours:
            rows = case.inputs[0][:ESTIMATOR_ROWS].cpu().numpy()
            truth = case.model.estimator.predict(rows.astype(np.float64))
            error = max(error, error_of_arrays(answers[0][: len(rows)].cpu().numpy(), truth))
        return demand(f"{case.name}, {contender.name},", error, limit)

    def ours(self, name: str, operation: Operation, inputs: Sequence[Tensor], targets: int) -> Contender:
        """Return an operation's kernel; on a CPU, unless it interprets kernels, the plain torch reference stands in."""
        launches = self.device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
        arrays = operation.parameters().items()
        parameters = {key: torch.from_numpy(np.ascontiguousarray(array)).to(self.device) for key, array in arrays}
        outputs = [torch.empty(len(x), targets, device=self.device) for x in inputs]

        def call(i: int) -> Tensor:
            if launches:
                operation.launch(parameters, [inputs[i]], outputs[i], len(inputs[i]))
            else:
                outputs[i].copy_(operation.reference(parameters, inputs[i]))
            return outputs[i]

        return Contender(name, call)

    def normal(self, rows: int, features: int) -> list[Tensor]:
        """Return the rotating inputs: rows of independent normal features."""
        generator = torch.Generator(self.device).manual_seed(features)
        return [torch.randn(rows, features, device=self.device, generator=generator) for _ in range(INPUTS)]

    def like(self, source: Model) -> list[Tensor]:
        """Return the rotating inputs: rows like those that a model was fitted on."""
        sample = source.rows(4096, seed=1).astype(np.float32)
        location, scale = torch.from_numpy(sample.mean(0)), torch.from_numpy(sample.std(0))
        normal = self.normal(self.sizes.rows, source.n_features)
        return [x.mul_(scale.to(self.device)).add_(location.to(self.device)) for x in normal]


def best(case: Mapping[str, Any], *, ours: bool) -> tuple[str, dict[str, Any]]:
    """Return the name and figures of a measured case's fastest of ours, or of torch's; of ours the exported counts."""
    found = {name: value for name, value in case["contenders"].items() if name.startswith(OURS) == ours}
    exported = {name: value for name, value in found.items() if "as exported" in name}
    return min((exported or found).items(), key=lambda item: item[1]["median_us"])


def affine_case(bench: Bench, features: int, targets: int) -> Case:
    """Return X·w against torch in float32; the intercept is zero, so that torch need not add one."""
    weight = np.random.default_rng(features).standard_normal((features, targets))
    inputs = bench.normal(max(bench.sizes.affine_bytes // (4 * features), 16), features)
    exact = torch.from_numpy(weight).to(bench.device)
    single = exact.float()
    outputs = [torch.empty(len(x), targets, device=bench.device) for x in inputs]
    if targets == 1:
        title, column = f"X·w, {features} feature" + ("s" if features > 1 else ""), single[:, 0].contiguous()
        peer = Contender("torch.mv", lambda i: torch.mv(inputs[i], column, out=outputs[i].view(-1)))
    else:
        title = f"X·W, {features} features, {targets} targets"
        peer = Contender("torch.mm", lambda i: torch.mm(inputs[i], single, out=outputs[i]))
    mine = bench.ours(OURS, Affine(weight, np.zeros(targets)), inputs, targets)
    return Case(
        f"affine_{features}_{targets}", title, inputs, targets, [mine, peer], lambda x: x @ exact, features + targets
    )


def quadratic_case(bench: Bench) -> Case:
    """Return the degree-2 polynomial pipeline in both precisions against torch.compile of the quadratic form."""
    source = model("polynomial_2")
    operation = source.plan().steps[0].operation
    assert isinstance(operation, Quadratic)
    inputs = bench.like(source)
    mine = [
        bench.ours(
            f"{OURS}, {precision}" + (", as exported" if precision == operation.precision else ""),
            dataclasses.replace(operation, precision=precision),
            inputs,
            1,
        )
        for precision in Quadratic.PRECISIONS
    ]
    shift, factor, form, linear, intercept = (
        torch.from_numpy(array).to(bench.device)
        for array in (operation.shift, operation.factor, operation.quadratic, operation.linear, operation.intercept)
    )

    def expected(x: Tensor) -> Tensor:
        z = (x - shift) * factor
        return ((z @ form[0] + linear[0]) * z).sum(1, keepdim=True) + intercept

    peers = quadratic_forms(operation, inputs, tune=bench.tune)
    return Case("polynomial_2", source.title, inputs, 1, [*mine, *peers], expected, 4 * source.n_features, source)


def cubic_case(bench: Bench) -> Case:
    """Return the degree-3 polynomial pipeline against torch.compile."""
    source = model("polynomial_3")
    operation = source.plan().steps[0].operation
    assert isinstance(operation, PolynomialAffine)
    inputs = bench.like(source)
    mine = bench.ours(f"{OURS}, as exported", operation, inputs, 1)
    shift, factor, indices, weight, intercept = (
        torch.from_numpy(array).to(bench.device)
        for array in (operation.shift, operation.factor, operation.indices, operation.weight, operation.intercept)
    )

    def expected(x: Tensor) -> Tensor:
        z = torch.cat([(x - shift) * factor, torch.ones_like(x[:, :1])], 1)
        return z[:, indices].prod(2) @ weight + intercept

    peers = cubic_forms(operation, inputs, tune=bench.tune)
    return Case("polynomial_3", source.title, inputs, 1, [mine, *peers], expected, 6 * len(operation.indices), source)


def run(directory: Path | None, *, quick: bool = False, tune: bool | None = None, dry_run: bool = False) -> Path | None:
    """Measure every case and write kernels.json; a dry run measures toy sizes on the CPU and writes nothing."""
    if not dry_run and not torch.cuda.is_available():
        raise SystemExit("benchmarks.kernels_gpu needs a CUDA GPU, and torch finds none; --dry-run tries it on a CPU.")
    torch.set_float32_matmul_precision("highest")  # no TF32 for anybody
    if dry_run:
        torch.set_num_threads(1)
    tune = not quick and not dry_run if tune is None else tune
    device = torch.device("cpu" if dry_run else "cuda")
    bench = Bench(device, TOY if dry_run else QUICK if quick else FULL, tune)
    makers: list[Callable[[Bench], Case]] = [
        *(lambda b, f=features: affine_case(b, f, 1) for features in AFFINE_FEATURES),
        *(lambda b, f=features, t=targets: affine_case(b, f, t) for features, targets in AFFINE_SHAPES),
        quadratic_case,
        cubic_case,
    ]
    print(f"kernels on {'the CPU (a dry run: these are no figures)' if dry_run else device_name()}")
    cases = [bench.measure(make(bench)) for make in makers]  # one case's inputs at a time
    if dry_run or directory is None:
        return None
    settings = {"quick": quick, "max_autotune": tune, **dataclasses.asdict(bench.sizes), "inputs": INPUTS}
    return save(directory, "kernels", settings, {"cases": cases})


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller inputs, fewer rounds, no max-autotune for torch")
    parser.add_argument("--dry-run", action="store_true", help="toy sizes on a CPU, to try the script out")
    parser.add_argument("--tune", action=argparse.BooleanOptionalAction, help="let torch.compile try max-autotune too")
    parser.add_argument("--output", type=Path, default=None, help="directory of kernels.json")
    arguments = parser.parse_args()
    directory = arguments.output or default_directory()
    run(directory, quick=arguments.quick, tune=arguments.tune, dry_run=arguments.dry_run)


if __name__ == "__main__":
    main()
