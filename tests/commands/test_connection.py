"""A shell completes the names of entries."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.test_main import CODE


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("predict ", ["houses", "rents"]),
        ("verify h", ["houses"]),
        ("compare --repository others ", ["boats"]),
        ("predict houses --prot", ["--protocol"]),
        ("ver", ["verify"]),
    ],
)
def test_bash_is_told(tmp_path: Path, words: str, found: list[str]) -> None:
    for entry in ("model_repository/houses", "model_repository/rents", "others/boats"):
        (tmp_path / entry).mkdir(parents=True)
        (tmp_path / entry / "config.pbtxt").touch()
    (tmp_path / "model_repository" / "no_entry").mkdir()
    environment = {
        **os.environ,
        "_TRITON_REGRESSORS_COMPLETE": "complete_bash",
        "COMP_WORDS": f"triton-regressors {words}",
        "COMP_CWORD": str(len(words.split(" "))),
    }
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert done.stdout.splitlines() == [*found, "imported []"], done.stderr
