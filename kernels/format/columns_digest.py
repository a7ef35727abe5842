"""Parameters of a configuration about a model's columns and answers, and the digest by which a request names them.

A client selects a table's columns by name and rounds numbers that are not categories, following the configuration that
it read. The model may have been reloaded with other columns since then. A request whose tensors depend on the columns
therefore carries a digest of the parameters that the client read, and the model refuses any other digest than its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

COLUMNS = "columns"
"""Parameter of a configuration: JSON, an object of each input's name to the names that its columns had in training."""

CATEGORIES = "categories"
"""Parameter of a configuration: JSON, an object of each input's name to the places of columns that hold categories."""

DATES = "dates"
"""Parameter of a configuration: JSON, an object of each input's name to its columns of dates, each an object of its
place, `column`, the unit of the numbers that are sent, always "ns" since 1970-01-01 UTC, and its time zone or null."""

CHECKS_COLUMNS = "checks_columns"
"""Parameter of a configuration whose model refuses requests that were made for other columns."""

ANSWERS_COLUMN = "answers_column"
"""Parameter of a configuration whose model's `predict` answers its one target as `[rows, 1]`."""

COLUMNS_DIGEST = "columns_digest"
"""Parameter of a request: `columns_digest` of the configuration that its tensors were made by."""


def columns_digest(parameters: Mapping[str, str]) -> str:
    """Return the digest of a configuration's parameters about the columns: 128 bits in hexadecimal."""
    dates = [parameters[DATES]] if DATES in parameters else []
    told = json.dumps([parameters.get(COLUMNS, ""), parameters.get(CATEGORIES, ""), *dates])
    return hashlib.sha256(told.encode()).hexdigest()[:32]
