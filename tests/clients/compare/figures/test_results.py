import pytest

from tests.clients.compare.points import NAN
from triton_regressors.clients.compare.figures.results import number


@pytest.mark.parametrize(
    ("value", "text"),
    [(NAN, "–"), (0, "0"), (0.01234, "0.0123"), (1.5, "1.50"), (99.95, "100.0"), (123.4, "123"), (12345.6, "12,346")],
)
def test_numbers_for_people(value: float, text: str) -> None:
    assert number(value) == text
