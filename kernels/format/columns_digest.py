"""Parameters of a configuration about a model's columns and answers, and the one by which a request names them.

A client takes the columns of a table by their names, and rounds numbers that are no categories, as the configuration
said when it asked; by then the model may have been loaded anew with other columns. So a request whose tensors depend on
them carries a digest of what the client was told, and the model refuses it where that is not what it tells itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

COLUMNS = "columns"
"""Parameter of a configuration: JSON, an object of each input's name to the names that its columns had in training."""

CATEGORIES = "categories"
"""Parameter of a configuration: JSON, an object of each input's name to the places of columns that hold categories."""

CHECKS_COLUMNS = "checks_columns"
"""Parameter of a configuration whose model refuses requests that were made for other columns."""

ANSWERS_COLUMN = "answers_column"
"""Parameter of a configuration whose model's `predict` answers its one target as `[rows, 1]`."""

COLUMNS_DIGEST = "columns_digest"
"""Parameter of a request: `columns_digest` of the configuration that its tensors were made by."""


def columns_digest(parameters: Mapping[str, str]) -> str:
    """Return the digest of what a configuration's parameters tell of the columns: of 128 bits, in hexadecimal."""
    told = json.dumps([parameters.get(COLUMNS, ""), parameters.get(CATEGORIES, "")])
    return hashlib.sha256(told.encode()).hexdigest()[:32]
