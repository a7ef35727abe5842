"""Tests of the reading of the Triton server's log."""

import pytest

from triton_regressors.clients.errors import plain_reason
from triton_regressors.clients.server.server_log import last_error, means_nothing, readable_log_line


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ('I1121 09:32:06.080731 8097 model_lifecycle.cc:472] "loading: a:1"', ("09:32:06", "info", "loading: a:1")),
        ('E0101 00:00:00.000001 1 x.cc:1] "two\\nlines"', ("00:00:00", "error", "two\nlines")),
        ("W1121 09:32:06.080731 8097 a.cc:4] unquoted", ("09:32:06", "warning", "unquoted")),
        ('F1121 09:32:06.080731 8097 a.cc:4] "not \\x json"', ("09:32:06", "fatal", "not \\x json")),
        ("print of a model\n", ("", "", "print of a model")),
        ("", ("", "", "")),
        (
            'E1129 20:16:58.572010 9 pb_stub.cc:691] I1129 20:16:59.572069 8 model_lifecycle.cc:839] "loading: a:1"',
            ("20:16:59", "info", "loading: a:1"),
        ),
    ],
)
def test_readable_log_line(line: str, parsed: tuple[str, str, str]) -> None:
    assert readable_log_line(line) == parsed


WITHOUT_GPU = """\
W1122 10:25:39.811978 29953 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory, pinned memory pool \
will not be available: CUDA driver version is insufficient for CUDA runtime version"
I1122 10:25:39.812500 29953 cuda_memory_manager.cc:117] "CUDA memory pool disabled"
E1122 10:25:39.812657 29953 server.cc:241] "CudaDriverHelper has not been initialized."
W1122 10:25:45.917753 29953 pinned_memory_manager.cc:170] "failed to allocate pinned system memory: no pinned memory \
pool, falling back to non-pinned system memory"
Error: Failed to initialize NVML
W1122 10:25:56.273685 29953 metrics.cc:798] "DCGM unable to start: DCGM initialization error"
"""
FAULTS = """\
W1122 10:25:39.811978 29953 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory, pinned memory pool \
will not be available: out of memory"
E1122 10:25:39.812657 29953 model_repository_manager.cc:1] "failed to load 'm' version 1: CUDA memory pool disabled"
Error: Failed to initialize NVML: unknown error
E1122 10:25:39.812657 29953 a.cc:1] "instance group m_0 of model m specifies invalid or unsupported gpu id 0"
"""


def test_lines_that_only_tell_that_there_is_no_gpu() -> None:
    """The lines are those of the wheel's server; lines that report anything else do not count."""
    assert all(means_nothing(line, has_gpu=False) for line in WITHOUT_GPU.splitlines())
    assert not any(means_nothing(line, has_gpu=True) for line in WITHOUT_GPU.splitlines())
    assert not any(means_nothing(line, has_gpu=False) for line in FAULTS.splitlines())
    assert last_error(("E1121 09:32:06.080731 8097 a.cc:4] no port", *WITHOUT_GPU.splitlines())) == "no port"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Internal: ValueError: no\n\nAt:\n  /a/model.py(3): initialize\n", "ValueError: no"),
        ("[request id: <id_unknown>] unexpected shape. NOTE: Setting a non-zero max_batch_size in", "unexpected shape"),
        ("Traceback (most recent call last):\n  File x\n    y\nKeyError: 'z'\n", "KeyError: 'z'"),
        ("two\n  lines.", "two lines"),
        ("", "no reason given"),
    ],
)
def test_plain_reason(text: str, reason: str) -> None:
    assert plain_reason(text) == reason
