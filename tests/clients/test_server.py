import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.clients.conftest import MODEL
from triton_regressors.clients import installation, startup
from triton_regressors.clients.errors import ServerError, ServerUnavailable, plain_reason
from triton_regressors.clients.infer import Client
from triton_regressors.clients.server import TritonServer, readable_log_line
from triton_regressors.clients.server_log import last_error, means_nothing
from triton_regressors.clients.startup import ending

pytestmark = pytest.mark.server
WriteModel = Callable[..., Path]
ROWS = np.array([[1, 2, 3]], np.float32)
FAILS = """
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("weights.safetensors lacks 'coef'")
"""


def leftovers(pid: int, shm_prefix: str) -> list[str]:
    """What a server has left: processes of its group, and its files in shared memory."""
    found = [path.name for path in Path("/dev/shm").glob(f"{shm_prefix}*")]
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[2]) == pid and fields[0] != "Z":
                found.append(f"process {status.parent.name}")
    return found


@pytest.fixture
def repository(tmp_path: Path, write_model: WriteModel) -> Path:
    write_model(tmp_path / "repository", "sums")
    return tmp_path / "repository"


@pytest.fixture
def start() -> Iterator[Callable[..., TritonServer]]:
    """start(*arguments of TritonServer): started, and stopped after the test."""
    with contextlib.ExitStack() as running:
        yield lambda *args, **kwargs: running.enter_context(TritonServer(*args, **kwargs))


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


