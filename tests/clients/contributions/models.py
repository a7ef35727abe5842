"""A model with contributions for tests of clients: its code, its configuration, and what it must answer."""

import json

import numpy as np

# The margin is 0.01 · age + 0.5 · size + 1e-18 · built, y its exp; the base is 0.25. `two` has y and −y without link.
CODE = """
import sys

import numpy as np
import triton_python_backend_utils as pb_utils

sys.unraisablehook = lambda unraisable: None  # numpy's DLPack capsules complain, harmlessly


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "X")).astype(np.float64)
        built = pb_utils.get_input_tensor_by_name(request, "integers")
        parts = [0.01 * x[:, 0], 0.5 * x[:, 1], np.full(len(x), 0.25)]
        if built is not None:
            parts.insert(1, 1e-18 * np.from_dlpack(built)[:, 0].astype(np.float64))
        found = np.stack(parts, axis=1)
        margin = found.sum(axis=1, keepdims=True)
        if built is None:
            margin, found = np.hstack([margin, -margin]), np.hstack([found, -found])
        outputs = {"y": margin if built is None else np.exp(margin), "contributions": found}
        names = request.requested_output_names()
        with open(__file__ + ".asked", "a") as log:
            log.write(f"{len(x)} {','.join(sorted(names))}\\n")
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor.from_dlpack(name, outputs[name].astype(np.float32)) for name in names]
        )
"""

HOUSES = {
    "game": "background",
    "rows": 100,
    "links": ["exp"],
    "columns": ["age", "built", "size"],
    "places": {"X": [0, 2], "integers": [1]},
}
TWO = {"game": "path", "rows": 0, "links": [], "columns": ["column 0", "column 1"], "places": {"X": [0, 1]}}
_PARAMETER = 'parameters {{ key: "{}" value {{ string_value: {} }} }}\n'


def config(name: str) -> str:
    """Return the config.pbtxt of `houses`, or of `two`, whose columns have no names."""
    dates = [{"column": 0, "unit": "ns", "zone": None}]
    told = (
        {
            "contributions": HOUSES,
            "columns": {"X": ["age", "size"], "integers": ["built"]},
            "dates": {"integers": dates},
        }
        if name == "houses"
        else {"contributions": TWO}
    )
    second = 'input { name: "integers" data_type: TYPE_INT64 dims: 1 }' if name == "houses" else ""
    widths = (1, 4) if name == "houses" else (2, 6)
    return f"""
name: "{name}"
backend: "python"
max_batch_size: 16
input {{ name: "X" data_type: TYPE_FP32 dims: 2 }}
{second}
output {{ name: "y" data_type: TYPE_FP32 dims: {widths[0]} }}
output {{ name: "contributions" data_type: TYPE_FP32 dims: {widths[1]} }}
instance_group {{ kind: KIND_CPU count: 1 }}
""" + "".join(_PARAMETER.format(key, json.dumps(json.dumps(value))) for key, value in told.items())


def parts(age: np.ndarray, built_ns: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return the values of `houses`, float32 `[rows, 3]`."""
    return np.stack([0.01 * age, 1e-18 * built_ns, 0.5 * size], axis=1).astype(np.float32)
