"""The exercises: right answers pass, and mistakes as people make them are caught and named."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from typer.testing import CliRunner

from gallery import show
from gallery.__main__ import make_app
from gallery.catalogue import find
from gallery.errors import GalleryError
from gallery.exercises.catalogue import exercises
from gallery.exercises.child import load
from gallery.exercises.diagnosis import diagnose
from gallery.exercises.exercise import Case, Exercise
from gallery.exercises.judge import judge
from gallery.exercises.show import check, exercise_of
from gallery.exercises.sweep import choices_of, draw_sweep, print_sweep
from tests.gallery.answers import OTHERWISE_RIGHT, WRONG, Wrong, answer, mistaken

EXERCISES = [exercise for exercise in exercises().values() if exercise.language == "triton"]
CPU = torch.device("cpu")
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")


def sentence(exercise: Exercise, solve: object, device: torch.device) -> str | None:
    """Return what is said of an answer, or None if all cases are right."""
    for case in exercise.cases:
        found = judge(
            solve,  # type: ignore[arg-type]
            exercise.reference,
            case,
            exercise.tolerances[case.dtype],
            device,
            exercise.language,
            mistakes=exercise.mistakes,
        )
        if not found.is_right:
            return diagnose(found, case)
    return None


def text_of(name: str) -> str:
    return exercises()[name].file.read_text(encoding="utf-8")


def wrong_answer(exercise: str, name: str) -> str:
    """Return the file with a mistake."""
    (wrong,) = (each for each in WRONG if (each.exercise, each.name) == (exercise, name))
    return mistaken(wrong, text_of(exercise))


def solve_of(text: str, folder: Path) -> object:
    """Return the function of a file with this text."""
    (folder / "mine.py").write_text(text, encoding="utf-8")
    return load(folder / "mine.py").solve


def printed(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(make_app(), list(arguments), env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == status
    return result.stdout


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda each: each.name)
def test_the_gallerys_solution_passes(exercise: Exercise, device: torch.device) -> None:
    assert sentence(exercise, exercise.solve, device) is None


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda each: each.name)
def test_the_file_with_its_gap_filled_passes(exercise: Exercise, device: torch.device, tmp_path: Path) -> None:
    text = answer(exercise.name, text_of(exercise.name))
    assert sentence(exercise, solve_of(text, tmp_path), device) is None


@NO_GPU
@pytest.mark.parametrize("wrong", WRONG, ids=lambda each: f"{each.exercise}-{each.name}")
def test_a_mistake_is_caught_and_named(wrong: Wrong, tmp_path: Path) -> None:
    said = sentence(exercises()[wrong.exercise], solve_of(mistaken(wrong, text_of(wrong.exercise)), tmp_path), CPU)
    assert said is not None
    assert wrong.said in said


def test_every_exercise_has_three_mistakes_in_these_tests() -> None:
    for exercise in EXERCISES:
        assert sum(wrong.exercise == exercise.name for wrong in WRONG) >= 3, exercise.name


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("exercise", "name", "said"),
    [
        ("map", "no store mask", "memory next to what it makes was overwritten"),
        ("map_2d", "strides", "Strides are ignored"),
        ("dot", "sums in 16 bits", "sums are kept in 16 bits"),
        ("dot", "a race", ""),
        ("softmax", "no maximum", "without the row's maximum"),
        ("softmax", "16 bits", "Exponentials, logarithms and roots take float32"),
        ("pooling", "one too short", "lack their first element"),
    ],
)
def test_a_gpu_alone_shows_these_mistakes(exercise: str, name: str, said: str, tmp_path: Path) -> None:
    found = sentence(exercises()[exercise], solve_of(wrong_answer(exercise, name), tmp_path), torch.device("cuda"))
    assert found is not None
    assert said in found


@pytest.mark.gpu
@pytest.mark.parametrize("wrong", WRONG, ids=lambda each: f"{each.exercise}-{each.name}")
def test_a_mistake_is_caught_beside_a_gpu(wrong: Wrong, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(mistaken(wrong, text_of(wrong.exercise)), encoding="utf-8")
    assert not check(tmp_path / "mine.py")
    assert wrong.said in " ".join(capsys.readouterr().out.split())


@pytest.mark.gpu
def test_a_right_answer_is_judged_in_both_places_and_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(answer("map", text_of("map")), encoding="utf-8")
    assert check(tmp_path / "mine.py", sweep=True)
    text = capsys.readouterr().out
    for part in ("through the interpreter", "on the GPU", "All cases are right", "The fastest is BLOCK"):
        assert part in text
    assert (tmp_path / "mine.png").exists()


@pytest.mark.parametrize(("exercise", "text"), OTHERWISE_RIGHT, ids=["block pointers", "lock", "wrapping"])
def test_a_right_answer_of_another_kind_passes(exercise: str, text: str, device: torch.device, tmp_path: Path) -> None:
    if "make_block_ptr" in text and not hasattr(tl, "make_block_ptr"):
        pytest.skip("later releases of the Triton language have no block pointers")
    solve = solve_of("import torch\nimport triton\nimport triton.language as tl\n" + text, tmp_path)
    assert sentence(exercises()[exercise], solve, device) is None


@triton.jit
def last_adds_kernel(x, parts, done, y, n, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum blocks into `parts`; the program that finds itself the last one adds these up: a correct way to wait."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0))
    if tl.atomic_add(done, 1) == tl.num_programs(0) - 1:
        place = tl.arange(0, PROGRAMS)
        tl.store(y, tl.sum(tl.load(parts + place, mask=place < tl.num_programs(0), other=0.0), 0))


@triton.jit
def back_and_forth_kernel(x, y, n, BLOCK: tl.constexpr):
    """Write a block of y twice, and read it in between: a program sees what it has written itself."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
    tl.debug_barrier()
    tl.store(y + at, 2 * tl.load(y + at, mask=at < n), mask=at < n)


