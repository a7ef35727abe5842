"""`Client` and `AsyncClient`: a Triton server's models over gRPC or HTTP, with the same errors."""

import asyncio
import importlib
import threading
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

import numpy as np
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.client.calls import Call, Protocol
from triton_regressors.clients.client.connection import Connection
from triton_regressors.clients.client.parts import Answers
from triton_regressors.clients.client.request_flow import run_concurrently, run_sequentially
from triton_regressors.clients.client.tensors import Given
from triton_regressors.clients.contributions.contributions import Contributions
from triton_regressors.clients.errors import (
    InvalidRequest,
    ModelNotFound,
    RequestTimeout,
    ServerUnavailable,
)

Errors = Literal["stop", "row"]

__all__ = ["AsyncClient", "Client", "Protocol"]

T = TypeVar("T")


class Client(Connection):
    """A Triton server's models, over gRPC or HTTP.

        with Client("127.0.0.1:8001") as client:
            y = client.predict("houses", table)  # a DataFrame of any size, or an array

    **Threads** may share a client. Over gRPC they share one connection; over HTTP each thread has connections of its
    own, because tritonclient's HTTP client is not thread-safe. For asyncio there is `AsyncClient`.

    **Size.** A table that is larger than the model's max_batch_size, or than 32 MiB, goes in several requests, one
    after another and in order, and its answers come back as one. They have the same bits as if each row had been sent
    alone, and they all come from one version of the model, by its number: if another version begins to answer
    meanwhile, the whole table is sent again. If one part fails, its error is raised, with the row counted in the whole
    table, and nothing is returned. A model without batches (max_batch_size 0) gets the whole table at once.

    **Requests.** The first prediction reads the model's configuration, which is remembered; from then on a table takes
    one request, or one for each part. If the model was loaded again with other inputs, it refuses the request, and the
    table is converted and sent again. The server itself compares tensors, types and widths. If columns of a DataFrame
    were taken by name, or numbers that must not be categories were rounded to FP32, the request carries a digest of the
    configured columns, which our entries compare. If a model does not compare it (its configuration lacks the parameter
    `checks_columns`), the configuration is read again after such an answer; if it has changed, the answer is dropped
    and the table sent again. If such a model replaced one that compares, this client notices with the first refused
    request.

    **Closing.** Leaving the `with` block, or `close`, ends the connections. An outstanding request of another thread
    then ends in `RequestCancelled` over gRPC; over HTTP it is still answered. Any later one is an `InvalidRequest`.

    Args:
        url: HOST:PORT of the server's gRPC or HTTP endpoint; `http://` or `grpc://` may stand before it. No TLS.
        protocol: "grpc" or "http".
        timeout_s: seconds for each request except load and unload, hence for each part of a large table. Over gRPC it
            runs from sending to the answer, connecting included. Over HTTP it limits each wait for the server: to
            connect, and for the next bytes of the answer, which usually comes in one piece.
        load_timeout_s: seconds for load and unload, counted in the same way.
        admin_key: sent with load, unload and index, for a server that answers these only with a key, as `serve` and
            the one in docker/ do; None: the key of a `TritonServer` that this process runs there, or else
            $TRITON_ADMIN_KEY, if it is set.

    Raises:
        InvalidRequest: the request is wrong: the table does not fit the model, it holds a number that the model does
            not take, there is no such output, an argument is wrong, the key is missing, or the client is closed.
        ModelNotFound: no such model, or no such version of it, is loaded; the message lists the loaded ones, unless the
            server lists them only to holders of its key.
        ServerUnavailable: nothing answers at this address, it is not a Triton server's, the server takes no more
            requests, or it loads the model again during each attempt to send a table.
        RequestTimeout: there was no answer in time. The server may still be working on the request.
        RequestCancelled: the client was closed, or the server cancelled the request.
        ServerFault: the model failed, could not be loaded, or gave an answer that cannot be read.

    Each method raises these, and each is an `InferenceError`; only `ready` returns False instead if there is no server,
    no such model, or no answer in time. `ServerUnavailable` and `RequestTimeout` may be temporary; the client does not
    try again after them.
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
            failure = self._failure(error, call)
            if failure is error:
                raise
            raise failure from error

    def infer(
        self,
        model: str,
        X: Given,
        *,
        outputs: Sequence[str] = ("y",),
        version: str | int = "",
        errors: Errors = "stop",
    ) -> Answers:
        """Return the answers to a table: output name → array [rows, width], for the outputs asked for.

        Args:
            model: its name.
            X: a table, whose columns are taken by name if the model was fitted on named ones: a DataFrame of pandas
                or polars, pyarrow's Table or RecordBatch, or a list of records; an array of numbers, see `number_rows`;
                or, if the model has other inputs than X, a mapping of each input's name to an array of numbers or of
                strings, see `text_rows`. They are sent in the types that the model's configuration states.
            outputs: their names.
            version: "" leaves the choice to the server's version policy, which usually chooses the newest.
            errors: "stop": a refused row is an error. "row": its answers are NaN, all other rows are answered, and
                `refused` of the result has the reason for each refused row by its number.
        """
        return run_sequentially(self._flows.infer(model, X, outputs, version, errors), self._run)

    def predict(
        self,
        model: str,
        X: Given,
        *,
        outputs: Sequence[str] = ("y",),
        version: str | int = "",
        errors: Errors = "stop",
    ) -> np.ndarray:
        """Return the first of `outputs` alone, in the shape that the estimator's `predict` has.

        The array is float32. It is [rows] for a model of one target, [rows, 1] if the estimator was fitted on a column
        of targets and itself answers in that shape, and [rows, n_targets] for several targets. The configuration says
        which; it describes the newest version. `infer` keeps [rows, width] for every output. The arguments are
        `infer`'s.
        """
        found = self.infer(model, X, outputs=outputs, version=version, errors=errors)
        return found.as_predicted(outputs[0])

    def explain(self, model: str, X: Given, *, where: str | None = None, version: str | int = "") -> Contributions:
        """Return what each column of a table adds to the answers, with the answers, both of one request.

        The model needs the output `contributions`, see `export`.

        Args:
            model: its name.
            X: a table, see `infer`.
            where: a condition on an output, as in "y > 400": OUTPUT OP NUMBER with <, <=, >, >= or ==, where a target
                of several is y_0, y_1, .... All rows are asked for this output first, and then those for which it
                holds for their contributions; only they are in the result. None: all rows.
            version: see `infer`.
        """
        return run_sequentially(self._flows.explain(model, X, where, version), self._run)

    def config(self, model: str) -> model_config_pb2.ModelConfig:
        """Return the configuration that the model is loaded with, as the ModelConfig protobuf.

        The server fills in defaults: `dynamic_batching {}` comes back with max_batch_size as its preferred batch size.
        """
        return run_sequentially(self._flows.config(model), self._run)

    def statistics(self, model: str) -> dict[str, Any]:
        """Return the server's statistics of a model: the statistics extension's answer as plain values.

        It is `{"model_stats": [{"name", "version", "inference_count", "inference_stats", "batch_stats", ...}]}`. Times
        are in ns, last_inference in ms since 1970.
        """
        return run_sequentially(self._flows.statistics(model), self._run)

    def index(self) -> list[dict[str, Any]]:
        """Return name, version, state and reason of every model in the server's repositories.

        The state is "" if a model was never loaded.
        """
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

        If one of a model's processes has died ("Stub process ... is not healthy"), a plain load changes nothing,
        because the files have not changed: `restart` repairs the model. `TritonServer` and `serve` do that by
        themselves.

        Args:
            model: its name.
            config: used in place of its config.pbtxt, which does not change.
            files: path inside the model directory ("1/model.py") → content: loaded in place of the whole directory,
                which need not exist. This needs `config`, to which a parameter with the files' digest is added.
            restart: unload it first, so that its processes start anew; until it is ready, nothing answers.
        """
        if restart:
            self.unload(model)
        self._flows.forget(model)
        self._run(self._calls.load(model, config, files))

    def unload(self, model: str) -> None:
        """Unload the model and return at once: requests in flight are answered, new ones are refused.

        An unknown model is no error.
        """
        self._flows.forget(model)
        self._run(self._calls.unload(model))

    def ready(self, model: str | None = None) -> bool:
        """Return whether the server, or this model on it, takes requests: False also if nothing answers in time."""
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


