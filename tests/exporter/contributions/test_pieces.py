"""Sums of piecewise polynomials of one column."""

import numpy as np
import pytest
import torch

from triton_regressors.exporter.contributions.pieces import add_up_pieces
from triton_regressors.kernels.ops.linear.piecewise import Piecewise

COLUMNS, OF_COLUMN, OUTPUTS = 9, 5, 8


def functions(nan_is_zero: bool = False) -> Piecewise:
    """Return cubic functions, of which no two of one column need have the same number of knots."""
    rng = np.random.default_rng(0)
    count = COLUMNS * OF_COLUMN
    knots = np.sort(rng.standard_normal((count, 6)), axis=1)
    for own, used in zip(knots, rng.integers(1, 7, count), strict=True):
        own[used:] = np.inf
    source = np.repeat(np.arange(COLUMNS, dtype=np.int32), OF_COLUMN)
    return Piecewise(source, knots, rng.standard_normal((count, 7, 4)), nan_is_zero)


@pytest.mark.parametrize("nan_is_zero", [False, True])
def test_few_functions_give_the_outputs_of_many(nan_is_zero: bool) -> None:
    pieces = functions(nan_is_zero)
    weight = np.zeros((COLUMNS * OF_COLUMN, OUTPUTS))
    for output in range(OUTPUTS - 1):  # the last one takes nothing, and the first one two columns
        weight[pieces.source == output + 1, output] = np.arange(1.0, 1 + OF_COLUMN)
    weight[0, 0] = 3.0
    found = add_up_pieces(pieces, weight)
    assert found is not None
    few, chosen = found
    few.check_pieces(COLUMNS)
    assert few.source.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert few.nan_is_zero is nan_is_zero
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((200, COLUMNS)) * 2)
    x[3, 2] = torch.nan
    wanted = pieces.values(x, nan_is_zero).numpy() @ weight
    answers = few.values(x, nan_is_zero).numpy() @ chosen
    assert answers.shape == wanted.shape == (200, OUTPUTS)
    assert np.array_equal(np.isnan(answers), np.isnan(wanted))
    assert np.nanmax(np.abs(answers - wanted)) <= 1e-12 * np.nanmax(np.abs(wanted))


def test_functions_that_one_step_contracts_or_that_are_few_stay() -> None:
    pieces = functions()
    assert add_up_pieces(pieces, np.ones((len(pieces.source), 1))) is None
    alone = Piecewise(pieces.source[::OF_COLUMN], pieces.knots[::OF_COLUMN], pieces.coefficients[::OF_COLUMN])
    assert add_up_pieces(alone, np.eye(COLUMNS)) is None
