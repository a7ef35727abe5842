"""Sizes of the work of coalitions and of orders."""

from __future__ import annotations

COALITIONS_BLOCK = 1024
"""Numbers that a program makes."""

ROWS_AT_ONCE = 2**17
"""The most rows for which a plan is computed together."""

ORDERS_BLOCK = 128
"""Means that a program makes, and as many errors."""

NUMBERS_AT_ONCE = 2**24
"""The most numbers of a value of these rows, 128 MB in float64."""

BATCH_EVALUATIONS = 2**24
"""The most rows for which a plan is computed, for all coalitions of a batch's rows, or of one row."""
