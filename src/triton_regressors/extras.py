"""Which packages the extras of this distribution bring, and the error where a part of it needs one that is missing."""

from importlib.util import find_spec

from triton_regressors.errors import MissingExtra

EXTRAS = {
    "export": ("joblib", "sklearn", "skops", "torch", "triton"),
    "serve": ("torch", "triton"),
}
"""Extra → the packages that it brings, as they are imported; an entry on the server computes with those of `serve`."""


def require(extra: str, what: str) -> None:
    """Raise `MissingExtra` unless every package of an extra is installed; `what` needs them."""
    missing = [package for package in EXTRAS[extra] if find_spec(package) is None]
    if missing:
        raise MissingExtra(
            f"{what} needs {', '.join(missing)}, not installed here; `pip install 'triton-regressors[{extra}]'` "
            f"brings {'it' if len(missing) == 1 else 'them'}."
        )
