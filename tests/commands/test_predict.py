"""The command `predict`: what goes to a pipe, to a terminal, to a file, and to stderr."""

import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tests.clients.conftest import CONFIG, WriteModel
from tests.processes import running
from tests.servers import triton_server
from triton_regressors.__main__ import make_app

pytestmark = pytest.mark.server

ECHO = """
import sys

import numpy as np
import triton_python_backend_utils as pb_utils

# numpy's DLPack capsules complain, harmlessly, about the name that the Python backend gives them after use.
sys.unraisablehook = lambda unraisable: None


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "X"))
        if (x[:, 0] == -7).any():
            error = pb_utils.TritonError(f"row {np.argmax(x[:, 0] == -7)} is odd", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        outputs = {"y": x[:, :2].copy(), "std": x[:, 2:].copy()}
        names = request.requested_output_names()
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack(name, outputs[name]) for name in names])
"""
ROWS = 2000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, write_model: WriteModel) -> Iterator[str]:
    """A server with `echo`, whose y are the first two columns of X and whose std is the third."""
    repository = tmp_path_factory.mktemp("repository")
    config = CONFIG.format(name="echo", instances=1).replace("max_batch_size: 16", "max_batch_size: 4096")
    write_model(repository, "echo", code=ECHO, config=config.replace("dims: 1", "dims: 2", 1))
    with triton_server([repository]) as server:
        yield server.grpc_url


@pytest.fixture(name="X")
def rows(tmp_path: Path) -> np.ndarray:
    """Finite float32 numbers of every size, subnormal ones too, in rows.npy."""
    bits = np.random.default_rng(0).integers(0, 2**32, size=(4 * ROWS, 3), dtype=np.uint32).view(np.float32)
    numbers = bits[np.isfinite(bits).all(axis=1)][:ROWS]
    np.save(tmp_path / "rows.npy", numbers)
    return numbers


def predict(url: str, folder: Path, *options: str) -> list[str]:
    command = [sys.executable, "-m", "triton_regressors", "predict", "echo", str(folder / "rows.npy"), "--url", url]
    return [*command, *options]


def test_a_pipe_gets_every_bit_as_csv(url: str, X: np.ndarray, tmp_path: Path) -> None:
    command = predict(url, tmp_path, "--outputs", "y,std")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    header, *lines = done.stdout.splitlines()
    assert header == "y_0,y_1,std"
    read = np.array([[float(cell) for cell in line.split(",")] for line in lines]).astype(np.float32)
    assert read.view(np.uint32).tolist() == X.view(np.uint32).tolist()
    by_pandas = pd.read_csv(io.StringIO(done.stdout), dtype=np.float32).to_numpy()
    assert by_pandas.view(np.uint32).tolist() == X.view(np.uint32).tolist()
    assert max(map(len, lines)) <= 3 * len("-1.23456789e-38") + 2, "no more digits than float32 has"


def test_a_reader_that_leaves_is_no_error(url: str, X: np.ndarray, tmp_path: Path) -> None:
    """The case is `predict | head -1`, with more rows than a pipe holds."""
    with running(predict(url, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() in (0, 1)


def test_a_terminal_gets_a_table(url: str, X: np.ndarray, tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    with running(predict(url, tmp_path), stdout=terminal, stderr=subprocess.PIPE, text=True) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                shown += os.read(controller, 4096)
            except OSError:  # how a terminal says that its last writer has gone
                break
        _, said = process.communicate()
    os.close(controller)
    assert "┃" in shown.decode()
    assert f"{X[9, 1]:.7g}" in shown.decode()
    assert said.strip() == "and 1,990 more rows; `> FILE.csv` or --output FILE has all."


@pytest.mark.parametrize("output", ["-", "answers.csv"])
def test_output_goes_where_it_is_told(
    url: str, X: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["predict", "echo", "rows.npy", "--url", url, "--outputs", "std", "-o", output]
    done = CliRunner().invoke(make_app(), arguments, catch_exceptions=False)
    assert done.exit_code == 0
    written = done.stdout if output == "-" else (tmp_path / output).read_text()
    assert pd.read_csv(io.StringIO(written), dtype=np.float32)["std"].to_list() == X[:, 2].tolist()
    if output == "-":
        assert done.stderr == ""
        assert not (tmp_path / "-").exists()
    else:
        assert done.stdout == ""
        assert done.stderr == "Wrote 2,000 rows to answers.csv.\n"


def test_refused_rows_are_empty_on_request_and_said(
    url: str, X: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    X[[3, 1500], 0] = -7
    np.save("rows.npy", X)
    arguments = ["predict", "echo", "rows.npy", "--url", url, "--outputs", "std", "-o", "-", "--errors"]
    assert CliRunner().invoke(make_app(), [*arguments, "stop"]).exit_code == 1
    done = CliRunner().invoke(make_app(), [*arguments, "row"], catch_exceptions=False)
    assert done.exit_code == 0
    found = pd.read_csv(io.StringIO(done.stdout), dtype=np.float32)["std"]
    assert np.flatnonzero(found.isna()).tolist() == [3, 1500]
    assert done.stderr.splitlines() == [
        "Refused: row 3 is odd.",
        "Refused: row 1500 is odd.",
        "2 of 2,000 rows were refused; their answers are nan.",
    ]


def test_a_word_in_a_column_of_numbers_is_its_rows_error(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [
        ["1", "2", "3"],
        ["four", "5", "6"],
        ["-7", "8", "9"],
        ["10", "", "12"],
        ["13", "14", "x,y"],
        ["1e300", "0", "0"],
    ]
    rows = pd.DataFrame(cells, columns=["a", "b", "c"])
    rows.to_csv("rows.csv", index=False)
    arguments = ["predict", "echo", "rows.csv", "--url", url, "--outputs", "std", "-o", "answers.csv", "--errors"]
    stopped = CliRunner().invoke(make_app(), [*arguments, "stop"])
    assert (stopped.exit_code, Path("answers.csv").exists()) == (1, False)
    done = CliRunner().invoke(make_app(), [*arguments, "row"], catch_exceptions=False)
    assert done.exit_code == 0
    assert pd.read_csv("answers.csv")["std"].fillna(-1).tolist() == [3, -1, -1, 12, -1, -1]
    assert done.stderr.splitlines()[:4] == [
        "Refused: Row 1 of column 'a' holds 'four', which is not a number.",
        "Refused: row 2 is odd.",
        "Refused: Row 4 of column 'c' holds 'x,y', which is not a number.",
        "Refused: X[5, 0] is 1e+300, beyond float32, whose largest value is about 3.4e38.",
    ]
    rows.iloc[[1, 4]].to_csv("rows.csv", index=False)
    assert CliRunner().invoke(make_app(), [*arguments, "row"]).exit_code == 1
