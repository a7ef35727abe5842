"""The defaults of Python functions and of the command line."""

from pathlib import Path

DEFAULT_REPOSITORY = Path("model_repository")

DEFAULT_TOLERANCE = 1e-5
"""Largest difference from the estimator's own prediction, in its standard deviations."""

DEFAULT_PRECISION = "exact"
"""The precision: "exact" lets kernels that compute below float64 lose half a millionth of a standard deviation."""

DEFAULT_LEVEL = 0.9
"""The share of new rows that a prediction interval should cover."""

PICKLES = (".joblib", ".pkl", ".pickle")

BOOSTER_FILES = (".cbm", ".json", ".txt", ".ubj")
"""The suffixes of files of XGBoost, LightGBM and CatBoost."""

TORCH_FILES = (".pt", ".pth")
"""The suffixes of networks that `torch.save` wrote, which are pickles."""

MODEL_FILES = (".skops", *PICKLES, *TORCH_FILES, *BOOSTER_FILES)
"""The suffixes of files of fitted estimators."""

PREDICTOR_FILE = "predictor.pkl"
"""The file by which a directory is known to hold a predictor of AutoGluon."""

LARGEST_MB = 1024
"""Megabytes that a `.skops` file may unpack to; 2.5 million nodes of trees are 200."""

MISSING_STRINGS = ("None", "nan", "NaN", "<NA>", "NaT")
"""The strings for None, NaN and pandas' missing values from clients that stringify all values, as tritonclient does."""
