"""The error that scoring raises."""

from triton_regressors.errors import TritonRegressorsError


class ScoringError(TritonRegressorsError):
    """An entry, a file or an earlier run does not allow the scoring of files."""
