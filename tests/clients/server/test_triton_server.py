import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from tests.processes import running
from tests.servers import triton_server
from tests.waiting import wait_for
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import ServerError, ServerUnavailable
from triton_regressors.clients.server.startup import ending
from triton_regressors.clients.server.triton_server import TritonServer

pytestmark = pytest.mark.server
WriteModel = Callable[..., Path]
ROWS = np.array([[1, 2, 3]], np.float32)


def leftovers(pid: int, shm_prefix: str) -> list[str]:
    """Return a server's leftovers: processes of its group, and its files in shared memory."""
    found = [path.name for path in Path("/dev/shm").glob(f"{shm_prefix}*")]
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[2]) == pid and fields[0] != "Z":
                found.append(f"process {status.parent.name}")
    return found


def listening(port: int) -> list[str]:
    """The local addresses that listen on a port, as /proc/net writes them."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            address, state = line.split()[1], line.split()[3]
            if state == "0A" and int(address.rpartition(":")[2], 16) == port:
                found.append(address.rpartition(":")[0])
    return found


def test_start_answer_stop_and_again(repository: Path, start: Callable[..., TritonServer]) -> None:
    seen: list[str] = []
    server = start([repository], models=["sums"], on_log=seen.append)
    for again in (False, True):
        if again:
            server.start()
        pid = server.pid
        assert server.running
        assert repr(server) == f"<TritonServer of {repository}: gRPC {server.grpc_url}, HTTP {server.http_url}>"
        for url in (server.grpc_url, server.http_url, server.metrics_url):
            (address,) = listening(int(url.rpartition(":")[2]))
            assert address in ("0100007F", "0000000000000000FFFF00000100007F")  # 127.0.0.1 alone, as IPv4 or mapped
        with Client(server.http_url, "http") as client:
            assert client.predict("sums", ROWS) == 12
        with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as metrics:
            assert b'nv_inference_count{model="sums"' in metrics.read()
        with pytest.raises(ServerError, match="already"):
            server.start()
        scratch, shm_prefix = server._scratch, server._shm_prefix
        assert len(leftovers(pid, shm_prefix)) >= 3  # the server, the model's process and its shared memory
        assert scratch is not None
        assert scratch.is_dir()
        server._process._waitpid_lock.acquire()  # type: ignore[union-attr]  # as Ctrl-C inside Popen.poll may leave it
        server.stop()
        assert not server.running
        assert repr(server) == f"<TritonServer of {repository}: not running>"
        assert leftovers(pid, shm_prefix) == []
        assert not scratch.exists()
    assert any("successfully loaded 'sums'" in line for line in seen)
    assert "successfully loaded 'sums'" in server.log  # still there
    server.stop()


def test_two_side_by_side(repository: Path, start: Callable[..., TritonServer]) -> None:
    one, two = start([repository]), start([repository])
    with Client(one.grpc_url) as first, Client(two.grpc_url) as second:
        assert first.predict("sums", ROWS) == second.predict("sums", ROWS) == 12
        one.stop()
        assert not first.ready()
        assert second.predict("sums", ROWS) == 12


def test_paths_that_a_shell_would_read_are_no_trouble(tmp_path: Path, write_model: WriteModel) -> None:
    """The Triton server starts each model's process by a shell."""
    paths = [tmp_path / name for name in ("a b", "a'b", "a$HOME", "[x]", "über")]
    for number, path in enumerate(paths):
        write_model(path, f"sums{number}")
    with triton_server(paths) as server, Client(server.grpc_url) as client:
        for number in range(len(paths)):
            assert client.predict(f"sums{number}", ROWS) == 12


def test_the_signal_that_ended_it_is_named(repository: Path) -> None:
    with TritonServer([repository]) as server:
        assert server.ending() == "has not ended"
        body = b'{"inputs":' + b"[" * 200_000  # the Triton server's own fault
        request = urllib.request.Request(f"http://{server.http_url}/v2/models/sums/infer", body)
        with contextlib.suppress(OSError):
            urllib.request.urlopen(request, timeout=30)
        wait_for(lambda: not server.running)
        assert re.fullmatch(r"was ended by SIG(SEGV|ABRT)", server.ending())
    assert ending(-9, ()) == "was ended by SIGKILL, as the system does where memory runs out,"
    assert ending(1, ("E1121 09:32:06.080731 8097 a.cc:4] no memory",)) == "ended with exit code 1 (no memory)"


