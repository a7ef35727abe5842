"""Which GPU a process of a run takes, and how much it is given at once; no GPU is needed."""

import multiprocessing
import os
from collections.abc import Sequence

import pytest
import torch
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInput

import triton_regressors as tr
from triton_regressors.scoring.found import VISIBLE, visible_gpus
from triton_regressors.scoring.model import rows_at_once
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
    ("widths", "asked", "rows"), [([64], 4096, 2**16), ([8, 8], 4096, 2**16), ([512], 4096, 8192), ([10**7], 64, 64)]
)
def test_a_gpu_is_given_more_rows_at_once_than_a_server_gives_it(widths: list[int], asked: int, rows: int) -> None:
    config = ModelConfig(max_batch_size=asked, input=[ModelInput(name="X", dims=[width]) for width in widths])
    assert rows_at_once(config, on_gpu=False) == asked
    assert rows_at_once(config, on_gpu=True) == rows
    config.max_batch_size = 10**6
    assert rows_at_once(config, on_gpu=True) == 10**6
