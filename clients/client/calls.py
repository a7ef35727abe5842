"""The requests to a Triton server over gRPC and HTTP, the parsing of their answers, and the typed errors.

`Client` and `AsyncClient` carry these requests; tensors travel as binary data over either protocol.
"""

import asyncio
import hashlib
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import InferenceServerException

from triton_regressors.clients.client.admin_key import VARIABLE, key_headers
from triton_regressors.clients.client.parts import Answer, Part
from triton_regressors.clients.client.tensors import Tensors, datatype
from triton_regressors.clients.errors import (
    InferenceError,
    InvalidRequest,
    ModelNotFound,
    RequestCancelled,
    RequestTimeout,
    ServerFault,
    ServerUnavailable,
    plain_reason,
)
from triton_regressors.kernels.format.columns_digest import COLUMNS_DIGEST

Protocol = Literal["grpc", "http"]
T = TypeVar("T")

_MANAGEMENT = ("load_model", "unload_model", "get_model_repository_index")
_KINDS: dict[str, type[InferenceError]] = {
    # gRPC status: HTTP status
    **dict.fromkeys(("INVALID_ARGUMENT", "400"), InvalidRequest),
    **dict.fromkeys(("OUT_OF_RANGE", "RESOURCE_EXHAUSTED", "413"), InvalidRequest),  # larger than a message may be
    **dict.fromkeys(("UNIMPLEMENTED", "501"), InvalidRequest),
    **dict.fromkeys(("NOT_FOUND", "404"), ModelNotFound),
    **dict.fromkeys(("UNAVAILABLE", "503"), ServerUnavailable),
    **dict.fromkeys(("DEADLINE_EXCEEDED", "504"), RequestTimeout),
    **dict.fromkeys(("CANCELLED", "499"), RequestCancelled),
}
_NOT_HTTP = ("HTTPParseError", "ClientResponseError")  # geventhttpclient's, aiohttp's
_WORDS: tuple[tuple[str, type[InferenceError]], ...] = (  # messages that are more specific than the server's status
    ("is not available", ModelNotFound),  # statistics of an unknown model
    ("is not at ready state", ModelNotFound),  # it was loaded once
    ("timeout expired", RequestTimeout),  # the model's own queue policy
    ("not allowed", InvalidRequest),  # load and unload on a server that polls
    ("load failed for model", ServerFault),
)


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request: a method of tritonclient's client, its arguments, and what to make of its result."""

    method: str
    arguments: Mapping[str, Any]
    parse: Callable[[Any], T]
    timeout_s: float
    part: Part | None = None  # the part of a table that the request sends


class Calls:
    """Build each request for one protocol, and parse its answer."""

    def __init__(self, protocol: Protocol, timeout_s: float, load_timeout_s: float, admin_key: str | None) -> None:
        self.protocol = protocol
        self._key_headers = key_headers(protocol, admin_key)
        self.timeout_s = timeout_s
        self.load_timeout_s = load_timeout_s
        self.module = importlib.import_module(f"tritonclient.{protocol}")

    def _call(self, method: str, parse: Callable[[Any], T], *, load: bool = False, **arguments: Any) -> Call[T]:
        if method in _MANAGEMENT:
            arguments["headers"] = self._key_headers
        timeout_s = self.load_timeout_s if load else self.timeout_s
        if self.protocol == "grpc":  # over HTTP, the connection has the limit
            arguments["client_timeout"] = timeout_s
        return Call(method, arguments, parse, timeout_s)

    @staticmethod
    def check(model: str, outputs: Sequence[str], version: str | int) -> None:
        """Raise InvalidRequest unless these arguments are valid for a request."""
        _named(model), _numbered(version)
        if isinstance(outputs, str) or not outputs:
            raise InvalidRequest(f"outputs is {outputs!r}; it must name at least one output, as in ('y',).")

    def infer(
        self, model: str, tensors: Tensors, outputs: Sequence[str], version: str | int, part: Part, digest: str = ""
    ) -> Call[Answer]:
        """Return the request that asks for outputs of a part of a table. The arguments have passed `check`.

        digest: the digest of the columns that the tensors were made for, if the model is to compare it with its own.
        """
        inputs = [
            self.module.InferInput(name, list(array.shape), datatype(array)).set_data_from_numpy(array)
            for name, array in tensors.items()
        ]

        def parse(result: Any) -> Answer:
            response = result.get_response()
            answered = response.get("model_version", "") if isinstance(response, dict) else response.model_version
            return Answer(answered, {name: _array(result, name, model) for name in outputs})

        call = self._call(
            "infer",
            parse,
            model_name=model,
            inputs=inputs,
            outputs=[self.module.InferRequestedOutput(name) for name in outputs],
            model_version=str(version),
            parameters={COLUMNS_DIGEST: digest} if digest else None,
        )
        return replace(call, part=part)

    def config(self, model: str) -> Call[model_config_pb2.ModelConfig]:
        """Return the configuration in use."""

        def parse(result: Any) -> model_config_pb2.ModelConfig:
            if isinstance(result, dict):
                return json_format.ParseDict(result, model_config_pb2.ModelConfig(), ignore_unknown_fields=True)
            return result.config

        return self._call("get_model_config", parse, model_name=_named(model))

    def statistics(self, model: str) -> Call[dict[str, Any]]:
        """Return the statistics extension's answer in the form of HTTP's JSON."""
        return self._call("get_inference_statistics", _plain, model_name=_named(model))

    def index(self) -> Call[list[dict[str, Any]]]:
        """List every model in the server's repositories."""

        def parse(result: Any) -> list[dict[str, Any]]:
            rows = result if isinstance(result, list) else _plain(result).get("models", [])
            return [{key: row.get(key, "") for key in ("name", "version", "state", "reason")} for row in rows]

        return self._call("get_model_repository_index", parse)

    def load(
        self, model: str, config: model_config_pb2.ModelConfig | None, files: Mapping[str, bytes] | None
    ) -> Call[None]:
        """Load a model, optionally with the caller's own configuration or files."""
        if files and config is None:
            raise InvalidRequest("files need a config: the Triton server loads them as a model directory of its own.")
        if files and config is not None:
            # The server compares configurations, not these files: an unchanged configuration causes no reload.
            config, original = model_config_pb2.ModelConfig(), config
            config.CopyFrom(original)
            config.parameters["files_sha256"].string_value = _digest(files)
        return self._call(
            "load_model",
            lambda _: None,
            load=True,
            model_name=_named(model),
            config=None if config is None else _config_json(config),
            files={f"file:{path}": content for path, content in files.items()} if files else None,
        )

    def unload(self, model: str) -> Call[None]:
        """Unload a model."""
        return self._call("unload_model", lambda _: None, load=True, model_name=_named(model))

    def ready(self, model: str | None) -> Call[bool]:
        """Ask whether the server (None) or a model takes requests."""
        if model is None:
            return self._call("is_server_ready", bool)
        return self._call("is_model_ready", bool, model_name=_named(model))