def test_a_shape_that_ends_it_over_http_is_refused_over_grpc(
    repository: Path, start: Callable[..., TritonServer]
) -> None:
    """docs/serving.md describes this fault of the Triton server itself."""
    server, shape = start([repository]), [2**31, 3]
    tensor = grpc_client.InferInput("X", shape, "FP32")
    tensor._raw_content = ROWS.tobytes()
    with (
        grpc_client.InferenceServerClient(server.grpc_url) as client,
        pytest.raises(InferenceServerException, match="byte size mismatch for input 'X'"),
    ):
        client.infer("sums", [tensor])
    assert server.running
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": shape, "data": [1, 2, 3]}]}
    request = urllib.request.Request(f"http://{server.http_url}/v2/models/sums/infer", json.dumps(body).encode())
    with contextlib.suppress(OSError):
        urllib.request.urlopen(request, timeout=30)
    wait_for(lambda: not server.running)
    assert re.fullmatch(r"was ended by SIG(SEGV|ABRT)", server.ending())
    server.restart()
    with Client(server.grpc_url) as ours:
        assert ours.predict("sums", ROWS) == 12


def test_it_is_started_again_where_and_with_what_it_was(repository: Path, start: Callable[..., TritonServer]) -> None:
    server = start([repository])
    with pytest.raises(ServerError, match=r"has not ended by itself; call start\(\), or stop\(\) first\.$"):
        server.restart()
    addresses, pid, shm_prefix = (server.grpc_url, server.http_url, server.metrics_url), server.pid, server._shm_prefix
    os.kill(pid, signal.SIGSEGV)
    wait_for(lambda: not server.running)
    server.restart()
    assert (server.grpc_url, server.http_url, server.metrics_url) == addresses
    assert leftovers(pid, shm_prefix) == []
    with Client(server.grpc_url) as client:  # of this process, which has the key
        client.load("sums")
        assert client.predict("sums", ROWS) == 12


def test_nothing_survives_a_killed_server(repository: Path) -> None:
    with TritonServer([repository]) as server, Client(server.grpc_url) as client:
        pid, shm_prefix = server.pid, server._shm_prefix
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not server.running)
        with pytest.raises(ServerUnavailable):
            client.predict("sums", ROWS)
    wait_for(lambda: leftovers(pid, shm_prefix) == [])  # a killed process ends when the system comes to it


def test_nothing_survives_a_killed_parent(repository: Path) -> None:
    code = (
        "import sys, time, pathlib; from triton_regressors.clients.server import TritonServer\n"
        f"server = TritonServer([pathlib.Path({str(repository)!r})]); server.start()\n"
        "print(server.pid, server._scratch, server._shm_prefix, flush=True); time.sleep(600)"
    )
    with running([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, scratch, shm_prefix = parent.stdout.readline().split()
        assert leftovers(int(pid), shm_prefix)
        parent.kill()
    wait_for(lambda: leftovers(int(pid), shm_prefix) == [] and not Path(scratch).exists())


def test_a_noisy_model_and_a_failing_listener(
    tmp_path: Path, write_model: WriteModel, start: Callable[..., TritonServer]
) -> None:
    """The log is read whatever happens: a full pipe would stop the server."""
    noisy = Path(write_model(tmp_path, "noisy") / "1" / "model.py")
    code = noisy.read_text().replace(
        "    def execute(self, requests):", "    def execute(self, requests):\n        loud()"
    )
    noisy.write_text(code + "\n\ndef loud():\n    for _ in range(40_000):\n        print('x' * 79, flush=False)\n")

    def listen(line: str) -> None:
        raise RuntimeError("the listener is broken")

    server = start([tmp_path], on_log=listen)
    with Client(server.grpc_url) as client:
        assert client.predict("noisy", ROWS) == 12
        assert client.predict("noisy", ROWS) == 12
    assert len(server.log.splitlines()) <= 20_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"repositories": []}, "at least one model repository"),
        ({"http_port": 70000}, "The HTTP port is 70000"),
        ({"http_port": 4000, "grpc_port": 4000}, "must differ"),
        ({"poll_s": 0.2}, "poll_s is 0.2"),
        ({"poll_s": float("nan")}, "poll_s is nan"),
        ({"poll_s": 2, "models": ["a"]}, "loads all of them"),
    ],
)
def test_arguments(arguments: dict, says: str, tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=says):
        TritonServer(**{"repositories": [tmp_path], **arguments})


def test_a_repository_that_is_not_there(tmp_path: Path) -> None:
    server = TritonServer([tmp_path / "absent"])
    with pytest.raises(ServerError, match="absent is not a directory"):
        server.start()
    for attribute in ("pid", "grpc_url"):
        with pytest.raises(ServerError, match=r"call start\(\) first"):
            getattr(server, attribute)
