"""The modules of kernels/ that an entry carries: its model's, its plan's operations', and all that these import.

Imports for annotations alone are left out, and so are modules that read what the entry does not have. A file of data
goes with the module of its name.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from triton_regressors.kernels import entry
from triton_regressors.kernels.entry import Document
from triton_regressors.kernels.ops.kinds import MODULES
from triton_regressors.kernels.plan.plan import Plan

KERNELS = Path(entry.__file__).parent
MODEL = Path("backend.py")

OF_TENSORS = (Path("serving/other_tensors.py"),)
OF_STRINGS = (Path("format/text_steps.py"),)
OF_FLEETS = tuple(
    Path(path)
    for path in (
        "format/fleet.py",
        "format/id_columns.py",
        "format/member_table.py",
        "format/member_categories.py",
        "format/member_tensors.py",
        "engine/member_check.py",
        "engine/member_order.py",
        "serving/fleet_requests.py",
        "serving/member_counts.py",
    )
)
OF_CLASSES = Path("engine/fleet_executor.py")
"""The modules that tensors other than X need, columns made of strings, fleets, and fleets of several classes.

Every entry's code names them.
"""


def modules_of(plan: Plan, document: Document) -> list[Path]:
    """Return the files that an entry of this plan and document carries, by their paths below kernels/, in order."""
    needed = dict.fromkeys(OF_TENSORS, not document.inputs.plain_matrix)
    needed |= dict.fromkeys(OF_STRINGS, document.inputs.made is not None)
    needed |= dict.fromkeys(OF_FLEETS, document.fleet is not None)
    kinds = {kind for step in plan.steps for kind in step.operation.kinds()}
    needed[OF_CLASSES] = "member_choice" in kinds
    waiting = [MODEL, *(Path("ops", *MODULES[kind].split(".")).with_suffix(".py") for kind in kinds)]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found and needed.get(path, True):
            found.add(path)
            waiting += imported(path)
    data = {path.with_suffix(".json") for path in found}
    return sorted(found | {path for path in data if (KERNELS / path).is_file()})


@functools.cache
def imported(path: Path) -> frozenset[Path]:
    """Return the modules that a module of kernels/ imports from there when it runs, inside functions too."""
    return frozenset(_imports(ast.parse((KERNELS / path).read_bytes()), path))


def _imports(node: ast.AST, path: Path) -> Iterator[Path]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and child.level:
            base = Path(*path.parts[: -child.level], *(child.module or "").split("."))
            for place in (base, *(base / alias.name for alias in child.names)):
                module = place.with_suffix(".py")
                if (KERNELS / module).is_file():
                    yield module
        yield from _imports(child, path)
