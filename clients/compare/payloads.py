"""What the load is made of: real rows as ready-to-send requests, and the answers they must get."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.http import InferenceServerClient as HttpClient
from tritonclient.http import InferInput, InferRequestedOutput

from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.load import Load, Sample

MAX_PAYLOADS = 16
MAX_PAYLOAD_BYTES = 32 << 20
FLOAT32_ROUNDING = 2.0**-22
"""Relative difference that float32 answers may have from float64 expectations."""
REFERENCE_TOLERANCE = 1e-5


class Infers(Protocol):
    """The one method of `triton_regressors.clients.infer.Client` that is needed here."""

    def infer(
        self, model: str, X: npt.NDArray[np.float32], *, outputs: tuple[str, ...], version: str = ""
    ) -> dict[str, npt.NDArray[np.generic]]:
        """Answer the rows."""


@dataclass(frozen=True)
class Signature:
    """The input and the first output of a model: names, and how wide one row is (-1: not fixed)."""

    input: str
    n_features: int
    output: str
    n_targets: int

    @classmethod
    def of(cls, config: model_config_pb2.ModelConfig) -> Signature:
        """Read it from a configuration; ComparisonError unless there is one FP32 input of one dimension per row."""
        if len(config.input) != 1 or not config.output:
            raise ComparisonError(
                f"Model {config.name!r} has {len(config.input)} inputs and {len(config.output)} outputs; compare sends "
                "one input and reads the first output."
            )
        for tensor in (config.input[0], config.output[0]):
            if tensor.data_type != model_config_pb2.TYPE_FP32 or len(tensor.dims) != 1:
                raise ComparisonError(
                    f"Tensor {tensor.name!r} of model {config.name!r} is "
                    f"{model_config_pb2.DataType.Name(tensor.data_type)} with dims {list(tensor.dims)}; compare works "
                    "with TYPE_FP32 and one dimension."
                )
        source, answer = config.input[0], config.output[0]
        return cls(source.name, int(source.dims[0]), answer.name, int(answer.dims[0]))


@dataclass(frozen=True)
class Rows:
    """Rows to send and what the model must answer.

    X: float32 [rows, n_features]. expected: float64 [rows, n_targets]. tolerance: largest absolute difference.
    """

    X: npt.NDArray[np.float32]
    expected: npt.NDArray[np.float64]
    tolerance: float

    def zeros(self) -> Rows:
        """The same rows with the do-nothing model's answers."""
        return Rows(self.X, np.zeros_like(self.expected), 0.0)


def golden_rows(entry: Path, signature: Signature) -> Rows | None:
    """The golden rows of the highest version of an entry that has some, or None.

    Their tolerance is that of the export's parity report, in the units of the predictions.
    """
    versions = sorted((int(path.name) for path in entry.glob("[0-9]*") if path.name.isdigit()), reverse=True)
    for version in versions:
        golden, plan = (entry / str(version) / name for name in ("golden.safetensors", "plan.json"))
        if not golden.is_file():
            continue
        tensors = load_file(golden)
        if signature.input not in tensors or signature.output not in tensors:
            raise ComparisonError(
                f"{golden} lacks {signature.input!r} or {signature.output!r}; export the model again."
            )
        expected = tensors[signature.output].astype(np.float64)
        unit, tolerance = float(np.std(expected)), REFERENCE_TOLERANCE
        if plan.is_file():
            parity = json.loads(plan.read_text(encoding="utf-8")).get("parity", {})
            unit = float(np.max(parity.get("outputs", {}).get(signature.output, {}).get("unit", unit)))
            tolerance = float(parity.get("tolerance", tolerance))
        return Rows(np.ascontiguousarray(tensors[signature.input], np.float32), expected, tolerance * unit)
    return None


