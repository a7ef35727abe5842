"""The commands `try` and `check`: they write exercises, have another process judge files, and print what it found."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gallery.errors import GalleryError
from gallery.exercises.catalogue import exercises, find
from gallery.exercises.diagnosis import diagnose
from gallery.exercises.exercise import Exercise
from gallery.exercises.judge import Finding
from gallery.exercises.report import print_finding
from gallery.exercises.sweep import draw_sweep, print_sweep

ROOT = Path(__file__).parents[2]
STEP_SECONDS = 120.0
"""The longest time that one case may take, and reading the file with all imports."""


def print_exercises() -> None:
    """Print every exercise with its formula, in the order in which they are best solved."""
    table = Table(title="Exercises", title_justify="left")
    for heading in ("exercise", "computes", "in"):
        table.add_column(heading, overflow="fold")
    languages = {"triton": "Triton language", "numba": "Numba CUDA"}
    for exercise in exercises().values():
        table.add_row(exercise.name, exercise.formula, languages[exercise.language])
    _console().print(table)
    _console().print("python -m gallery try NAME writes the file of one of them.")


def write_exercise(name: str, folder: Path) -> Path:
    """Write an exercise's file and return its path; raise `GalleryError` if there is such a file already."""
    exercise, path = find(name), folder / f"{name}.py"
    if path.exists():
        raise GalleryError(f"{path} is there already, and may be your work: it is not overwritten.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(exercise.file, path)
    except OSError as error:
        raise GalleryError(f"{path} cannot be written: {error.strerror}.") from error
    _console().print(f"{path}: {exercise.formula}\nComplete it, then: python -m gallery check {path}")
    return path


def print_hint(name: str, number: int) -> None:
    """Print one hint of an exercise; raise `GalleryError` if there is no such hint."""
    hints = find(name).hints
    if not 1 <= number <= len(hints):
        raise GalleryError(f"{name} has hints 1 to {len(hints)}; there is no hint {number}.")
    _console().print(f"Hint {number} of {len(hints)}: {hints[number - 1]}")


def print_solution(name: str) -> None:
    """Print the functions of the gallery that compute what an exercise asks for."""
    for file, functions in find(name).solution:
        source = (ROOT / file).read_text(encoding="utf-8")
        lines = source.splitlines()
        _console().print(f"# {file}")
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and node.name in functions:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                _console().print(Text("\n".join(lines[first - 1 : node.end_lineno]) + "\n"), soft_wrap=True)


def check(file: Path, *, sweep: bool = False, seconds: float = STEP_SECONDS) -> bool:
    """Judge a learner's file, print what was found, and return whether all cases are right.

    Without a GPU kernels of the Triton language run through the interpreter; with one they do first, as it sees every
    access, and then on the GPU.

    Raises:
        GalleryError: The file is none of an exercise, cannot be run, or a sweep has no GPU.
    """
    import torch

    exercise = exercise_of(file)
    if exercise.language == "numba":
        import gallery.puzzles.numba_cuda  # noqa: F401  (says how to get Numba if there is none)
    console, gpu = _console(), torch.cuda.is_available()
    if sweep and exercise.sweep is None:
        raise GalleryError(f"{exercise.name} has no sizes to sweep; `check` works without --sweep.")
    if sweep and not gpu:
        raise GalleryError(
            "The speed of a kernel needs a CUDA GPU, and torch finds none; `check` works without --sweep."
        )
    console.print(Text.assemble("\n", (exercise.name, "bold"), f": {exercise.formula}"))
    for where, environment in places(exercise, gpu=gpu).items():
        console.print(where)
        lines = run_child(file, exercise, environment, "judge", seconds)
        if not _print_findings(console, exercise, file, lines, seconds):
            return False
    console.print("All cases are right.")
    if sweep:
        _sweep(console, file, exercise, seconds)
    return True


def _sweep(console: Console, file: Path, exercise: Exercise, seconds: float) -> None:
    """Time a file's choices in a process, and print and draw the curve beside the file."""
    lines = run_child(file, exercise, {"TRITON_INTERPRET": "0"}, "sweep", seconds)
    kind, content = lines[-1]
    if kind != "sweep":
        began = next((what for kind, what in reversed(lines) if kind == "begin"), "")
        raise GalleryError(f"{file} could not be timed, at {began}: {content}")
    print_sweep(console, content)
    path = file.with_suffix(".png")
    draw_sweep(content, f"{exercise.name}: {file.name}", path)
    console.print(f"The curve is in {path}.")


def exercise_of(file: Path) -> Exercise:
    """Return the exercise that a file names by `EXERCISE = "..."`, without running it."""
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise GalleryError(f"{file} cannot be read: {reason}.") from None
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise GalleryError(f"{file}, line {error.lineno}: {error.msg}.") from None
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXERCISE":
            return find(str(ast.literal_eval(node.value)))
    raise GalleryError(f'{file} does not say which exercise it is; a line EXERCISE = "map" says so.')


def places(exercise: Exercise, *, gpu: bool) -> dict[str, dict[str, str]]:
    """Return where a file is judged, in order: a sentence about each place, and what its process has to be told."""
    program = "the interpreter" if exercise.language == "triton" else "Numba's simulator"
    environment = {"TRITON_INTERPRET": "1"} | ({"NUMBA_ENABLE_CUDASIM": "1"} if exercise.language == "numba" else {})
    found = {f"Kernels run through {program}, which looks at every access to memory:": environment}
    return found | ({"Kernels run on the GPU, again and again:": {"TRITON_INTERPRET": "0"}} if gpu else {})


def run_child(
    file: Path, exercise: Exercise, environment: Mapping[str, str], task: str, seconds: float
) -> list[tuple[str, Any]]:
    """Return what a process wrote about a file, and how it ended if it did not end by itself."""
    with tempfile.TemporaryDirectory() as folder:
        results, errors = Path(folder) / "results", Path(folder) / "errors"
        results.touch()
        paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        with errors.open("w") as stream:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "gallery.exercises.child",
                    str(file.resolve()),
                    exercise.name,
                    str(results),
                    task,
                ],
                env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)},
                stderr=stream,
            )
            ending = _wait(process, results, seconds)
        lines = [tuple(json.loads(line)) for line in results.read_text(encoding="utf-8").splitlines()]
        if ending is None and process.returncode:
            text = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            died = process.returncode < 0
            lines.append(("crash", f"signal {-process.returncode}") if died else ("error", text[-1] if text else "?"))
        elif ending is not None:
            lines.append(("late", ending))
        return lines


