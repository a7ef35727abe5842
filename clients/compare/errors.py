"""The errors of a comparison that cannot be run as asked."""

from triton_regressors.errors import TritonRegressorsError


class ComparisonError(TritonRegressorsError):
    """A configuration, a load or a server that `compare` cannot work with; the message says what is accepted."""


class NoAnswers(ComparisonError):  # noqa: N818  # it is what happened, as in clients/errors.py
    """A model that answers requests with errors alone; the message is the most frequent of these."""
