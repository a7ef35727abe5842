"""The promise of accuracy, kept by the real Triton server: see parity.py, which prints the same figures as a table."""

import pytest

from tests.exporter.catalogue.cases import CASES
from tests.server import parity

pytestmark = pytest.mark.server

AS_EXPORTED = (
    "bayesian-ridge-scaled",
    "dummy-targets",
    "frame-pipeline",
    "multi-output-polynomial",
    "polynomial-3",
    "scaler-min-max-clip",
    "search-as-step-std",
    "target-exp",
)
"""Cases served as the very entries that `export` writes: one of each operation and of each number of outputs."""


LIBRARY_OPTIONS = ("ce-options-", "fe-", "opt-options-", "skrub-options-")
"""Options of other libraries' encoders, each of which would be a process of its own: `make parity` serves them."""

OF_STRINGS = [name for name, case in CASES.items() if case.tabular and not name.startswith(LIBRARY_OPTIONS)]
OF_NUMBERS = [name for name, case in CASES.items() if not case.tabular]


@pytest.fixture(scope="module")
def served() -> list[parity.Row]:
    return parity.rows(OF_NUMBERS)


def answers(names: list[str]) -> set[tuple[str, str]]:
    """Return each case and output of these cases."""
    return {(name, output) for name in names for output in CASES[name].expected()}


def test_every_case_and_output_is_served(served: list[parity.Row]) -> None:
    assert {(row.case, row.output) for row in served} == answers(OF_NUMBERS)


@pytest.mark.usefixtures("numpy1")
def test_models_of_strings_keep_every_promise() -> None:
    found = parity.rows(OF_STRINGS)
    assert {(row.case, row.output) for row in found} == answers(OF_STRINGS)
    assert [(row, row.failure()) for row in found if row.failure()] == []


@pytest.mark.parametrize("family", ["affine", "link", "std", "polynomial", "steps"])
def test_every_answer_is_within_tolerance(served: list[parity.Row], family: str) -> None:
    members = [row for row in served if row.family == family]
    assert members
    assert [row for row in members if not (row.max_error <= parity.TOLERANCE or row.max_ulp <= 1)] == []


def test_affine_answers_are_within_one_float32_ulp(served: list[parity.Row]) -> None:
    members = [row for row in served if row.family in ("affine", "link")]
    assert [row for row in members if row.rounded_ulp > 1 and row.rounded_excess > parity.FLOAT64_NOISE] == []
    assert any("-far" in row.case for row in members)  # features around 10,000 are among them


def test_no_bit_depends_on_the_batch(served: list[parity.Row]) -> None:
    assert [row for row in served if not row.same_bits] == []


def test_entries_as_exported_are_no_different(served: list[parity.Row]) -> None:
    together = {(row.case, row.output): row for row in served}
    alone = parity.rows(AS_EXPORTED, one_by_one=True)
    assert [row.failure() for row in alone if row.failure()] == []
    assert alone == [together[row.case, row.output] for row in alone]
