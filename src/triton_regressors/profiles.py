"""What an entry's profile is, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.format.row_profile import RowProfile

MOST = 24
"""Of how many columns numbers are shown."""

ENOUGH_ROWS = 239
"""From so many rows on no drift alert waits for the profile: 6 · 2 / (m + 1) <= 5 %, see docker/drift.yaml."""


def in_words(profile: RowProfile, inputs: Inputs, called: Sequence[str]) -> list[str]:
    """Return what the rows of a profile looked like, column by column and output by output."""
    sentences = [f"Served rows are compared with {profile.rows:,} rows; smallest, median and largest of their numbers:"]
    taken = sorted(column for columns in inputs.columns().values() for column in columns)
    columns = [column for column in taken if column not in inputs.coded]
    for column in columns[:MOST]:
        if column in profile.known:
            count = len(profile.known[column])
            sentences.append(f"{called[column]}: {count:,} categor{'y' if count == 1 else 'ies'}")
        else:
            sentences.append(f"{called[column]}: {_three(profile.deciles[:, column])}")
        share = float(profile.nan_share[column])
        sentences[-1] += f", {100 * share:.3g} % missing." if share else "."
    if len(columns) > MOST:
        sentences.append(f"And {len(columns) - MOST:,} more columns.")
    if not np.isnan(profile.low).all():
        sentences.append(
            f"Of rows like these, {100 * profile.expected_outside:.2g} % lie out of the range of a column on average, "
            f"2 / ({profile.rows:,} + 1)."
        )
    return sentences + [f"Answers {name}: {_three(each.deciles)}." for name, each in profile.answers.items()]


def few_rows(profile: RowProfile) -> str | None:
    """Return what a profile of few rows is worth, None where it has enough."""
    if profile.rows >= ENOUGH_ROWS:
        return None
    return (
        f"The profile has {profile.rows:,} row{'s' * (profile.rows != 1)}, which are few: of rows like "
        f"{'them' if profile.rows != 1 else 'it'} {100 * profile.expected_outside:.2g} % lie out of the range of a "
        "column on average, 2 / (rows + 1), and the alerts on drift wait for more. Give the training rows as profile "
        f"(--profile), or {ENOUGH_ROWS} rows at least."
    )


def _three(deciles: np.ndarray) -> str:
    ends = [deciles[place] for place in (0, len(deciles) // 2, -1)]
    return "no number" if np.isnan(ends).any() else ", ".join(f"{number:.4g}" for number in ends)
