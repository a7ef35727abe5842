"""The command `profile`: occupancy, the reading of traces and of ncu's counters, and its refusals."""

import json
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from gallery import profiling
from gallery.__main__ import main
from gallery.errors import GalleryError
from gallery.occupancy import Multiprocessor, Occupancy, occupancy
from gallery.profiling import Job, Kernel
from tests.gallery.drawing import DEVICE

HOPPER = Multiprocessor(threads=2048, registers=65536, shared_bytes=228 * 1024, programs=32)
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "threads", "expected"),
    [
        (32, 0, 1024, Occupancy(2, 1.0, "warps")),
        (64, 0, 256, Occupancy(4, 0.5, "registers")),
        (65, 0, 256, Occupancy(3, 0.375, "registers")),  # registers are given by eights of a thread
        (255, 0, 128, Occupancy(2, 0.125, "registers")),
        (168, 0, 384, Occupancy(1, 0.1875, "registers")),  # 12 warps fit, three in each part
        (32, 100 * 1024, 128, Occupancy(2, 0.125, "shared memory")),
        (32, 113 * 1024, 128, Occupancy(2, 0.125, "shared memory")),  # with 1 kB of each program's own, exactly
        (32, 113 * 1024 + 1, 128, Occupancy(1, 0.0625, "shared memory")),
        (16, 0, 32, Occupancy(32, 0.5, "programs")),
        (16, 0, 33, Occupancy(32, 1.0, "warps")),  # a warp begun is a warp
    ],
)
def test_occupancy_is_bound_by_the_scarcest(
    registers: int, shared_bytes: int, threads: int, expected: Occupancy
) -> None:
    assert occupancy(registers, shared_bytes, threads, HOPPER) == expected


@pytest.mark.gpu
def test_occupancy_is_the_profiler_s(tmp_path: Path) -> None:
    """The profiler divides the warps of all programs by what the GPU could run: of many, that is at most 100 %."""
    x = torch.ones(2**26, device="cuda")
    trace = profiling.recorded({"add": Job(lambda: x + 1, 8 * 2**26)}, tmp_path / "trace.json")
    (kernel,) = profiling.kernels(trace, "add", profiling.CALLS)
    assert kernel.launches == 1
    (event, *_) = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    found = occupancy(kernel.registers, kernel.shared_bytes, kernel.threads, Multiprocessor.of(torch.device("cuda")))
    assert round(100 * found.share) == event["args"]["est. achieved occupancy %"]


def launch(name: str, begins: float, lasts: float, **args: object) -> dict:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": begins, "dur": lasts, "args": args}


def test_a_call_s_kernels_are_those_of_its_span_in_a_trace(tmp_path: Path) -> None:
    """The spans are torch.profiler's own; a CPU has no kernels, so the events of some are added to them."""
    x = torch.ones(100)
    jobs = {"add": Job(lambda: x + 1, 800), "multiply": Job(lambda: x * 2, 800)}
    trace = profiling.recorded(jobs, tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text("utf-8")) == trace
    assert profiling.kernels(trace, "add", profiling.CALLS) == []
    spans = {event["name"]: event for event in trace["traceEvents"] if event["name"].startswith(profiling.SPAN)}
    first, second = (spans[profiling.SPAN + name] for name in jobs)
    assert first["ts"] + first["dur"] <= second["ts"]
    shape = {"grid": [7, 2, 1], "block": [128, 1, 1], "registers per thread": 40, "shared memory": 1024}
    trace["traceEvents"] += [
        launch("short", first["ts"] + 1, 2.0, **shape),
        *(launch("long", first["ts"] + k / 10, 10.0, **shape) for k in range(4)),
        launch("other", second["ts"], 5.0, **shape),
        launch("of nobody", second["ts"] + second["dur"] + 1, 5.0, **shape),
    ]
    assert profiling.kernels(trace, "add", 2) == [
        Kernel("long", 2, 20.0, (7, 2, 1), 128, 40, 1024),
        Kernel("short", 0.5, 1.0, (7, 2, 1), 128, 40, 1024),
    ]
    assert [kernel.name for kernel in profiling.kernels(trace, "multiply", 1)] == ["other"]


