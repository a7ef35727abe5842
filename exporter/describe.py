"""Shows what an estimator compiles to, or what an entry holds."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from triton_regressors.exporter.compiler import Compilation, stage_summary
from triton_regressors.exporter.errors import ExportError
from triton_regressors.kernels.entry import ParityReport, Stage, StepSummary, find_entry, read_document
from triton_regressors.kernels.errors import PlanError
from triton_regressors.kernels.inputs import Inputs
from triton_regressors.kernels.plan import INPUT

SHOWN_NAMES = 8
ROWS = 2
CURL_FEATURES = 64
DTYPES = {"FP32": "np.float32", "FP64": "np.float64", "INT64": "np.int64", "BYTES": "object"}


def describe_compilation(compilation: Compilation) -> Group:
    """Return the plan as lowered and after each pass that changed it, and the parity of the last."""
    stages = [stage_summary(stage, plan) for stage, plan in compilation.stages]
    return _describe(type(compilation.estimator).__name__, stages, compilation.report.record())


def describe_entry(directory: Path, version: int | None = None) -> Group:
    """Return the same for an entry, from what its export recorded, and how a client asks it.

    That is its newest version unless one is named. `ExportError` if it is not there, or not as it was exported.
    """
    try:
        entry = find_entry(directory, version)
        document = read_document(entry.version_directory)
    except PlanError as error:
        raise ExportError(str(error)) from error
    subject = f"{entry.name} version {entry.version} ({document.provenance.class_.rpartition('.')[2]})"
    inputs, outputs = document.inputs, list(document.parity.outputs)
    return Group(
        _describe(subject, document.stages, document.parity),
        Text("\nFrom a client:"),
        Text(
            client_snippet(entry.name, inputs, outputs, document.provenance.feature_names),
            no_wrap=True,
            overflow="ignore",
        ),
        Text("\nFrom a shell:"),
        Text(curl_snippet(entry.name, inputs, outputs), no_wrap=True, overflow="ignore"),
    )


def client_snippet(name: str, inputs: Inputs, outputs: Sequence[str], feature_names: Sequence[str] = ()) -> str:
    """Return Python that asks a running server for the entry's answers with tritonclient alone."""
    wanted = ", ".join(f'protocol.InferRequestedOutput("{output}")' for output in outputs)
    datatypes = inputs.datatypes()
    given = ", ".join(f'"{tensor}": "{datatype}"' for tensor, datatype in datatypes.items())
    datatype = f"{{{given}}}[name]" if len(datatypes) > 1 else f'"{next(iter(datatypes.values()))}"'
    values = []
    for tensor, columns in inputs.columns().items():
        shown = ", ".join(feature_names[column] for column in columns[:SHOWN_NAMES]) if feature_names else ""
        what = (
            f"your {shown}{', ...' * (len(columns) > SHOWN_NAMES)}" if shown else "your rows, in training column order"
        )
        dtype = DTYPES[datatypes[tensor]]
        numbers = f"np.zeros(({ROWS}, {len(columns)}), dtype={dtype})"
        example = f"np.array({_example(inputs, tensor)}, dtype={dtype})" if dtype == "object" else numbers
        values.append(f'"{tensor}": {example},  # {what}')
    missing = """
    for x in rows.values():
        if x.dtype == object:
            x[np.equal(x, None) | (x != x)] = ""  # a missing string is an empty one: tritonclient would send "None"
"""
    return f"""\
    import numpy as np
    import tritonclient.grpc as protocol  # or tritonclient.http, and port 8000

    rows = {{
        {(chr(10) + 8 * " ").join(values)}
    }}{missing if inputs.text else chr(10)}\
    tensors = [protocol.InferInput(name, x.shape, {datatype}) for name, x in rows.items()]
    for tensor, x in zip(tensors, rows.values()):
        tensor.set_data_from_numpy(x)
    client = protocol.InferenceServerClient("127.0.0.1:8001")
    answer = client.infer("{name}", tensors, outputs=[{wanted}])
    print(answer.as_numpy("{outputs[0]}"))"""