def typed_error(error: Exception, url: str, protocol: Protocol, timeout_s: float) -> InferenceError | None:
    """Return the typed error for an error of tritonclient or the libraries below it; None for any other error."""
    if isinstance(error, InferenceError):
        return error
    where = f"the Triton server at {url} ({'gRPC' if protocol == 'grpc' else 'HTTP'})"
    if isinstance(error, InferenceServerException):
        return _server_said(error, url, where, timeout_s)
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return RequestTimeout(f"No answer from {where} within {timeout_s:g} s.")
    if type(error).__name__ in _NOT_HTTP:
        return ServerUnavailable(_other_protocol(url, "HTTP", "gRPC"))
    library = type(error).__module__.partition(".")[0]
    if isinstance(error, OSError) or library in ("aiohttp", "gevent", "geventhttpclient"):
        return ServerUnavailable(f"Cannot reach {where}: {plain_reason(str(error) or type(error).__name__)}.")
    return None


def _other_protocol(url: str, asked: str, other: str) -> str:
    """Return the message for an address that takes connections but does not speak the protocol."""
    return (
        f"The server at {url} does not speak {asked}; is it the port for {other}? By default a Triton server has "
        "gRPC at port 8001 and HTTP at port 8000."
    )


def _server_said(error: InferenceServerException, url: str, where: str, timeout_s: float) -> InferenceError:
    status = (error.status() or "").removeprefix("StatusCode.")
    text = str(error.message() or "")
    reason = plain_reason(text)
    if "is restricted, expecting header" in text:
        return InvalidRequest(
            f"{where[0].upper()}{where[1:]} lets only holders of its key load, unload and list models; set "
            f"${VARIABLE}, or give admin_key, to the key that it was started with."
        )
    if text.startswith("an exception occurred in the client while decoding"):
        return ServerFault(f"{where[0].upper()}{where[1:]} answered status {status}, but not as a Triton server does.")
    if not status:  # tritonclient itself refused the arguments
        return InvalidRequest(f"{reason}.")
    if "failed to poll from model repository" in text:
        return ServerFault(f"{reason}: there is no such model, or its configuration is not valid; the log says which.")
    kind = next((kind for words, kind in _WORDS if words in text), _KINDS.get(status, ServerFault))
    if kind is RequestTimeout and status == "DEADLINE_EXCEEDED":
        return RequestTimeout(f"No answer from {where} within {timeout_s:g} s.")
    if kind is ServerUnavailable and "failed to connect" in text and "Socket closed" in text:  # something is there
        return ServerUnavailable(_other_protocol(url, "gRPC", "HTTP"))
    if kind is ServerUnavailable:
        return ServerUnavailable(f"Cannot reach {where}, or it takes no requests now: {reason}.")
    return kind(f"{reason}.")


def _array(result: Any, name: str, model: str) -> np.ndarray:
    try:
        array = result.as_numpy(name)
    except ValueError:  # fewer bytes than its shape needs
        raise ServerFault(f"Model '{model}' answered output '{name}' with too few bytes for its shape.") from None
    if array is None:
        raise ServerFault(f"Model '{model}' answered without output '{name}'.")
    return np.array(array)  # what tritonclient returns is read-only


def _named(model: str) -> str:
    if not isinstance(model, str) or not model:
        raise InvalidRequest(f"The model's name is {model!r}; it must be a string that is not empty.")
    return model


def _numbered(version: str | int) -> str:
    text = str(version)
    if text and not (text.isascii() and text.isdigit() and int(text)):
        raise InvalidRequest(f"version is {version!r}; it must be a number from 1, or '' for the server's choice.")
    return text


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _config_json(config: model_config_pb2.ModelConfig) -> str:
    # The server reads the field names of the .proto file, not protobuf's camelCase.
    return str(json_format.MessageToJson(config, preserving_proto_field_name=True, indent=None))


def _plain(message: Any) -> dict[str, Any]:
    """Return a protobuf answer as the HTTP endpoint gives it: every field present, 64-bit integers as integers."""
    if isinstance(message, dict):
        return message
    values = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    plain: dict[str, Any] = json.loads(json.dumps(values), object_hook=_whole_numbers)
    return plain


def _whole_numbers(values: dict[str, Any]) -> dict[str, Any]:
    """Protobuf's JSON writes 64-bit integers as strings; these three fields are the ones that are strings."""
    return {
        key: int(value)
        if isinstance(value, str) and key not in ("name", "version", "type") and value.isdigit()
        else value
        for key, value in values.items()
    }
