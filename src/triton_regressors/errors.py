"""The root of the errors this package raises on purpose.

    TritonRegressorsError
    ├── exporter.errors.ExportError     an estimator, a parameter or a path cannot be exported
    └── clients.errors                  a server could not be started or did not answer as asked

`kernels.errors.PlanError` is a plain ValueError: entries carry the kernels without the rest of this package.
Each message is a sentence that names what is wrong and what is accepted.
"""


class TritonRegressorsError(Exception):
    """Something the caller can mend; the message says what and how."""
