"""docker/warm.py on the real Triton server that the tests use. Its compilations on a GPU are not tested here."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from triton_regressors.clients.server.installation import Runtime, find_installation, prepare

pytestmark = pytest.mark.server

DOCKER = Path(__file__).resolve().parents[2] / "docker"
CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "X" data_type: TYPE_FP32 dims: [2] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [2] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""
COMPILES = """
import os
from pathlib import Path


class TritonPythonModel:
    def initialize(self, args):
        (Path(os.environ["TRITON_CACHE_DIR"]) / "kernel.cubin").write_bytes(b"0" * 2_000_000)
"""


@pytest.fixture(scope="module")
def warm() -> Iterator[Any]:
    sys.path.insert(0, str(DOCKER))
    try:
        spec = importlib.util.spec_from_file_location("warm", DOCKER / "warm.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(DOCKER))
        sys.modules.pop("probe", None)


@pytest.mark.parametrize(
    ("code", "status", "says"),
    [
        (COMPILES, 0, "hold 1 files, 2.0 MB."),
        ("class TritonPythonModel:\n    pass\n", 1, "No kernel was compiled: no entry of"),
        ("raise RuntimeError('broken on purpose')\n", 1, "The Triton server did not load"),
    ],
)
def test_it_says_what_was_compiled(
    warm: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, status: int, says: str
) -> None:
    version = tmp_path / "models" / "tiny" / "1"
    for folder in (version, tmp_path / "cache", tmp_path / "scratch"):
        folder.mkdir(parents=True)
    (version / "model.py").write_text(code + "\n    def execute(self, requests):\n        return []\n" * ("cl" in code))
    (version.parent / "config.pbtxt").write_text(CONFIG)
    runtime: Runtime = prepare(find_installation(tmp_path), None, {}, tmp_path / "scratch")
    command = [str(runtime.executable), f"--backend-directory={runtime.backends}"]
    environment = {**runtime.environment, "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    assert warm.main(str(tmp_path / "models"), command, environment) == status
    assert says in capsys.readouterr().out
