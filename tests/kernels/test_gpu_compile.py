"""Every kernel compiles to GPU machine code, which the interpreter alone does not show."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import running
from triton_regressors.kernels.ops.trees.term_words import FEW_TILE, ROWS, TILE
from triton_regressors.kernels.plan import plan as plan_module

ROOT = Path(__file__).parents[2]
KERNELS = Path(plan_module.__file__).parents[1]
COMPILES = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
PARTS = 12
"""The number of parts. One takes some 25 s of a processor, and the first 100 s more, which choose the launches."""
Part = Callable[[int], dict[str, Any]]


@pytest.fixture(scope="module")
def part() -> Iterator[Part]:
    """part(number) returns the report of a process that compiles one part of the launches.

    One process answers for all parts, since choosing the launches takes longer than a part.
    """
    command = [sys.executable, "-m", "tests.kernels.gpu_compile", str(PARTS)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with running(command, cwd=ROOT, env=COMPILES, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def compiled(number: int) -> dict[str, Any]:
            print(number, file=asked, flush=True)
            answer = answers.readline()
            assert answer, "the process that compiles has ended; its error is above"
            found: dict[str, Any] = json.loads(answer)
            return found

        yield compiled


@pytest.mark.parametrize("number", range(PARTS))
def test_every_kernel_compiles_for_every_gpu_generation(part: Part, number: int) -> None:
    """The parts together are all chosen launches, and these use each kernel that there is."""
    found = part(number)
    assert found["faults"] == []
    assert found["launches"] == len(range(number, found["all_launches"], PARTS)) > 0
    files = [path for path in KERNELS.rglob("*.py") if path.name != "upload.py"]
    written = sum(path.read_text(encoding="utf-8").count("_kernel(\n") for path in files)
    assert len(found["all_kernels"]) == written


def run_without_interpreter(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the repository, where kernels are compiled, and return what it printed."""
    environment = {**COMPILES, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)


