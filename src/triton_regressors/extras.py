"""The packages that this distribution's extras bring, and the error if a package needed by some part is missing."""

import sys
from importlib.util import find_spec

from triton_regressors.errors import MissingExtra

EXTRAS = {
    "boosters": ("catboost", "lightgbm", "xgboost"),
    "compare": ("matplotlib",),
    "export": ("joblib", "sklearn", "skops", "torch", "triton"),
    "mlflow": ("mlflow", "yaml"),
    "parquet": ("pyarrow",),
    "ray": ("pyarrow", "ray", "torch", "triton"),
    "score": ("pyarrow", "torch", "triton"),
    "serve": ("torch", "triton"),
}
"""Extra → the import names of its packages; an entry on the server computes with those of `serve`."""
INSTALL_SERVER = "pip install --no-deps nvidia-pytriton==0.7.0"
"""The command that installs the Triton server itself. No extra can install it: its wheel requires numpy below 2."""


def require(extra: str, what: str, *packages: str) -> None:
    """Raise `MissingExtra` unless these packages of an extra, by default all, are installed; `what` needs them."""
    missing = [package for package in packages or EXTRAS[extra] if find_spec(package) is None]
    if not missing:
        return
    if "triton" in missing and sys.platform != "linux":
        raise MissingExtra(
            f"{what} needs the Triton language (the package triton), which runs only on Linux, also in WSL or in a "
            "container. The client, `predict` and `verify` work here."
        )
    said = (
        f"{what} needs {', '.join(missing)}, not installed here; `pip install 'triton-regressors[{extra}]'` "
        f"brings {'it' if len(missing) == 1 else 'them'}"
    )
    if extra == "serve" and find_spec("pytriton") is None:
        said += f", and `{INSTALL_SERVER}` the Triton server itself"
    raise MissingExtra(f"{said}.")
