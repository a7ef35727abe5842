"""Loads CatBoost's model files, by CatBoost itself, after checking their contents.

CatBoost needs twice a model's memory to write it. A loaded model therefore keeps the file that it was read from.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from triton_regressors.exporter.boosters.catboost_model import read_model
from triton_regressors.exporter.errors import ExportError

REWRITE = """
import sys
from catboost import CatBoost
try:
    model = CatBoost().load_model(sys.argv[1], format="json")
    model.save_model(sys.argv[2])
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
"""A program that writes the model of a `.json` file as a `.cbm`."""

KEPT = "_read_from"
"""The attribute of an estimator with the file that it was loaded from."""

REWRITE_S, REWRITE_BYTES_A_SECOND = 30.0, 2e6
"""The time limit of a rewrite: some seconds, plus a second for this many bytes."""


def load(path: str | Path) -> Any:
    """Return a CatBoostRegressor with the model of a .cbm or .json file, as `save_model` writes it.

    CatBoost's compiled code trusts its input, so a `.cbm` is checked first. A `.json` is read by a separate process,
    which may crash or never end, and which writes it as a `.cbm`.

    Raises:
        ExportError: the model is not a regressor's.
        ImportError: CatBoost is not installed.
        ValueError: the file's numbers do not fit together, or it cannot be read.
        Exception: CatBoost cannot read the file.
    """
    from catboost import CatBoostError, CatBoostRegressor

    path = Path(path)
    with tempfile.TemporaryDirectory() as directory:
        own = path
        if path.suffix == ".json":
            own = Path(directory, "model.cbm")
            _rewrite(path, own)
        data = own.read_bytes()
    read_model(data)
    estimator = CatBoostRegressor()
    estimator.load_model(blob=data)  # CatBoost reads it in place, and keeps it
    estimator._init_params = estimator._get_params_from_model_updated_with_init_params()
    setattr(estimator, KEPT, (data, _state(estimator)))
    loss = estimator.get_params().get("loss_function")
    try:
        estimator._check_is_compatible_loss(loss)
    except CatBoostError:
        raise ExportError(
            f"{path} holds a model with the loss {loss}, and only regressors are exported. Load it as a "
            "catboost.CatBoost, whose predict answers raw scores, and export that."
        ) from None
    return estimator


def file_of(estimator: Any) -> bytes | None:
    """Return the file that an estimator was loaded from, if its model has not changed since; otherwise None."""
    data, state = getattr(estimator, KEPT, (None, None))
    return data if data is not None and state == _state(estimator) else None


def _state(estimator: Any) -> tuple[Any, ...]:
    """Return values that change with the model: by another fit, or by setting its trees, their values or their sum."""
    values = hashlib.sha256(estimator.get_leaf_values()).digest()
    return dict(estimator.get_metadata()), estimator.tree_count_, estimator.get_scale_and_bias(), values


def _rewrite(path: Path, to: Path) -> None:
    """Write the model of a `.json` file as a `.cbm`, in a separate process.

    Raises:
        ValueError: the process failed; the message says why in one clause.
    """
    limit = REWRITE_S + path.stat().st_size / REWRITE_BYTES_A_SECOND
    try:
        done = subprocess.run(
            [sys.executable, "-c", REWRITE, path.absolute(), to],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"CatBoost has not read it after {limit:.0f} s") from None
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise ValueError(words[0] if words and done.returncode > 0 else "CatBoost crashes as it reads it")