@pytest.mark.parametrize("service", ["gRPC", "HTTP", "metrics"])
def test_taken_port(repository: Path, service: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = TritonServer([repository], **{f"{service.lower()}_port": port})
        with pytest.raises(ServerError, match=f"^The {service} port {port} on 127.0.0.1 is taken; choose another"):
            server.start()
        assert not server.running


def test_port_taken_while_the_server_starts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own failure is recognised, where the check before it saw the port free."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = {"gRPC": 0, "HTTP": taken.getsockname()[1], "metrics": 0}
        picked = "triton_regressors.clients.server.pick_ports"
        with socket.socket() as a, socket.socket() as b:
            a.bind(("127.0.0.1", 0))
            b.bind(("127.0.0.1", 0))
            ports |= {"gRPC": a.getsockname()[1], "metrics": b.getsockname()[1]}
        monkeypatch.setattr(picked, lambda chosen: ports)
        with pytest.raises(ServerError, match=f"^The HTTP port {ports['HTTP']} on 127.0.0.1 is taken") as caught:
            TritonServer([repository]).start()
        assert "already in use" in caught.value.log


class TestModelsThatDoNotLoad:
    def test_the_reason_is_told(self, repository: Path, write_model: WriteModel) -> None:
        write_model(repository, "fails", code=FAILS)
        with pytest.raises(ServerError) as caught:
            TritonServer([repository]).start()
        assert str(caught.value) == "Model did not load: 'fails': ValueError: weights.safetensors lacks 'coef'."
        assert "successfully loaded 'sums'" in caught.value.log

    def test_all_of_them_are_named(self, repository: Path, write_model: WriteModel) -> None:
        write_model(repository, "corrupt", config='name: "corrupt"\nmax_batch_size: {\n')
        write_model(repository, "typo", config='name: "typo"\nbackend: "python"\nmax_batch: 4\n')
        write_model(repository, "import", code="import no_such_package\n" + FAILS)
        (repository / "empty").mkdir()
        with pytest.raises(ServerError, match=r"^4 models did not load: ") as caught:
            TritonServer([repository]).start()
        reasons = dict(re.findall(r"'(\w+)': (.*?)(?:; (?=')|\.$)", str(caught.value)))
        assert re.search(
            r"failed to read text proto from .*corrupt/config.pbtxt \(line:column 2:17: ", reasons["corrupt"]
        )
        assert 'has no field named "max_batch"' in reasons["typo"]
        assert reasons["import"] == "ModuleNotFoundError: No module named 'no_such_package'"
        assert "empty/config.pbtxt: No such file" in reasons["empty"]

    def test_one_that_is_not_there(self, repository: Path) -> None:
        with pytest.raises(ServerError, match="'absent': model not found in any model repository"):
            TritonServer([repository], models=["sums", "absent"]).start()

    def test_others_may_be_broken(
        self, repository: Path, write_model: WriteModel, start: Callable[..., TritonServer]
    ) -> None:
        write_model(repository, "fails", code=FAILS)
        server = start([repository], models=["sums"])
        with Client(server.grpc_url) as client:
            assert client.ready("sums")

    def test_hidden_directories_that_are_no_models_do_no_harm(
        self, repository: Path, start: Callable[..., TritonServer]
    ) -> None:
        (repository / ".git").mkdir()
        (repository / "sums" / ".2.staging").mkdir()
        with Client(start([repository]).grpc_url) as client:
            assert [row["name"] for row in client.index() if row["state"] == "READY"] == ["sums"]

    def test_lenient_serves_the_others(
        self, repository: Path, write_model: WriteModel, start: Callable[..., TritonServer]
    ) -> None:
        write_model(repository, "fails", code=FAILS)
        write_model(repository, "typo", config='name: "typo"\nbackend: "python"\nmax_batch: 4\n')
        (write_model(repository, "half") / "1" / "model.py").unlink()
        write_model(repository, "$(touch injected)")
        (repository / "stray").mkdir()
        server = start([repository], lenient=True)
        with Client(server.grpc_url) as client:
            assert client.predict("sums", ROWS) == 12
        assert set(server.failures) == {"fails", "typo", "half", "stray", "$(touch injected)"}
        assert server.failures["fails"] == "ValueError: weights.safetensors lacks 'coef'"
        assert server.failures["half"] == "version 1 has no model.py, as in the middle of a copy"
        assert "what a shell would read" in server.failures["$(touch injected)"]
        assert "stray/config.pbtxt: No such file" in server.failures["stray"]

    def test_lenient_needs_one_that_loads(self, repository: Path, write_model: WriteModel) -> None:
        (repository / "sums" / "1" / "model.py").unlink()
        write_model(repository, "fails", code=FAILS)
        with pytest.raises(ServerError, match=r"^2 models did not load: 'sums': version 1 has no model\.py.*'fails': "):
            TritonServer([repository], lenient=True).start()

    def test_one_without_its_file_is_named_before_the_server_hangs(
        self, repository: Path, write_model: WriteModel
    ) -> None:
        (repository / "sums" / "2").mkdir()
        server = TritonServer([repository])
        with pytest.raises(ServerError, match=r"^Model did not load: 'sums': version 2 has no model\.py, as in "):
            server.start()
        assert server.log == ""

    def test_one_that_never_ends(self, repository: Path, write_model: WriteModel) -> None:
        write_model(repository, "slow", code=FAILS.replace("raise ValueError", "import time; time.sleep(60) or print"))
        server = TritonServer([repository], startup_timeout_s=2)
        with pytest.raises(ServerError, match=r"not ready and did nothing for 2 s; still loading: 'slow'\.$"):
            server.start()
        assert not server.running
        assert server.progress == (1, 2)

    def test_one_that_computes_for_ever(
        self, repository: Path, write_model: WriteModel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(startup, "_BUSY", 3)
        code = "    def initialize(self, args):\n        while True:\n            pass\n"
        for name in "abcdefg":
            write_model(repository, name, code=f"class TritonPythonModel:\n{code}")
        server = TritonServer([repository], models=list("abcdefg"), startup_timeout_s=1)
        with pytest.raises(ServerError) as caught:
            server.start()
        says = r"not ready and worked for 3 s and got no further; still loading: ('\w', ){4}'\w' and 2 more\.$"
        assert re.search(says, str(caught.value))
        assert not server.running

    def test_those_that_get_on_are_waited_for(
        self, repository: Path, write_model: WriteModel, start: Callable[..., TritonServer]
    ) -> None:
        """Longer, in all, than nothing may move: while they load one after another, and while one computes."""
        sleeps = "import time; time.sleep(1.2)"
        computes = "import time\n        until = time.monotonic() + 4\n        while time.monotonic() < until: pass"
        for number in range(8):  # the Triton server loads four at a time
            write_model(repository, f"sleeps{number}", code=MODEL.replace("        pass", f"        {sleeps}"))
        write_model(repository, "computes", code=MODEL.replace("        pass", f"        {computes}"))
        began = time.monotonic()
        server = start([repository], startup_timeout_s=2)
        assert time.monotonic() - began > 4
        assert server.progress == (10, 10)


def test_paths_that_a_shell_would_read_are_no_trouble(tmp_path: Path, write_model: WriteModel) -> None:
    """The Triton server starts each model's process by a shell."""
    paths = [tmp_path / name for name in ("a b", "a'b", "a$HOME", "[x]", "über")]
    for number, path in enumerate(paths):
        write_model(path, f"sums{number}")
    with TritonServer(paths, startup_timeout_s=30) as server, Client(server.grpc_url) as client:
        for number in range(len(paths)):
            assert client.predict(f"sums{number}", ROWS) == 12


def test_the_signal_that_ended_it_is_named(repository: Path) -> None:
    with TritonServer([repository]) as server:
        assert server.ending() == "has not ended"
        body = b'{"inputs":' + b"[" * 200_000  # the Triton server's own fault
        request = urllib.request.Request(f"http://{server.http_url}/v2/models/sums/infer", body)
        with contextlib.suppress(OSError):
            urllib.request.urlopen(request, timeout=30)
        deadline = time.monotonic() + 20
        while server.running and time.monotonic() < deadline:
            time.sleep(0.05)
        assert re.fullmatch(r"was ended by SIG(SEGV|ABRT)", server.ending())
    assert ending(-9, ()) == "was ended by SIGKILL, as the system does where memory runs out,"
    assert ending(1, ("E1121 09:32:06.080731 8097 a.cc:4] no memory",)) == "ended with exit code 1 (no memory)"


def test_nothing_survives_a_killed_server(repository: Path) -> None:
    with TritonServer([repository]) as server, Client(server.grpc_url) as client:
        pid, shm_prefix = server.pid, server._shm_prefix
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while server.running and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not server.running
        with pytest.raises(ServerUnavailable):
            client.predict("sums", ROWS)
    assert leftovers(pid, shm_prefix) == []


def test_nothing_survives_a_killed_parent(repository: Path) -> None:
    code = (
        "import sys, time, pathlib; from triton_regressors.clients.server import TritonServer\n"
        f"server = TritonServer([pathlib.Path({str(repository)!r})]); server.start()\n"
        "print(server.pid, server._scratch, server._shm_prefix, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, scratch, shm_prefix = parent.stdout.readline().split()
        assert leftovers(int(pid), shm_prefix)
        parent.kill()
    deadline = time.monotonic() + 20
    while (leftovers(int(pid), shm_prefix) or Path(scratch).exists()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert leftovers(int(pid), shm_prefix) == []
    assert not Path(scratch).exists()


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


class TestInstallation:
    def test_none(self, repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv(installation.DIRECTORY_VARIABLE, raising=False)
        monkeypatch.setattr(installation.importlib.util, "find_spec", lambda name: None)
        monkeypatch.setattr(installation, "_CONTAINER_DIRECTORY", tmp_path / "absent")
        with pytest.raises(ServerError) as caught:
            TritonServer([repository]).start()
        assert "`pip install --no-deps nvidia-pytriton==0.7.0`" in str(caught.value)
        assert f"-v {repository}:/models:ro nvcr.io/nvidia/tritonserver:" in str(caught.value)

    def test_a_directory(self, repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The layout of NVIDIA's container, and of a server packed for a machine without a registry."""
        wheel = installation._from_wheel()
        assert wheel is not None
        assert wheel.stubs is not None
        home, minor = tmp_path / "home", "{}.{}".format(*sys.version_info)
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "tritonserver").symlink_to(wheel.executable)
        (home / "libs").symlink_to(wheel.libraries)
        (home / "backends" / "python").mkdir(parents=True)
        for source in [*(wheel.backends / "python").glob("*.*"), wheel.stubs / minor / "triton_python_backend_stub"]:
            (home / "backends" / "python" / source.name).symlink_to(source)
        monkeypatch.setenv(installation.DIRECTORY_VARIABLE, str(home))
        with TritonServer([repository]) as server, Client(server.grpc_url) as client:
            assert client.predict("sums", ROWS) == 12
            assert Path(f"/proc/{server.pid}/cmdline").read_bytes().startswith(str(home).encode())

        other = "3.9" if minor != "3.9" else "3.10"
        (home / "backends" / "python" / "triton_python_backend_stub").unlink()
        (home / "backends" / "python" / "triton_python_backend_stub").symlink_to(
            wheel.stubs / other / "triton_python_backend_stub"
        )
        with pytest.raises(ServerError, match=f"is for Python {other}, the interpreter chosen is Python {minor}"):
            TritonServer([repository]).start()

        monkeypatch.setenv(installation.DIRECTORY_VARIABLE, str(tmp_path))
        with pytest.raises(ServerError, match=r"TRITONSERVER_DIRECTORY is .* which holds no Triton server"):
            TritonServer([repository]).start()

    def test_no_libpython(self, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        interpreter = installation.Interpreter(Path(sys.executable), (3, 11), ())
        monkeypatch.setattr(installation, "inspect_interpreter", lambda path: interpreter)
        monkeypatch.setattr(
            installation.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, stdout="")
        )
        with pytest.raises(ServerError, match=r"needs libpython3\.11\.so\.1\.0.*apt-get install libpython3\.11"):
            TritonServer([repository]).start()

    def test_no_stub(self, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        interpreter = installation.Interpreter(Path(sys.executable), (3, 99), ())
        monkeypatch.setattr(installation, "inspect_interpreter", lambda path: interpreter)
        with pytest.raises(ServerError, match=r"no Python backend for Python 3\.99 .* for 3\.8, 3\.9, 3\.10, "):
            TritonServer([repository]).start()

    def test_another_interpreter(self, repository: Path, tmp_path: Path) -> None:
        """The models see the packages of the interpreter chosen: this one has none."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
        with pytest.raises(ServerError, match="'sums': ModuleNotFoundError: No module named 'numpy'"):
            TritonServer([repository], python=tmp_path / "venv" / "bin" / "python").start()

    def test_no_interpreter(self, repository: Path) -> None:
        with pytest.raises(ServerError, match="/dev/null is not a Python interpreter that runs"):
            TritonServer([repository], python=Path("/dev/null")).start()


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


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ('I1121 09:32:06.080731 8097 model_lifecycle.cc:472] "loading: a:1"', ("09:32:06", "info", "loading: a:1")),
        ('E0101 00:00:00.000001 1 x.cc:1] "two\\nlines"', ("00:00:00", "error", "two\nlines")),
        ("W1121 09:32:06.080731 8097 a.cc:4] unquoted", ("09:32:06", "warning", "unquoted")),
        ('F1121 09:32:06.080731 8097 a.cc:4] "not \\x json"', ("09:32:06", "fatal", "not \\x json")),
        ("print of a model\n", ("", "", "print of a model")),
        ("", ("", "", "")),
    ],
)
def test_readable_log_line(line: str, parsed: tuple[str, str, str]) -> None:
    assert readable_log_line(line) == parsed


WITHOUT_GPU = """\
W1122 10:25:39.811978 29953 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory, pinned memory pool \
will not be available: CUDA driver version is insufficient for CUDA runtime version"
I1122 10:25:39.812500 29953 cuda_memory_manager.cc:117] "CUDA memory pool disabled"
E1122 10:25:39.812657 29953 server.cc:241] "CudaDriverHelper has not been initialized."
W1122 10:25:45.917753 29953 pinned_memory_manager.cc:170] "failed to allocate pinned system memory: no pinned memory \
pool, falling back to non-pinned system memory"
Error: Failed to initialize NVML
W1122 10:25:56.273685 29953 metrics.cc:798] "DCGM unable to start: DCGM initialization error"
"""
FAULTS = """\
W1122 10:25:39.811978 29953 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory, pinned memory pool \
will not be available: out of memory"
E1122 10:25:39.812657 29953 model_repository_manager.cc:1] "failed to load 'm' version 1: CUDA memory pool disabled"
Error: Failed to initialize NVML: unknown error
E1122 10:25:39.812657 29953 a.cc:1] "instance group m_0 of model m specifies invalid or unsupported gpu id 0"
"""


def test_lines_that_only_tell_that_there_is_no_gpu() -> None:
    """As a server of the wheel writes them; one that tells anything else is none of them."""
    assert all(means_nothing(line, has_gpu=False) for line in WITHOUT_GPU.splitlines())
    assert not any(means_nothing(line, has_gpu=True) for line in WITHOUT_GPU.splitlines())
    assert not any(means_nothing(line, has_gpu=False) for line in FAULTS.splitlines())
    assert last_error(("E1121 09:32:06.080731 8097 a.cc:4] no port", *WITHOUT_GPU.splitlines())) == "no port"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Internal: ValueError: no\n\nAt:\n  /a/model.py(3): initialize\n", "ValueError: no"),
        ("[request id: <id_unknown>] unexpected shape. NOTE: Setting a non-zero max_batch_size in", "unexpected shape"),
        ("Traceback (most recent call last):\n  File x\n    y\nKeyError: 'z'\n", "KeyError: 'z'"),
        ("two\n  lines.", "two lines"),
        ("", "no reason given"),
    ],
)
def test_plain_reason(text: str, reason: str) -> None:
    assert plain_reason(text) == reason
