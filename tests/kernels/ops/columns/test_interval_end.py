"""The ends of an interval are rounded outwards: the float32 next to the exact number on its far side, to the bit."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.kernels.operations import run_kernel, run_reference
from tests.kernels.operations_intervals import interval_end
from triton_regressors.exporter.evidence.intervals import rounded
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.interval_end import IntervalEnd

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy

TINY, LARGEST = np.float32(2.0**-149), np.finfo(np.float32).max
RNG = np.random.default_rng(0)
NUMBERS = np.concatenate(
    [
        RNG.standard_normal(500) * 10.0 ** RNG.integers(-50, 41, 500),
        RNG.standard_normal(200).astype(np.float32).astype(np.float64),
        np.outer([1.0, -1.0], [0.0, 0.1, 0.3, 1.0, 2.0**-149, 2.0**-150, 1e-60, 2.0**-126, 1 - 2.0**-30]).ravel(),
        np.outer([1.0, -1.0], [LARGEST, 3.5e38, 1e300, np.inf, 2.0**24, 2.0**24 + 0.5, 1 + 2.0**-24]).ravel(),
    ]
)[:, None]
"""Numbers of every magnitude: representable, halfway between two, denormal, and beyond the largest float32."""


def exactly(numbers: np.ndarray, end: str) -> np.ndarray:
    """Return the largest float32 that is no larger than each number, or the smallest that is no smaller."""
    found = []
    for number in numbers.ravel().tolist():
        near = np.float32(number)
        towards = np.float32(np.inf if end == "upper" else -np.inf)
        candidates = [np.nextafter(near, -towards), near, np.nextafter(near, towards)]
        allowed = [c for c in candidates if (float(c) >= number if end == "upper" else float(c) <= number)]
        found.append(min(allowed) if end == "upper" else max(allowed))
    return np.array(found, np.float32).reshape(numbers.shape)


@pytest.mark.parametrize("end", ["lower", "upper"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_a_number_is_rounded_away_from_the_middle_to_the_next_float32(
    device: torch.device, end: str, dtype: torch.dtype
) -> None:
    op, expected = IntervalEnd(end, "absolute", np.zeros(1)), exactly(NUMBERS, end)
    assert np.array_equal(run_kernel(op, [NUMBERS], device, dtype), expected)
    assert np.array_equal(run_reference(op, [NUMBERS]), expected)
    assert np.array_equal(rounded(NUMBERS, np.inf if end == "upper" else -np.inf), expected)
    assert LARGEST in np.abs(expected)  # a lower end beyond it, and an upper end below minus it
    assert TINY in np.abs(expected)


@pytest.mark.parametrize("form", list(IntervalEnd.FORMS))
@pytest.mark.parametrize("end", ["lower", "upper"])
@pytest.mark.parametrize("width", [1, 3])
def test_kernel_reference_and_export_agree_to_the_bit(device: torch.device, form: str, end: str, width: int) -> None:
    op, rng = interval_end(end, form, width), np.random.default_rng(1)
    given = [rng.standard_normal((700, width)) * 100 for _ in range(IntervalEnd.FORMS[form])]
    q = op.quantile
    if form == "quantiles":
        half = np.maximum(np.abs(0.5 * given[1] - 0.5 * given[0]) + q, 0.0)
        middle = 0.5 * given[0] + 0.5 * given[1]
    else:
        middle, half = given[0], q * given[1] if form == "scaled" else np.broadcast_to(q, given[0].shape)
    exact = middle + half if end == "upper" else middle - half
    kernel, reference = run_kernel(op, given, device), run_reference(op, given)
    assert np.array_equal(kernel, reference)
    assert np.array_equal(reference, exactly(exact, end))
    if form == "absolute":
        for found, m, h in zip(reference.ravel(), middle.ravel(), half.ravel(), strict=True):
            rational = Fraction(m) + Fraction(h) if end == "upper" else Fraction(m) - Fraction(h)
            off = Fraction(float(found)) - rational
            assert abs(off) <= Fraction(float(np.spacing(np.float32(abs(found))))) + Fraction(2.0**-45)


@pytest.mark.parametrize("end", ["lower", "upper"])
def test_nan_stays_nan(device: torch.device, end: str) -> None:
    for form, inputs in IntervalEnd.FORMS.items():
        given = [np.array([[np.nan], [1.0]])] * inputs
        for found in (
            run_kernel(interval_end(end, form, 1), given, device),
            run_reference(interval_end(end, form, 1), given),
        ):
            assert np.isnan(found).tolist() == [[True], [False]]


@pytest.mark.parametrize(
    ("end", "form", "quantile", "widths", "sentence"),
    [
        ("middle", "absolute", np.zeros(1), (1,), "end must be 'lower' or 'upper', not 'middle'"),
        ("lower", "relative", np.zeros(1), (1,), "form must be one of .*, not 'relative'"),
        ("lower", "scaled", np.zeros(1), (1,), r"the form 'scaled' takes 2 inputs of one width, not \[1\]"),
        ("lower", "scaled", np.zeros(2), (2, 1), r"the form 'scaled' takes 2 inputs of one width, not \[2, 1\]"),
        ("lower", "absolute", np.zeros(2), (1,), r"quantile must be \[1\], not \[2\]"),
    ],
)
def test_fields_that_do_not_fit_are_refused(
    end: str, form: str, quantile: np.ndarray, widths: tuple[int, ...], sentence: str
) -> None:
    with pytest.raises(PlanError, match=sentence):
        IntervalEnd(end, form, quantile).check(*widths)
