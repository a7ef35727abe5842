"""The transports against a server that misbehaves in each of the ways that a load test must count."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

from triton_regressors.clients.compare.load.blocking import BlockingGrpcTransport, BlockingHttpTransport
from triton_regressors.clients.compare.load.transports import (
    GrpcTransport,
    HttpTransport,
    RequestFailed,
    RequestTimedOut,
    Transport,
)

REQUEST = b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: 1\r\n\r\n"
GOOD = b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}ab"
Use = Callable[[Transport], Awaitable[None]]


async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Do what the byte says which follows each request's header."""
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
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The server's, in a thread of its own: a blocking transport would keep it from answering."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(act, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield server.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    for task in asyncio.all_tasks(loop):
        task.cancel()
        loop.run_until_complete(asyncio.wait([task]))
    server.close()
    loop.close()


@pytest.fixture(params=[HttpTransport, BlockingHttpTransport])
def talk(request: pytest.FixtureRequest, port: int) -> Callable[..., None]:
    """Runs `use` with each HTTP transport: talk(use, timeout_s=5.0)."""

    def talked(use: Use, timeout_s: float = 5.0) -> None:
        async def run() -> None:
            transport = request.param(f"127.0.0.1:{port}", timeout_s)
            await transport.open(1)
            try:
                await use(transport)
            finally:
                await transport.close()

        asyncio.run(run())

    return talked


def test_answers_are_read_whole_however_they_arrive(talk: Callable[..., None]) -> None:
    async def use(transport: Transport) -> None:
        for kind in (b"g", b"s", b"g"):
            assert await transport.send(REQUEST + kind) == (2, b"{}ab")

    talk(use)


@pytest.mark.parametrize(
    ("kind", "message"),
    [(b"e", "HTTP 400: bad shape"), (b"n", "without Content-Length"), (b"c", "the connection was closed")],
)
def test_failures_are_told_and_the_next_request_works(talk: Callable[..., None], kind: bytes, message: str) -> None:
    async def use(transport: Transport) -> None:
        with pytest.raises(RequestFailed, match=message):
            await transport.send(REQUEST + kind)
        assert await transport.send(REQUEST + b"g") == (2, b"{}ab")

    talk(use)


def test_a_request_without_answer_times_out(talk: Callable[..., None]) -> None:
    async def use(transport: Transport) -> None:
        with pytest.raises(RequestTimedOut):
            await transport.send(REQUEST + b"t")
        assert await transport.send(REQUEST + b"g") == (2, b"{}ab")

    talk(use, timeout_s=1)


def test_others_do_not_wait_for_one_without_answer(port: int) -> None:
    async def run() -> None:
        transport = HttpTransport(f"127.0.0.1:{port}", 1)
        await transport.open(1)
        slow = asyncio.create_task(transport.send(REQUEST + b"t"))
        await asyncio.sleep(0)
        assert await transport.send(REQUEST + b"g") == (2, b"{}ab")
        with pytest.raises(RequestTimedOut):
            await slow
        await transport.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "transport", [GrpcTransport, HttpTransport, BlockingGrpcTransport, BlockingHttpTransport], ids=lambda t: t.__name__
)
def test_no_server(transport: type[Transport]) -> None:
    async def run() -> None:
        opened = transport("127.0.0.1:9", 0.3)
        try:
            with pytest.raises(RequestFailed, match=r"server answers at 127\.0\.0\.1:9"):
                await opened.open(1)
        finally:
            await opened.close()

    asyncio.run(run())