def rows_with_reference(
    client: Infers, model: str, X: npt.NDArray[np.float32], signature: Signature, max_batch_size: int
) -> Rows:
    """Rows of the user's own, whose expected answers are those the server gives before anything is changed."""
    if signature.n_features >= 0 and X.shape[1] != signature.n_features:
        raise ComparisonError(f"The rows have {X.shape[1]} columns; model {model!r} takes {signature.n_features}.")
    answers = [
        np.asarray(
            client.infer(model, X[at : at + max_batch_size], outputs=(signature.output,))[signature.output], np.float64
        )
        for at in range(0, len(X), max_batch_size)
    ]
    expected = np.concatenate(answers)
    return Rows(X, expected, REFERENCE_TOLERANCE * float(np.std(expected)))


@dataclass(frozen=True)
class Payloads:
    """Several different requests for one model and load, and the check of their answers."""

    protocol: str
    output: str
    requests: tuple[bytes, ...]
    expected: tuple[npt.NDArray[np.float64], ...]
    tolerance: float

    @classmethod
    def build(cls, model: str, signature: Signature, rows: Rows, load: Load, address: str) -> Payloads:
        """Cut `rows` (repeated as needed) into requests of `load.rows` rows, each beginning elsewhere."""
        row_bytes = rows.X.shape[1] * 4 * load.rows
        # At least two, so that answers which belong to another request are noticed.
        count = max(2, min(MAX_PAYLOADS, len(rows.X), MAX_PAYLOAD_BYTES // max(row_bytes, 1)))
        chosen = [(number * load.rows + np.arange(load.rows)) % len(rows.X) for number in range(count)]
        if len({tuple(index[:1]) for index in chosen}) == 1:  # rows divide the data evenly: begin elsewhere
            chosen = [(index + number) % len(rows.X) for number, index in enumerate(chosen)]
        make = _grpc_request if load.protocol == "grpc" else _http_request
        requests = tuple(make(model, signature, np.ascontiguousarray(rows.X[index]), address) for index in chosen)
        return cls(
            load.protocol,
            signature.output,
            requests,
            tuple(rows.expected[index] for index in chosen),
            rows.tolerance,
        )

    def wrong(self, sample: Sample) -> str | None:
        """What is wrong with a kept answer, or None."""
        expected = self.expected[sample.number]
        try:
            answer = self._parse(sample)
        except Exception as error:  # any malformed answer, whatever the library makes of it
            return f"wrong answer: it cannot be read ({type(error).__name__})"
        if answer.shape != expected.shape:
            return f"wrong answer: shape {list(answer.shape)} instead of {list(expected.shape)}"
        allowed = self.tolerance + FLOAT32_ROUNDING * np.abs(expected)
        if not bool(np.all(np.abs(answer - expected) <= allowed)):
            return "wrong answer: values differ from the expected ones"
        return None

    def _parse(self, sample: Sample) -> npt.NDArray[np.float64]:
        if self.protocol == "grpc":
            response = service_pb2.ModelInferResponse.FromString(sample.body)
            at = [output.name for output in response.outputs].index(self.output)
            values = np.frombuffer(response.raw_output_contents[at], np.float32)
            return values.reshape(tuple(response.outputs[at].shape)).astype(np.float64)
        header = None if sample.described < 0 else sample.described
        result = HttpClient.parse_response_body(sample.body, header_length=header)
        return np.asarray(result.as_numpy(self.output), np.float64)


def _grpc_request(model: str, signature: Signature, X: npt.NDArray[np.float32], address: str) -> bytes:
    message = service_pb2.ModelInferRequest(model_name=model)
    tensor = message.inputs.add(name=signature.input, datatype="FP32")
    tensor.shape.extend(X.shape)
    message.outputs.add(name=signature.output)
    message.raw_input_contents.append(X.tobytes())
    return bytes(message.SerializeToString())


def _http_request(model: str, signature: Signature, X: npt.NDArray[np.float32], address: str) -> bytes:
    tensor = InferInput(signature.input, list(X.shape), "FP32")
    tensor.set_data_from_numpy(X, binary_data=True)
    body, described = HttpClient.generate_request_body(
        [tensor], outputs=[InferRequestedOutput(signature.output, binary_data=True)]
    )
    header = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/octet-stream\r\n"
        f"Inference-Header-Content-Length: {described}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return header.encode() + bytes(body)
