"""The gallery's commands: their output, files and refusals."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.timing import Timing
from gallery import curves, show
from gallery.__main__ import main, make_app
from gallery.catalogue import PATH, exhibits, find
from gallery.errors import GalleryError
from gallery.exhibit import Exhibit
from gallery.limits import Limit
from gallery.tuning import ByMagnitude
from tests.gallery.drawing import DEVICE

ROOT = Path(__file__).parents[2]
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(make_app(), list(arguments), env={"COLUMNS": "240"}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_without_a_command_it_lists_every_exhibit_in_the_paths_order() -> None:
    text = printed()
    found = re.findall(r"^│ (\w+)", text, re.MULTILINE)
    assert found == [name for name in PATH if name in exhibits()]
    for exhibit in exhibits().values():
        assert exhibit.formula[:30] in text
        assert exhibit.lengths[:10] in text
        assert exhibit.lengths != Exhibit.lengths, f"say what a size of {exhibit.name} is"


def test_every_module_of_commands_is_a_command() -> None:
    text = printed("--help")
    for path in (ROOT / "gallery/commands").glob("[!_]*.py"):
        assert re.search(rf"^  {path.stem} ", text, re.MULTILINE), path.stem


@NO_GPU
@pytest.mark.parametrize(
    ("name", "size"), [("zip", "33x3"), ("softmax", "3x33"), ("pooling", "2x33x3x1x1x1"), ("matmul", "3x4x5")]
)
def test_run_chooses_the_interpreter_by_itself_and_says_so(name: str, size: str) -> None:
    """Softmax calls functions of the language, which are interpreted too, and pooling's masks are whole numbers.

    Block pointers of the product are used without the language's warning that it has deprecated them.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "gallery", "run", name, "--size", size, "--dtype", "bfloat16"],
        cwd=ROOT,
        env={**environment, "COLUMNS": "200", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "There is no GPU: the kernels run through the interpreter" in done.stdout
    assert "bfloat16, checked on its size against float64" in done.stdout
    assert re.search(rf"│ {next(iter(find(name).ways))} +│ +\d\.\de[+-]0\d │", done.stdout)


@pytest.mark.gpu
def test_run_times_on_a_gpu_beside_peers() -> None:
    text = printed("run", "dot", "--size", "1048576")
    assert re.search(r"│ two stages +│ .* GB/s │ +[\d.]+% │", text)
    assert re.search(r"│ torch +│ .* GB/s │", text)
    assert "two stages gave 1 different answers" in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "softmix"], "The gallery has no exhibit softmix; did you mean softmax"),
        (["run", "zzz"], "The gallery has no exhibit zzz; there are map, zip, "),
        (["run", "map", "--dtype", "int8"], "--dtype int8 is none that map takes, which are float32, "),
        (["run", "map", "--size", "4y"], "--size 4y is no size; map takes elements, "),
        (["run", "map", "--size", "-5"], "--size -5 has a number below 0; map takes elements, "),
        (["run", "map", "--size", "99999999999"], "map of 99999999999 needs more memory than is free; "),
        (["run", "map", "--size", f"{2**40}x{2**40}"], "map of 1099511627776x1099511627776 needs more memory "),
        (
            ["run", "broadcast", "--size", "999999x999999"],
            "broadcast of 999999x999999 needs more memory than is free; ",
        ),
        (["run", "map", "--size", "9" * 30], f"map of {'9' * 30} needs more memory than is free; "),
        (["run", "map_2d", "--size", "4"], "map_2d has no size 4; map_2d takes rows x columns, such as 16384x16384."),
        (["run", "matmul", "--size", "3x3"], "matmul has no size 3x3; matmul takes M x N x K, such as "),
        (["run", "attention", "--size", "1x1x2x3x32x0"], "attention refuses 1x1x2x3x32x0: 'q' has heads of 32; "),
        (["run", "pooling", "--size", "1x4x4x9x1x0x0"], "pooling refuses 1x4x4x9x1x0x0: 'window' 9 finds no place "),
        (["run", "pooling", "--size", "2x2x3x1x1x5"], "pooling has no size 2x2x3x1x1x5; pooling takes two to four "),
        (["run", "convolution", "--size", "1x3x2x2x4x5x1x0x1"], "convolution refuses 1x3x2x2x4x5x1x0x1: 'weight' has "),
        (["run", "linear_regression", "--size", "5x5x5"], "linear_regression refuses 5x5x5: 'x' has shape [5, 5, 5]"),
        (["serve", "--repository", "/proc/nope"], "The repository /proc/nope cannot be written: No such file or "),
        (["bench", "nothing"], "The gallery has no exhibit nothing"),
    ],
)
def test_refusals_are_a_sentence(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gallery", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value).startswith(f"Error: {sentence}")
    assert "\n" not in str(ended.value)
    assert "Traceback" not in capsys.readouterr().err


@NO_GPU
def test_bench_says_that_it_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GalleryError, match="bench needs a CUDA GPU"):
        curves.bench([], None, quick=True)


