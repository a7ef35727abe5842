"""A Triton server whose management APIs answer to a key alone, as ours and those of docker/compose.yaml do."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.servers import triton_server
from triton_regressors.clients.admin_key import VARIABLE, own_key
from triton_regressors.clients.errors import InvalidRequest, ModelNotFound
from triton_regressors.clients.infer import Client, Protocol
from triton_regressors.clients.server import TritonServer
from triton_regressors.errors import TritonRegressorsError

KEY = "f00d-CAFE"
PROTOCOLS: tuple[Protocol, ...] = ("grpc", "http")


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory, write_model: Callable[..., Path]) -> Iterator[TritonServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_model(repository, "sums")
    with triton_server([repository], admin_key=KEY) as running:
        yield running


def address(server: TritonServer, protocol: Protocol) -> str:
    return server.grpc_url if protocol == "grpc" else server.http_url


def elsewhere(server: TritonServer, protocol: Protocol) -> str:
    """The address as another process has it, which the server's own clients do not know."""
    return address(server, protocol).replace("127.0.0.1", "localhost")


def cross_site_post(server: TritonServer, key: str | None = None) -> tuple[int, str]:
    """What any web page can send to a server on its reader's machine: no preflight asks that server first."""
    config = {"backend": "python", "max_batch_size": 1, "instance_group": [{"kind": "KIND_CPU"}]}
    for kind, name in (("input", "X"), ("output", "y")):
        config[kind] = [{"name": name, "data_type": "TYPE_FP32", "dims": [1]}]
    code = b"class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
    body = {"parameters": {"config": json.dumps(config), "file:1/model.py": base64.b64encode(code).decode()}}
    headers = {"Content-Type": "text/plain", "Origin": "http://example.com"} | (
        {"triton-admin-key": key} if key else {}
    )
    request = urllib.request.Request(
        f"http://{server.http_url}/v2/repository/models/theirs/load", json.dumps(body).encode(), headers
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.server
def test_a_web_page_cannot_load_a_model_and_the_key_is_random_and_in_no_list(
    tmp_path: Path, write_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    write_model(tmp_path, "sums")
    with triton_server([tmp_path]) as server:
        assert len(server.admin_key) >= 40
        assert server.admin_key != TritonServer([tmp_path]).admin_key
        status, text = cross_site_post(server)
        assert status == 403
        assert "restricted" in text
        assert cross_site_post(server, "guessed")[0] == 403
        everybody_reads = Path(f"/proc/{server.pid}/cmdline").read_bytes()
        assert b"restricted-api" in everybody_reads
        assert server.admin_key.encode() not in everybody_reads
        assert server.admin_key not in server.log
        assert cross_site_post(server, server.admin_key) == (200, "")
        with Client(server.http_url, "http") as client:  # of this process, which has the key
            assert client.ready("theirs")
            client.unload("theirs")
        url = server.http_url
    monkeypatch.setenv(VARIABLE, "from-the-environment")
    assert own_key(url) is None
    assert TritonServer([tmp_path]).admin_key == "from-the-environment"
    assert TritonServer([tmp_path], admin_key="given").admin_key == "given"


@pytest.mark.server
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("key", [None, "", "wrong"])
def test_without_the_key_management_is_refused_and_all_else_works(
    restricted: TritonServer, protocol: Protocol, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if key == "":
        monkeypatch.setenv(VARIABLE, KEY)  # an empty key asks to send none
    with Client(elsewhere(restricted, protocol), protocol, admin_key=key) as client:
        for refused in (lambda: client.load("sums"), lambda: client.unload("sums"), client.index):
            with pytest.raises(
                InvalidRequest, match=r"holders of its key .*; set \$TRITON_ADMIN_KEY, or give admin_key"
            ):
                refused()
        assert client.ready("sums")
        assert client.config("sums").max_batch_size == 16
        assert client.predict("sums", np.ones((1, 3))).tolist() == [6]
        assert client.statistics("sums")["model_stats"]
        with pytest.raises(ModelNotFound, match=r"^Request for unknown model: 'nothing' is not found\.$"):
            client.predict("nothing", np.ones((1, 3)))  # without a list of the others


@pytest.mark.server
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("given", ["argument", "environment"])
def test_with_the_key_management_works(
    restricted: TritonServer, protocol: Protocol, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, KEY if given == "environment" else "not this one")
    key = KEY if given == "argument" else None
    with Client(elsewhere(restricted, protocol), protocol, admin_key=key) as client:
        client.load("sums")
        assert [model["state"] for model in client.index()] == ["READY"]
        client.unload("sums")
        client.load("sums")


@pytest.mark.parametrize("key", ["two words", "a\r\nX-Other: b", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_told(key: str) -> None:
    for make in (lambda: Client("127.0.0.1:1", admin_key=key), lambda: TritonServer([Path()], admin_key=key)):
        with pytest.raises(TritonRegressorsError, match="accepted: ASCII letters, digits and punctuation") as caught:
            make()
        assert key not in str(caught.value)
