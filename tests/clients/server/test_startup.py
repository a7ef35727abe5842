"""From a launched Triton server to one that is ready: taken ports, models that do not load, and those waited for."""

import contextlib
import io
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clients.conftest import MODEL
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import ServerError
from triton_regressors.clients.server import startup
from triton_regressors.clients.server.triton_server import TritonServer

pytestmark = pytest.mark.server
WriteModel = Callable[..., Path]
ROWS = np.array([[1, 2, 3]], np.float32)
FAILS = """
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("weights.safetensors lacks 'coef'")
"""


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


def test_why_a_model_does_not_load_is_told(repository: Path, write_model: WriteModel) -> None:
    write_model(repository, "fails", code=FAILS)
    with pytest.raises(ServerError) as caught:
        TritonServer([repository]).start()
    assert str(caught.value) == "Model did not load: 'fails': ValueError: weights.safetensors lacks 'coef'."
    assert "successfully loaded 'sums'" in caught.value.log


def test_all_models_that_do_not_load_are_named(repository: Path, write_model: WriteModel) -> None:
    write_model(repository, "corrupt", config='name: "corrupt"\nmax_batch_size: {\n')
    write_model(repository, "typo", config='name: "typo"\nbackend: "python"\nmax_batch: 4\n')
    write_model(repository, "import", code="import no_such_package\n" + FAILS)
    (repository / "empty").mkdir()
    with pytest.raises(ServerError, match=r"^4 models did not load: ") as caught:
        TritonServer([repository]).start()
    reasons = dict(re.findall(r"'(\w+)': (.*?)(?:; (?=')|\.$)", str(caught.value)))
    assert re.search(r"failed to read text proto from .*corrupt/config.pbtxt \(line:column 2:17: ", reasons["corrupt"])
    assert 'has no field named "max_batch"' in reasons["typo"]
    assert reasons["import"] == "ModuleNotFoundError: No module named 'no_such_package'"
    assert "empty/config.pbtxt: No such file" in reasons["empty"]


def test_a_model_that_is_not_there(repository: Path) -> None:
    with pytest.raises(ServerError, match="'absent': model not found in any model repository"):
        TritonServer([repository], models=["sums", "absent"]).start()


def test_others_may_be_broken(repository: Path, write_model: WriteModel, start: Callable[..., TritonServer]) -> None:
    write_model(repository, "fails", code=FAILS)
    server = start([repository], models=["sums"])
    with Client(server.grpc_url) as client:
        assert client.ready("sums")


def test_hidden_directories_that_are_no_models_do_no_harm(repository: Path, start: Callable[..., TritonServer]) -> None:
    (repository / ".git").mkdir()
    (repository / "sums" / ".2.staging").mkdir()
    with Client(start([repository]).grpc_url) as client:
        assert [row["name"] for row in client.index() if row["state"] == "READY"] == ["sums"]


def test_lenient_serves_the_others(
    repository: Path, write_model: WriteModel, start: Callable[..., TritonServer]
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
    assert server.failures["half"] == "version 1 has no model.py, as during a copy"
    assert "characters that a shell would interpret" in server.failures["$(touch injected)"]
    assert "stray/config.pbtxt: No such file" in server.failures["stray"]


def test_lenient_needs_one_that_loads(repository: Path, write_model: WriteModel) -> None:
    (repository / "sums" / "1" / "model.py").unlink()
    write_model(repository, "fails", code=FAILS)
    with pytest.raises(ServerError, match=r"^2 models did not load: 'sums': version 1 has no model\.py.*'fails': "):
        TritonServer([repository], lenient=True).start()


def test_one_without_its_file_is_named_before_the_server_hangs(repository: Path, write_model: WriteModel) -> None:
    (repository / "sums" / "2").mkdir()
    server = TritonServer([repository])
    with pytest.raises(
        ServerError, match=r"^Model did not load: 'sums': version 2 has no model\.py, as during a copy\."
    ):
        server.start()
    assert server.log == ""


def test_one_that_never_ends(repository: Path, write_model: WriteModel) -> None:
    write_model(repository, "slow", code=FAILS.replace("raise ValueError", "import time; time.sleep(60) or print"))
    server = TritonServer([repository], startup_timeout_s=2)
    with pytest.raises(ServerError, match=r"not ready and did nothing for 2 s; still loading: 'slow'\.$"):
        server.start()
    assert not server.running
    assert server.progress == (1, 2)


def test_one_that_computes_for_ever(repository: Path, write_model: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
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
    repository: Path, write_model: WriteModel, start: Callable[..., TritonServer]
) -> None:
    """Longer, in all, than nothing may move: while they load one after another, and while one computes."""
    sleeps = "import time; time.sleep(1.2)"
    computes = "import time\n        until = time.monotonic() + 4\n        while time.monotonic() < until: pass"
    for number in range(8):  # the Triton server loads four at a time
        write_model(repository, f"sleeps{number}", code=MODEL.replace("        pass", f"        {sleeps}"))
    write_model(repository, "computes", code=MODEL.replace("        pass", f"        {computes}"))
    began = time.monotonic()
    server = start([repository], startup_timeout_s=3)
    assert time.monotonic() - began > 4
    assert server.progress == (10, 10)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b'{"error": "[request id: <id_unknown>] failed to read the repository"}', ": failed to read the repository"),
        (b"{}", ""),
        (b"not JSON", ""),
    ],
)
def test_an_index_that_is_no_list_ends_in_one_sentence(
    repository: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, says: str
) -> None:
    asked = startup._response

    @contextlib.contextmanager
    def answered(port: int, method: str, path: str, *options: Any, **named: Any) -> Iterator[Any]:
        if path == "/v2/repository/index":
            yield io.BytesIO(answer)
        else:
            with asked(port, method, path, *options, **named) as response:
                yield response

    with monkeypatch.context() as patched:
        patched.setattr(startup, "_response", answered)
        server = TritonServer([repository])
        with pytest.raises(ServerError, match=f"^The Triton server does not list its models{says}\\.$"):
            server.start()
    assert not server.running
