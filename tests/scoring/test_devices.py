"""The GPU of each process of a run, the rows that it gets at once, and their way there from any layout."""

import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.linear_model import Ridge
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInput

import triton_regressors as tr
from triton_regressors.scoring import columns
from triton_regressors.scoring.entry_choice import VISIBLE, visible_gpus
from triton_regressors.scoring.model_instance import rows_at_once
from triton_regressors.scoring.scorer import Scorer
from triton_regressors.scoring.workers import ray_has_gpus, take_gpu


def test_ray_gives_each_actor_a_gpu_of_its_own() -> None:
    with pytest.raises(tr.ScoringError, match="device is 'gpu:1'; Ray gives each actor a GPU of its own"):
        ray_has_gpus("auto", "gpu:1")


@pytest.mark.parametrize(("visible", "taken"), [(None, "0101"), ("5,GPU-7f", ["5", "GPU-7f"] * 2)])
def test_processes_take_gpus_in_turn(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, taken: Sequence[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv(VISIBLE, visible or "")
    gpus, begun, found = visible_gpus(), multiprocessing.get_context("spawn").Value("i", 0), []
    for _ in range(4):
        take_gpu(gpus, begun)
        found.append(os.environ[VISIBLE])
    assert found == list(taken)
    take_gpu([], begun)  # on a CPU
    assert os.environ[VISIBLE] == taken[-1]


@pytest.mark.parametrize(
    ("widths", "on_cpu", "on_gpu"),
    [([64], 2**14, 2**16), ([8, 8], 2**14, 2**16), ([512], 2048, 2**14), ([2048], 512, 4096), ([10**7], 64, 64)],
)
def test_more_rows_are_computed_at_once_than_on_a_server(widths: list[int], on_cpu: int, on_gpu: int) -> None:
    config = ModelConfig(max_batch_size=64, input=[ModelInput(name="X", dims=[width]) for width in widths])
    assert rows_at_once(config, on_gpu=False) == on_cpu
    assert rows_at_once(config, on_gpu=True) == on_gpu
    config.max_batch_size = 10**6
    assert rows_at_once(config, on_gpu=False) == rows_at_once(config, on_gpu=True) == 10**6


@pytest.mark.parametrize("most_rows", [700, 2**16])
@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_rows_may_lie_in_any_way(tmp_path: Path, device: str, most_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tables and matrices of any order and type, read-only, in pieces or whole; and a wrong one is named."""
    monkeypatch.setattr(columns, "MOST_ROWS", most_rows)
    X = np.random.default_rng(0).normal(size=(6000, 12)).astype(np.float32)
    entry = tr.export(Ridge().fit(X, X[:, 0]), tmp_path, name="sums", sample=X[:100], input="fp32").entry.directory
    answer = Scorer(entry, device=device)
    wanted = np.concatenate([answer.predict(X[start : start + 7].copy()) for start in range(0, len(X), 7)])
    double, read_only = X.astype(np.float64), X.copy()
    read_only.flags.writeable = False
    names = [f"x{place}" for place in range(X.shape[1])]
    frame = pd.DataFrame(double, columns=names)
    for rows in (X, double, read_only, np.asfortranarray(X), frame, pd.DataFrame(read_only)):
        assert answer.predict(rows).tobytes() == wanted.tobytes()
    for some in (slice(None, None, -1), slice(None, None, 2), slice(1, None), slice(3)):
        for rows in (X[some], double[some], frame[some]):
            assert answer.predict(rows).tobytes() == wanted[some].tobytes()
        assert answer(pa.table(frame[some]))["y"].to_numpy().tobytes() == wanted[some].tobytes()
    frame.loc[5000, "x3"] = np.inf
    with pytest.raises(tr.InvalidRequest, match="X must be finite: row 5000, column 3 is inf"):
        answer(frame)
    with pytest.raises(tr.InvalidRequest, match=r"X\[5000, 3\] \('x3'\) is 1e\+300, beyond float32"):
        answer(frame.replace(np.inf, 1e300))
    answers, wrong = answer.by_row(frame)
    assert [row for row, _ in wrong] == [5000]
    assert np.delete(answers["y"][:, 0], 5000, axis=0).tobytes() == np.delete(wanted, 5000, axis=0).tobytes()