class AsyncClient(Connection):
    """A client for asyncio services: it asks a Triton server for predictions, and whether a model is ready.

        async with AsyncClient("127.0.0.1:8001") as client:
            y = await client.predict("houses", table)

    Arguments, answers and errors are `Client`'s. An AsyncClient belongs to the event loop of its first call, and takes
    any number of concurrent requests; a call from another loop is an `InvalidRequest`. A table that needs several
    requests has up to four outstanding; if some fail, the error is that of the first rows among them. Loading,
    unloading and statistics are an operator's tasks: `Client` has them.

    A cancelled task ends with asyncio.CancelledError, as usual, and sends nothing more. `asyncio.timeout`, or
    `asyncio.wait_for`, limits the time for a whole table; timeout_s limits each of its requests.

    Args:
        url: HOST:PORT of the server's gRPC or HTTP endpoint; `http://` or `grpc://` may stand before it. No TLS.
        protocol: "grpc" or "http".
        timeout_s: seconds for each request, from sending to the answer, connecting included.

    Raises:
        InferenceError: one of its kinds, for the reasons that `Client` gives.
    """

    def __init__(self, url: str, protocol: Protocol = "grpc", timeout_s: float = 30.0) -> None:
        super().__init__(url, protocol, timeout_s)
        self._module = importlib.import_module(f"tritonclient.{self.protocol}.aio")  # here: it would block a loop
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _transport(self) -> Any:
        if self._closed:
            raise InvalidRequest("This client is closed.")
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise InvalidRequest("This client belongs to the event loop of its first call; make one for each loop.")
        if self._client is None:  # made inside the event loop that it will belong to
            self._loop = loop
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
            failure = self._failure(error, call)
            if failure is error:
                raise
            raise failure from error

    async def infer(
        self,
        model: str,
        X: Given,
        *,
        outputs: Sequence[str] = ("y",),
        version: str | int = "",
        errors: Errors = "stop",
    ) -> Answers:
        """See `Client.infer`."""
        return await run_concurrently(self._flows.infer(model, X, outputs, version, errors), self._run)

    async def predict(
        self,
        model: str,
        X: Given,
        *,
        outputs: Sequence[str] = ("y",),
        version: str | int = "",
        errors: Errors = "stop",
    ) -> np.ndarray:
        """See `Client.predict`."""
        found = await self.infer(model, X, outputs=outputs, version=version, errors=errors)
        return found.as_predicted(outputs[0])

    async def explain(
        self, model: str, X: Given, *, where: str | None = None, version: str | int = ""
    ) -> Contributions:
        """See `Client.explain`."""
        return await run_concurrently(self._flows.explain(model, X, where, version), self._run)

    async def config(self, model: str) -> model_config_pb2.ModelConfig:
        """See `Client.config`."""
        return await run_concurrently(self._flows.config(model), self._run)

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
