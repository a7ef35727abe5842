"""The exercises in Numba: right answers pass, and mistakes as people make them are caught and named."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gallery.errors import GalleryError
from gallery.exercises.catalogue import exercises
from gallery.exercises.child import load
from gallery.exercises.diagnosis import diagnose
from gallery.exercises.exercise import Exercise
from gallery.exercises.judge import judge
from gallery.exercises.show import check
from gallery.puzzles import numba_cuda

DEVICE = numba_cuda.find_device()
EXERCISES = {each.name: each for each in exercises().values() if each.language == "numba"}
RIGHT = {
    "map": """
    i = cuda.grid(1)
    if i < x.shape[0]:
        y[i] = x[i] + c
""",
    "zip": """
    i = cuda.grid(1)
    if i < z.shape[0]:
        z[i] = x[i] + y[i]
""",
    "map_2d": """
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        y[row, column] = x[row, column] + c
""",
    "broadcast": """
    row = cuda.blockIdx.x
    for column in range(cuda.threadIdx.x, z.shape[1], THREADS):
        z[row, column] = a[row, 0] + b[0, column]
""",
    "pooling": """
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * THREADS
    for k in range(t, THREADS + window - 1, THREADS):
        if first + k < x.shape[0]:
            shared[k] = x[first + k]
    cuda.syncthreads()
    if first + t < y.shape[0]:
        total = float32(0)
        for k in range(window):
            total += shared[t + k]
        y[first + t] = total
""",
    "dot": """
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[t] = x[i] * y[i] if i < x.shape[0] else float32(0)
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            shared[t] += shared[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        cuda.atomic.add(total, 0, shared[0])
""",
}
OUTSIDE = "outside of an array"
RACE_IN_SHARED_MEMORY = "A race: threads read places of shared memory"
NO_BARRIER = ("    cuda.syncthreads()\n", "")
WRONG = [
    ("map", "no if", ("if i < x.shape[0]", "if True"), OUTSIDE),
    ("map", "first block only", ("cuda.grid(1)", "cuda.threadIdx.x"), "are never written"),
    ("map", "one too few", ("i < x.shape[0]", "i < x.shape[0] - 1"), "1 elements are never written"),
    ("zip", "no if", ("if i < z.shape[0]", "if True"), OUTSIDE),
    ("zip", "one array twice", ("x[i] + y[i]", "x[i] + x[i]"), "both loads read the same array"),
    ("zip", "block without its length", ("cuda.grid(1)", "cuda.blockIdx.x + cuda.threadIdx.x"), "never written"),
    ("map_2d", "only rows asked", (" and column < x.shape[1]", ""), OUTSIDE),
    ("map_2d", "or", (" and ", " or "), OUTSIDE),
    ("map_2d", "rows and columns exchanged", ("column, row =", "row, column ="), "are never written"),
    (
        "broadcast",
        "no stride",
        ("(cuda.threadIdx.x, z.shape[1], THREADS)", "(cuda.threadIdx.x, THREADS)"),
        "are never written",
    ),
    ("broadcast", "column of a", ("a[row, 0] + b[0, column]", "a[row, 0] + a[row, 0]"), "The formula is another"),
    ("broadcast", "one column too many", ("z.shape[1], THREADS", "z.shape[1] + 1, THREADS"), OUTSIDE),
    ("broadcast", "b left out", (" + b[0, column]", ""), "b is not added"),
    ("pooling", "no barrier", NO_BARRIER, RACE_IN_SHARED_MEMORY),
    (
        "pooling",
        "no overhang",
        ("range(t, THREADS + window - 1, THREADS)", "range(t, THREADS, THREADS)"),
        "without a value",
    ),
    ("pooling", "window too short", ("range(window)", "range(window - 1)"), "lack their last element"),
    ("pooling", "no if before reading", ("if first + k < x.shape[0]:", "if True:"), OUTSIDE),
    (
        "pooling",
        "barrier in an if",
        (
            "    cuda.syncthreads()\n    if first + t < y.shape[0]:\n",
            "    if first + t < y.shape[0]:\n        cuda.syncthreads()\n",
        ),
        "not all threads",
    ),
    ("dot", "race of blocks", ("cuda.atomic.add(total, 0, shared[0])", "total[0] += shared[0]"), "A race: .*`total`"),
    ("dot", "no barrier before the tree", NO_BARRIER, RACE_IN_SHARED_MEMORY),
    ("dot", "no barrier in the tree", ("        cuda.syncthreads()\n", ""), RACE_IN_SHARED_MEMORY),
    (
        "dot",
        "barrier in an if",
        ("        cuda.syncthreads()\n", "            cuda.syncthreads()\n"),
        "not all threads",
    ),
    ("dot", "no zero beyond the end", (" if i < x.shape[0] else float32(0)", ""), OUTSIDE),
    ("dot", "every thread adds", ("if t == 0", "if True"), "The formula is another"),
]


def sentence(exercise: Exercise, solve: Callable[..., torch.Tensor], cases: int = 99) -> str | None:
    """Return what is said of an answer, or None if so many cases are right."""
    for case in exercise.cases[:cases]:
        tolerance = exercise.tolerances[case.dtype]
        found = judge(solve, exercise.reference, case, tolerance, DEVICE, "numba", mistakes=exercise.mistakes)
        if not found.is_right:
            return diagnose(found, case)
    return None


def filled(name: str, old: str, new: str, folder: Path) -> Callable[..., torch.Tensor]:
    """Return `solve` of an exercise's file whose gap has the right answer, in which `new` stands for `old`."""
    head, gap, rest = EXERCISES[f"{name}_numba"].file.read_text(encoding="utf-8").partition("    # Your part")
    assert gap
    assert old in RIGHT[name]
    answer = RIGHT[name].replace(old, new, 1)
    (folder / "mine.py").write_text(head + answer.lstrip("\n") + rest[rest.index("\n") :], encoding="utf-8")
    solve: Callable[..., torch.Tensor] = load(folder / "mine.py").solve
    return solve


def test_every_puzzle_is_an_exercise_in_numba() -> None:
    assert list(EXERCISES) == [f"{name}_numba" for name in RIGHT]
    assert all(sum(wrong[0] == name for wrong in WRONG) >= 3 for name in RIGHT)


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_pass(name: str, tmp_path: Path) -> None:
    exercise = EXERCISES[f"{name}_numba"]
    assert sentence(exercise, exercise.solve, cases=2) is None
    assert sentence(exercise, filled(name, "", "", tmp_path)) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU shows less of an access than the simulator")
@pytest.mark.parametrize(("name", "mistake", "change", "said"), WRONG, ids=lambda each: str(each).replace(" ", "-"))
def test_a_mistake_is_caught_and_named(
    name: str, mistake: str, change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    found = sentence(EXERCISES[f"{name}_numba"], filled(name, *change, tmp_path))
    assert found is not None, mistake
    assert re.search(said, found), found


def test_a_file_is_judged_in_a_process_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled("zip", "", "", tmp_path)
    assert check(tmp_path / "mine.py")
    text = " ".join(capsys.readouterr().out.split())
    assert "Kernels run through Numba's simulator, which looks at every access to memory:" in text
    assert text.endswith("✓ a NaN All cases are right.")
    with pytest.raises(GalleryError, match="zip_numba has no sizes to sweep; `check` works without --sweep"):
        check(tmp_path / "mine.py", sweep=True)
