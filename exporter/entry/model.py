"""The Python-backend model of every entry; the exporter copies this file byte for byte.

It needs torch, triton, numpy and safetensors, and the `kernels/` folder beside it. All requests of a batch become one
run of the plan: their rows are gathered into one buffer and the answers are cut from another. A request that cannot be
answered gets an error of its own, and its neighbours in the batch get their answers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from safetensors.numpy import load_file
from torch.utils.dlpack import from_dlpack, to_dlpack


class TritonPythonModel:
    """One instance of an entry on one device."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load and check the plan, bind it to this instance's device, warm it up, and prove it on the golden rows."""
        config = json.loads(args["model_config"])
        engine = config.get("parameters", {}).get("engine", {}).get("string_value", "auto")
        if engine == "interpret":
            os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels below are imported
        from .kernels.parity import measure
        from .kernels.plan import load_plan, read_document
        from .kernels.run import Runner

        on_gpu = args["model_instance_kind"] == "GPU"
        device = f"cuda:{args['model_instance_device_id']}" if on_gpu else "cpu"
        if on_gpu:
            torch.cuda.set_device(device)
        else:
            torch.set_num_threads(1)  # the server runs instances side by side; threads inside each would fight
        max_rows = int(config["max_batch_size"])
        if max_rows < 1:
            raise ValueError("max_batch_size must be at least 1: the first dimension of X is rows.")

        directory = Path(__file__).parent
        document = read_document(directory)
        plan = load_plan(directory)
        self.n_features = plan.n_features
        self.feature_names = document["provenance"]["feature_names"]
        self.outputs = tuple(plan.outputs)
        self.runner = Runner(plan, engine=engine, device=device, max_rows=max_rows)
        golden = load_file(directory / "golden.safetensors")
        tolerance = document["parity"]["tolerance"]
        for name, answer in self.runner.predict(golden["X"], self.outputs).items():
            parity = measure(answer, golden[name], document["parity"]["outputs"][name]["unit"])
            if not parity.within(tolerance):
                raise ValueError(
                    f"On this device output '{name}' of the golden rows is {parity.max_error:.1e} standard deviations "
                    f"from the estimator's own prediction; the entry allows {tolerance:.0e}."
                )
        self.runner.warm_up([(name,) for name in self.outputs] + ([self.outputs] if len(self.outputs) > 1 else []))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request of the batch, in order."""
        responses: list[Any] = [None] * len(requests)
        members: list[int] = []
        arrays: list[np.ndarray] = []
        for index, request in enumerate(requests):
            if request.is_cancelled():
                responses[index] = _error("The request was cancelled.", pb_utils.TritonError.CANCELLED)
                continue
            try:
                arrays.append(self._rows(request))
                members.append(index)
            except ValueError as error:
                responses[index] = _error(str(error))
        try:
            if arrays:
                self._answer(requests, responses, members, arrays)
        except Exception as error:
            message = f"The model failed on this batch: {type(error).__name__}: {error}"
            for index in members:
                responses[index] = _error(message, pb_utils.TritonError.INTERNAL)
        return responses

    def finalize(self) -> None:
        """Let go of the device's memory."""
        del self.runner

    def _rows(self, request: Any) -> np.ndarray:
        """Return a request's X as float32 `[rows, n_features]` without copying it."""
        tensor = pb_utils.get_input_tensor_by_name(request, "X")
        if tensor is None:
            raise ValueError("The request has no input X.")
        x = from_dlpack(tensor.to_dlpack())
        if x.dtype != torch.float32 or x.dim() != 2 or x.shape[1] != self.n_features:
            dtype = str(x.dtype).removeprefix("torch.")
            raise ValueError(f"X must be float32 [rows, {self.n_features}], not {dtype} {list(x.shape)}.")
        if x.shape[0] == 0:
            raise ValueError("X has no rows.")
        return (x if x.device.type == "cpu" else x.cpu()).numpy()

    def _answer(self, requests: list[Any], responses: list[Any], members: list[int], arrays: list[np.ndarray]) -> None:
        """Run the plan once for these requests and fill in their responses."""
        rows = self.runner.stage(arrays)
        if not self.runner.staged_finite(rows):
            finite = []
            for index, array in zip(members, arrays, strict=True):
                if np.isfinite(array).all():
                    finite.append((index, array))
                else:
                    responses[index] = _error(self._not_finite(array))
            members, arrays = [index for index, _ in finite], [array for _, array in finite]
            rows = self.runner.stage(arrays)
        wanted = [requests[index].requested_output_names() for index in members]
        asked = {name for names in wanted for name in names}
        answers = self.runner.compute(rows, tuple(name for name in self.outputs if name in asked))
        tensors = {name: torch.from_numpy(answer) for name, answer in answers.items()}
        end = 0
        for index, array, names in zip(members, arrays, wanted, strict=True):
            start, end = end, end + array.shape[0]
            responses[index] = pb_utils.InferenceResponse(
                output_tensors=[
                    pb_utils.Tensor.from_dlpack(name, to_dlpack(tensors[name][start:end])) for name in names
                ]
            )

    def _not_finite(self, array: np.ndarray) -> str:
        """Say where a request's first NaN or infinity stands."""
        row, column = np.argwhere(~np.isfinite(array))[0]
        name = f" ('{self.feature_names[column]}')" if self.feature_names else ""
        return f"X must be finite: row {row}, column {column}{name} is {array[row, column]}."


def _error(message: str, code: Any = None) -> Any:
    """Return a response that carries an error, INVALID_ARG unless another code is given."""
    code = pb_utils.TritonError.INVALID_ARG if code is None else code
    return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(message, code))
