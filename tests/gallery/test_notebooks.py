"""The notebooks are made from the gallery's kernels, and run in a process that knows nothing of this repository."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gallery.notebooks.__main__ import notebooks
from gallery.notebooks.sources import Sources, cuda_text

NOTEBOOKS = {path.stem: path for path in notebooks()}
CELLS = Path(__file__).with_name("notebook_cells.py")


def run(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a notebook's cells in an empty folder, with none of our folders on the path."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TRITON_INTERPRET")}
    command = [sys.executable, str(CELLS), str(path)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_notebooks_are_those_that_their_pages_and_the_kernels_make() -> None:
    assert sorted(NOTEBOOKS) == ["homework", "levels", "puzzles"]
    for path, text in notebooks().items():
        assert path.read_text(encoding="utf-8") == text, "run `python -m gallery.notebooks`"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    done = run(NOTEBOOKS[name], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = {
        "puzzles": ("naively          2,628 reads", "by_shared_memory 316 reads", "The race made", "strided_loop"),
        "homework": ("epoch 4: R² 0.9", "in validation", "dw "),
        "levels": ("Triton language  error", "\nTorchScript\n", "aten::gelu"),
    }[name]
    for words in shown:
        assert words in done.stdout


def test_a_notebook_refuses_a_wrong_kernel(tmp_path: Path) -> None:
    text = NOTEBOOKS["levels"].read_text(encoding="utf-8")
    wrong = text.replace("* gamma + beta\\n", "* gamma - beta\\n")
    assert wrong != text
    (tmp_path / "wrong.ipynb").write_text(wrong, encoding="utf-8")
    done = run(tmp_path / "wrong.ipynb", tmp_path)
    assert done.returncode == 1
    assert "AssertionError: Triton language" in done.stderr


def test_cells_install_with_pip_alone_and_hold_no_outputs() -> None:
    for path in NOTEBOOKS.values():
        code = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
        assert [cell["outputs"] for cell in code] == [[]] * len(code)
        own = ["".join(line for line in cell["source"] if line.startswith(("%", "!"))) for cell in code]
        assert own[0].startswith("%pip install --quiet torch triton ")
        assert not any(own[1:])


def test_a_kernel_comes_with_what_it_calls_once_and_without_tuning() -> None:
    sources = Sources()
    text = sources.text("gallery.kernels.attention", ["attention_kernel"])
    assert text.startswith('INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")\n')
    order = [text.index(f"def {name}(") for name in ("place", "load_rows", "dot", "over_keys", "attention_kernel")]
    assert text.index("def attention_kernel(") == max(order)
    assert "@tuned" not in text
    assert "import" not in text
    assert "def dot(" not in sources.text("gallery.kernels.matmul_relu", ["pointer_relu_kernel"])
    with pytest.raises(KeyError, match="no_kernel"):
        sources.text("gallery.kernels.map", ["no_kernel"])


def test_cuda_comes_with_its_headers() -> None:
    text = cuda_text("layer_norm.cu")
    assert '#include "' not in text
    assert text.count("constexpr int MOST_WIDTH = 4096;") == 1
