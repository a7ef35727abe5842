"""A Triton server whose management APIs answer to a key alone, as ours and those of docker/compose.yaml do."""

import base64
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.processes import running
from tests.servers import triton_server
from triton_regressors.clients.client.admin_key import VARIABLE, own_key
from triton_regressors.clients.client.client import Client, Protocol
from triton_regressors.clients.compare.compare import ComparisonError, running_server
from triton_regressors.clients.errors import InvalidRequest, ModelNotFound, ServerError
from triton_regressors.clients.server import private_arguments
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.errors import TritonRegressorsError

KEY = "f00d-CAFE"
# Another user's process: it reads the command line and environment of every process that names a word until standard
# input ends, and then tells which values of "admin-key" it saw.
THIEF = """
import json, os, pathlib, re, select, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
seen, words = set(), re.compile(rb"admin[-]key=([^\\0]*)")
print("looking", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
            if sys.argv[1].encode() in line:
                seen.update(value.decode() for value in words.findall(line))
                seen.update(value.decode() for value in words.findall((process / "environ").read_bytes()))
        except OSError:
            pass
print(json.dumps(sorted(seen)))
"""
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
    """Send a request that any web page can send to a server on its reader's machine, without a CORS preflight."""
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
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user, who is to steal the key")
@pytest.mark.parametrize("ptrace", ["allowed", "forbidden"])
def test_another_user_cannot_steal_the_key_while_the_server_starts(
    tmp_path: Path, write_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, ptrace: str
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    write_model(tmp_path, "sums")
    if ptrace == "forbidden":
        monkeypatch.setattr(private_arguments, "_ptrace", forbidden)
    command = [sys.executable, "-I", "-S", "-c", THIEF, str(tmp_path)]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as thief:
        assert thief.stdout is not None
        assert thief.stdout.readline() == "looking\n"
        with triton_server([tmp_path]) as server:  # the thief looks from before its start to after it is ready
            stolen = json.loads(thief.communicate()[0])
            assert stolen  # the options were seen, with what stands in place of the key
            assert server.admin_key not in stolen
            assert not any(cross_site_post(server, key.strip())[0] == 200 for key in stolen)
            with Client(server.grpc_url) as client:
                assert client.predict("sums", np.ones((1, 3))).tolist() == [6]
                assert not client.ready("theirs")


def test_a_shell_that_is_traced_in_its_own_exec_keeps_the_private_argument(tmp_path: Path) -> None:
    """The system may return from the shell's start before its `exec` has ended, and tracing then sees two of them."""
    slow = tmp_path / "slow"  # stands in for the shell's `exec`, which ends only when it is traced
    slow.write_text('#!/bin/sh\nwhile grep -q "^TracerPid:.0$" /proc/$$/status; do :; done\nexec /bin/sh "$@"\n')
    slow.chmod(0o700)
    told = "import sys; print(sys.argv[1], open('/proc/self/cmdline').read().split(chr(0))[-2], flush=True)"
    process = private_arguments.launch(
        [sys.executable, "-I", "-S", "-c", told, "shown"],
        {"shown": "secret"},
        os.environ,
        executable=str(slow),
        stdout=subprocess.PIPE,
    )
    assert process.communicate() == ("secret shown\n", None)


def forbidden(*arguments: int) -> None:
    """Stand in for ptrace where the system forbids it, as hardened ones and emulators of a processor do."""
    raise private_arguments.PrivacyError("ptrace is not allowed here (Operation not permitted)")


@pytest.mark.server
def test_where_the_key_cannot_be_kept_the_server_loads_nothing_on_request(
    tmp_path: Path, write_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sums", "other"):
        write_model(tmp_path, name)
    (tmp_path / "half" / "1").mkdir(parents=True)
    (tmp_path / "half" / "config.pbtxt").write_text((tmp_path / "sums" / "config.pbtxt").read_text())
    monkeypatch.setattr(private_arguments, "_ptrace", forbidden)
    why = "its key cannot be kept from other users of this machine, since ptrace is not allowed here"
    with triton_server([tmp_path], lenient=True) as server, Client(server.http_url, "http") as client:
        assert server.closed.startswith(why)
        assert f"loads and unloads no model on request: {why}" in server.log
        assert list(server.failures) == ["half"]
        assert [model["name"] for model in client.index()] == ["other", "sums"]
        with pytest.raises(InvalidRequest, match="not allowed"):
            client.load("sums")
        assert cross_site_post(server, server.admin_key)[0] == 503
        assert client.predict("sums", np.ones((1, 3))).tolist() == [6]
    with triton_server([tmp_path], models=["other"]) as server, Client(server.grpc_url) as client:
        assert [model["name"] for model in client.index()] == ["other"]
    with pytest.raises(ServerError, match=f"cannot poll, since it loads no model later: {why}"):
        TritonServer([tmp_path], poll_s=1, lenient=True).start()
    with pytest.raises(
        ComparisonError, match=rf"cannot be compared here: the Triton server loads no model.*, because {why}"
    ):
        running_server("sums", tmp_path, None, None, None).__enter__()


def test_private_arguments_reach_the_program_alone() -> None:
    """They may be long, hold anything, and stand before or after others; a variable of the environment may be empty."""
    show = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), sys.stdin.read()]))"
    private = {"--a=$A": "--a=" + "ü $x'" * 1000, "$B": "b"}
    command = [sys.executable, "-I", "-c", show, "first", "--a=$A", "", "$B", "last"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = private_arguments.launch(command, private, {"EMPTY": "", "LANG": "C.UTF-8"}, **options)
    arguments, environment, stdin = json.loads(process.communicate()[0])
    assert (arguments, stdin) == (["first", private["--a=$A"], "", "b", "last"], "")
    assert environment["EMPTY"] == ""
    assert not [name for name in environment if name.startswith("PRIVATE")]
    process = private_arguments.launch(["/no/such/program", "--a=$A"], {"--a=$A": "a"}, {}, **options)
    assert "/no/such/program" in process.communicate()[0]
    assert process.returncode == 127


def test_run_as_a_program_it_passes_on_signals_and_exit_codes() -> None:
    """docker/compose.yaml runs it in this way."""
    run = [sys.executable, private_arguments.__file__]
    show = "import sys, time; print(sys.argv[1], flush=True); time.sleep(60)"
    environment = {**os.environ, VARIABLE: KEY}
    command = [*run, sys.executable, "-c", show, "--key=$" + VARIABLE]
    with running(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"--key={KEY}\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in (process.pid, *map(int, children)):
            assert KEY not in Path(f"/proc/{pid}/cmdline").read_text()
        process.terminate()
        process.wait()
    assert process.returncode == 128 + 15
    assert subprocess.run([*run, sys.executable, "-c", "exit(3)"], check=False).returncode == 3
    environment.pop(VARIABLE)
    unset = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (unset.returncode, unset.stdout) == (2, "")
    assert re.match(rf"\${VARIABLE} is not set; it is a private argument of ", unset.stderr)


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
