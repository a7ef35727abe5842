"""Strings of a request as an error quotes them."""

from __future__ import annotations

SHOWN_CHARACTERS = 80
"""Characters of a request's string that an error quotes: gRPC does not deliver an error of 16 kB as an error."""


def quoted(string: bytes) -> str:
    """Return the beginning of a string as an error shows it, with its length if it was cut."""
    text = string[: 4 * SHOWN_CHARACTERS + 4].decode(errors="replace")  # a character has at most 4 bytes
    if len(text) <= SHOWN_CHARACTERS:
        return repr(text)
    return f"{text[:SHOWN_CHARACTERS]!r}... ({len(string):,} bytes)"
