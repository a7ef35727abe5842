"""Every error that this package raises on purpose, by its name in `triton_regressors`.

    TritonRegressorsError                a problem that the caller can fix
    ├── MissingExtra                     packages are missing that an extra brings; also an ImportError
    ├── ExportError                      an estimator, a parameter, a file or a repository does not allow the export
    ├── RegistryError                    MLflow, or a model or a run in it, does not allow what was asked
    ├── ServerError                      the embedded Triton server could not start, or ended by itself
    ├── RowsError                        a file of rows, or the golden rows of an entry, cannot be read
    ├── ScoringError                     an entry, a file or an earlier run does not allow the scoring of files
    ├── ComparisonError                  a configuration, a load or a server that `compare` cannot work with
    │   ├── NoAnswers                    the model answers requests with errors alone
    │   └── IncompleteComparison         it failed after some points; `partial` holds them
    └── InferenceError                   a Triton server did not do what it was asked
        ├── InvalidRequest               the request is wrong: shape, dtype, output, values, or an argument of the call
        ├── ModelNotFound                no such model or version is loaded
        ├── ServerUnavailable            nothing answers at this address, or the server takes no more requests now
        ├── RequestTimeout               no answer in the time given
        ├── RequestCancelled             the request was cancelled before it was answered
        └── ServerFault                  the server failed: an error inside the model, or an answer that cannot be read

Each message is one or two sentences that name the fault and the accepted values. `ServerUnavailable` and
`RequestTimeout` may be temporary; repeating the same call cannot fix the others.

`kernels.format.errors.PlanError` is a plain ValueError, since entries carry the kernels without the rest of this
package; the public functions turn it into one of the above.
"""

# ruff: noqa: N818 (the names say what happened, as `TimeoutError`'s siblings in httpx do)


class TritonRegressorsError(Exception):
    """A problem that the caller can fix; the message says what it is and how to fix it."""


class RegistryError(TritonRegressorsError):
    """MLflow lacks a model or a run, a model is of a kind that cannot be read, or MLflow cannot take an entry."""


class MissingExtra(TritonRegressorsError, ImportError):
    """Packages that an extra of this distribution brings are not installed; the message says which extra."""
