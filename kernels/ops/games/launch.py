"""Sizes of the work of coalitions."""

from __future__ import annotations

COALITIONS_BLOCK = 1024
"""Numbers that a program makes."""

ROWS_AT_ONCE = 2**17
"""The most rows for which a plan is computed together."""

NUMBERS_AT_ONCE = 2**24
"""The most numbers of a value of these rows, 128 MB in float64."""
