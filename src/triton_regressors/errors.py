"""The root of the errors this package raises on purpose.

    TritonRegressorsError
    ├── exporter.errors.ExportError     an estimator, a parameter or a path cannot be exported
    └── clients.errors                  a server could not be started or did not answer as asked

`kernels.errors.PlanError` is a plain ValueError: entries carry the kernels without the rest of this package.
Each message is a sentence that names what is wrong and what is accepted.
"""


# ruff: noqa: N818 (the names say what happened, as in clients/errors.py)


class TritonRegressorsError(Exception):
    """Something the caller can mend; the message says what and how."""


class MissingExtra(TritonRegressorsError, ImportError):
    """Packages that an extra of this distribution brings are not installed; the message says which extra."""
