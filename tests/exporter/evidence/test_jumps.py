"""Rows at jumps, which are found by asking."""

import numpy as np

from triton_regressors.exporter.evidence.jumps import rows_at_jumps

X = np.random.default_rng(0).uniform(-3, 3, (50, 3))
X[::7, 1] = np.nan


def test_a_jump_is_found_to_the_last_bit_and_a_slope_is_none() -> None:
    edge = 0.7

    def differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        step, slope = (np.sinh(x) > edge for x in (a[:, 0], b[:, 0])), (50 * x[:, 2] for x in (a, b))
        return np.abs(np.subtract(*step, dtype=float)) + np.abs(np.subtract(*slope))

    rows = rows_at_jumps(differ, X, [0, 1, 2], 1e-3)
    below, above = np.split(rows[:, 0], 2)
    assert len(rows) > 10
    assert (np.nextafter(np.minimum(below, above), 9) == np.maximum(below, above)).all()
    assert ((np.sinh(below) > edge) != (np.sinh(above) > edge)).all()


def test_no_rows_where_the_estimator_refuses_or_nothing_varies() -> None:
    assert len(rows_at_jumps(lambda a, b: None, X, [0], 1e-3)) == 0
    assert len(rows_at_jumps(lambda a, b: np.ones(len(a)), np.ones((5, 2)), [1], 1e-3)) == 0
    assert len(rows_at_jumps(lambda a, b: np.zeros(len(a)), X, [0, 2], 1e-3)) == 0