def test_run_fails_where_an_error_is_too_large() -> None:
    wrong = dataclasses.replace(find("map"), ways={"map": lambda x, c: x + c + 0.01}, differentiable=False)
    with pytest.raises(GalleryError, match="map, map: the error is larger than 1e-06"):
        show.run(wrong, "100", None)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up times in place of a GPU's: 1,000 µs for ours, 2,000 for torch, of 4,000 bytes at 8 MB/s."""

    def times(exhibit: Exhibit, arguments: Any, calls: Any, rounds: int = 1, *, backward: bool = False) -> Any:
        for call in calls.values():
            call()
        return Limit("copy", "bytes", 8e6, 4000, 0.01), {
            name: Timing.of([[2000.0 if name == "torch" else 1000.0]], "given") for name in calls
        }

    for module in (curves, show):
        monkeypatch.setattr(module, "time_beside_limit", times)
        monkeypatch.setattr(module, "kernel_device", lambda: torch.device("cuda"))
        monkeypatch.setattr(module, "draw", lambda exhibit, size, dtype, device: exhibit.sample(size, dtype, DEVICE))
    monkeypatch.setattr(show, "_special_cases", lambda *_: [])


@pytest.mark.usefixtures("given")
def test_a_curve_is_drawn_and_its_figures_are_shares_of_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exhibit = dataclasses.replace(find("softmax"), curve=[(8, 64), (4, 128), (2, 256)])
    found = curves.curve(exhibit, quick=False)
    assert found["points"][0]["limit"] == {"name": "copy", "rate": 8e6, "spread": 0.01}
    assert 0 < found["points"][0]["times"]["softmax"]["error"] <= 2e-6
    assert found["points"][0]["times"]["softmax"]["share"] == 0.5
    assert found["points"][0]["times"]["torch"]["share"] == 0.25
    curves.draw_curve({"exhibit": "softmax", "forward": found}, "a GPU", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["softmax.png"]
    assert (tmp_path / "softmax.png").read_bytes().startswith(b"\x89PNG")
    assert "ours, softmax (GB/s)" in capsys.readouterr().out


@pytest.mark.usefixtures("given")
def test_bench_says_that_it_cannot_write_before_it_measures(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for where, why in (("/proc/nope", "No such file or directory"), (tmp_path / "file/in", "Not a directory")):
        with pytest.raises(GalleryError, match=f"^The directory {where} cannot be written: {why}.$"):
            curves.bench([find("map")], Path(where), quick=False)


@pytest.mark.usefixtures("given")
def test_bench_says_what_is_wrong_and_does_not_time_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong_when_wide(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) + (1e-3 if x.shape[1] > 64 else 0)

    softmax = find("softmax")
    exhibit = dataclasses.replace(
        softmax,
        ways={"right": softmax.ways["softmax"], "wrong": wrong_when_wide},
        peers={"torch": lambda x: 1.01 * torch.softmax(x, -1)},
        curve=[(8, 64), (4, 128)],
    )
    monkeypatch.setattr(curves, "find", lambda name: softmax)
    with pytest.raises(
        GalleryError, match=r"^5 calls were not timed, because their answers are wrong: softmax, torch, "
    ):
        curves.bench([exhibit], tmp_path, quick=False)
    said = capsys.readouterr().out
    assert "softmax, torch, 8x64: the error is 1.0e-02 of the largest number, 2e-05 is allowed\n" in said
    assert "softmax, torch, 8x64, gradients: the error is 1.0e-02 of the largest number, 2e-05 is allowed\n" in said
    assert "softmax, wrong, 4x128: the error is " in said
    (found,) = json.loads((tmp_path / "gallery.json").read_text("utf-8"))["exhibits"]
    assert [list(point["times"]) for point in found["forward"]["points"]] == [["right", "wrong"], ["right"]]
    assert [list(point["times"]) for point in found["backward"]["points"]] == [["right", "wrong"]] * 2


@pytest.mark.usefixtures("given")
def test_bench_and_run_allow_a_way_its_own_bound_and_others_the_tolerance() -> None:
    """Both ways of the dot product are 5e-6 off, which 1,024 atomic additions may be and partial sums may not."""

    def off(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.double() @ y.double() * (1 + 5e-6)).float()

    ways = {"atomics": off, "two stages": off}
    exhibit = dataclasses.replace(find("dot"), ways=ways, peers={}, differentiable=False, remark=None)
    size = (2**22,)
    errors, wrong = curves.checked(exhibit, size, exhibit.sample(size, torch.float32, DEVICE), backward=False)
    assert (list(errors), list(wrong)) == (["atomics"], ["two stages"])
    with pytest.raises(GalleryError, match=r"^dot, two stages: The numbers are nearly right"):
        show.run(exhibit, "4194304")


@pytest.mark.usefixtures("given")
def test_run_prints_times_shares_and_choices() -> None:
    text = printed("run", "softmax", "--size", "8x64")
    for name in ("softmax", "softmax, gradients"):
        assert re.search(rf"│ {name} +│ +\S+ │ +1,000.0 │ +0 GB/s │ +50.0% │", text)
    for name in ("torch", "torch, gradients"):
        assert re.search(rf"│ {name} +│ +│ +2,000.0 │ .* 25.0% │", text)
    assert "row_kernel: few elements: short rows" in text


@pytest.mark.usefixtures("given")
def test_bench_writes_what_it_found_beside_what_it_found_before(tmp_path: Path) -> None:
    small = {name: dataclasses.replace(find(name), curve=[(4, 8), (8, 8), (8, 16)]) for name in ("softmax", "copy")}
    for name in ("copy", "softmax", "copy"):
        curves.bench([small[name]], tmp_path, quick=True)
    document = json.loads((tmp_path / "gallery.json").read_text("utf-8"))
    assert document["settings"] == {"quick": True}
    assert [found["exhibit"] for found in document["exhibits"]] == ["softmax", "copy"], "in the path's order"
    assert "backward" in document["exhibits"][0]
    assert document["exhibits"][1]["forward"]["ours"] == list(find("copy").ways)
    assert {path.name for path in tmp_path.glob("*.png")} == {"softmax.png", "softmax_backward.png", "copy.png"}


def test_what_was_tuned_is_shared_between_two_powers_of_two() -> None:
    known = ByMagnitude()
    known[(1000, 3, "torch.float32")] = "found"
    assert known[(513, 4, "torch.float32")] == "found"
    for other in ((1025, 3, "torch.float32"), (1000, 2, "torch.float32"), (1000, 3, "torch.float16")):
        assert other not in known
