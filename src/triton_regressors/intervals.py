"""What an entry's prediction interval is, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from triton_regressors.kernels.entry import SCALED, IntervalReport

FEW = 4
"""Of how many targets numbers are shown."""


def in_words(report: IntervalReport) -> list[str]:
    """Return what is added to the answers, what that promises, and what was found on held-out rows."""
    unit = " std" if report.method == SCALED else ""
    sentences = [
        f"lower and upper are y ± {_numbers(report.quantile)}{unit}, {_numbers(report.mean_width)} apart on average: "
        f"for {_percent(report.level)} of new rows, by split conformal prediction from the {report.method} of "
        f"{report.rows:,} calibration rows{'' if len(report.quantile) == 1 else ', each target by itself'}."
    ]
    if report.coverage is None:
        sentences.append("These rows are too few to hold some out and count how many targets the interval covers.")
    else:
        sentences.append(
            f"Of the last {report.held_out_rows:,} of these rows, the interval that the first "
            f"{report.rows - report.held_out_rows:,} give covers {_percent(*report.coverage)}."
        )
    return sentences


def _numbers(numbers: Sequence[float]) -> str:
    return _listed([f"{number:.4g}" for number in numbers])


def _percent(*shares: float) -> str:
    return _listed([f"{round(100 * share, 2):g}" for share in shares]) + " %"


def _listed(numbers: Sequence[str]) -> str:
    more = f" and {len(numbers) - FEW:,} more" if len(numbers) > FEW else ""
    return ", ".join(numbers[:FEW]) + more