def test_the_table_has_each_kernel_and_the_rates_are_of_all_together() -> None:
    found = [Kernel("product", 1, 200.0, (64, 2), 256, 64, 2000), Kernel("copy", 3, 50.0, (8,), 0, 0, 0)]
    console = Console(width=140)
    with console.capture() as captured:
        console.print(profiling.table("matmul", found, HOPPER))
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in captured.get().splitlines() if "│" in line]
    assert lines == [
        ["product", "1", "200.0", "128", "256", "64", "2.0", "50%, 4 programs", "registers"],
        ["copy", "3", "50.0", "8", "0", "0", "0.0", "", ""],
    ]
    text = profiling.rates(found, Job(lambda: None, 10**9, 5 * 10**10))
    assert text == (
        "Kernels take 250.0 µs; 1,000.0 MB must move: 4,000 GB/s; 50.0 GFLOP must be computed: 200.0 TFLOP/s."
    )
    assert profiling.rates([], Job(lambda: None, 8)) == "No kernel was seen."


def test_counters_of_ncu_are_read_with_their_units() -> None:
    metrics = list(profiling.NCU.values())
    text = "\n".join(
        [
            "==PROF== Connected to process 1",
            ",".join(f'"{name}"' for name in ["ID", "Kernel Name", *metrics]),
            ',"","%","%","%","Gbyte","Kbyte"',
            '"0","row_kernel","93.5","20.25","50","1.5","2,500"',
        ]
    )
    assert profiling.counters(text) == [["row_kernel", "93.5", "20.2", "50.0", "1,500.0", "2.5"]]
    assert profiling.counters("==ERROR== ERR_NVGPUCTRPERM\n") == []


@NO_GPU
@pytest.mark.parametrize("name", ["softmax", "levels/block", "nothing"])
def test_without_a_gpu_it_says_that_it_needs_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gallery", "profile", name])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == "Error: profile needs a CUDA GPU, and torch finds none; `run` works without."


def test_the_command_goes_through_all_calls_of_an_exhibit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On this machine's device, as if it were a GPU; a CPU has no kernels to show."""
    monkeypatch.setattr(profiling, "kernel_device", lambda: torch.device("cuda"))
    monkeypatch.setattr(profiling, "draw", lambda exhibit, size, dtype, _: exhibit.sample(size, dtype, DEVICE))
    monkeypatch.setattr(Multiprocessor, "of", lambda device: HOPPER)
    monkeypatch.setattr(profiling.shutil, "which", lambda name: None)
    profiling.profile_command("softmax", "4x50", "bfloat16", tmp_path / "new")
    text = capsys.readouterr().out
    assert "softmax of 4x50, bfloat16" in text
    for name in ("softmax", "torch", "softmax, gradients", "torch, gradients"):
        assert name in [line.strip() for line in text.splitlines()]
    assert "ncu is not installed" in text
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["softmax.json"]
    with pytest.raises(GalleryError, match="cannot be written: Not a directory"):
        profiling.profile_command("softmax", "4x50", None, tmp_path / "new/softmax.json/in")


def test_levels_are_found_by_name() -> None:
    with pytest.raises(GalleryError, match="There is no level's subject blok; subjects are layer_norm_gelu, "):
        profiling.jobs_of_level("blok", None)
    with pytest.raises(GalleryError, match="--size is for exhibits; levels/block has one size"):
        profiling.jobs_of_level("block", "3")


@pytest.mark.gpu
def test_a_profile_of_an_exhibit_and_of_the_levels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    profiling.profile_command("softmax", "64x1000", None, tmp_path)
    profiling.profile_command("levels/layer_norm_gelu", None, None, tmp_path)
    text = capsys.readouterr().out
    for words in ("row_kernel", "softmax, gradients", "torch eager", "Triton language", "GB/s", "ui.perfetto.dev"):
        assert words in text
    assert {path.name for path in tmp_path.iterdir()} == {"softmax.json", "levels_layer_norm_gelu.json"}
