"""Year, month and day of whole days since 1970-01-01 in the proleptic Gregorian calendar.

This is `civil_from_days` of Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms": years begin in March, so
that the leap day is the last, and 400 years are 146,097 days. All of it is integer arithmetic. Days beyond `MOST_DAYS`
and NaN give NaN; a day with a fraction is rounded down.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

MOST_DAYS = 1_000_000_000
"""The most days before and after 1970: with the eras that are added, they stay below 2³¹."""

ERA_DAYS = 146_097
"""Days in 400 years."""

ERAS = 7_000
"""Eras that are added before, so that no division has a negative number."""

EPOCH = 719_468
"""Days from 0000-03-01 to 1970-01-01."""

PARTS = ("year", "month", "day")


@triton.jit
def civil(days, PART: tl.constexpr):
    """Return one of `PARTS` of the days in a float64 block."""
    known = tl.abs(days) <= 1000000000.0
    z = tl.floor(tl.where(known, days, 0.0)).to(tl.int32) + (7000 * 146097 + 719468)
    era = z // 146097
    day_of_era = z - era * 146097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)  # from 1 March on
    shifted = (5 * day_of_year + 2) // 153  # March is 0
    if PART == "day":
        y = day_of_year - (153 * shifted + 2) // 5 + 1
    elif PART == "month":
        y = tl.where(shifted < 10, shifted + 3, shifted - 9)
    else:
        tl.static_assert(PART == "year")
        y = year_of_era + (era - 7000) * 400 + tl.where(shifted < 10, 0, 1)
    return tl.where(known, y.to(tl.float64), float("nan"))


def torch_civil(days: torch.Tensor, part: str) -> torch.Tensor:
    """Return one of `PARTS` of the days in a float64 tensor."""
    known = days.abs() <= MOST_DAYS
    z = torch.where(known, days, 0.0).floor().long() + (ERAS * ERA_DAYS + EPOCH)
    era = z // ERA_DAYS
    day_of_era = z - era * ERA_DAYS
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    match part:
        case "day":
            y = day_of_year - (153 * shifted + 2) // 5 + 1
        case "month":
            y = torch.where(shifted < 10, shifted + 3, shifted - 9)
        case _:
            y = year_of_era + (era - ERAS) * 400 + (shifted >= 10)
    return torch.where(known, y.double(), torch.nan)
