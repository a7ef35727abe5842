"""Shows what an estimator compiles to, or what an entry holds."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from triton_regressors.exporter.compiler import Compilation, stage_summary
from triton_regressors.exporter.repository import Entry
from triton_regressors.kernels.inputs import NUMBERS, Inputs
from triton_regressors.kernels.plan import INPUT, read_document

SHOWN_NAMES = 8
ROWS = 2
CURL_FEATURES = 64


def describe_compilation(compilation: Compilation) -> Group:
    """Return the plan as lowered and after each pass that changed it, and the parity of the last."""
    stages = [stage_summary(stage, plan) for stage, plan in compilation.stages]
    return _describe(type(compilation.estimator).__name__, stages, compilation.report.to_json())


def describe_entry(entry: Entry) -> Group:
    """Return the same for an entry, from what its export recorded, and how a client asks it."""
    document = read_document(entry.version_directory)
    subject = f"{entry.name} version {entry.version} ({document['provenance']['class'].rpartition('.')[2]})"
    inputs = Inputs.from_json(document["n_features"], document["inputs"])
    names = document["provenance"]["feature_names"]
    outputs = list(document["outputs"])
    return Group(
        _describe(subject, document["stages"], document["parity"]),
        Text("\nFrom a client:"),
        Text(client_snippet(entry.name, inputs, outputs, names), no_wrap=True, overflow="ignore"),
        Text("\nFrom a shell:"),
        Text(curl_snippet(entry.name, inputs, outputs), no_wrap=True, overflow="ignore"),
    )


def client_snippet(name: str, inputs: Inputs, outputs: Sequence[str], feature_names: Sequence[str] = ()) -> str:
    """Return Python that asks a running server for the entry's answers with tritonclient alone."""
    wanted = ", ".join(f'protocol.InferRequestedOutput("{output}")' for output in outputs)
    datatype = '"FP32" if name == "X" else "BYTES"' if inputs.text else '"FP32"'
    values = []
    for tensor, columns in inputs.columns().items():
        shown = ", ".join(feature_names[column] for column in columns[:SHOWN_NAMES]) if feature_names else ""
        what = (
            f"your {shown}{', ...' * (len(columns) > SHOWN_NAMES)}" if shown else "your rows, in training column order"
        )
        numbers = f"np.zeros(({ROWS}, {len(columns)}), dtype=np.float32)"
        example = numbers if tensor == NUMBERS else f"np.array({_example(inputs, tensor)}, dtype=object)"
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
                "datatype": "FP32" if tensor == NUMBERS else "BYTES",
                "shape": [ROWS, len(columns)],
                "data": json.loads(_example(inputs, tensor)),
            }
            for tensor, columns in inputs.columns().items()
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
    return json.dumps([[0.0] * len(inputs.numeric)] * ROWS)


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
        table.add_row(step["output"], reads, Text(operation), *numbers)
    return table
