"""A load balancer for tests: TCP connections go to endpoints in turn, as a Service's do through kube-proxy."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Balancer:
    """Its address, and the endpoints ('host:port') of new connections; open connections stay."""

    def __init__(self, endpoints: list[str]) -> None:
        self.endpoints, self.address = endpoints, ""
        self._turn = itertools.count()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        endpoints = list(self.endpoints)
        host, _, port = endpoints[next(self._turn) % len(endpoints)].rpartition(":")
        with suppress(OSError):
            answers, requests = await asyncio.open_connection(host, int(port))
            await asyncio.gather(forward(reader, requests), forward(answers, writer))
        writer.close()


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextmanager
def balanced(*endpoints: str) -> Iterator[Balancer]:
    """A balancer before endpoints, which may change while it runs."""
    balancer, loop, listens = Balancer(list(endpoints)), asyncio.new_event_loop(), threading.Event()

    async def run() -> None:
        server = await asyncio.start_server(balancer.connect, "127.0.0.1", 0)
        balancer.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        listens.set()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(run())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    listens.wait()
    try:
        yield balancer
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
