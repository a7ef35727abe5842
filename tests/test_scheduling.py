"""Files whose tests are to run in the same process do, and those that take longest begin first."""

from collections import OrderedDict
from pathlib import Path

from tests.scheduling import LONGEST, SPLIT, TOGETHER, ByFile

ROOT = Path(__file__).parents[1]


def test_files_that_share_fixtures_are_one_scope_and_others_are_their_own() -> None:
    scope_of = ByFile.__new__(ByFile)._split_scope
    for name, files in TOGETHER.items():
        assert all((ROOT / file).is_file() for file in files)
        assert {scope_of(f"{file}::test_one[of-some]") for file in files} == {name}
    assert scope_of("tests/test_scheduling.py::test_one") == "tests/test_scheduling.py"


def test_files_that_are_split_go_in_that_many_pieces_and_keep_each_test_in_one() -> None:
    scope_of = ByFile.__new__(ByFile)._split_scope
    for file, pieces in SPLIT.items():
        assert (ROOT / file).is_file()
        tests = [f"{file}::test_one[{number}]" for number in range(200)]
        assert len({scope_of(test) for test in tests}) == pieces
        assert [scope_of(test) for test in tests] == [scope_of(test) for test in tests]
    assert not {file for files in TOGETHER.values() for file in files} & set(SPLIT)


class Process:
    """One that pytest-xdist gives tests to, by their numbers in what it has collected."""

    shutting_down = False

    def __init__(self) -> None:
        self.given: list[int] = []

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.given += numbers


def test_the_longest_begin_first_and_the_others_as_they_stand() -> None:
    assert all(name in TOGETHER or (ROOT / name).is_file() for name in LONGEST)
    assert not {file for files in TOGETHER.values() for file in files} & set(LONGEST)
    others = ["tests/test_errors.py", "tests/test_imports.py"]
    groups = {name: files[0] for name, files in TOGETHER.items()}
    process, tests = Process(), [f"{groups.get(scope, scope)}::test_one" for scope in (*others, *reversed(LONGEST))]
    scheduler = ByFile.__new__(ByFile)
    scheduler.assigned_work, scheduler.registered_collections = {}, {process: tests}
    scheduler.workqueue = OrderedDict((scheduler._split_scope(name), {name: False}) for name in tests)
    while scheduler.workqueue:
        scheduler._assign_work_unit(process)
    assert [tests[number].partition("::")[0] for number in process.given] == [
        groups.get(scope, scope) for scope in (*LONGEST, *others)
    ]


def test_a_process_in_place_of_one_that_crashed_gets_no_tests_before_it_has_collected_them() -> None:
    process = Process()
    scheduler = ByFile.__new__(ByFile)
    scheduler.assigned_work, scheduler.registered_collections = {process: {}}, {}
    scheduler.workqueue = OrderedDict({"tests/test_errors.py": {"tests/test_errors.py::test_one": False}})
    scheduler._reschedule(process)
    assert process.given == []
    assert list(scheduler.workqueue) == ["tests/test_errors.py"]
