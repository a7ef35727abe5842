"""Serve scikit-learn regressors with Triton-language kernels on NVIDIA's Triton Inference Server."""

from triton_regressors.version import __version__

__all__ = ["__version__"]
