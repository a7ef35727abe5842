"""Tests of the GPU memory for serving: the sentence about it, and on a GPU, the amount."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from triton_regressors import export
from triton_regressors.describe.gpu_memory import MIB, GpuMemory, measure, used_by
from triton_regressors.errors import TritonRegressorsError


@pytest.fixture
def version(tmp_path: Path) -> Path:
    X = np.random.default_rng(0).standard_normal((50, 3))
    return export(Ridge().fit(X, X[:, 0]), tmp_path, name="ridge").entry.version_directory


def test_its_text() -> None:
    found = GpuMemory("NVIDIA H200", 500 * MIB, 3 * MIB // 2, 600 * MIB)
    assert found.text() == (
        "GPU memory of a process that serves the entry: 600 MiB, of which a CUDA context takes 500, weights 1.5, and "
        "the rest 98 (NVIDIA H200)."
    )


def test_the_process_is_found_among_others() -> None:
    assert used_by(17, "170, 5\n17, 600\n") == 600 * MIB
    for answer in ("", "170, 5\n", "17, [N/A]\n"):
        with pytest.raises(LookupError):
            used_by(17, answer)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_it_says_so(version: Path) -> None:
    with pytest.raises(TritonRegressorsError, match=r"^A GPU's memory cannot be measured here: .+"):
        measure(version, 16)


@pytest.mark.gpu
def test_little_more_than_a_context_and_the_weights(version: Path) -> None:
    found = measure(version, 4096)
    assert 0 < found.context < found.process
    assert found.process - found.context - found.weights <= 150 * MIB
