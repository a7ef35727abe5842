"""The content of `plan.json` besides a plan, for versions that tests write themselves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from triton_regressors.exporter.publish.modules import modules_of
from triton_regressors.kernels import entry
from triton_regressors.kernels.entry import Document, Golden, OutputParity, ParityReport, Provenance
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.plan.plan import Plan


def document(
    plan: Mapping[str, Any], inputs: Inputs, units: Mapping[str, Sequence[float]], tolerance: float = 1e-5
) -> Document:
    """Return a document whose outputs have these units: the standard deviations of each one's columns."""
    outputs = {name: OutputParity(tuple(unit), max_error=1e-8, max_ulp=0.5, excess=0.0) for name, unit in units.items()}
    return Document(
        plan=plan,
        provenance=Provenance("Ridge()", "sklearn.linear_model._ridge.Ridge", (), "1.0", "1.0"),
        inputs=inputs,
        nan_columns=(),
        parity=ParityReport(tolerance, "torch", 1, "the given sample", inputs.datatypes(), "", outputs),
        stages=(),
    )


def document_of(plan: Plan) -> Document:
    """Return the document of a plan whose input is one matrix."""
    units = {name: [1.0] * width for name, width in plan.output_widths().items()}
    return document(plan.to_json(), Inputs.plain(plan.n_features, plan.dtype), units)


def write_golden(version: Path, X: np.ndarray, inputs: Inputs | None = None, **outputs: np.ndarray) -> None:
    """Write golden rows and a plan.json without steps into a version's directory, as far as clients read them."""
    version.mkdir(parents=True, exist_ok=True)
    entry.write_golden(version, Golden(X, outputs))
    units = {name: np.nan_to_num(array.std(axis=0), nan=1.0).tolist() for name, array in outputs.items()}
    inputs = Inputs.plain(X.shape[1]) if inputs is None else inputs
    entry.write_document(version, document({"n_features": X.shape[1]}, inputs, units))


def golden_of(version: Path) -> Golden:
    """Return a version's golden rows, its files checked."""
    return entry.read_golden(version, entry.read_document(version))


def write_plan(version: Path, plan: Plan) -> None:
    """Write a version that holds this plan; its one golden row is made of zeros, and so are the answers."""
    row = np.zeros((1, plan.n_features), plan.dtype)
    golden = Golden(row, {name: np.zeros((1, width)) for name, width in plan.output_widths().items()})
    document = document_of(plan)
    entry.write_version(version, document, plan.to_tensors(), golden, modules_of(plan, document))
