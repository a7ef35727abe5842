"""`Client` and `AsyncClient`: a Triton server's models over gRPC or HTTP, with the same errors."""

import importlib
import threading
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.admin_key import own_key
from triton_regressors.clients.calls import Call, Calls, Protocol, typed_error
from triton_regressors.clients.errors import InvalidRequest, ModelNotFound, RequestTimeout, ServerUnavailable
from triton_regressors.clients.tensors import (
    Given,
    InputTensor,
    Tensors,
    input_tensors,
    model_tensors,
    ready_tensors,
    row_count,
    take,
)

__all__ = ["AsyncClient", "Client", "Protocol", "infer_in_batches"]

T = TypeVar("T")
_LOOPBACK = ("127.", "localhost", "[::1]")


class _Connection:
    """What `Client` and `AsyncClient` share: where to, and which errors come back."""

    def __init__(
        self,
        url: str,
        protocol: Protocol = "grpc",
        timeout_s: float = 30.0,
        load_timeout_s: float = 600.0,
        admin_key: str | None = None,
    ) -> None:
        if protocol not in ("grpc", "http"):
            raise InvalidRequest(f"protocol is {protocol!r}; accepted: 'grpc', 'http'.")
        scheme, separator, address = url.rpartition("://")
        if separator and scheme not in ("http", "grpc"):
            raise InvalidRequest(f"url is {url!r}; it must be HOST:PORT, without TLS.")
        if not (timeout_s > 0 and load_timeout_s > 0):
            raise InvalidRequest(f"timeout_s is {timeout_s} and load_timeout_s {load_timeout_s}; both must be above 0.")
        self.url = address.rstrip("/")
        self.protocol: Protocol = protocol
        self.timeout_s = timeout_s
        key = own_key(self.url) if admin_key is None else admin_key
        self._calls = Calls(protocol, timeout_s, load_timeout_s, key)
        self._inputs: dict[str, tuple[InputTensor, ...]] = {}  # of the models that were asked, as they were then
        self._closed = False

    def _learn(self, config: model_config_pb2.ModelConfig) -> tuple[InputTensor, ...]:
        """Keep and return what the inputs of a model are."""
        self._inputs[config.name] = input_tensors(config)
        return self._inputs[config.name]

    def _ready(self, model: str, X: Given) -> tuple[Tensors | None, tuple[InputTensor, ...]]:
        """X as tensors if it is arrays of the very types that the model took when it was asked, else None; and these.

        Nothing is converted by what may be out of date: where a column stood, or which of them hold categories.
        """
        known = self._inputs.get(model, ())
        return ready_tensors(X, known) if known else None, known

    def _grpc_options(self) -> list[tuple[str, int]]:
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each client
        ]
        if self.url.startswith(_LOOPBACK):
            options.append(("grpc.enable_http_proxy", 0))
        return options