def _wait(process: subprocess.Popen[bytes], results: Path, seconds: float) -> str | None:
    """Wait for a process that has to write something every so many seconds; return None if it ended by itself."""
    size, since = -1, time.monotonic()
    try:
        while True:
            try:
                process.wait(0.1)
                return None
            except subprocess.TimeoutExpired:
                pass
            if results.stat().st_size != size:
                size, since = results.stat().st_size, time.monotonic()
            elif time.monotonic() - since > (seconds if size else max(seconds, STEP_SECONDS)):  # imports come first
                return f"{seconds:.0f} seconds"
    finally:
        process.kill()
        process.wait()


def _print_findings(
    console: Console, exercise: Exercise, file: Path, lines: list[tuple[str, Any]], seconds: float
) -> bool:
    """Print cases, and the first wrong one; return whether there is none."""
    cases = {case.name: case for case in exercise.cases}
    began = ""
    for kind, content in lines:
        if kind == "begin":
            began = content
        elif kind == "unreadable":
            raise GalleryError(f"{file} cannot be run. {content}")
        elif kind == "crash":
            _say(
                console,
                began,
                f"The process ended by {content}: a kernel reads or writes far outside of its arrays; look at masks "
                "and strides.",
            )
            return False
        elif kind == "error":
            _say(console, began, f"The process ended with exit code 1 or more: {content}")
            return False
        elif kind == "late":
            _say(
                console,
                began,
                f"It did not end within {content}: a loop does not come to its end, or very many programs have few "
                "elements each.",
            )
            return False
        elif kind == "finding":
            finding = Finding(**content)
            if not finding.is_right:
                print_finding(console, finding)
                _say(console, "", diagnose(finding, cases[finding.case]))
                return False
            console.print(Text.assemble(("✓ ", "green"), finding.case))
    return True


def _say(console: Console, began: str, sentence: str) -> None:
    if began:
        console.print(Text.assemble(("✗ ", "red"), began))
    console.print(Text(sentence, style="bold"))


def _console() -> Console:
    return Console(markup=False, highlight=False)
