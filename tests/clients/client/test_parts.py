import numpy as np
import pytest

from triton_regressors.clients.client.parts import Part, as_predicted, cut
from triton_regressors.clients.errors import InferenceError, InvalidRequest, ModelNotFound, RequestTimeout

NUMBERS = {"X": np.zeros((10, 4), np.float32)}  # 16 bytes a row


def bounds(parts: list[Part]) -> list[int]:
    """Return where the parts begin, and where the last one ends; each begins where the one before it ends."""
    assert [part.first for part in parts[1:]] == [part.stop for part in parts[:-1]]
    return [part.first for part in parts] + [parts[-1].stop]


class TestCut:
    @pytest.mark.parametrize(
        ("max_rows", "max_bytes", "answer_bytes", "expected"),
        [
            (10, 160, 4, [0, 10]),
            (4, 160, 4, [0, 4, 8, 10]),
            (10, 159, 4, [0, 9, 10]),
            (10, 100, 4, [0, 6, 10]),
            (10, 100, 50, [0, 2, 4, 6, 8, 10]),  # the answer is the larger
            (3, 1, 4, [*range(11)]),  # one row at least
            (0, 1, 4, [0, 10]),  # no batches: whole
        ],
    )
    def test_numbers(self, max_rows: int, max_bytes: int, answer_bytes: int, expected: list[int]) -> None:
        assert bounds(cut(NUMBERS, max_rows, max_bytes, answer_bytes)) == expected

    @pytest.mark.parametrize(("max_rows", "expected"), [(10, [0, 2, 3, 4, 7, 10]), (2, [0, 2, 3, 4, 6, 8, 10])])
    def test_strings_count_by_their_own_lengths(self, max_rows: int, expected: list[int]) -> None:
        lengths = [0, 28, 500, 60, 0, 5, 5, 0, 0, 0]
        strings = np.array([[b"x" * length] for length in lengths], object)
        assert bounds(cut({**NUMBERS, "cat": strings}, max_rows, 80, 4)) == expected

    def test_the_parts_are_the_table(self) -> None:
        table = {"X": np.arange(20).reshape(10, 2), "cat": np.array([[str(i).encode()] for i in range(10)], object)}
        parts = cut(table, 3, 1 << 20, 4)
        for name, array in table.items():
            np.testing.assert_array_equal(np.concatenate([part.of(table)[name] for part in parts]), array)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (InvalidRequest("row 3 of X is negative."), "row 35 of X is negative."),
        (
            InvalidRequest("jobs must hold categories: row 0, column 1 ('job') is ': row 7'."),
            "jobs must hold categories: row 32, column 1 ('job') is ': row 7'.",
        ),
        (InvalidRequest("arrow 3 is no row."), "arrow 3 is no row (rows 32 to 47 of 1,000)."),
        (RequestTimeout("No answer within 3 s."), "No answer within 3 s (rows 32 to 47 of 1,000)."),
        (ModelNotFound("There is none."), "There is none."),
    ],
)
def test_errors_name_rows_of_the_whole_table(error: InferenceError, says: str) -> None:
    found = Part(32, 48, 1000).error(error)
    assert (type(found), str(found)) == (type(error), says)
    assert Part(0, 1000, 1000).error(error) is error


def test_predict_has_the_shape_of_scikit_learns() -> None:
    assert as_predicted(np.zeros((5, 1), np.float32), False).shape == (5,)
    assert as_predicted(np.zeros((1, 1), np.float32), False).shape == (1,)
    assert as_predicted(np.zeros((5, 3), np.float32), True).shape == (5, 3)
