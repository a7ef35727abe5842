"""The process that runs a learner's file: whatever happens in it, the process that started it lives on.

It writes a line of JSON for each case before and after it is tried, so that a crash or an endless loop has a name.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def load(file: Path) -> Any:
    """Return the module of a learner's file."""
    spec = importlib.util.spec_from_file_location("learners_exercise", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main(file: Path, name: str, results: Path, task: str) -> None:
    """Judge a file, or time it, and write what was found."""
    from gallery.catalogue import kernel_device

    device = kernel_device()

    # Kernels that these import are compiled or interpreted as `kernel_device` has set.
    from gallery.exercises.catalogue import find
    from gallery.exercises.judge import judge
    from gallery.exercises.sweep import sweep

    exercise = find(name)
    with results.open("a", encoding="utf-8") as stream:

        def write(kind: str, content: Any) -> None:
            stream.write(json.dumps([kind, content]) + "\n")
            stream.flush()

        write("begin", "reading the file")
        try:
            module = load(file)
            solve: Callable[..., Any] = module.solve
        except BaseException as error:
            lines = traceback.extract_tb(error.__traceback__)
            where = next((f", line {each.lineno}" for each in reversed(lines) if each.filename == str(file)), "")
            line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
            write("unreadable", f"{type(error).__name__}{f', line {line}' if line else where}: {error}")
            return
        if task == "sweep":
            sweep(exercise, module, device, write)
            return
        for case in exercise.cases:
            write("begin", case.name)
            tolerance = exercise.tolerances[case.dtype]
            found = judge(
                solve, exercise.reference, case, tolerance, device, exercise.language, mistakes=exercise.mistakes
            )
            write("finding", dataclasses.asdict(found))
            if not found.is_right:
                return
        write("end", "all cases")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4])
