"""The error of a comparison that cannot be run as asked."""

from triton_regressors.errors import TritonRegressorsError


class ComparisonError(TritonRegressorsError):
    """A configuration, a load or a server that `compare` cannot work with; the message says what is accepted."""
