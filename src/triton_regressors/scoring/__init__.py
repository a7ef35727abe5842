"""An entry's answers without a server: in this process, over files of any size, and in Ray, Spark and Dask."""

from triton_regressors.scoring.scorer import predictor

__all__ = ["predictor"]
