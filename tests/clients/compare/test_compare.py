"""`compare` against a real Triton server, with short windows: what it does, not how fast anything is."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from google.protobuf import text_format
from sklearn.linear_model import Ridge
from tritonclient.grpc import model_config_pb2
from typer.testing import CliRunner

from tests import documents
from tests.files import files
from tests.modes import bound_by_modes
from tests.processes import running
from tests.servers import triton_server
from triton_regressors import export_fleet
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.compare.batching import BatchingConfiguration
from triton_regressors.clients.compare.compare import compare
from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.figures.comparison import Comparison, IncompleteComparison
from triton_regressors.clients.compare.figures.results import Figures, Point
from triton_regressors.clients.compare.load import payloads
from triton_regressors.clients.compare.load.jobs import poisson_arrivals
from triton_regressors.clients.compare.report.charts import CHARTS
from triton_regressors.clients.compare.report.report import write_report
from triton_regressors.clients.compare.session.lock import lock_file, only_comparison
from triton_regressors.clients.compare.session.session import floor_name
from triton_regressors.clients.compare.session.signals import ENDINGS, deferred
from triton_regressors.clients.errors import InvalidRequest, RowsError, ServerUnavailable
from triton_regressors.clients.server.installation import Runtime
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.commands import compare as command

pytestmark = pytest.mark.server

MODEL = """
import sys
import time

import numpy as np
import triton_python_backend_utils as pb_utils

# numpy's DLPack capsules complain, harmlessly, about the name that the Python backend gives them after use.
sys.unraisablehook = lambda unraisable: None
WEIGHTS = np.array([[1.0, -1.0], [2.0, 0.5], [-3.0, 4.0]])


class TritonPythonModel:
    def execute(self, requests):
        time.sleep({sleep_s})
        rows = [np.from_dlpack(pb_utils.get_input_tensor_by_name(r, "X")) for r in requests]
        y = [(each.astype(np.float64) @ WEIGHTS).astype(np.float32) for each in rows]
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", each)]) for each in y]
"""

BROKEN = """
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("it is broken")
"""

CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 16
input {{ name: "X" data_type: TYPE_FP32 dims: 3 }}
output {{ name: "y" data_type: TYPE_FP32 dims: 2 }}
instance_group {{ kind: KIND_CPU count: 1 }}
dynamic_batching {{ max_queue_delay_microseconds: 50 }}
parameters {{ key: "engine" value {{ string_value: "torch" }} }}
parameters {{ key: "columns" value {{ string_value: '{{"X": ["a", "b", "c"]}}' }} }}
"""

NONE = BatchingConfiguration("none", dynamic_batching=False)
DELAY = BatchingConfiguration("delay", max_queue_delay_us=20_000)
QUICK = {"warmup_s": 0.2, "window_s": 0.2, "max_windows": 3, "client_processes": 1}


def write_entry(repository: Path, name: str, *, sleep_s: float = 0.0, wrong: float = 0.0) -> None:
    version = repository / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL.format(sleep_s=sleep_s))
    (version.parent / "config.pbtxt").write_text(CONFIG.format(name=name))
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    y = X.astype(np.float64) @ np.array([[1.0, -1.0], [2.0, 0.5], [-3.0, 4.0]])
    documents.write_golden(version, X, y=y + wrong)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("repository")
    write_entry(directory, "linear")
    write_entry(directory, "slow", sleep_s=0.05)
    write_entry(directory, "wrong", wrong=0.01)
    write_entry(directory, "broken")
    (directory / "broken" / "1" / "model.py").write_text(BROKEN)
    return directory


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[TritonServer]:
    with triton_server([repository], models=["linear", "slow", "wrong"]) as running:
        yield running


RunCommand = Callable[..., Any]


@pytest.fixture
def run_command(tmp_path: Path) -> RunCommand:
    """run_command(*options): the command's result for `linear`, two configurations, one client, and a quick look."""
    app = typer.Typer()
    app.command()(command.compare)
    (tmp_path / "two.toml").write_text(
        "[[configuration]]\nlabel = 'none'\ndynamic_batching = false\n"
        "[[configuration]]\nlabel = 'delay'\nmax_queue_delay_us = 20000\n"
    )
    quick = ["--warmup-s", "0.1", "--window-s", "0.2", "--max-windows", "2", "-c", "1", "--client-processes", "1"]
    quick += ["--configurations", str(tmp_path / "two.toml"), "--output", str(tmp_path / "report")]

    def run(*options: str) -> Any:
        result = CliRunner().invoke(app, ["linear", *quick, *options])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def batches(point: Point) -> dict[int, int]:
    return dict(point.model.server.executions_per_batch_size)


