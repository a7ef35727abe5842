"""Every kernel compiles to GPU machine code, which the interpreter alone does not show."""

import os
import subprocess
import sys
from pathlib import Path

from triton_regressors.kernels.plan import plan as plan_module

ROOT = Path(__file__).parents[2]
KERNELS = Path(plan_module.__file__).parents[1]
COMPILES = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


def test_every_kernel_compiles_for_every_gpu_generation() -> None:
    command = [sys.executable, "-m", "tests.kernels.gpu_compile"]
    done = subprocess.run(command, cwd=ROOT, env=COMPILES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    files = [path for path in KERNELS.rglob("*.py") if path.name != "upload.py"]
    written = sum(path.read_text(encoding="utf-8").count("_kernel(\n") for path in files)
    assert len(done.stdout.partition("kernels: ")[2].split(", ")) == written


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
    environment = {**COMPILES, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "undefined_name" in done.stderr
