"""The fixtures that the commands' tests share, some of them with those of the clients."""

import sys

import pytest

from tests.clients.conftest import write_model
from triton_regressors.__main__ import main

__all__ = ["write_model"]


@pytest.fixture
def run_here(folder, capsys, monkeypatch):
    """Returns `run` without a new process, which takes seconds to import everything: in the folder of the models."""

    def run_command(*arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "160")
        monkeypatch.setattr(sys, "argv", ["triton-regressors", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
        out, err = capsys.readouterr()
        sentence = isinstance(exited.value.code, str)  # Python prints it, and its exit code is 1
        return (1, out, err + exited.value.code) if sentence else (exited.value.code or 0, out, err)

    return run_command
