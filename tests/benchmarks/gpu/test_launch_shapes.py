"""The command that measures launch shapes, as far as it goes without a GPU."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from benchmarks.gpu import launch_shapes
from benchmarks.gpu.launch_shapes import Bench, on_device, run, write
from benchmarks.gpu.shape_classes import OPERATIONS, Model, ShapeClass, grid, shape_classes
from benchmarks.timing import Timing
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.affine_kernel import affine_shape


def toy(*candidates: dict[str, int]) -> ShapeClass:
    model = Model(Affine(np.ones((8, 1)), np.zeros(1)), 8)
    return ShapeClass(affine_shape, (8, "whole"), [model, model], (1, 5), candidates)


def test_a_dry_run_tries_shapes_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "table.json", ["affine", "tree_ensemble"], dry_run=True)
    printed = capsys.readouterr().out
    assert "affine_narrow 1 1: " in printed
    assert "tree_ensemble few small packed one: " in printed
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds a CUDA device, and this is about none")
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="needs a CUDA GPU"):
        run(tmp_path / "table.json", ["affine"])


def test_a_grid_leaves_out_the_default_and_says_what_it_changes() -> None:
    assert grid({"BLOCK_ROWS": 8, "num_warps": 4}, BLOCK_ROWS=(4, 8), num_warps=(2, 4)) == [
        {"BLOCK_ROWS": 4, "num_warps": 2},
        {"BLOCK_ROWS": 4},
        {"num_warps": 2},
    ]


def pretend(monkeypatch: pytest.MonkeyPatch, answer: Callable[[int], float], took: dict[int, float]) -> None:
    """Let launches give answers, and take times, by the number of rows of a program; the default has 0."""

    def call(self, each, model, inputs, output, shape):
        rows = shape.get("BLOCK_ROWS", 0)
        return Launch(rows, lambda: output.fill_(answer(rows)))

    def time_on_device(contenders, *_, **__):
        return {each.name: Timing.of([[took[each.call.rows]]], "told") for each in contenders}

    monkeypatch.setattr(Bench, "_call", call)
    monkeypatch.setattr(launch_shapes, "time_on_device", time_on_device)


class Launch(NamedTuple):
    rows: int
    answer: Callable[[], torch.Tensor]

    def __call__(self, i: int) -> torch.Tensor:
        return self.answer()


def test_what_changes_a_bit_or_cannot_be_launched_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(rows: int) -> float:
        if rows == 4:
            raise RuntimeError("out of resources")
        return 2.0 if rows == 2 else 1.0

    pretend(monkeypatch, answer, {0: 1.0, 8: 1.0})
    failures = {0: "CompilationError"}
    shapes = [{"BLOCK_ROWS": rows} for rows in (1, 2, 4, 8)]
    assert Bench(torch.device("cpu"), 1).measure(toy(*shapes), failures) is None
    assert failures == {0: "CompilationError", 1: "with other bits", 2: "RuntimeError"}
    told = "1 of 4 tried, 1 CompilationError, 1 RuntimeError, 1 with other bits"
    assert capsys.readouterr().out == f"affine 8 whole: the default stays ({told})\n"


def test_the_fastest_comes_into_the_table_unless_the_default_is_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, lambda rows: 1.0, {0: 10.0, 1: 9.9, 2: 8.0, 3: 9.0})
    shapes = [{"BLOCK_ROWS": rows} for rows in (1, 2, 3)]
    assert Bench(torch.device("cpu"), 1).measure(toy(*shapes), {}) == {"BLOCK_ROWS": 2}
    assert Bench(torch.device("cpu"), 1).measure(toy(shapes[0]), {}) is None


def test_what_was_not_measured_stays_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    kept = {"7.5": {"affine": {"8 whole": {"num_warps": 1}}}, "9.0": {"quadratic": {"32 float64": {"num_warps": 1}}}}
    path.write_text(json.dumps(kept))
    write(path, toy(), {"BLOCK_ROWS": 64}, "9.0")
    assert json.loads(path.read_bytes()) == {**kept, "9.0": {**kept["9.0"], "affine": {"8 whole": {"BLOCK_ROWS": 64}}}}
    write(path, toy(), None, "9.0")
    assert json.loads(path.read_bytes()) == kept


def test_every_model_is_of_the_class_that_its_launch_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a shape would come into the table where no launch looks for it."""
    cpu = torch.device("cpu")
    for each in shape_classes(OPERATIONS, toy=True):
        if each.shapes.operation == "tree_ensemble":  # of which a toy is small, whatever it stands for
            continue
        for operation, width in each.models:
            look = Mock(wraps=each.shapes.of)
            monkeypatch.setattr(each.shapes, "of", look)
            x, out = torch.zeros(1, width), torch.zeros(1, operation.output_width(width))
            operation.launch(on_device(operation, cpu), [x], out, 0)
            look.assert_called_once_with(cpu, *each.parts)
            monkeypatch.undo()
