"""An entry needs torch, triton, numpy and safetensors, and no other package."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.server.conftest import CheckAnswers
from tests.server.models import KERNELS, models, rows
from tests.servers import triton_server
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.server.triton_server import TritonServer

pytestmark = pytest.mark.server

NEEDED = ("torch", "triton", "numpy", "safetensors")
ABSENT = ("sklearn", "scipy", "pandas", "skops", "joblib", "tritonclient", "google.protobuf", "triton_regressors")

# A model that does not load if the server's Python backend can import one of those modules.
PROBE = f"""
import importlib.util
import os


class TritonPythonModel:
    def initialize(self, args):
        for name in {ABSENT!r}:
            try:
                found = importlib.util.find_spec(name)
            except ModuleNotFoundError:
                continue
            if found is not None:
                raise RuntimeError(f"{{name}} can be imported from {{found.origin}}, in {{os.getcwd()}}")

    def execute(self, requests):
        return []
"""

PROBE_CONFIG = """
name: "probe"
backend: "python"
max_batch_size: 1
input { name: "X" data_type: TYPE_FP32 dims: 1 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
instance_group { kind: KIND_CPU }
"""


def closure(names: tuple[str, ...]) -> dict[str, importlib.metadata.Distribution]:
    """Return the distributions and, without extras, what they require here, by name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        found[name] = importlib.metadata.distribution(name)
        requirements = map(Requirement, found[name].requires or [])
        waiting += [r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that sees those distributions alone, each file a link to this environment's."""
    environment = tmp_path_factory.mktemp("bare") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment), "platbase": str(environment)}))
    assert packages.is_dir()
    for distribution in closure(NEEDED).values():
        for file in distribution.files or []:
            if ".." not in file.parts:
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                (packages / file).symlink_to(os.path.abspath(file.locate()))
    return environment / "bin" / "python"


@pytest.mark.parametrize("name", [*NEEDED, *ABSENT])
def test_what_the_bare_environment_can_import(bare_python: Path, tmp_path: Path, name: str) -> None:
    program = f"import importlib, sys; importlib.import_module({name!r})"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(bare_python), "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode == 0) == (name in NEEDED), done.stderr
    if name in ABSENT:
        assert "ModuleNotFoundError" in done.stderr


def test_a_copied_version_serves_there(
    bare_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check_answers: CheckAnswers
) -> None:
    exported, copied, elsewhere = tmp_path / "exported", tmp_path / "copied", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (copied / "probe" / "1").mkdir(parents=True)
    (copied / "probe" / "1" / "model.py").write_text(PROBE)
    (copied / "probe" / "config.pbtxt").write_text(PROBE_CONFIG)
    model = models()["poly"]
    for engine in ("torch", KERNELS):
        entry = model.export(exported)
        entry = entry.rename(exported / engine)
        config = (entry / "config.pbtxt").read_text()
        assert 'string_value: "auto"' in config
        (copied / engine).mkdir()
        (copied / engine / "config.pbtxt").write_text(
            config.replace('string_value: "auto"', f'string_value: "{engine}"').replace(
                'name: "poly"', f'name: "{engine}"'
            )
        )
        shutil.copytree(entry / "1", copied / engine / "1")
    shutil.rmtree(exported)
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with triton_server([copied], python=bare_python) as server, Client(server.grpc_url) as client:
        assert client.ready("probe")
        answers = {engine: client.infer(engine, rows(50, 3)) for engine in ("torch", KERNELS)}
    for answer in answers.values():
        check_answers(model, rows(50, 3), answer)


def test_the_probe_would_notice(tmp_path: Path) -> None:
    (tmp_path / "probe" / "1").mkdir(parents=True)
    (tmp_path / "probe" / "1" / "model.py").write_text(PROBE)
    (tmp_path / "probe" / "config.pbtxt").write_text(PROBE_CONFIG)
    with pytest.raises(Exception, match="sklearn can be imported from"), TritonServer([tmp_path]):
        pass