@pytest.fixture(scope="module")
def finished(server: TritonServer, repository: Path) -> Comparison:
    """Two configurations over both protocols, with everything that must hold around it."""
    before = files(repository)
    with Client(server.grpc_url) as client:
        original = client.config("linear")
        comparison = compare(
            "linear",
            repository,
            (NONE, DELAY),
            concurrency=(8,),
            protocols=("grpc", "http"),
            url=server.grpc_url,
            http_url=server.http_url,
            **QUICK,
        )
        assert files(repository) == before, "no file of the repository changed"
        assert client.config("linear") == original, "the original configuration is back"
        assert client.ready("linear")
        assert not client.ready(floor_name("linear")), "the do-nothing model is gone"
    assert server.running
    return comparison


def test_batching_is_really_on_and_off(finished: Comparison) -> None:
    assert len(finished.points) == finished.planned == 4
    for point in finished.points:
        if point.configuration == NONE:
            assert set(batches(point)) == {1}
        else:
            assert max(batches(point)) > 1
            assert max(batches(point)) <= 8, "not more than the clients have outstanding"
            assert point.model.server.queue_ms > 0


def test_every_point_is_complete(finished: Comparison) -> None:
    for point in finished.points:
        assert point.floor is not None
        for figures in (point.model, point.floor):
            assert not figures.errors
            assert figures.requests > 0
            assert figures.requests_per_s == pytest.approx(figures.requests / 0.6, rel=1e-6)
            assert figures.answers_checked > 0
            assert 0 < figures.latency.p50_ms <= figures.latency.p99_ms <= figures.latency.max_ms
            assert figures.server.compute_ms > 0
            assert sum(figures.server.executions_per_batch_size.values()) > 0
            assert figures.client_cpu_share > 0
            assert len(figures.windows) == 3
            check_time_under_way(figures, clients=8, windows_s=0.6)


def check_time_under_way(figures: Figures, clients: int, windows_s: float) -> None:
    """Clients whose requests follow one another have them under way for no longer than the windows last.

    A client's first request that ended in the windows may have begun before them, and took no longer than the longest.
    Nothing bounds the time from below: the system may halt a client between two requests.
    """
    under_way_ms = figures.latency.mean_ms * figures.requests
    assert under_way_ms <= clients * (1000 * windows_s + figures.latency.max_ms) * (1 + 1e-9)


def test_report_of_a_real_run(finished: Comparison, tmp_path: Path) -> None:
    page = write_report(finished, tmp_path)[0].read_text()
    assert {path.name for path in tmp_path.iterdir()} == {
        "report.html",
        "points.csv",
        "comparison.json",
        *(f"{chart.name}.png" for chart in CHARTS),
    }
    assert not re.findall(r"https?://", page)
    document = json.loads((tmp_path / "comparison.json").read_text())
    assert document["environment"]["client_cores"] >= 1
    assert re.fullmatch(r"\d+\.\d+\.\d+", document["environment"]["triton_server"])
    assert finished.measured_on().startswith("version 1, engine torch, on CPU, Triton server ")
    for name in ("processor", "torch", "triton_language"):
        assert document["environment"][name] is None, "a server that was not started here says nothing of it"
    assert document["settings"]["window_s"] == 0.2
    assert [point["configuration"]["label"] for point in document["points"]] == ["none", "none", "delay", "delay"]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_one_client(server: TritonServer, repository: Path, protocol: str) -> None:
    """Its requests block the worker, which must end its windows in time all the same."""
    comparison = compare(
        "linear",
        repository,
        (NONE,),
        (1,),
        protocols=(protocol,),
        url=server.grpc_url,
        http_url=server.http_url,
        **{**QUICK, "window_s": 0.3},
    )
    (point,) = comparison.points
    for figures in (point.model, point.floor):
        assert figures is not None
        assert not figures.errors
        assert figures.answers_checked > 0
        assert figures.requests_per_s == pytest.approx(figures.requests / 0.9, rel=1e-6)
        assert set(figures.server.executions_per_batch_size) == {1}
        check_time_under_way(figures, clients=1, windows_s=0.9)