def test_it_would_notice_a_kernel_that_does_not_compile(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(
        "import triton, triton.language as tl\n"
        "from tests.kernels.gpu_compile import compile_for\n"
        "@triton.jit\n"
        "def broken_kernel(x, BLOCK: tl.constexpr):\n"
        "    tl.store(x + tl.arange(0, BLOCK), undefined_name)\n"
        "import torch\n"
        "compile_for(90, broken_kernel, {'x': torch.zeros(4), 'BLOCK': 4}, {})\n",
        encoding="utf-8",
    )
    done = run_without_interpreter(str(script))
    assert done.returncode != 0
    assert "undefined_name" in done.stderr


def test_walks_keep_all_their_registers() -> None:
    """The compiler's front end loses a variable that begins as another one and only ever becomes that one again."""
    script = (
        "import re, torch\n"
        "from tests.kernels.gpu_compile import generate_for\n"
        "from tests.kernels.gpu_launches import record\n"
        "from tests.kernels.operations import OPERATIONS\n"
        "op, widths = OPERATIONS['path contributions']\n"
        "for launch in record(op, list(widths)):\n"
        "    if launch[0].__name__ == 'walks_kernel':\n"
        "        (loop,) = re.findall('scf.while .*', generate_for(90, *launch))\n"
        "        print(loop.split('->')[1].count('tensor<32xf32>') / launch[1]['POINTS'])\n"
    )
    done = run_without_interpreter("-c", script)
    assert done.stdout.splitlines() == ["2.0"], done.stdout + done.stderr


def test_neighbouring_lanes_of_contributions_have_neighbouring_rows() -> None:
    """Lanes of other parts would look up tables of their own; `ROW_AXIS` says how each release lays them."""
    script = (
        "import re, torch\n"
        "from tests.kernels.gpu_compile import compile_for\n"
        "from triton_regressors.kernels.ops.trees.launch import contributions_tile\n"
        "from triton_regressors.kernels.ops.trees.tree_contributions import ROW_AXIS, contributions_kernel\n"
        "int32, int64, float64 = (torch.zeros(4, dtype=each) for each in (torch.int32, torch.int64, torch.float64))\n"
        "tile = contributions_tile(1000, 9)\n"
        "for patterns in torch.uint8, torch.int16, torch.int64:\n"
        "    arguments = {'patterns': torch.zeros(4, dtype=patterns), 'first_entry': int32}\n"
        "    arguments |= {'entry_parts': int32, 'entry_starts': int32, 'entry_factors': int32}\n"
        "    arguments |= {'table': int32, 'unit': float64, 'baseline': float64, 'out': int64, 'PARTS': 9}\n"
        "    arguments |= {'OUTPUTS': 5, 'TOGETHER': tile.together, 'BLOCK_ENTRIES': tile.block_entries}\n"
        "    arguments |= {'EARLY': False}\n"
        "    code = compile_for(90, contributions_kernel, arguments, {'num_warps': tile.num_warps}).asm['ttgir']\n"
        "    layouts = dict(re.findall(r'(#blocked\\d*) = #ttg.blocked<{(.*?)}>', code))\n"
        "    loads = re.findall(r' tt.load .*tensor<\\d+x\\d+x!tt.ptr<i\\d+>, (#blocked\\d*)>', code)\n"
        "    lanes = [re.search(r'threadsPerWarp = (.*?), w', layouts[load]).group(1) for load in loads]\n"
        "    print(len(lanes), {*lanes} == {str([32, 1] if ROW_AXIS.value == 0 else [1, 32])})\n"
    )
    done = run_without_interpreter("-c", script)
    assert done.stdout.splitlines() == ["3 True"] * 3, done.stdout + done.stderr


def ptx_of(kernel: str, tensors: dict[str, str], *, warps: int = 4, **constants: object) -> str:
    """Return a kernel's PTX for a GPU of 9.0.

    Args:
        kernel: its module below the ops, and its name.
        tensors: the dtype of each tensor, in the kernel's order.
        warps: the warps of a program.
        constants: all other arguments, in that order.
    """
    module, name = kernel.rsplit(".", 1)
    script = (
        "import torch\n"
        "from tests.kernels.gpu_compile import compile_for\n"
        f"from triton_regressors.kernels.ops.{module} import {name}\n"
        f"arguments = {{name: torch.zeros(4, dtype=getattr(torch, kind)) for name, kind in {tensors!r}.items()}}\n"
        f"print(compile_for(90, {name}, arguments | {constants!r}, {{'num_warps': {warps}}}).asm['ptx'])\n"
    )
    done = run_without_interpreter("-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("width", "at_once"), [(8, True), (6, False)])
def test_numbers_that_follow_each_other_are_loaded_at_once(width: int, at_once: bool) -> None:
    """`below` tells the compiler where four numbers are all inside or none is."""
    tensors = dict.fromkeys(("x", "numbers"), "float32") | dict.fromkeys(("shift", "factor", "out", "last"), "float64")
    sizes = {"size": 5, "first": 0, "members": 1, "STACKED": False, "WIDTH": width}
    code = ptx_of("columns.scale.scale_kernel", tensors, **sizes, FORM="factor", SINGLE=False, BLOCK=1024)
    assert ("ld.global.v4.b32" in code) == at_once


@pytest.mark.parametrize("block", [TILE, FEW_TILE])
@pytest.mark.parametrize(
    ("missing", "comparisons"),
    [(False, ("setp.le.f32", "setp.gtu.and.f32")), (True, ("setp.nan.and.f32", "setp.le.or.f32", "setp.gtu.and.f32"))],
)
def test_a_lane_asks_a_term_of_four_numbers_that_it_loads_at_once(
    missing: bool, comparisons: tuple[str, ...], block: tuple[int, int]
) -> None:
    """Each takes these comparisons, whose answers are not joined apart from them, and no lane needs another's."""
    tensors = {"x": "float32", "feature": "int32", "lower": "float32", "upper": "float32", "flags": "uint8"}
    tensors |= {"sets": "int32", "words": "int32"}
    sizes = {"blocks": 5, "COUNT": 999, "FEATURES": 7, "WORDS": 0, "FLOOR": False, "MISSING": missing}
    terms, words = block
    tile = {"ROWS": ROWS, "BITS": 16, "BLOCK_TERMS": terms, "BLOCK_WORDS": words, "EARLY": False}
    code = ptx_of("trees.term_words.words_kernel", tensors, warps=terms // 32, **sizes, **tile)
    found = [code.count("ld.global.v4.b32") * 4, *map(code.count, comparisons)]
    assert found == [32 * words] * len(found)
    assert "shfl" not in code
    assert "or.pred" not in code
