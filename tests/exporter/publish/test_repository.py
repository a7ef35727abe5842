"""Exports at the same moment, exports that are killed, and what directories of versions are called."""

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tests.processes import running
from triton_regressors import ExportError, export
from triton_regressors.clients.client.tensors import input_tensors
from triton_regressors.exporter.publish import repository as repositories
from triton_regressors.exporter.publish.repository import STAGING
from triton_regressors.kernels.entry import find_entry, read_document, versions
from triton_regressors.model_config import from_pbtxt

X = np.random.default_rng(0).standard_normal((40, 3))
y = X @ [1.0, -2.0, 3.0]
MODEL = Ridge().fit(X, y)


def leftovers(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob(STAGING + "*"))


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> int:
    """Holds so many exports back where each has written its files, and lets them go on together."""
    count = 6
    barrier = threading.Barrier(count)
    write = repositories.write_version

    def waiting(*arguments: object) -> None:
        write(*arguments)  # type: ignore[arg-type]
        barrier.wait()

    monkeypatch.setattr(repositories, "write_version", waiting)
    return count


@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
def test_exports_at_once_each_take_a_number(tmp_path: Path, together: int, existing: bool) -> None:
    if existing:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Barrier, "wait", lambda *_: None)
            export(MODEL, tmp_path / "models", name="model")
    with ThreadPoolExecutor(together) as threads:
        futures = [threads.submit(export, MODEL, tmp_path / "models", name="model", instances=n + 1) for n in range(6)]
        numbers = sorted(future.result().entry.version for future in futures)
    assert numbers == [existing + n for n in range(1, together + 1)]
    directory = tmp_path / "models" / "model"
    assert versions(directory) == list(range(1, together + existing + 1))
    for number in versions(directory):
        read_document(directory / str(number))
    assert (directory / "config.pbtxt").is_file()
    assert leftovers(tmp_path) == []


