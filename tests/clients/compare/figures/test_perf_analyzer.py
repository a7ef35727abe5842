import base64
import json
from pathlib import Path

import numpy as np
import pytest

from triton_regressors.clients.client.tensors import text_rows
from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.figures import perf_analyzer
from triton_regressors.clients.compare.figures.measurement import Settings
from triton_regressors.clients.compare.figures.statistics import ServerCounters
from triton_regressors.clients.compare.load.generator import Load
from triton_regressors.clients.compare.load.payloads import CheckedRows

TENSORS = {"X": np.arange(6, dtype=np.float32).reshape(2, 3), "cat": text_rows([["a"], ["Köln"]], "cat")}

# The layout of perf_analyzer's report writer; "Inferences/Second" counts rows.
REPORT = """\
Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,\
Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency
8,12000.5,1,220,95,14,180,9,2,500,700,900,1400
"""

# The layout of its profile data exporter; times in ns since 1970. The report covers the last 3 of the 4 windows.
PROFILE = {
    "experiments": [
        {
            "experiment": {"mode": "concurrency", "value": 8},
            "requests": [
                {"timestamp": 1700000000000000000, "response_timestamps": [1700000000090000000]},
                {"timestamp": 1700000001000000000, "response_timestamps": [1700000001001000000]},
                {"timestamp": 1700000003000500000, "response_timestamps": [1700000003003500000]},
                {"timestamp": 1700000003000600000, "response_timestamps": []},
            ],
            "window_boundaries": [1700000000 * 10**9 + second * 10**9 for second in range(5)],
        }
    ],
    "version": "2.60.0",
    "service_kind": "triton",
    "endpoint": "",
}

# A stand-in for the program: it takes the real command line, and does not overwrite a file. Like the program, it gives
# no result if the windows differ too much.
PROGRAM = """#!/bin/sh
set -e
while [ $# -gt 0 ]; do
  case "$1" in
    -f) report=$2 ;;
    --profile-export-file) test ! -e "$2"; profile=$2 ;;
    --input-data) test -s "$2" ;;
    --stability-percentage) allowed=$2 ;;
    --measurement-interval) window_ms=$2 ;;
  esac
  shift
done
echo "$allowed" >> "{source}/runs"
if [ "$allowed" -lt {differs} ]; then
  echo "Failed to obtain stable measurement within 8 measurement windows for concurrency 8." >&2
  echo "Failed to obtain stable measurement." >&2
  exit 2
fi
{says}
cp "{source}/latency.csv" "$report"
cp "{source}/profile.json" "$profile"
"""


def test_command_line_of_the_closed_loop() -> None:
    line = perf_analyzer.command(
        Path("pa"), "m", TENSORS, Load("grpc", 4, concurrency=16), "h:1", Settings(window_s=0.5), Path("/d")
    )
    text = " ".join(line)
    for expected in (
        "-m m",
        "-u h:1",
        "-i grpc",
        "-b 4",
        "--shape X:3 --shape cat:1 --input-data",
        "--concurrency-range 16",
    ):
        assert expected in text
    assert "--measurement-interval 500" in text
    assert "--stability-percentage 20" in text, "10 % to either side of the mean"
    assert "--max-trials 8" in text
    assert "request-rate" not in text
    assert "--async" not in text


def test_command_line_that_takes_any_result() -> None:
    load, settings = Load("grpc", 1, concurrency=64), Settings(max_windows=1)
    line = perf_analyzer.command(Path("pa"), "m", TENSORS, load, "h:1", settings, Path("/d"), any_result=True)
    text = " ".join(line)
    assert "--stability-percentage 1000000 " in text
    assert "--max-trials 3" in text, "fewer windows are never stable"
    assert "--async" in text


def test_command_line_of_the_open_loop() -> None:
    line = perf_analyzer.command(Path("pa"), "m", TENSORS, Load("http", 1, rate=250.0), "h:1", Settings(), Path("/d"))
    assert line[-5:] == ["--async", "--request-distribution", "poisson", "--request-rate-range", "250"]


def test_input_data_are_the_rows() -> None:
    data = perf_analyzer.input_data(TENSORS)["data"]
    decoded = [np.frombuffer(base64.b64decode(row["X"]["content"]["b64"]), "<f4") for row in data]
    assert np.array_equal(decoded, TENSORS["X"])
    assert data[0]["X"]["shape"] == [3]
    strings = [base64.b64decode(row["cat"]["content"]["b64"]) for row in data]
    assert strings == [b"\x01\0\0\0a", b"\x05\0\0\0K\xc3\xb6ln"], "each with its length before it"
    assert data[1]["cat"]["shape"] == [1]


