"""A server's models and versions, for the error about a missing model or version."""

import difflib
from collections.abc import Mapping, Sequence

SHOWN = 8
"""The most models that an error lists; if there are more, those with the names nearest to the requested one."""


def there_is(model: str, index: Sequence[Mapping[str, str]]) -> str:
    """Return one sentence about the models of a server, or about this one's versions.

    Args:
        model: the name that was asked for.
        index: name, version, state and reason of each version of each model, as a server lists them.
    """
    own = [row for row in index if row["name"] == model]
    ready = sorted((row["version"] for row in own if row["state"] == "READY"), key=lambda text: (len(text), text))
    if ready:
        return f"Version{'s' if len(ready) > 1 else ''} {', '.join(ready)} of '{model}' {_are(ready)} ready."
    if own:
        reasons = [row["reason"].rstrip(".") for row in own if row["reason"] not in ("", "unloaded")]
        return f"'{model}' is in the server's repository, but not loaded{': ' + reasons[0] if reasons else ''}."
    loaded = {row["name"] for row in index if row["state"] == "READY"}
    others = {row["name"] for row in index} - loaded
    if not loaded | others:
        return "The server has no models."
    ready_models = f"Models ready there: {_listed(model, loaded)}" if loaded else "No model is ready there"
    return f"{ready_models}; not ready: {_listed(model, others)}." if others else f"{ready_models}."


def _are(items: Sequence[str]) -> str:
    return "are" if len(items) > 1 else "is"


def _listed(model: str, names: set[str]) -> str:
    """Return the names in alphabetical order; if there are many, those nearest to the model's name."""
    shown = sorted(names)
    if len(shown) > SHOWN:
        shown = sorted(difflib.get_close_matches(model, shown, SHOWN, 0))
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(f"'{name}'" for name in shown) + more
