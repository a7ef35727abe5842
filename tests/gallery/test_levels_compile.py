"""The levels' kernels compile to GPU machine code, which the interpreter alone does not show."""

import os
import re
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Compile each kernel that subjects launch for compute capability 9.0, in its last choice, and print them."""
    from gallery.levels.parts import IN_TRITON_LANGUAGE
    from gallery.levels.subjects import SUBJECTS
    from tests.gallery.gpu_compile import SHARED_BYTES, compile_for, recorded

    compiled = {}
    with recorded() as found, torch.inference_mode():
        for name in ("polynomial", "messages", "block"):
            subject = SUBJECTS[name]
            arguments = subject.arguments(subject.small, torch.device("cpu"))
            if name != "polynomial":
                arguments = tuple(each.bfloat16() if each.is_floating_point() else each for each in arguments)
            made = subject.made(subject.small, IN_TRITON_LANGUAGE)
            subject.placed(made, torch.device("cpu"), arguments[0].dtype)(*arguments)
    for (kernel, _), choices in found.items():
        compiled.setdefault(kernel, []).append(compile_for(90, list(choices.values())[-1]).metadata.shared)
    assert max(max(bytes_each) for bytes_each in compiled.values()) <= SHARED_BYTES[90]
    print("compiled", *sorted(compiled))


def test_every_kernel_of_the_levels_compiles() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.gallery.test_levels_compile"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "gallery/levels").glob("*.py"))
    written = set(re.findall(r"@triton\.jit(?:\(.*\))?\ndef (\w+_kernel)\(", text))
    assert written - {"pointer_linear_kernel"} == set(done.stdout.split()[1:])  # its parts are those of the product


if __name__ == "__main__":
    main()