def test_parsing() -> None:
    assert perf_analyzer.rows_per_s(REPORT) == 12000.5
    assert perf_analyzer.latencies_s(PROFILE) == pytest.approx([0.001, 0.003])
    assert perf_analyzer.latencies_s({"experiments": []}).size == 0
    with pytest.raises(ComparisonError, match="without the column 'Inferences/Second'"):
        perf_analyzer.rows_per_s("a,b\n1,2\n")


def stand_in(tmp_path: Path, text: str, differs: int = 0, says: str = "") -> Path:
    (tmp_path / "latency.csv").write_text(REPORT)
    (tmp_path / "profile.json").write_text(json.dumps(PROFILE))
    program = tmp_path / "perf_analyzer"
    program.write_text(text.format(source=tmp_path, differs=differs, says=says))
    program.chmod(0o755)
    return program


def measured(program: Path) -> perf_analyzer.Figures:
    counters = iter(ServerCounters(10 * n, 20_000_000 * n, executions={4: 5 * n}) for n in range(4))
    rows = CheckedRows(TENSORS, np.zeros((2, 1)), 0.0)
    load = Load("grpc", 4, concurrency=8)
    return perf_analyzer.measure_load(program, "m", rows, load, "h:1", lambda: next(counters), Settings())


def test_figures_of_a_run(tmp_path: Path) -> None:
    found = measured(stand_in(tmp_path, PROGRAM))
    assert (found.rows_per_s, found.requests_per_s) == (12000.5, 12000.5 / 4)
    assert (found.latency.p50_ms, found.latency.max_ms) == pytest.approx((2.0, 3.0))
    assert found.server.queue_ms == pytest.approx(2.0)
    assert found.requests == 2
    assert found.stable
    assert (tmp_path / "runs").read_text().split() == ["20"]


def test_a_run_that_is_not_stable_is_repeated_and_marked(tmp_path: Path) -> None:
    found = measured(stand_in(tmp_path, PROGRAM, differs=30))
    assert not found.stable
    assert found.rows_per_s == 12000.5
    assert (tmp_path / "runs").read_text().split() == ["20", "1000000"]
    assert found.server.executions_per_batch_size == {4: 5}, "of the run that is reported alone"


def test_a_run_that_agrees_in_throughput_alone_is_marked(tmp_path: Path) -> None:
    says = "echo 'Warning: Request latency is not stabilizing. Please try lowering the request rate.' >&2"
    assert not measured(stand_in(tmp_path, PROGRAM, says=says)).stable


def test_a_run_that_no_tolerance_helps_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ComparisonError, match="status 2 and no report: Failed to obtain stable measurement"):
        measured(stand_in(tmp_path, PROGRAM, differs=10**9))
    assert len((tmp_path / "runs").read_text().split()) == 2


@pytest.mark.parametrize(("longest_answer_ms", "runs"), [(900, 1), (3000, 2), (15_000, 3)])
def test_windows_that_held_no_answer_are_made_longer(tmp_path: Path, longest_answer_ms: int, runs: int) -> None:
    says = f"""if [ "$window_ms" -lt {longest_answer_ms} ]; then
  echo 'No valid requests recorded within time interval. Please use a larger time window.' >&2
  exit 3
fi"""
    found = measured(stand_in(tmp_path, PROGRAM, says=says))
    assert found.stable
    assert len((tmp_path / "runs").read_text().split()) == runs


def test_windows_are_not_made_longer_for_ever(tmp_path: Path) -> None:
    says = "echo 'No valid requests recorded within time interval.' >&2; exit 3"
    with pytest.raises(ComparisonError, match="status 3 and no report: No valid requests recorded"):
        measured(stand_in(tmp_path, PROGRAM, says=says))
    assert len((tmp_path / "runs").read_text().split()) == 3


def test_a_run_that_fails_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    program = stand_in(tmp_path, "#!/bin/sh\necho 'failed to create client: no route' >&2\nexit 99\n")
    with pytest.raises(ComparisonError, match="status 99 and no report: failed to create client: no route"):
        measured(program)


def test_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(perf_analyzer.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ComparisonError, match="pip install perf-analyzer"):
        perf_analyzer.find()
    program = stand_in(tmp_path, PROGRAM)
    assert perf_analyzer.find() == program


def test_rows_with_nan_are_left_out() -> None:
    X = np.array([[1, 2], [np.nan, 3], [4, 5]], dtype=np.float64)
    kept, alone = (perf_analyzer.input_data({"X": rows})["data"] for rows in (X, X[1:2]))
    assert [np.frombuffer(base64.b64decode(row["X"]["content"]["b64"])).tolist() for row in kept] == [[1, 2], [4, 5]]
    assert len(alone) == 1
