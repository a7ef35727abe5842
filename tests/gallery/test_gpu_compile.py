"""Every kernel of the gallery compiles to GPU machine code, which the interpreter alone does not show."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_kernel_of_the_gallery_compiles() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.gallery.gpu_compile"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "gallery/kernels").glob("*.py"))
    written = set(re.findall(r"@triton\.jit(?:\(.*\))?\ndef (\w+_kernel)\(", text))
    assert written
    assert written <= set(re.search(r"kernels: (.*)", done.stdout)[1].split(", "))
