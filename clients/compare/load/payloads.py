"""Contents of the load: real rows as ready-to-send requests, and the answers they must get."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.http import InferenceServerClient as HttpClient
from tritonclient.http import InferInput, InferRequestedOutput

from triton_regressors.clients.client.client import Client
from triton_regressors.clients.client.tensors import Tensors, datatype, row_count, take, wire
from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.load.generator import Load, Sample
from triton_regressors.clients.compare.load.members import LAWS, draw_rows
from triton_regressors.clients.errors import RowsError
from triton_regressors.kernels.entry import find_entry, read_document, read_golden, versions
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.model_config import sent_inputs

MAX_PAYLOADS = 16
MAX_PAYLOADS_OF_FLEET = 4096
MAX_PAYLOAD_BYTES = 32 << 20
FLOAT32_ROUNDING = 2.0**-22
"""Relative difference that float32 answers may have from float64 expectations."""
REFERENCE_TOLERANCE = 1e-5


_INPUT_TYPES = (
    model_config_pb2.TYPE_FP32,
    model_config_pb2.TYPE_FP64,
    model_config_pb2.TYPE_INT64,
    model_config_pb2.TYPE_STRING,
)


@dataclass(frozen=True)
class Signature:
    """The inputs of a model, by name, and its first output."""

    inputs: tuple[str, ...]
    output: str

    @classmethod
    def of(cls, config: model_config_pb2.ModelConfig) -> Signature:
        """Read it from a configuration.

        Raises:
            ComparisonError: a tensor does not have exactly one dimension per row, the output is not FP32, or an input
                is not FP32, FP64, INT64 or strings.
        """
        if not config.input or not config.output:
            raise ComparisonError(
                f"Model {config.name!r} has {len(config.input)} inputs and {len(config.output)} outputs; compare "
                "needs at least one of each."
            )
        output = config.output[0]
        for tensor in (*sent_inputs(config), output):
            accepted = _INPUT_TYPES if tensor is not output else _INPUT_TYPES[:1]
            if tensor.data_type not in accepted or len(tensor.dims) != 1:
                raise ComparisonError(
                    f"Tensor {tensor.name!r} of model {config.name!r} is "
                    f"{model_config_pb2.DataType.Name(tensor.data_type)} with dims {list(tensor.dims)}; compare works "
                    "with TYPE_FP32, for inputs also TYPE_FP64, TYPE_INT64 and TYPE_STRING, and one dimension."
                )
        return cls(tuple(tensor.name for tensor in sent_inputs(config)), output.name)


@dataclass(frozen=True)
class CheckedRows:
    """Rows to send and the answers that the model must give.

    tensors: as requests carry them. expected: float64 [rows, n_targets]. tolerance: largest absolute difference, one
    number or what can be broadcast to `expected`. max_payloads: the most different requests to make of them.
    """

    tensors: Tensors
    expected: np.ndarray
    tolerance: float | np.ndarray
    max_payloads: int = MAX_PAYLOADS

    def zeros(self) -> CheckedRows:
        """Return the same rows with the do-nothing model's answers."""
        return replace(self, expected=np.zeros_like(self.expected), tolerance=0.0)


def golden_rows(entry: Path, signature: Signature, ids: str | None = None) -> CheckedRows | None:
    """Return the golden rows of an entry's newest version, or None for a model that this project did not export.

    Their tolerance is that of the export's parity report, in the units of the predictions. The rows of a fleet are
    drawn so that they name its models by the law `ids`, uniformly if it is None.

    Raises:
        RowsError: they cannot be read.
        ComparisonError: they lack a tensor, or there is a law for an entry of one model.
    """
    if not versions(entry) or not (newest := find_entry(entry)).exported:
        return None
    directory = newest.version_directory
    try:
        document = read_document(directory, check_files=False)
        golden = read_golden(directory, document)
    except PlanError as error:
        raise RowsError(str(error)) from None
    tensors = document.inputs.decode(golden.X)
    lacking = {*signature.inputs, signature.output} - {*tensors, *golden.outputs}
    if lacking:
        raise ComparisonError(f"The golden rows of {directory} lack {min(lacking)!r}; export the model again.")
    rows = {name: tensors[name] for name in signature.inputs}
    expected, units = golden.outputs[signature.output], np.asarray(golden.units[signature.output])
    if document.fleet is None:
        if ids is not None:
            raise ComparisonError(f"{directory} is an entry of one model; ids is for a fleet.")
        return CheckedRows(rows, expected, document.parity.tolerance * units)
    drawn = draw_rows(golden.X[:, -1], ids or LAWS[0])
    tolerance = document.parity.tolerance * units[drawn]
    return CheckedRows(take(rows, drawn), expected[drawn], tolerance, MAX_PAYLOADS_OF_FLEET)


