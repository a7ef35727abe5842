"""Files whose tests are to run in the same process do."""

from pathlib import Path

from tests.scheduling import TOGETHER, ByFile


def test_files_that_share_fixtures_are_one_scope_and_others_are_their_own() -> None:
    scope_of = ByFile.__new__(ByFile)._split_scope
    for name, files in TOGETHER.items():
        assert all((Path(__file__).parents[1] / file).is_file() for file in files)
        assert {scope_of(f"{file}::test_one[of-some]") for file in files} == {name}
    assert scope_of("tests/test_scheduling.py::test_one") == "tests/test_scheduling.py"