class Client(_Connection):
    """A Triton server's models, over gRPC or HTTP. It may be shared by threads.

        with Client("127.0.0.1:8001") as client:
            y = client.predict("ridge", X)

    Args:
        url: HOST:PORT of the server's gRPC or HTTP endpoint; `http://` or `grpc://` may stand before it. No TLS.
        protocol: "grpc" or "http".
        timeout_s: for each request but load and unload. Over HTTP it limits each wait for the server, which for an
            answer that comes in one piece is the same.
        load_timeout_s: for load and unload.
        admin_key: sent with load, unload and index, for a server that answers these to a key alone, as `serve` and
            the one in docker/ do; None: that of a `TritonServer` which this process runs there, else
            $TRITON_ADMIN_KEY, if it is set.

    Raises, from every method:
        InferenceError: one of its kinds; see `triton_regressors.errors`.
    """

    def __init__(
        self,
        url: str,
        protocol: Protocol = "grpc",
        timeout_s: float = 30.0,
        load_timeout_s: float = 600.0,
        admin_key: str | None = None,
    ) -> None:
        super().__init__(url, protocol, timeout_s, load_timeout_s, admin_key)
        self._thread = threading.local()  # tritonclient's HTTP client belongs to one thread
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        if protocol == "grpc":
            self._grpc = self._calls.module.InferenceServerClient(self.url, channel_args=self._grpc_options())
            self._open.add(self._grpc)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _transport(self, timeout_s: float) -> Any:
        if self._closed:
            raise InvalidRequest("This client is closed.")
        if self.protocol == "grpc":
            return self._grpc
        clients: dict[float, Any] = self._thread.__dict__.setdefault("clients", {})
        if timeout_s not in clients:
            clients[timeout_s] = self._calls.module.InferenceServerClient(
                self.url, connection_timeout=timeout_s, network_timeout=timeout_s
            )
            self._open.add(clients[timeout_s])
        return clients[timeout_s]

    def _run(self, call: Call[T]) -> T:
        try:
            return call.parse(getattr(self._transport(call.timeout_s), call.method)(**call.arguments))
        except Exception as error:
            typed = typed_error(error, self.url, self.protocol, call.timeout_s)
            if typed is None or typed is error:
                raise
            raise typed from error

    def infer(
        self, model: str, X: Given, *, outputs: Sequence[str] = ("y",), version: str | int = ""
    ) -> dict[str, np.ndarray]:
        """Output name → array [rows, width], for the outputs asked for.

        Args:
            model: its name.
            X: a pandas DataFrame, whose columns are taken by name where the model was fitted on named ones; an array of
                numbers, see `number_rows`; or, where the model has other inputs than X, a mapping of each one's name to
                an array of numbers or of strings, see `text_rows`. They are sent in the types that the server says the
                model takes; it is asked first, but once only for arrays that have these types.
            outputs: their names.
            version: "" is whichever the server's version policy gives, the newest as a rule.
        """
        ready, known = self._ready(model, X)
        if ready is not None:
            try:
                return self._run(self._calls.infer(model, ready, outputs, version))
            except InvalidRequest:  # the model may take other types by now
                if self._learn(self.config(model)) == known:
                    raise
        tensors = model_tensors(X, self._learn(self.config(model)), model)
        return self._run(self._calls.infer(model, tensors, outputs, version))

    def predict(self, model: str, X: Given, *, outputs: Sequence[str] = ("y",), version: str | int = "") -> np.ndarray:
        """The first of `outputs` alone: as a rule y, float32 [rows, n_targets]."""
        return self.infer(model, X, outputs=outputs, version=version)[outputs[0]]

    def config(self, model: str) -> model_config_pb2.ModelConfig:
        """The configuration that the model is loaded with, as the ModelConfig protobuf.

        The server fills in defaults: `dynamic_batching {}` comes back with max_batch_size as its preferred batch size.
        """
        return self._run(self._calls.config(model))

    def statistics(self, model: str) -> dict[str, Any]:
        """Return the statistics extension's answer as plain values.

        It is `{"model_stats": [{"name", "version", "inference_count", "inference_stats", "batch_stats", ...}]}`. Times
        are in ns, last_inference in ms since 1970.
        """
        return self._run(self._calls.statistics(model))

    def index(self) -> list[dict[str, Any]]:
        """name, version, state and reason of every model in the server's repositories; state is "" if not loaded."""
        return self._run(self._calls.index())

    def load(
        self,
        model: str,
        *,
        config: model_config_pb2.ModelConfig | None = None,
        files: Mapping[str, bytes] | None = None,
        restart: bool = False,
    ) -> None:
        """Load the model, or load it again. Returns when it is ready; until then the one loaded before keeps answering.

        A configuration given here stays in use, also through a later `load` without one, until the entry's files change
        or the model is unloaded: `unload` and `load` go back to config.pbtxt.

        A model one of whose processes has died ("Stub process ... is not healthy") stays as it is, because its files
        have not changed: `restart` mends it. `TritonServer` and `serve` do that by themselves.

        Args:
            model: its name.
            config: used in place of its config.pbtxt, which does not change.
            files: path inside the model directory ("1/model.py") → content: loaded in place of the whole directory,
                which need not exist. Needs `config`, to which a parameter with the files' digest is added.
            restart: unload it first, so that its processes start anew; until it is ready, nothing answers.
        """
        if restart:
            self.unload(model)
        self._run(self._calls.load(model, config, files))

    def unload(self, model: str) -> None:
        """Unload the model and return at once: requests in flight are answered, new ones are refused.

        An unknown model is no error.
        """
        self._run(self._calls.unload(model))

    def ready(self, model: str | None = None) -> bool:
        """Whether the server, or this model on it, takes requests. False also if nothing answers in time."""
        try:
            return self._run(self._calls.ready(model))
        except (ServerUnavailable, RequestTimeout, ModelNotFound):
            return False

    def close(self) -> None:
        """Close the connections. Harmless if they are closed already."""
        self._closed = True
        for client in list(self._open):
            client.close()
        self._open.clear()


