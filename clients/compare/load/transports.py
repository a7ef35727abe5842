"""Transports that send a load worker's prepared bytes and return the answers with as little work as possible."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Protocol

import grpc

INFER_METHOD = "/inference.GRPCInferenceService/ModelInfer"
CLIENTS_PER_CHANNEL = 32
CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # one TCP connection per channel
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)


class RequestFailed(Exception):  # noqa: N818  # a counted outcome, not a fault of the program
    """The server refused the request, or the connection broke."""


class RequestTimedOut(RequestFailed):
    """No answer came within the time allowed."""


class Transport(Protocol):
    """Sends a prepared request; answers with the HTTP header length of the tensor description (or -1) and the body."""

    def __init__(self, address: str, timeout_s: float) -> None:
        """address: "host:port". timeout_s: for connecting, and for each request."""

    async def open(self, connections: int) -> None:
        """Connect; raises RequestFailed."""

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send one request and wait for its answer; raises RequestFailed."""

    async def close(self) -> None:
        """Close all connections."""


class GrpcTransport:
    """Unary calls over a few HTTP/2 connections; messages go in and come out as bytes, never parsed here."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._channels: list[grpc.aio.Channel] = []
        self._turn = 0

    async def open(self, connections: int) -> None:
        """Open one channel for every 32 outstanding requests."""
        count = max(1, -(-connections // CLIENTS_PER_CHANNEL))
        self._channels = [grpc.aio.insecure_channel(self._address, options=CHANNEL_OPTIONS) for _ in range(count)]
        self._calls = [channel.unary_unary(INFER_METHOD) for channel in self._channels]
        try:
            await asyncio.wait_for(
                asyncio.gather(*(channel.channel_ready() for channel in self._channels)), self._timeout_s
            )
        except asyncio.TimeoutError:
            raise RequestFailed(f"no gRPC server answers at {self._address}") from None

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a serialised ModelInferRequest; the answer is a serialised ModelInferResponse."""
        self._turn += 1
        try:
            answer: bytes = await self._calls[self._turn % len(self._calls)](request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            raise grpc_failure(error) from None
        return -1, answer

    async def close(self) -> None:
        """Close every channel."""
        for channel in self._channels:
            await channel.close()


class HttpConnection(asyncio.Protocol):
    """One keep-alive connection with at most one outstanding request, the limit of HTTP/1.1 without pipelining.

    It reads answers that carry a Content-Length, as the Triton server's do.
    """

    def __init__(self) -> None:
        self.closed = False
        self.sent_at = 0.0
        self._buffer = bytearray()
        self._needed = 0  # bytes of the whole answer, 0 until its header is complete
        self._header = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the outstanding request, if there is one."""
        self.closed = True
        self._fail(RequestFailed(f"the connection was closed{f': {exc}' if exc else ''}"))

    def data_received(self, data: bytes) -> None:
        """Collect bytes until an answer is complete, then hand it to whoever waits for it."""
        self._buffer += data
        if not self._needed:
            split = self._buffer.find(b"\r\n\r\n")
            if split < 0:
                return
            self._header = bytes(self._buffer[: split + 2]).lower()
            length = self._field(b"content-length")
            if length is None:
                self._fail(RequestFailed("an HTTP answer without Content-Length"))
                self.abort()
                return
            self._needed = split + 4 + length
        if len(self._buffer) >= self._needed:
            header, body = self._header, bytes(self._buffer[self._needed - (self._field(b"content-length") or 0) :])
            self._buffer.clear()
            self._needed = 0
            answer, self._answer = self._answer, None
            if answer is None or answer.done():
                return
            if header[9:12] == b"200":
                described = self._field(b"inference-header-content-length")
                answer.set_result((-1 if described is None else described, body))
            else:
                answer.set_exception(RequestFailed(f"HTTP {header[9:12].decode()}: {_reason(body)}"))

    def send(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Write the request; the future brings the answer."""
        answer = self.expect()
        self._transport.write(request)
        return answer

    def expect(self) -> asyncio.Future[tuple[int, bytes]]:
        """Return the future that brings the next answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self.sent_at = time.monotonic()
        return self._answer

    def expire(self) -> None:
        """Give up the outstanding request, and with it the connection."""
        self._fail(RequestTimedOut("no answer within the time allowed"))
        self.abort()

    def abort(self) -> None:
        """Close without waiting."""
        self.closed = True
        self._transport.abort()

    def _fail(self, error: RequestFailed) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)

    def _field(self, name: bytes) -> int | None:
        at = self._header.find(b"\r\n" + name + b":")
        if at < 0:
            return None
        begin = at + len(name) + 3
        return int(self._header[begin : self._header.index(b"\r\n", begin)])


class HttpTransport:
    """Whole HTTP requests over keep-alive connections, one connection for each outstanding request."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self._host, self._port = host_and_port(address)
        self._timeout_s = timeout_s
        self._connections: set[HttpConnection] = set()
        self._busy: set[HttpConnection] = set()
        self._free: list[HttpConnection] = []
        self._watchdog: asyncio.Task[None] | None = None

    async def open(self, connections: int) -> None:
        """Open this many connections at once; `send` opens more when none is free."""
        self._watchdog = asyncio.create_task(self._watch())
        self._free = [await self._connect() for _ in range(connections)]

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a whole HTTP request over a free connection, or a new one if all are busy."""
        connection = await self._take()
        self._busy.add(connection)
        try:
            return await connection.send(request)
        finally:
            self._busy.discard(connection)
            if connection.closed:
                self._connections.discard(connection)
            else:
                self._free.append(connection)

    async def close(self) -> None:
        """Close every connection and stop watching."""
        if self._watchdog:
            self._watchdog.cancel()
        for connection in self._connections:
            connection.abort()

    async def _take(self) -> HttpConnection:
        while self._free:
            connection = self._free.pop()
            if not connection.closed:
                return connection
            self._connections.discard(connection)
        return await self._connect()

    async def _connect(self) -> HttpConnection:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(HttpConnection, self._host, self._port)
        except OSError as error:
            raise RequestFailed(f"no HTTP server answers at {self._host}:{self._port}: {error.strerror}") from None
        self._connections.add(connection)
        return connection

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(0.25, self._timeout_s))
            latest = time.monotonic() - self._timeout_s
            for connection in [busy for busy in self._busy if busy.sent_at < latest]:
                connection.expire()


def grpc_failure(error: grpc.RpcError) -> RequestFailed:
    """Return the outcome for a failed call."""
    kind = RequestTimedOut if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED else RequestFailed
    return kind(f"{error.code().name}: {error.details()}")


def host_and_port(address: str) -> tuple[str, int]:
    """Split an address "host:port" or "[ipv6]:port" into its two parts."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body[:120].decode(errors="replace")
