"""The errors of an export."""

from __future__ import annotations

from triton_regressors.errors import TritonRegressorsError


class ExportError(TritonRegressorsError):
    """An estimator, a parameter, a file or a repository does not allow the export; nothing was written."""