def curl_snippet(name: str, inputs: Inputs, outputs: Sequence[str]) -> str:
    """Return a shell command that asks a running server for the same in JSON; of wide rows, a sentence."""
    if inputs.n_features > CURL_FEATURES:
        return f"    # Rows of more than {CURL_FEATURES} features are not for a command line."
    request = {
        "inputs": [
            {
                "name": tensor,
                "datatype": datatype,
                "shape": [ROWS, len(inputs.columns()[tensor])],
                "data": json.loads(_example(inputs, tensor)),
            }
            for tensor, datatype in inputs.datatypes().items()
        ],
        "outputs": [{"name": output} for output in outputs],
    }
    number, string = "A missing number is NaN, without quotes.", 'A missing string is "", an empty one.'
    missing = " ".join([*([number] if inputs.numeric else []), *([string] if inputs.text else [])])
    return f"""\
    # {missing}
    curl -s 127.0.0.1:8000/v2/models/{name}/infer -d {shlex.quote(json.dumps(request, ensure_ascii=False))}"""


def _example(inputs: Inputs, tensor: str) -> str:
    """Return the JSON, which is Python too, of two rows of a tensor."""
    for group in inputs.text:
        if group.name == tensor:
            row = [next(iter(known), "") for known in group.categories]
            return json.dumps([row] * ROWS, ensure_ascii=False)
    zero = 0 if inputs.datatypes()[tensor] == "INT64" else 0.0
    return json.dumps([[zero] * len(inputs.columns()[tensor])] * ROWS)


def parity_table(report: ParityReport) -> Table:
    """Return the measured differences from the estimator's own predictions."""
    rows = f"{report.rows} rows from {report.rows_from}, {report.engine} engine"
    title = f"Parity with the estimator's own predict ({rows})"
    table = Table(title=title, title_justify="left", caption=_parity_notes(report), caption_justify="left")
    for heading in ("output", "rows", "max |error| / std", "in float32 ulp", "tolerance / std"):
        table.add_column(heading, justify="left" if heading in ("output", "rows") else "right")
    for name, found in report.outputs.items():
        for which, parity in (("as given", found), ("rounded", found.rounded)):
            if parity is not None:
                error, ulp = f"{parity.max_error:.1e}", f"{parity.max_ulp:.2f}"
                table.add_row(name, which, error, ulp, f"{report.tolerance:.0e} or 1 ulp")
    return table


def _parity_notes(report: ParityReport) -> str | None:
    """Return what the errors do not say: what chose the input's type, and why one above the tolerance passed."""
    notes = [f"{report.why}."] if report.why else []
    for name, found in report.outputs.items():
        if found.max_error > report.tolerance:
            if found.excess <= report.tolerance:
                rest = f", all but {found.excess:.0e} of it" if found.excess else ""
                why = f"is within one unit in the answer's last float32 place{rest}"
            else:
                why = "is what rounding to FP32 does, which was asked for; it answers the rounded rows as predict does"
            notes.append(f"Output {name} passes: its error of {found.max_error:.1e} {why}.")
    return "\n".join(notes) or None


def _describe(subject: str, stages: Sequence[Stage], report: ParityReport) -> Group:
    parts: list[RenderableType] = [Text(subject, style="bold")]
    for number, stage in enumerate(stages):
        parts.append(_stage_table("as lowered" if number == 0 else f"after: {stage.stage}", stage.steps))
    parts.append(parity_table(report))
    return Group(*parts)


def _stage_table(title: str, steps: Sequence[StepSummary]) -> Table:
    table = Table(title=title, title_justify="left", show_footer=True)
    table.add_column("step", footer=f"{len(steps)} step{'s' * (len(steps) != 1)}")
    table.add_column("reads")
    table.add_column("operation")
    for heading, total in (
        ("launches", sum(step.launches for step in steps)),
        ("parameters", sum(step.parameters for step in steps)),
        ("bytes", sum(step.bytes for step in steps)),
    ):
        table.add_column(heading, justify="right", footer=f"{total:,}")
    for step in steps:
        operation = f"{step.op} {step.what}".strip()
        reads = ", ".join("X" if name == INPUT else name for name in step.inputs)
        numbers = (f"{number:,}" for number in (step.launches, step.parameters, step.bytes))
        table.add_row(step.output, reads, Text(operation), *numbers)
    return table
