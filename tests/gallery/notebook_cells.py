"""Runs the code cells of a notebook in order, as IPython does: `python notebook_cells.py FILE`.

Each cell is known to `linecache`, from which the Triton language and Numba read the source of kernels. Lines that begin
with % are IPython's own and are left out.
"""

import json
import linecache
import sys
from pathlib import Path


def run(path: Path) -> None:
    names = {"__name__": "__main__"}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            text = "".join(line for line in cell["source"] if not line.startswith("%"))
            name = f"<{cell['id']}>"
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            exec(compile(text, name, "exec"), names)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
    ours = {name for name in sys.modules if name.partition(".")[0] in ("gallery", "triton_regressors", "benchmarks")}
    assert not ours, f"the notebook imports {ours}"