def test_of_two_new_entries_at_once_the_second_must_have_the_firsts_interface(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = LinearRegression().fit(X[:, :2], y)
    write = repositories.write_version

    def overtaken(*arguments: object) -> None:
        monkeypatch.setattr(repositories, "write_version", write)
        write(*arguments)  # type: ignore[arg-type]
        export(other, tmp_path / "models", name="model")

    monkeypatch.setattr(repositories, "write_version", overtaken)
    with pytest.raises(
        ExportError, match=r"^The entry 'model' exists with input X FP32 \[2\] .* this model has input X FP32 \[3\]"
    ):
        export(MODEL, tmp_path / "models", name="model")
    assert versions(tmp_path / "models" / "model") == [1]
    assert leftovers(tmp_path) == []


KILLED = """
import signal, sys
import numpy as np
from sklearn.linear_model import Ridge
from triton_regressors import export
from triton_regressors.exporter.publish import repository

write = repository.write_version

def stopping(*arguments):
    write(*arguments)
    print(signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGHUP) != signal.SIG_DFL, flush=True)
    sys.stdin.read()

repository.write_version = stopping
X = np.eye(3)
export(Ridge().fit(X, X[:, 0]), sys.argv[1], name="model")
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name)
def test_what_a_killed_export_leaves(tmp_path: Path, number: signal.Signals) -> None:
    """Nothing after TERM and HUP; after KILL the next export removes it, and nothing of an export that still runs."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "models")]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        unfinished = leftovers(tmp_path)
        assert len(unfinished) == 1
        export(MODEL, tmp_path / "models", name="other")
        assert leftovers(tmp_path) == unfinished
        process.send_signal(number)
        assert process.wait() == -number
    assert leftovers(tmp_path) == (unfinished if number == signal.SIGKILL else [])
    export(MODEL, tmp_path / "models", name="other")
    assert leftovers(tmp_path) == []
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["other"]


def test_a_killed_export_into_a_mounted_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing can be written beside the repository, leftovers lie inside it."""
    stale = tmp_path / "models" / f"{STAGING}stale"
    (stale / "entry" / "1").mkdir(parents=True)
    living = tmp_path / "models" / f"{STAGING}living"
    living.mkdir()
    (tmp_path / "models" / f"{STAGING}link").symlink_to(living)
    descriptor = os.open(living, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    monkeypatch.setattr(repositories.os, "access", lambda *_: False)
    export(MODEL, tmp_path / "models", name="model")
    assert leftovers(tmp_path) == [f"{STAGING}link", f"{STAGING}living"]
    os.close(descriptor)
    export(MODEL, tmp_path / "models", name="model")
    assert leftovers(tmp_path) == [f"{STAGING}link"]


def test_a_signal_that_the_program_handles_stays_its_own(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        export(MODEL, tmp_path, name="model")
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    export(MODEL, tmp_path, name="model")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("name", ["²", "١", "9" * 20, "007"])
def test_a_directory_that_is_no_version_takes_no_number(tmp_path: Path, name: str) -> None:
    directory = export(MODEL, tmp_path, name="model").entry.directory
    (directory / name).mkdir()
    assert export(MODEL, tmp_path, name="model").entry.version == 2
    assert find_entry(directory).version == 2


def test_after_the_last_number(tmp_path: Path) -> None:
    directory = export(MODEL, tmp_path, name="model").entry.directory
    (directory / "1").rename(directory / str(2**63 - 1))
    with pytest.raises(
        ExportError, match=r"model has version 9223372036854775807, which is the largest; choose another name\.$"
    ):
        export(MODEL, tmp_path, name="model")


@pytest.mark.parametrize("length", [256, 5000])
def test_a_name_that_is_too_long(tmp_path: Path, length: int) -> None:
    with pytest.raises(
        ExportError, match=rf"^The name n{{20}}\.\.\. has {length} characters; at most 255 are possible\.$"
    ):
        export(MODEL, tmp_path, name="n" * length)
    assert export(MODEL, tmp_path, name="n" * 255).entry.version == 1


def test_a_repository_whose_path_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"^Cannot look into the repository .*File name too long"):
        export(MODEL, tmp_path / ("n" * 300), name="model")


def test_a_config_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    config = export(MODEL, tmp_path, name="model").entry.directory / "config.pbtxt"
    config.unlink()
    config.symlink_to("/proc/self/mem")  # a file that not even root can read from its start
    assert stat.S_ISREG(config.stat().st_mode)
    with pytest.raises(ExportError, match=rf"^Cannot read {config}: \[Errno 5\] Input/output error\.$"):
        export(MODEL, tmp_path, name="model")
    config.unlink()
    config.write_text("name: {")
    with pytest.raises(ExportError, match=rf"^Cannot read {config}: The config\.pbtxt cannot be read: "):
        export(MODEL, tmp_path, name="model")


@pytest.mark.parametrize(("served", "expected"), [(1, [(0,), (1,), ()]), (3, [(0,), (0, 1), (0, 1)])])
def test_clients_are_told_of_the_categories_of_the_versions_that_are_served(
    tmp_path: Path, served: int, expected: list[tuple[int, ...]]
) -> None:
    table = pd.DataFrame({"rooms": [1.0, 2.0, 3.0, 2.0], "floor": [0.0, 1.0, 0.0, 1.0]})
    models = [
        *(make_pipeline(make_column_transformer((OneHotEncoder(), [name]), remainder="passthrough"), Ridge())
          for name in table),
        Ridge(),
    ]  # fmt: skip
    for model, places in zip(models, expected, strict=True):
        model.fit(table, [1.0, 2.0, 4.0, 3.0])
        export(model, tmp_path, name="rent", sample=table, input="fp32", versions=served)
        (told,) = input_tensors(from_pbtxt((tmp_path / "rent" / "config.pbtxt").read_text()))
        assert told.categories == places


def test_a_version_with_names_tells_clients_of_them(tmp_path: Path) -> None:
    table = pd.DataFrame({"rooms": [1.0, 2.0, 3.0], "floor": [0.0, 1.0, 0.0]})
    export(Ridge().fit(table.to_numpy(), [1.0, 2.0, 3.0]), tmp_path, name="rent")
    export(Ridge().fit(table, [1.0, 2.0, 3.0]), tmp_path, name="rent")
    config = from_pbtxt((tmp_path / "rent" / "config.pbtxt").read_text())
    assert json.loads(config.parameters["columns"].string_value) == {"X": ["rooms", "floor"]}


def test_a_version_can_be_named_and_is_not_taken_twice(tmp_path):
    model = Ridge().fit(np.eye(3), [1.0, 2.0, 3.0])
    assert [export(model, tmp_path, name="m", version=number).entry.version for number in (7, 3, None)] == [7, 3, 8]
    with pytest.raises(ExportError, match="has version 7; remove that version first"):
        export(model, tmp_path, name="m", version=7)
    with pytest.raises(ExportError, match="version must be a whole number from 1"):
        export(model, tmp_path, name="m", version=0)
