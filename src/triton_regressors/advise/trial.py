"""The work of `describe --advise`: time a model on this machine, and look up a similar measured model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from triton_regressors.advise.advice import SCIKIT_LEARN, SIZES, TORCH, TRITON, Advice, Machine
from triton_regressors.advise.measured_models import nearest, shape_of
from triton_regressors.kernels.entry import Document, Entry, Golden

if TYPE_CHECKING:
    import numpy as np

    from triton_regressors.kernels.plan.plan import Plan


def advice_on_entry(
    entry: Entry, document: Document, golden: Golden, gpu_usd: float | None, cpu_usd: float | None
) -> Advice:
    """Return advice on an entry, timed on its golden rows, without its estimator."""
    from triton_regressors.kernels.plan.plan import load_plan

    return _advice(None, load_plan(entry.version_directory, document), document, golden.X, None, gpu_usd, cpu_usd)


def advice_on_model(compiled: Any, path: Path, gpu_usd: float | None, cpu_usd: float | None) -> Advice:
    """Return advice on a compiled estimator, timed on its sample; `path` is its file."""
    from triton_regressors.advise.timing import repeated, time_calls
    from triton_regressors.exporter.evidence.oracle import Oracle, ask
    from triton_regressors.exporter.lowering.lower import lower

    X = compiled.sample.X
    oracle = Oracle(compiled.estimator, lower(compiled.estimator, X).profile, ("y",))

    def predict(table: Any) -> object:
        return ask(compiled.estimator, table, ("y",))

    def timed(sizes: Sequence[int]) -> dict[int, float]:
        return time_calls(predict, lambda count: oracle.asked(repeated(X, count)), sizes)

    return _advice(quote(str(path)), compiled.plan, compiled.document(), X, timed, gpu_usd, cpu_usd)


def _advice(
    path: str | None,
    plan: Plan,
    document: Document,
    X: np.ndarray,
    scikit_learn: Callable[[Sequence[int]], dict[int, float]] | None,
    gpu_usd: float | None,
    cpu_usd: float | None,
) -> Advice:
    """Time this machine's engines, and `predict` if it is available, one after the other."""
    from triton_regressors.advise.timing import cores, gpu_name, time_engine
    from triton_regressors.exporter.publish.config import STAGED_NUMBERS
    from triton_regressors.kernels.engine.input_check import Allowed

    sizes = [rows for rows in SIZES if rows * plan.n_features <= STAGED_NUMBERS] or [1]
    allowed = Allowed(plan.n_features, document.nan_columns, document.inputs.closed)
    gpu = gpu_name()
    here = {}
    for engine in (TRITON, TORCH) if gpu else (TORCH,):
        here[engine] = time_engine(engine, plan, allowed, X.astype(plan.dtype), sizes)
    if scikit_learn is not None:
        here[SCIKIT_LEARN] = scikit_learn(sizes)
    return Advice(path, plan.parameter_bytes(), Machine(gpu, cores(), gpu_usd, cpu_usd), here, nearest(shape_of(plan)))
