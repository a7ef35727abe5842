"""Shows what an estimator compiles to, or what an entry holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from triton_regressors.exporter.compiler import Compilation, stage_summary
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.repository import Entry
from triton_regressors.exporter.soundness import one_line
from triton_regressors.kernels.entry import PLAN, read_document
from triton_regressors.kernels.errors import PlanError
from triton_regressors.kernels.inputs import Inputs
from triton_regressors.kernels.plan import INPUT

SHOWN_NAMES = 8


def describe_compilation(compilation: Compilation) -> Group:
    """Return the plan as lowered and after each pass that changed it, and the parity of the last."""
    stages = [stage_summary(stage, plan) for stage, plan in compilation.stages]
    return _describe(type(compilation.estimator).__name__, stages, compilation.report.to_json())


def describe_entry(entry: Entry) -> Group:
    """Return the same for an entry, from what its export recorded, and how a client asks it."""
    try:
        return _describe_document(entry, read_document(entry.version_directory))
    except PlanError as error:
        raise ExportError(str(error)) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # its digest fits: somebody's own
        path = entry.version_directory / PLAN
        raise ExportError(f"{path} does not hold what an export writes ({one_line(error)}).") from error


def _describe_document(entry: Entry, document: Mapping[str, Any]) -> Group:
    subject = f"{entry.name} version {entry.version} ({document['provenance']['class'].rpartition('.')[2]})"
    inputs = Inputs.from_json(document["n_features"], document["inputs"])
    names = document["provenance"]["feature_names"]
    snippet = client_snippet(entry.name, inputs, list(document["outputs"]), names)
    return Group(
        _describe(subject, document["stages"], document["parity"]),
        Text("\nFrom a client:"),
        Text(snippet, no_wrap=True, overflow="ignore"),
    )


def client_snippet(name: str, inputs: Inputs, outputs: Sequence[str], feature_names: Sequence[str] = ()) -> str:
    """Return Python that asks a running server for the entry's answers with tritonclient alone."""
    wanted = ", ".join(f'grpc.InferRequestedOutput("{output}")' for output in outputs)
    datatype = '"FP32" if name == "X" else "BYTES"' if inputs.text else '"FP32"'
    values = []
    for tensor, columns in inputs.columns().items():
        shown = ", ".join(feature_names[column] for column in columns[:SHOWN_NAMES]) if feature_names else ""
        what = (
            f"your {shown}{', ...' * (len(columns) > SHOWN_NAMES)}" if shown else "your rows, in training column order"
        )
        values.append(f'"{tensor}": {_example(inputs, tensor)},  # {what}')
    return f"""\
    import numpy as np
    import tritonclient.grpc as grpc

    rows = {{
        {(chr(10) + 8 * " ").join(values)}
    }}
    tensors = [grpc.InferInput(name, x.shape, {datatype}) for name, x in rows.items()]
    for tensor, x in zip(tensors, rows.values()):
        tensor.set_data_from_numpy(x)
    client = grpc.InferenceServerClient("127.0.0.1:8001")
    answer = client.infer("{name}", tensors, outputs=[{wanted}])
    print(answer.as_numpy("{outputs[0]}"))"""


def _example(inputs: Inputs, tensor: str) -> str:
    """Return the Python of two rows of a tensor."""
    for group in inputs.text:
        if group.name == tensor:
            strings = json.dumps([next(iter(known), "") for known in group.categories], ensure_ascii=False)
            return f"np.array([{strings}] * 2, dtype=object)"
    return f"np.zeros((2, {len(inputs.numeric)}), dtype=np.float32)"


def parity_table(parity: Mapping[str, Any]) -> Table:
    """Return the measured differences from the estimator's own predictions."""
    rows = f"{parity['rows']} rows from {parity['rows_from']}, {parity['engine']} engine"
    table = Table(title=f"Parity with the estimator's own predict ({rows})", title_justify="left")
    for heading in ("output", "max |error| / std", "in float32 ulp", "tolerance / std"):
        table.add_column(heading, justify="left" if heading == "output" else "right")
    for name, found in parity["outputs"].items():
        table.add_row(name, f"{found['max_error']:.1e}", f"{found['max_ulp']:.2f}", f"{parity['tolerance']:.0e}")
    return table


def _describe(subject: str, stages: Sequence[Mapping[str, Any]], parity: Mapping[str, Any]) -> Group:
    parts: list[RenderableType] = [Text(subject, style="bold")]
    for number, stage in enumerate(stages):
        parts.append(_stage_table("as lowered" if number == 0 else f"after: {stage['stage']}", stage["steps"]))
    parts.append(parity_table(parity))
    return Group(*parts)


def _stage_table(title: str, steps: Sequence[Mapping[str, Any]]) -> Table:
    total = {key: sum(step[key] for step in steps) for key in ("launches", "parameters", "bytes")}
    table = Table(title=title, title_justify="left", show_footer=True)
    table.add_column("step", footer=f"{len(steps)} step{'s' * (len(steps) != 1)}")
    table.add_column("reads")
    table.add_column("operation")
    for key in ("launches", "parameters", "bytes"):
        table.add_column(key, justify="right", footer=f"{total[key]:,}")
    for step in steps:
        operation = f"{step['op']} {step['what']}".strip()
        reads = ", ".join("X" if name == INPUT else name for name in step["inputs"])
        numbers = (f"{step[key]:,}" for key in ("launches", "parameters", "bytes"))
        table.add_row(step["output"], reads, operation, *numbers)
    return table
