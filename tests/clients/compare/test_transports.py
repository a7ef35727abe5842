"""The HTTP transport against a server that misbehaves in each of the ways that a load test must count."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from triton_regressors.clients.compare.transports import (
    GrpcTransport,
    HttpTransport,
    RequestFailed,
    RequestTimedOut,
)

REQUEST = b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: 1\r\n\r\n"
GOOD = b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}ab"


def talk(use: Callable[[HttpTransport], Awaitable[None]], timeout_s: float = 5.0) -> None:
    """Run `use` against a server that acts on the byte which follows each request's header."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                match await reader.readexactly(1):
                    case b"g":
                        writer.write(GOOD)
                    case b"s":  # byte by byte
                        for byte in GOOD:
                            writer.write(bytes([byte]))
                            await writer.drain()
                    case b"e":
                        writer.write(b'HTTP/1.1 400 Bad Request\r\nContent-Length: 22\r\n\r\n{"error": "bad shape"}')
                    case b"n":
                        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                    case b"c":
                        writer.close()
                        return
                    case b"t":
                        await asyncio.sleep(30)
        except asyncio.IncompleteReadError:
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = HttpTransport(f"127.0.0.1:{port}", timeout_s)
        await transport.open(1)
        try:
            await use(transport)
        finally:
            await transport.close()
            server.close()

    asyncio.run(run())


def test_answers_are_read_whole_however_they_arrive() -> None:
    async def use(transport: HttpTransport) -> None:
        for kind in (b"g", b"s", b"g"):
            assert await transport.send(REQUEST + kind) == (2, b"{}ab")

    talk(use)


@pytest.mark.parametrize(
    ("kind", "message"),
    [(b"e", "HTTP 400: bad shape"), (b"n", "without Content-Length"), (b"c", "the connection was closed")],
)
def test_failures_are_told_and_the_next_request_works(kind: bytes, message: str) -> None:
    async def use(transport: HttpTransport) -> None:
        with pytest.raises(RequestFailed, match=message):
            await transport.send(REQUEST + kind)
        assert await transport.send(REQUEST + b"g") == (2, b"{}ab")

    talk(use)


def test_a_request_without_answer_times_out_alone() -> None:
    async def use(transport: HttpTransport) -> None:
        slow = asyncio.create_task(transport.send(REQUEST + b"t"))
        await asyncio.sleep(0)
        assert await transport.send(REQUEST + b"g") == (2, b"{}ab")
        with pytest.raises(RequestTimedOut):
            await slow

    talk(use, timeout_s=0.2)


@pytest.mark.parametrize("transport", [GrpcTransport, HttpTransport])
def test_no_server(transport: type[GrpcTransport | HttpTransport]) -> None:
    async def run() -> None:
        opened = transport("127.0.0.1:9", 0.3)
        try:
            with pytest.raises(RequestFailed, match=r"server answers at 127\.0\.0\.1:9"):
                await opened.open(1)
        finally:
            await opened.close()

    asyncio.run(run())
