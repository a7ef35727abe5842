"""Transports for a worker with one client, which has nothing to do while it waits for its answer.

They block the thread that sends, and avoid an event loop. The event loop took about a quarter of the do-nothing
model's median latency over gRPC, and more over HTTP (2 cores, grpcio 1.85). That is the load generator's own time, and
would hide what a model adds.
"""

from __future__ import annotations

import asyncio
import socket

import grpc

from triton_regressors.clients.compare.load.transports import (
    CHANNEL_OPTIONS,
    INFER_METHOD,
    HttpConnection,
    RequestFailed,
    grpc_failure,
    host_and_port,
)


class BlockingGrpcTransport:
    """Unary calls over one HTTP/2 connection, one after another."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._call = self._channel.unary_unary(INFER_METHOD)

    async def open(self, connections: int) -> None:
        """Connect."""
        try:
            grpc.channel_ready_future(self._channel).result(self._timeout_s)
        except grpc.FutureTimeoutError:
            raise RequestFailed(f"no gRPC server answers at {self._address}") from None

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a serialised ModelInferRequest; the answer is a serialised ModelInferResponse."""
        try:
            return -1, self._call(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise grpc_failure(error) from None

    async def close(self) -> None:
        """Close the channel."""
        self._channel.close()


class _Socket(asyncio.Transport):
    """The part of a transport that HttpConnection needs in order to abort, over a blocking socket."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__()
        self._socket = connected

    def abort(self) -> None:
        self._socket.close()


class BlockingHttpTransport:
    """Whole HTTP requests over one keep-alive connection, one after another."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self._where = host_and_port(address)
        self._timeout_s = timeout_s
        self._connection: HttpConnection | None = None

    async def open(self, connections: int) -> None:
        """Connect."""
        self._connected()

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a whole HTTP request, over a new connection if the last request broke the previous one."""
        connection = self._connected()
        answer = connection.expect()
        try:
            self._socket.sendall(request)
            while not answer.done():
                data = self._socket.recv(1 << 16)
                if data:
                    connection.data_received(data)
                else:
                    connection.connection_lost(None)
        except TimeoutError:
            connection.expire()
        except OSError as error:
            connection.connection_lost(error)
        if connection.closed:
            self._socket.close()
        return answer.result()

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.abort()

    def _connected(self) -> HttpConnection:
        if self._connection is None or self._connection.closed:
            host, port = self._where
            try:
                self._socket = socket.create_connection((host, port), self._timeout_s)
            except OSError as error:
                raise RequestFailed(f"no HTTP server answers at {host}:{port}: {error.strerror or error}") from None
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = HttpConnection()
            self._connection.connection_made(_Socket(self._socket))
        return self._connection
