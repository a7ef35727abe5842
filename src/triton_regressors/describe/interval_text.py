"""A description of an entry's prediction interval, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from triton_regressors.kernels.entry import QUANTILES, SCALED, IntervalReport

FEW = 4
"""The number of targets whose numbers are shown."""


def interval_sentences(report: IntervalReport) -> list[str]:
    """Return sentences on the interval's construction, its guarantee, and its result on held-out rows."""
    if report.method == QUANTILES:
        what, way = f"{_ends(report)}, each moved {_moved(report.quantile)}", "conformalised quantile regression on"
    else:
        what = f"y ± {_numbers(report.quantile)}{' std' if report.method == SCALED else ''}"
        way = f"split conformal prediction from the {report.method} of"
    sentences = [
        f"lower and upper are {what}, {_numbers(report.mean_width)} apart on average. They are made for "
        f"{percent(report.level)} of new rows by {way} {report.rows:,} calibration "
        f"rows{'' if len(report.quantile) == 1 else ', each target by itself'}."
    ]
    if report.crossed:
        sentences.append(f"The quantiles cross in {report.crossed:,} of these rows; the smaller one is the lower end.")
    if report.y_outside:
        sentences.append(
            f"In {report.y_outside:,} of these rows y lies outside the interval, because another model answers y."
        )
    if report.coverage is None:
        sentences.append("These rows are too few to hold some out and count how many targets the interval covers.")
    else:
        sentences.append(
            f"Of the last {report.held_out_rows:,} of these rows, the interval that the first "
            f"{report.rows - report.held_out_rows:,} give covers {percent(*report.coverage)}."
        )
    return sentences


def _ends(report: IntervalReport) -> str:
    """Return the sources of the two quantiles: columns of `y`, two models' answers, or the model's own outputs."""
    if report.y_outside is None and report.ends:
        return f"the quantiles {' and '.join(report.ends)} in y"
    return "the answers of the two quantile models" if report.ends else "the model's own lower and upper"


def _moved(quantile: Sequence[float]) -> str:
    if max(quantile) < 0:
        return f"inwards by {_numbers([-number for number in quantile])}"
    return f"outwards by {_numbers(quantile)}"


def _numbers(numbers: Sequence[float]) -> str:
    return _listed([f"{number:.4g}" for number in numbers])


def percent(*shares: float) -> str:
    """Return shares in percent."""
    return _listed([f"{round(100 * share, 2):g}" for share in shares]) + " %"


def _listed(numbers: Sequence[str]) -> str:
    more = f" and {len(numbers) - FEW:,} more" if len(numbers) > FEW else ""
    return ", ".join(numbers[:FEW]) + more
