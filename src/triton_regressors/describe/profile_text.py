"""A description of an entry's profile, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.format.row_profile import RowProfile

MOST = 24
"""The number of columns whose numbers are shown."""

ENOUGH_ROWS = 239
"""From this many rows m on, no drift alert waits for the profile: 6 · 2 / (m + 1) <= 5 %, see docker/drift.yaml."""


def profile_sentences(profile: RowProfile, inputs: Inputs, called: Sequence[str]) -> list[str]:
    """Return sentences on the rows of a profile, column by column and output by output."""
    sentences = [
        f"Served rows are compared with {profile.rows:,} rows. Smallest, median and largest number of each column:"
    ]
    taken = sorted(column for columns in inputs.columns().values() for column in columns)
    columns = [column for column in taken if column not in inputs.coded]
    for column in columns[:MOST]:
        if column in profile.known:
            count = len(profile.known[column])
            sentences.append(f"{called[column]}: {count:,} categor{'y' if count == 1 else 'ies'}")
        else:
            date = inputs.dates.get(column)
            written = "{:.4g}".format if date is None else _date_text if date.zone is None else _utc_text
            sentences.append(f"{called[column]}: {_three(profile.deciles[:, column], written)}")
        share = float(profile.nan_share[column])
        sentences[-1] += f", {100 * share:.3g} % missing." if share else "."
    if len(columns) > MOST:
        sentences.append(f"And {len(columns) - MOST:,} more columns.")
    if not np.isnan(profile.low).all():
        sentences.append(
            f"On average {100 * profile.expected_outside:.2g} % of rows like these lie out of the range of a column, "
            f"2 / ({profile.rows:,} + 1)."
        )
    return sentences + [f"Answers {name}: {_three(each.deciles)}." for name, each in profile.answers.items()]


def few_rows_sentence(profile: RowProfile) -> str | None:
    """Return a sentence on the limits of a profile of few rows; None if it has enough."""
    if profile.rows >= ENOUGH_ROWS:
        return None
    return (
        f"The profile has only {profile.rows:,} row{'s' * (profile.rows != 1)}. On average "
        f"{100 * profile.expected_outside:.2g} % of rows like {'these' if profile.rows != 1 else 'it'} lie out of "
        "the range of a column, 2 / (rows + 1), and the alerts on drift wait for a profile of more rows. Give the "
        f"training rows as profile (--profile), or at least {ENOUGH_ROWS} rows."
    )


def _date_text(microseconds: float) -> str:
    """Return a date of a plan's matrix in ISO 8601, without a fraction or a time of 0."""
    date = np.datetime64(int(microseconds), "us")
    shortest = next(unit for unit in ("D", "s", "us") if date.astype(f"datetime64[{unit}]") == date)
    return str(date.astype(f"datetime64[{shortest}]")).replace("T", " ")


def _utc_text(microseconds: float) -> str:
    """Return a date of a plan's matrix that has a time zone, in UTC."""
    return f"{_date_text(microseconds)} UTC"


def _three(deciles: np.ndarray, written: Callable[[float], str] = "{:.4g}".format) -> str:
    ends = [deciles[place] for place in (0, len(deciles) // 2, -1)]
    return "no number" if np.isnan(ends).any() else ", ".join(map(written, ends))
