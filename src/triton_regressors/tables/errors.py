"""The error of rows that do not fit a model; exporter, clients and scoring turn it into errors of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class TableError(ValueError):
    """Rows do not fit; the message is a whole sentence that begins with what the rows are called."""


@contextmanager
def raised_as(kind: type[Exception], before: str = "", caught: type[Exception] = TableError) -> Iterator[None]:
    """Turn errors of one kind, `caught`, into another one; `before` goes before the sentence."""
    try:
        yield
    except caught as error:
        raise kind(f"{before}{error}") from None


def one_line(error: Exception) -> str:
    """Return the message of an error of numpy, pandas, pyarrow or the system in one line."""
    return " ".join(str(error).split()).rstrip(".")