class AsyncClient(_Connection):
    """What a service in asyncio asks of a Triton server: predictions, and whether a model is ready for them.

        async with AsyncClient("127.0.0.1:8001") as client:
            y = await client.predict("ridge", X)

    Arguments, answers and errors are `Client`'s. It belongs to the event loop of its first call, and takes any number
    of requests at a time. A task that is cancelled ends with asyncio.CancelledError, as always. Loading, unloading and
    statistics are an operator's: `Client` has them.

    Args:
        url: HOST:PORT of the server's gRPC or HTTP endpoint; `http://` or `grpc://` may stand before it. No TLS.
        protocol: "grpc" or "http".
        timeout_s: for each request.

    Raises, from every method:
        InferenceError: one of its kinds; see `triton_regressors.errors`.
    """

    def __init__(self, url: str, protocol: Protocol = "grpc", timeout_s: float = 30.0) -> None:
        super().__init__(url, protocol, timeout_s)
        self._module = importlib.import_module(f"tritonclient.{self.protocol}.aio")  # now: a loop would wait for it
        self._client: Any = None

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _transport(self) -> Any:
        if self._closed:
            raise InvalidRequest("This client is closed.")
        if self._client is None:  # made inside the event loop that it will belong to
            self._client = (
                self._module.InferenceServerClient(self.url, channel_args=self._grpc_options())
                if self.protocol == "grpc"
                else self._module.InferenceServerClient(self.url, conn_limit=0, conn_timeout=self.timeout_s)
            )
        return self._client

    async def _run(self, call: Call[T]) -> T:
        try:
            return call.parse(await getattr(self._transport(), call.method)(**call.arguments))
        except Exception as error:
            typed = typed_error(error, self.url, self.protocol, call.timeout_s)
            if typed is None or typed is error:
                raise
            raise typed from error

    async def infer(
        self, model: str, X: Given, *, outputs: Sequence[str] = ("y",), version: str | int = ""
    ) -> dict[str, np.ndarray]:
        """See `Client.infer`."""
        ready, known = self._ready(model, X)
        if ready is not None:
            try:
                return await self._run(self._calls.infer(model, ready, outputs, version))
            except InvalidRequest:  # the model may take other types by now
                if self._learn(await self.config(model)) == known:
                    raise
        tensors = model_tensors(X, self._learn(await self.config(model)), model)
        return await self._run(self._calls.infer(model, tensors, outputs, version))

    async def predict(
        self, model: str, X: Given, *, outputs: Sequence[str] = ("y",), version: str | int = ""
    ) -> np.ndarray:
        """See `Client.predict`."""
        return (await self.infer(model, X, outputs=outputs, version=version))[outputs[0]]

    async def config(self, model: str) -> model_config_pb2.ModelConfig:
        """See `Client.config`."""
        return await self._run(self._calls.config(model))

    async def ready(self, model: str | None = None) -> bool:
        """See `Client.ready`."""
        try:
            return await self._run(self._calls.ready(model))
        except (ServerUnavailable, RequestTimeout, ModelNotFound):
            return False

    async def close(self) -> None:
        """See `Client.close`."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def infer_in_batches(
    client: Client, model: str, X: Given, *, outputs: Sequence[str] = ("y",), version: str | int = ""
) -> dict[str, np.ndarray]:
    """`client.infer` for any number of rows: one request after another, none larger than the model's max_batch_size."""
    config = client.config(model)
    tensors = model_tensors(X, input_tensors(config), model)
    rows = row_count(tensors)
    limit = config.max_batch_size or rows
    parts = [
        client.infer(model, take(tensors, slice(first, first + limit)), outputs=outputs, version=version)
        for first in range(0, rows, limit)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in outputs}