def last_adds(x: torch.Tensor) -> torch.Tensor:
    parts, y = torch.empty(8, device=x.device), torch.empty((), device=x.device)
    done = torch.zeros(1, dtype=torch.int32, device=x.device)
    last_adds_kernel[(5,)](x, parts, done, y, len(x), PROGRAMS=8, BLOCK=16)
    return y


def back_and_forth(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    back_and_forth_kernel[(5,)](x, y, len(x), BLOCK=16)
    return y


@pytest.mark.parametrize(
    ("call", "reference"), [(last_adds, torch.sum), (back_and_forth, lambda x: 2 * x)], ids=["last adds", "twice"]
)
def test_a_correct_program_is_not_called_wrong(call: object, reference: object, device: torch.device) -> None:
    case = Case("71 numbers", lambda dtype, device: (torch.rand(71, dtype=dtype, device=device),), "wrong")
    found = judge(call, lambda x: reference(x), case, 1e-6, device)  # type: ignore[arg-type, operator]
    assert found.is_right, found
    assert not found.races


@NO_GPU
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import os, signal\n    os.kill(os.getpid(), signal.SIGSEGV)", "The process ended by signal 11"),
        ("while True: pass", "It did not end within 2 seconds: a loop does not"),
    ],
)
def test_whatever_a_file_does_is_told(body: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(f'EXERCISE = "map"\n\n\ndef solve(x, c):\n    {body}\n', encoding="utf-8")
    assert not check(tmp_path / "mine.py", seconds=2)
    assert said in " ".join(capsys.readouterr().out.split())


def test_an_answer_of_another_kind_is_told() -> None:
    for solve, said in (
        (lambda x, c: x[1:] + c, "its shape is [4095] where [4096] is due"),
        (lambda x, c: (x + c).double(), "its type is torch.float64 where torch.float32 is due"),
        (lambda x, c: None, "1 tensors are due"),
    ):
        assert said in str(sentence(exercises()["map"], solve, CPU))
    assert "could not run" in str(sentence(exercises()["map"], lambda x, c: 1 / 0, CPU))


@NO_GPU
def test_an_error_in_a_kernel_is_told_with_its_line(tmp_path: Path) -> None:
    text = answer("map", text_of("map")).replace("tl.arange(0, BLOCK)", "tl.arange(0, 1000)")
    exercise, case = exercises()["map"], exercises()["map"].cases[0]
    found = judge(solve_of(text, tmp_path), exercise.reference, case, 1e-6, CPU)
    assert f"line {text.split('tl.arange')[0].count(chr(10)) + 1}" in str(found.exception)
    assert diagnose(found, case).startswith("The length of a block is a power of two")


def test_an_exercise_is_written_once_and_judged(tmp_path: Path) -> None:
    path = tmp_path / "map.py"
    assert f"python -m gallery check {path}" in printed("try", "map", "--folder", str(tmp_path)).replace("\n", "")
    assert path.read_text("utf-8") == text_of("map")
    path.write_text(path.read_text("utf-8") + "# mine\n", "utf-8")
    with pytest.raises(GalleryError, match="is there already, and may be your work: it is not overwritten"):
        printed("try", "map", "--folder", str(tmp_path))
    assert path.read_text("utf-8").endswith("# mine\n")
    text = printed("check", str(path), status=1)
    assert re.search(r"│ +0 │ +0.6798\d+ │ never written │", text)
    assert "Nothing is stored: the kernel's gap is still empty" in text


def test_exercises_are_listed_with_hints_and_the_gallerys_kernels() -> None:
    text = printed("try")
    for exercise in exercises().values():
        assert f"│ {exercise.name} " in text
        assert 1 <= len(exercise.hints) <= 3
        assert exercise_of(exercise.file) is exercise
        shown = printed("try", exercise.name, "--solution")
        for _, functions in exercise.solution:
            for function in functions:
                assert f"def {function}(" in shown
    assert "Hint 2 of 3: `at = tl.program_id(0)" in printed("try", "map", "--hint", "2")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["try", "nap"], "There is no exercise nap; did you mean map"),
        (["try", "map", "--hint", "4"], "map has hints 1 to 3; there is no hint 4"),
        (["check", "nowhere.py"], "nowhere.py cannot be read: No such file or directory."),
        (["check", "gallery/errors.py"], "gallery/errors.py does not say which exercise it is"),
        pytest.param(
            ["check", "gallery/exercises/files/map.py", "--sweep"],
            "The speed of a kernel needs a CUDA GPU",
            marks=NO_GPU,
        ),
    ],
)
def test_refusals_are_a_sentence(arguments: list[str], said: str) -> None:
    with pytest.raises(GalleryError, match=re.escape(said)):
        printed(*arguments)


