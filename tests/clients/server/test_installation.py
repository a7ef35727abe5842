"""Tests of the choice of the Triton server and of the interpreter for its models."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.servers import triton_server
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import ServerError
from triton_regressors.clients.server import installation
from triton_regressors.clients.server.triton_server import TritonServer

pytestmark = pytest.mark.server
ROWS = np.array([[1, 2, 3]], np.float32)


def test_no_triton_server(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(installation.DIRECTORY_VARIABLE, raising=False)
    monkeypatch.setattr(installation.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(installation, "_CONTAINER_DIRECTORY", tmp_path / "absent")
    with pytest.raises(ServerError) as caught:
        TritonServer([repository]).start()
    assert "`pip install --no-deps nvidia-pytriton==0.7.0`" in str(caught.value)
    assert f"-v {repository}:/models:ro nvcr.io/nvidia/tritonserver:" in str(caught.value)


def test_a_directory(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    with triton_server([repository]) as server, Client(server.grpc_url) as client:
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


def test_no_libpython(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = installation.Interpreter(Path(sys.executable), (3, 11), ())
    monkeypatch.setattr(installation, "inspect_interpreter", lambda path: interpreter)
    monkeypatch.setattr(installation.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, stdout=""))
    with pytest.raises(ServerError, match=r"needs libpython3\.11\.so\.1\.0.*apt-get install libpython3\.11"):
        TritonServer([repository]).start()


def test_no_stub(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = installation.Interpreter(Path(sys.executable), (3, 99), ())
    monkeypatch.setattr(installation, "inspect_interpreter", lambda path: interpreter)
    with pytest.raises(ServerError, match=r"no Python backend for Python 3\.99 .* for 3\.8, 3\.9, 3\.10, "):
        TritonServer([repository]).start()


def test_another_interpreter(repository: Path, tmp_path: Path) -> None:
    """The models see the packages of the interpreter chosen: this one has none."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    with pytest.raises(ServerError, match="'sums': ModuleNotFoundError: No module named 'numpy'"):
        TritonServer([repository], python=tmp_path / "venv" / "bin" / "python").start()


def test_no_interpreter(repository: Path) -> None:
    with pytest.raises(ServerError, match="/dev/null is not a Python interpreter that runs"):
        TritonServer([repository], python=Path("/dev/null")).start()
