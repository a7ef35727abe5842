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

from triton_regressors.clients.calls import Call, Protocol
from triton_regressors.clients.connection import Connection
from triton_regressors.clients.dialogue import hold, hold_side_by_side
from triton_regressors.clients.errors import (
    InvalidRequest,
    ModelNotFound,
    RequestTimeout,
    ServerUnavailable,
)
from triton_regressors.clients.parts import Answers
from triton_regressors.clients.tensors import Given

Errors = Literal["stop", "row"]

__all__ = ["AsyncClient", "Client", "Protocol"]

T = TypeVar("T")


class Client(Connection):
    """A Triton server's models, over gRPC or HTTP.

        with Client("127.0.0.1:8001") as client:
            y = client.predict("houses", table)  # a DataFrame of any size, or an array

    **Threads** may share a client. Over gRPC they share one connection; over HTTP each thread has connections of its
    own, because tritonclient's HTTP client is no thread-safe one. In asyncio, `AsyncClient` asks the same.

    **Size.** A table that is larger than the model's max_batch_size, or than 32 MiB, goes in several requests, one
    after another and in order, and its answers come back as one. They have the same bits as if each row had been sent
    alone, and they are all of one version of the model, by its number: where another one begins to answer meanwhile,
    the whole table is asked again. If one part fails, its error is raised, with the row counted in the whole table, and
    nothing is returned. A model without batches (max_batch_size 0) gets the table whole.

    **Requests.** What a model takes is asked with the first prediction, and remembered; from then on a table takes one
    request, or one for each part. Where the model was loaded anew and takes something else, it refuses what was made
    for the former, and the table is converted and sent again. The server itself compares tensors, types and widths;
    where columns of a DataFrame were taken by name, or numbers rounded to FP32 that must be no categories, the request
    carries a digest of what the configuration said of the columns, which our entries compare. A model that does not
    look (without the parameter `checks_columns` in its configuration) is asked for it again behind such an answer, and
    if it is another one now, the answer is dropped and the table sent again. If such a model took the place of one that
    does look, this client finds out with the first request that is refused.

    **Closing.** Leaving the `with` block, or `close`, ends the connections. A request that another thread has under way
    then ends in `RequestCancelled` over gRPC; over HTTP it is still answered. Any later one is an `InvalidRequest`.

    Args:
        url: HOST:PORT of the server's gRPC or HTTP endpoint; `http://` or `grpc://` may stand before it. No TLS.
        protocol: "grpc" or "http".
        timeout_s: seconds for each request but load and unload, so for each part of a large table. Over gRPC it is from
            the sending to the answer, connecting included. Over HTTP it limits each wait for the server: to connect,
            and for the next bytes of the answer, which as a rule comes in one piece.
        load_timeout_s: seconds for load and unload, counted in the same way.
        admin_key: sent with load, unload and index, for a server that answers these to a key alone, as `serve` and
            the one in docker/ do; None: that of a `TritonServer` which this process runs there, else
            $TRITON_ADMIN_KEY, if it is set.

    Raises:
        InvalidRequest: the request is wrong: the table does not fit the model, it holds a number that the model does
            not take, there is no such output, an argument is wrong, the key is missing, or the client is closed.
        ModelNotFound: no such model, or no such version of it, is loaded; the message lists those that are, unless the
            server lists them to holders of its key alone.
        ServerUnavailable: nothing answers at this address, it is no Triton server's, the server takes no more requests,
            or it loads the model anew again and again while a table is asked.
        RequestTimeout: there was no answer in time. The server may still be at work on it.
        RequestCancelled: the client was closed, or the server cancelled the request.
        ServerFault: the model failed, could not be loaded, or gave an answer that cannot be read.

    Each method raises these, all of them an `InferenceError`; only `ready` answers False where there is no server, no
    such model, or no answer in time. `ServerUnavailable` and `RequestTimeout` may pass by themselves; nothing is tried
    again here because of them.
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
            X: a table, whose columns are taken by name where the model was fitted on named ones: a DataFrame of pandas
                or polars, pyarrow's Table or RecordBatch, or a list of records; an array of numbers, see `number_rows`;
                or, where the model has other inputs than X, a mapping of each one's name to an array of numbers or of
                strings, see `text_rows`. They are sent in the types that the server says the model takes.
            outputs: their names.
            version: "" is whichever the server's version policy gives, the newest as a rule.
            errors: "stop": a row that is refused is an error. "row": its answers are NaN, all other rows are answered,
                and `refused` of what is returned has the reason for each refused row by its number.
        """
        return hold(self._dialogues.infer(model, X, outputs, version, errors), self._run)

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

        The array is float32. It is [rows] for a model of one target, [rows, 1] where the estimator was fitted on a
        column of targets and answers so itself, and [rows, n_targets] for several targets. The configuration says
        which; it goes by the newest version. `infer` keeps [rows, width] for every output. The arguments are `infer`'s.
        """
        found = self.infer(model, X, outputs=outputs, version=version, errors=errors)
        return found.as_predicted(outputs[0])

    def config(self, model: str) -> model_config_pb2.ModelConfig:
        """Return the configuration that the model is loaded with, as the ModelConfig protobuf.

        The server fills in defaults: `dynamic_batching {}` comes back with max_batch_size as its preferred batch size.
        """
        return hold(self._dialogues.config(model), self._run)

    def statistics(self, model: str) -> dict[str, Any]:
        """Return what the server counted of a model, the statistics extension's answer as plain values.

        It is `{"model_stats": [{"name", "version", "inference_count", "inference_stats", "batch_stats", ...}]}`. Times
        are in ns, last_inference in ms since 1970.
        """
        return hold(self._dialogues.statistics(model), self._run)

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
        self._dialogues.forget(model)
        self._run(self._calls.load(model, config, files))

    def unload(self, model: str) -> None:
        """Unload the model and return at once: requests in flight are answered, new ones are refused.

        An unknown model is no error.
        """
        self._dialogues.forget(model)
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
    """What a service in asyncio asks of a Triton server: predictions, and whether a model is ready for them.

        async with AsyncClient("127.0.0.1:8001") as client:
            y = await client.predict("houses", table)

    Arguments, answers and errors are `Client`'s. It belongs to the event loop of its first call, and takes any number
    of requests at a time; a call from another loop is an `InvalidRequest`. Of a table that goes in several requests,
    four are under way at a time; if some fail, the error is that of the first rows among them. Loading, unloading and
    statistics are an operator's: `Client` has them.

    A task that is cancelled ends with asyncio.CancelledError, as always, and sends nothing more. `asyncio.timeout`, or
    `asyncio.wait_for`, limits a whole table, of which timeout_s limits each request.

    Args:
        url: HOST:PORT of the server's gRPC or HTTP endpoint; `http://` or `grpc://` may stand before it. No TLS.
        protocol: "grpc" or "http".
        timeout_s: seconds for each request, from the sending to the answer, connecting included.

    Raises:
        InferenceError: one of its kinds, for the reasons that `Client` gives.
    """

    def __init__(self, url: str, protocol: Protocol = "grpc", timeout_s: float = 30.0) -> None:
        super().__init__(url, protocol, timeout_s)
        self._module = importlib.import_module(f"tritonclient.{self.protocol}.aio")  # now: a loop would wait for it
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
        return await hold_side_by_side(self._dialogues.infer(model, X, outputs, version, errors), self._run)

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

    async def config(self, model: str) -> model_config_pb2.ModelConfig:
        """See `Client.config`."""
        return await hold_side_by_side(self._dialogues.config(model), self._run)

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
