"""The columns of a table that held pandas' categories, found from the text of the LightGBM model fitted on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_regressors.exporter.boosters.lightgbm_model import LightGBMModel


@dataclass(frozen=True)
class _Choice:
    """The number of ways to choose columns, and one such choice: a column appended to another choice."""

    ways: int
    before: _Choice | None
    feature: int

    def features(self) -> list[int]:
        """Return the chosen columns."""
        found, choice = [], self
        while choice.before is not None:
            found.append(choice.feature)
            choice = choice.before
        return found[::-1]


def pandas_columns(model: LightGBMModel) -> dict[int, tuple[Any, ...]]:
    """Return the categories of each column that was categorical in pandas, although the text does not name the columns.

    Columns with unordered categories are among them if all of these were declared, as LightGBM does by itself. Other
    columns hold ordered categories, whose codes LightGBM takes for numbers. The columns are known if the numbers of
    exactly one choice of columns may be codes.

    Raises:
        ValueError: there is no such choice, or there are several.
    """
    choice = _choose_columns(model, model.categorical)
    if not choice.ways:  # the user has declared columns of plain numbers
        choice = _choose_columns(model, ())
    if choice.ways != 1:
        what = "no columns" if not choice.ways else "more than one choice of columns"
        raise ValueError(
            f"{what} may hold the categories that pandas knew, which the text names without their columns. Fit it on "
            "categories without an order, and without categorical_feature"
        )
    return dict(zip(choice.features(), model.pandas_categories, strict=True))


def _choose_columns(model: LightGBMModel, needed: tuple[int, ...]) -> _Choice:
    """Return the choice of columns, from left to right and `needed` among them, whose numbers may be the codes."""
    choices = [_Choice(1, None, 0)] + [_Choice(0, None, 0)] * len(model.pandas_categories)  # by the number of columns
    for feature, info in enumerate(model.infos):
        before, codes = choices, _count_codes(info)
        choices = [_Choice(0, None, 0) if feature in needed else choice for choice in before]
        for count, categories in enumerate(model.pandas_categories, 1):
            if before[count - 1].ways and codes <= len(categories):
                ways = choices[count].ways + before[count - 1].ways
                choices[count] = _Choice(ways, before[count - 1], feature)
    return choices[-1]


def _count_codes(info: str) -> float:
    """Return the least number of categories whose codes a feature's numbers can be; infinity if they are not codes."""
    numbers = [] if info == "none" else [float(number) for number in info.strip("[]").split(":")]
    are_codes = all(number == np.rint(number) and number >= -1 for number in numbers)
    return max(numbers, default=-1.0) + 1 if are_codes else np.inf