def test_one_client_of_a_model_slower_than_the_windows(server: TritonServer, repository: Path) -> None:
    comparison = compare(
        "slow", repository, (NONE,), (1,), url=server.grpc_url, floor=False, **{**QUICK, "window_s": 0.02}
    )
    (point,) = comparison.points
    assert len(point.model.windows) == 3
    assert not point.model.errors
    assert not point.model.stable


def test_a_server_that_loads_models_only_for_holders_of_its_key(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(repository / "linear", tmp_path / "linear")
    with triton_server([tmp_path], admin_key="f00d") as restricted:
        url = restricted.grpc_url.replace("127.0.0.1", "localhost")  # as another process has it, without the key
        options = {**QUICK, "max_windows": 1, "url": url}
        monkeypatch.delenv("TRITON_ADMIN_KEY", raising=False)
        with pytest.raises(InvalidRequest, match="set \\$TRITON_ADMIN_KEY"):
            compare("linear", tmp_path, (NONE,), (2,), **options)
        monkeypatch.setenv("TRITON_ADMIN_KEY", "f00d")
        (point,) = compare("linear", tmp_path, (NONE,), (2,), **options).points
        assert not point.model.errors
        assert point.floor is not None


def test_rows_of_a_wider_table_are_taken_by_name(server: TritonServer, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("c,id,a,b\n3,77,1,2\n6,78,4,5\n")
    options = {**QUICK, "max_windows": 1, "url": server.grpc_url, "rows_file": tmp_path / "rows.csv", "floor": False}
    (point,) = compare("linear", None, (NONE,), (2,), **options).points
    assert not point.model.errors
    (tmp_path / "rows.csv").write_text("c,id,a\n3,77,1\n")
    with pytest.raises(RowsError, match="lacks column 'b'"):
        compare("linear", None, (NONE,), (2,), **options)


def test_a_fleet_is_asked_as_clients_ask_it(
    server: TritonServer, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and ids are one tensor, for the do-nothing model too."""
    X, y = np.random.default_rng(0).normal(size=(2, 20, 3))
    export_fleet({name: Ridge(alpha).fit(X, y[:, 0]) for name, alpha in ((3, 1), (7, 9))}, repository, name="fleet")
    sent = set()
    for name in ("_grpc_request", "_http_request"):
        make = getattr(payloads, name)
        monkeypatch.setattr(
            payloads, name, lambda *given, make=make: (sent.add((given[0], *given[2])), make(*given))[1]
        )
    with Client(server.grpc_url) as client:
        client.load("fleet")
        options = {**QUICK, "url": server.grpc_url, "http_url": server.http_url, "protocols": ("grpc", "http")}
        for point in compare("fleet", repository, (NONE,), (2,), **options).points:
            assert not point.model.errors
            assert point.floor is not None
            assert not point.floor.errors
        client.unload("fleet")
    assert sent == {(name, "X_id_FP32x3_INT64") for name in ("fleet", floor_name("fleet"))}


def test_wrong_answers_are_errors(server: TritonServer, repository: Path) -> None:
    comparison = compare(
        "wrong", repository, (NONE,), (4,), url=server.grpc_url, floor=False, **{**QUICK, "max_windows": 1}
    )
    (point,) = comparison.points
    wrong = "wrong answer: values differ from the expected ones"
    assert point.model.errors == {wrong: point.model.answers_checked}
    with pytest.raises(ComparisonError, match="without errors"):
        comparison.best()


def test_an_open_loop_within_capacity_offers_its_rate(server: TritonServer, repository: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(1).normal(size=(5, 3)))
    comparison = compare(
        "linear",
        None,
        (DELAY,),
        rate=200,
        rows=(2,),
        protocols=("http",),
        http_url=server.http_url,
        rows_file=tmp_path / "rows.npy",
        floor=False,
        seed=3,
        **{**QUICK, "window_s": 0.5},
    )
    (point,) = comparison.points
    assert not point.model.errors
    assert point.model.answers_checked > 0
    # All requests due in the 1.5 s after the warm-up, and no others. The number answered in that time depends on the
    # machine: at most the number due until then.
    due = list(itertools.takewhile(lambda at: at < 1.7, poisson_arrivals(200, (3, 0))))
    assert point.model.requests == len([at for at in due if at >= 0.2])
    assert 0 < point.model.requests_per_s * 1.5 <= len(due) + 1e-6
    assert point.model.rows_per_s == 2 * point.model.requests_per_s
    assert point.model.latency.max_ms >= 20, "the first of a batch waits for the whole queue delay"


def test_an_open_loop_beyond_capacity_does_not_hide_the_queue(server: TritonServer, repository: Path) -> None:
    """One execution of 50 ms at a time answers 20 requests/s; 80 arrive, so waiting grows without end."""
    comparison = compare(
        "slow", repository, (NONE,), rate=80, url=server.grpc_url, floor=False, **{**QUICK, "window_s": 0.4}
    )
    (point,) = comparison.points
    assert point.model.requests_per_s * 1.2 <= 20 * 1.2 + 1, "one execution after another"
    due = [at for at in itertools.takewhile(lambda at: at < 1.4, poisson_arrivals(80, (0, 0))) if at >= 0.2]
    assert point.model.requests == len(due), "those that were due are counted, not those answered"
    assert point.model.latency.p50_ms > 500
    assert not point.model.stable


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError, ServerUnavailable])
def test_what_ends_it_early_restores_the_model(
    server: TritonServer, repository: Path, failure: type[BaseException]
) -> None:
    def stop(point: Point) -> None:
        raise failure("gone for a moment")

    with Client(server.grpc_url) as client:
        original = client.config("linear")
        options = {**QUICK, "max_windows": 1, "on_point": stop, "url": server.grpc_url}
        if failure is KeyboardInterrupt:
            comparison = compare("linear", repository, (DELAY, NONE), (1,), **options)
            assert comparison.interrupted
            assert [point.configuration for point in comparison.points] == [DELAY]
            assert "Interrupted: 1 of 2" in comparison.warnings()[0]
        elif failure is ServerUnavailable:
            with pytest.raises(IncompleteComparison, match="gone for a moment") as caught:
                compare("linear", repository, (DELAY, NONE), (1,), **options)
            assert isinstance(caught.value.__cause__, ServerUnavailable)
            assert [point.configuration for point in caught.value.partial.points] == [DELAY]
        else:
            with pytest.raises(RuntimeError):
                compare("linear", repository, (DELAY, NONE), (1,), **options)
        assert client.config("linear") == original
        assert not client.ready(floor_name("linear"))


def test_a_model_that_dies_half_way(server: TritonServer, repository: Path, tmp_path: Path) -> None:
    """The measured points are reported, and a dead model is not asked repeatedly."""

    def kill(point: Point) -> None:
        for stub in processes("backend_stub"):
            if f"{repository}/linear/" in command_line(stub):
                os.kill(stub, signal.SIGKILL)

    with Client(server.grpc_url) as client:
        original = client.config("linear")
        options = {**QUICK, "floor": False, "url": server.grpc_url, "on_point": kill}
        with pytest.raises(IncompleteComparison) as caught:
            compare("linear", repository, (NONE,), (1, 2, 3), **options)
        assert client.config("linear") == original
        client.unload("linear")
        client.load("linear")
    partial = caught.value.partial
    assert [point.load.concurrency for point in partial.points] == [1]
    assert re.match(
        r"Model 'linear' answers requests only with errors \(none, 2 clients, .*\): .*[Ss]tub", partial.failure
    )
    assert partial.warnings()[0].startswith("Ended by an error (Model 'linear' answers requests only with errors")
    assert write_report(partial, tmp_path)[0].name == "report.html"


def processes(name: str) -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if name in command_line(int(path.name))]


def command_line(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:  # it has ended
        return ""


def test_a_model_that_answers_nothing(server: TritonServer, tmp_path: Path, repository: Path) -> None:
    with Client(server.grpc_url) as client:
        client.load("broken")
    says = r"'broken' answers requests only with errors \(none, 1 client, .*it is broken"  # the first of many points
    measured: list[Point] = []
    with pytest.raises(ComparisonError, match=says) as caught:
        compare("broken", repository, url=server.grpc_url, warmup_s=0.2, window_s=0.2, on_point=measured.append)
    assert not isinstance(caught.value, IncompleteComparison)
    assert measured == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_put_the_model_back(
    server: TritonServer, repository: Path, run_command: RunCommand, tmp_path: Path, number: int, code: int
) -> None:
    handlers = [signal.getsignal(each) for each in ENDINGS]
    main = threading.main_thread().ident
    assert main is not None

    def end_at_the_second_configuration() -> None:
        with Client(server.grpc_url) as client:
            while client.config("linear").dynamic_batching.max_queue_delay_microseconds != 20_000:
                time.sleep(0.01)
        for each in (number, signal.SIGINT, number):  # and again, from who does not wait
            signal.pthread_kill(main, each)
            time.sleep(0.1)

    with Client(server.grpc_url) as client, ThreadPoolExecutor(1) as thread:
        original = client.config("linear")
        ended = thread.submit(end_at_the_second_configuration)
        result = run_command("--url", server.grpc_url, "--repository", str(repository), "--no-floor")
        ended.result()
        assert client.config("linear") == original
        assert not client.ready(floor_name("linear"))
    assert result.exit_code == code
    assert "Interrupted: 1 of 2 points were measured." in result.output
    assert (tmp_path / "report" / "report.html").is_file()
    assert [signal.getsignal(each) for each in ENDINGS] == handlers


def test_a_signal_while_the_model_is_put_back_waits() -> None:
    done = []

    def put_back() -> None:
        with deferred():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        put_back()
    assert done
    with ThreadPoolExecutor(1) as thread:  # a library's user may be anywhere
        thread.submit(deferred().__enter__).result()


def test_one_comparison_of_a_model_at_a_time(server: TritonServer, repository: Path) -> None:
    port = server.grpc_url.rpartition(":")[2]
    options = {**QUICK, "max_windows": 1, "floor": False}
    refusals = []

    def again(point: Point) -> None:
        with pytest.raises(ComparisonError, match=r"Another comparison of model 'linear' at localhost:.* is running"):
            compare("linear", repository, (DELAY,), (1,), url=f"localhost:{port}", **options)
        refusals.append(point)

    compare("linear", repository, (NONE,), (1,), url=server.grpc_url, on_point=again, **options)
    assert len(refusals) == 1


def test_a_comparison_that_was_killed_is_not_running() -> None:
    code = (
        "import time; from triton_regressors.clients.compare.session.lock import only_comparison as lock\n"
        "with lock('m', ['127.0.0.1:1']): print('locked', flush=True); time.sleep(600)"
    )
    with running([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(ComparisonError, match="Another"), only_comparison("m", ["[::1]:2", "[::1]:1"]):
            pass
        with only_comparison("another", ["127.0.0.1:1"]), only_comparison("m", ["127.0.0.1:2"]):
            holder.kill()
            holder.wait()
    with only_comparison("m", ["localhost:1"]):
        assert lock_file("m", "127.0.0.1:1").exists()
    assert not lock_file("m", "127.0.0.1:1").exists()


@pytest.mark.parametrize("place", ["report is a file", "report inside a file", "report", "entry"])
def test_where_nothing_can_be_written_nothing_is_measured(
    server: TritonServer, repository: Path, run_command: RunCommand, tmp_path: Path, place: str
) -> None:
    shutil.copytree(repository / "linear", tmp_path / "models" / "linear")
    options = ["--url", server.grpc_url, "--repository", str(tmp_path / "models"), "--apply"]
    report = tmp_path / "report"
    if place == "report is a file":
        report.write_text("")
    elif place == "report inside a file":
        (tmp_path / "file").write_text("")
        options += ["--output", str(tmp_path / "file" / "report")]
    locked = {"report": tmp_path, "entry": tmp_path / "models" / "linear"}.get(place, report.parent)
    mode = locked.stat().st_mode
    if place in ("report", "entry"):
        locked.chmod(0o500)
    with Client(server.grpc_url) as client, bound_by_modes():
        before = client.statistics("linear")
        try:
            with pytest.raises(ComparisonError, match=r"^Nothing can be written into .*: (Not a d|Permission denied)"):
                run_command(*options)
        finally:
            locked.chmod(mode)
        assert client.statistics("linear") == before


def test_ctrl_c_while_python_imports_is_quiet() -> None:
    code = """
import runpy, signal, sys

class CtrlC:
    def find_spec(self, name, *_):
        if name == "tritonclient":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
sys.argv = ["triton-regressors", "compare", "linear"]
runpy.run_module("triton_regressors", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": (17,)}, "17 rows a request are more than max_batch_size 16"),
        (
            {"configurations": (BatchingConfiguration("x", preferred_batch_sizes=(32,)),)},
            "32, which is more than max_batch_size 16",
        ),
        ({"protocols": ("http",)}, "give --http-url HOST:PORT"),
        ({"protocols": ("udp",)}, "Unknown protocol 'udp'; accepted: grpc, http"),
        ({"concurrency": (0,)}, "concurrency is .0.; accepted: one or more numbers above 0"),
        ({"url": "somewhere"}, "--url is 'somewhere'; accepted: HOST:PORT"),
        ({"url": None}, "There is no model 'linear' in .*; it holds other"),
        ({"window_s": 0}, "window_s is 0; accepted: a number above 0"),
        ({"client_processes": 0}, "client_processes is 0"),
        ({"p99_ms": 0.0}, "The p99 limit is 0.0 ms; accepted: a number above 0"),
        ({"generator": "wrk"}, "Unknown generator 'wrk'; accepted: builtin, perf_analyzer"),
        ({"repository": None}, "There are no rows to send for 'linear': no repository is given; give --rows-file"),
    ],
)
def test_bad_arguments_name_what_is_accepted(
    server: TritonServer, tmp_path: Path, arguments: dict[str, object], message: str
) -> None:
    (tmp_path / "other").mkdir()
    options: dict[str, object] = {"repository": tmp_path, "url": server.grpc_url, "configurations": (NONE,), **QUICK}
    with pytest.raises(ComparisonError, match=message):
        compare("linear", **{**options, **arguments})  # type: ignore[arg-type]


def test_command_starts_a_server_and_applies_the_choice(repository: Path, tmp_path: Path) -> None:
    shutil.copytree(repository / "linear", tmp_path / "models" / "linear")
    shutil.copytree(repository / "wrong", tmp_path / "models" / "broken")
    (tmp_path / "models" / "broken" / "1" / "model.py").write_text("this is no model")  # must not get in the way
    toml = tmp_path / "set.toml"
    toml.write_text("[[configuration]]\nlabel = 'two'\nmax_queue_delay_us = 300\ninstances = 2\n")
    app = typer.Typer()
    app.command()(command.compare)
    config_file = tmp_path / "models" / "linear" / "config.pbtxt"
    before = config_file.read_text()
    options = ["--apply", "--p99-ms", "10000", "--output", str(tmp_path / "report")]
    options += ["--warmup-s", "0.1", "--window-s", "1", "--max-windows", "20", "--configurations", str(toml)]
    options += ["--stability", "1e9"]  # a busy machine's figures are stable too, if every window has an answer
    result = CliRunner().invoke(
        app,
        ["linear", "--repository", str(tmp_path / "models"), "-c", "2", *options],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        "Measuring 1 configuration under 1 load, each beside a do-nothing model: this takes 6 to 40 seconds, and "
        "loading takes further time.\n"
    ), "progress is for terminals"
    assert "Highest throughput with p99 within 10000 ms: 'two'" in result.output
    assert (tmp_path / "report" / "report.html").is_file()
    found = json.loads((tmp_path / "report" / "comparison.json").read_text())["environment"]
    assert (found["torch"], found["triton_language"]) == (version("torch"), version("triton"))
    assert re.search(r"linear: version 1, engine torch, on CPU \(.+, \d+ cores\), Triton server .*torch", result.output)
    expected = text_format.Parse(before, model_config_pb2.ModelConfig())
    expected.dynamic_batching.max_queue_delay_microseconds = 300
    expected.instance_group[0].count = 2
    assert text_format.Parse(config_file.read_text(), model_config_pb2.ModelConfig()) == expected


class UncontrolledServer(TritonServer):
    """A Triton server that loads everything at its start and nothing later."""

    def _command(self, runtime: Runtime, paths: Sequence[Path], control: Sequence[str]) -> list[str]:
        assert "--model-control-mode=explicit" in control
        kept = [option for option in control if not option.startswith("--load-model")]
        none = [option.replace("control-mode=explicit", "control-mode=none") for option in kept]
        return super()._command(runtime, paths, none)


def test_server_that_refuses_other_configurations(repository: Path, tmp_path: Path) -> None:
    shutil.copytree(repository / "linear", tmp_path / "linear")
    with (
        UncontrolledServer([tmp_path]) as fixed,
        pytest.raises(ComparisonError, match=r"start it with --model-control-mode=explicit --load-model=linear"),
    ):
        compare("linear", repository, (NONE,), (1,), url=fixed.grpc_url, **QUICK)
