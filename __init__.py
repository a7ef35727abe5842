"""Serve scikit-learn regressors with Triton-language kernels on NVIDIA's Triton Inference Server."""

__version__ = "0.1.0"
