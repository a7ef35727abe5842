"""What holds where the caller says nothing, in Python and on the command line alike."""

from pathlib import Path

DEFAULT_REPOSITORY = Path("model_repository")

DEFAULT_TOLERANCE = 1e-5
"""Largest difference from the estimator's own prediction, in its standard deviations."""

DEFAULT_PRECISION = "exact"
"""What kernels may lose by computing in less than float64: half a millionth of a standard deviation."""

DEFAULT_LEVEL = 0.9
"""The share of new rows that a prediction interval is for."""

PICKLES = (".joblib", ".pkl", ".pickle")

BOOSTER_FILES = (".cbm", ".json", ".txt", ".ubj")
"""What files of XGBoost, LightGBM and CatBoost end in."""

MODEL_FILES = (".skops", *PICKLES, *BOOSTER_FILES)
"""What files of fitted estimators end in."""

LARGEST_MB = 1024
"""Megabytes that a `.skops` file may unpack to; 2.5 million nodes of trees are 200."""

MISSING_STRINGS = ("None", "nan", "NaN", "<NA>", "NaT")
"""What clients that make a string of every value, as tritonclient does, send for None, NaN and pandas' own."""
