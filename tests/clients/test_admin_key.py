"""A Triton server whose management APIs answer to a key alone, as those of docker/compose.yaml do."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from triton_regressors.clients.admin_key import VARIABLE
from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.clients.infer import AsyncClient, Client, Protocol
from triton_regressors.clients.server import TritonServer
from triton_regressors.errors import TritonRegressorsError

KEY = "f00d-CAFE"
PROTOCOLS: tuple[Protocol, ...] = ("grpc", "http")


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory, write_model: Callable[..., Path]) -> Iterator[TritonServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_model(repository, "sums")
    with TritonServer([repository], admin_key=KEY) as running:
        yield running


def address(server: TritonServer, protocol: Protocol) -> str:
    return server.grpc_url if protocol == "grpc" else server.http_url


@pytest.mark.server
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("key", [None, "", "wrong"])
def test_without_the_key_management_is_refused_and_all_else_works(
    restricted: TritonServer, protocol: Protocol, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if key == "":
        monkeypatch.setenv(VARIABLE, KEY)  # an empty key asks to send none
    with Client(address(restricted, protocol), protocol, admin_key=key) as client:
        for refused in (lambda: client.load("sums"), lambda: client.unload("sums"), client.index):
            with pytest.raises(
                InvalidRequest, match=r"holders of its key .*; set \$TRITON_ADMIN_KEY, or give admin_key"
            ):
                refused()
        assert client.ready("sums")
        assert client.config("sums").max_batch_size == 16
        assert client.predict("sums", np.ones((1, 3))).tolist() == [[6]]
        assert client.statistics("sums")["model_stats"]


@pytest.mark.server
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("given", ["argument", "environment"])
def test_with_the_key_management_works(
    restricted: TritonServer, protocol: Protocol, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, KEY if given == "environment" else "not this one")
    key = KEY if given == "argument" else None
    with Client(address(restricted, protocol), protocol, admin_key=key) as client:
        client.load("sums")
        assert [model["state"] for model in client.index()] == ["READY"]
        client.unload("sums")
        client.load("sums")

    async def asynchronously() -> None:
        async with AsyncClient(address(restricted, protocol), protocol, admin_key=key) as client:
            await client.load("sums")
            assert [model["state"] for model in await client.index()] == ["READY"]

    asyncio.run(asynchronously())


@pytest.mark.parametrize("key", ["two words", "a\r\nX-Other: b", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_told(key: str) -> None:
    for make in (lambda: Client("127.0.0.1:1", admin_key=key), lambda: TritonServer([Path()], admin_key=key)):
        with pytest.raises(TritonRegressorsError, match="accepted: ASCII letters, digits and punctuation") as caught:
            make()
        assert key not in str(caught.value)