def test_a_sweep_is_printed_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    choices = choices_of({"BLOCK": [256, 512], "num_warps": [1, 4]})
    assert len(choices) == 4
    rows = [[choice, us, ""] for choice, us in zip(choices, [40.0, 20.0, 10.0, None], strict=True)]
    rows[-1][2] = "out of resource"
    from rich.console import Console

    print_sweep(Console(width=120), {"rows": rows, "bytes": 80_000})
    text = capsys.readouterr().out
    assert re.search(r"│ BLOCK 512, num_warps 1 │ 10.0 │ +8 │ █{8} +│", text)
    assert re.search(r"│ BLOCK 512, num_warps 4 │ +│ +│ out of resource", text)
    assert "The fastest is BLOCK 512, num_warps 1: 10.0 µs." in text
    draw_sweep({"rows": rows}, "mine", tmp_path / "mine.png")
    assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")


@NO_GPU
@pytest.mark.parametrize(
    ("exercise", "name", "said"),
    [
        ("map", "no load mask", "The mask of a load is missing"),
        ("map", "no store mask", "The mask of a store is missing"),
        ("map_2d", "strides", "Strides are ignored"),
        ("softmax", "no maximum", "without the row's maximum"),
        ("dot", "a race", "A race: programs store"),
    ],
)
def test_run_refuses_what_check_refuses(exercise: str, name: str, said: str, tmp_path: Path) -> None:
    ways = {"mine": solve_of(wrong_answer(exercise, name), tmp_path)}
    sizes = [size for size in find(exercise).sizes if 0 not in size and len(size) < 3]
    wrong = dataclasses.replace(find(exercise), ways=ways, sizes=sizes, differentiable=False)
    with pytest.raises(GalleryError, match=f"{exercise}, mine: .*{said}"):
        show.run(wrong)


def test_run_has_the_interpreter_look_first() -> None:
    show.run_interpreted(find("map"), "float16")
    with pytest.raises(GalleryError, match="Through the interpreter: --dtype int8 is none that map takes"):
        show.run_interpreted(find("map"), "int8")