def rows_with_reference(client: Client, model: str, tensors: Tensors, signature: Signature) -> CheckedRows:
    """Return the user's own rows; their expected answers are those that the server gives before anything is changed."""
    answers = client.infer(model, tensors, outputs=(signature.output,))
    expected = answers[signature.output].astype(np.float64)
    return CheckedRows(tensors, expected, REFERENCE_TOLERANCE * float(np.std(expected)))


@dataclass(frozen=True)
class Payloads:
    """Several different requests for one model and load, their answers, and how far other answers may be from these."""

    protocol: str
    output: str
    requests: tuple[bytes, ...]
    expected: tuple[np.ndarray, ...]
    allowed: tuple[np.ndarray, ...]

    @classmethod
    def build(cls, model: str, signature: Signature, rows: CheckedRows, load: Load, address: str) -> Payloads:
        """Cut `rows` (repeated as needed) into requests of `load.rows` rows, each beginning elsewhere."""
        available = row_count(rows.tensors)
        request_bytes = sum(len(wire(array)) for array in rows.tensors.values()) * load.rows // available
        # At least two, so that an answer to another request is noticed.
        count = max(2, min(rows.max_payloads, available, MAX_PAYLOAD_BYTES // max(request_bytes, 1)))
        chosen = [(number * load.rows + np.arange(load.rows)) % available for number in range(count)]
        if len({tuple(index[:1]) for index in chosen}) == 1:  # rows divide the data evenly: begin elsewhere
            chosen = [(index + number) % available for number, index in enumerate(chosen)]
        allowed = rows.tolerance + FLOAT32_ROUNDING * np.abs(rows.expected)
        make = _grpc_request if load.protocol == "grpc" else _http_request
        requests = tuple(make(model, signature, take(rows.tensors, index), address) for index in chosen)
        return cls(
            load.protocol,
            signature.output,
            requests,
            tuple(rows.expected[index] for index in chosen),
            tuple(allowed[index] for index in chosen),
        )

    def wrong(self, sample: Sample) -> str | None:
        """Return what is wrong with a kept answer, or None."""
        expected = self.expected[sample.number]
        try:
            answer = self._parse(sample)
        except Exception as error:  # any malformed answer, whatever the library makes of it
            return f"wrong answer: it cannot be read ({type(error).__name__})"
        if answer.shape != expected.shape:
            return f"wrong answer: shape {list(answer.shape)} instead of {list(expected.shape)}"
        if not bool(np.all(np.abs(answer - expected) <= self.allowed[sample.number])):
            return "wrong answer: values differ from the expected ones"
        return None

    def _parse(self, sample: Sample) -> np.ndarray:
        if self.protocol == "grpc":
            response = service_pb2.ModelInferResponse.FromString(sample.body)
            at = [output.name for output in response.outputs].index(self.output)
            values = np.frombuffer(response.raw_output_contents[at], np.float32)
            return values.reshape(tuple(response.outputs[at].shape)).astype(np.float64)
        header = None if sample.described < 0 else sample.described
        result = HttpClient.parse_response_body(sample.body, header_length=header)
        return np.asarray(result.as_numpy(self.output), np.float64)


def _grpc_request(model: str, signature: Signature, tensors: Tensors, address: str) -> bytes:
    message = service_pb2.ModelInferRequest(model_name=model)
    for name, array in tensors.items():
        message.inputs.add(name=name, datatype=datatype(array)).shape.extend(array.shape)
        message.raw_input_contents.append(wire(array))
    message.outputs.add(name=signature.output)
    return bytes(message.SerializeToString())


def _http_request(model: str, signature: Signature, tensors: Tensors, address: str) -> bytes:
    body, described = HttpClient.generate_request_body(
        [
            InferInput(name, list(array.shape), datatype(array)).set_data_from_numpy(array, binary_data=True)
            for name, array in tensors.items()
        ],
        outputs=[InferRequestedOutput(signature.output, binary_data=True)],
    )
    header = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/octet-stream\r\n"
        f"Inference-Header-Content-Length: {described}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return header.encode() + bytes(body)
