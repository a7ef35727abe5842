"""The golden rows of an entry: what to send, and what the estimator itself predicted for it."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from triton_regressors.clients.errors import RowsError
from triton_regressors.clients.tensors import Tensors
from triton_regressors.kernels.entry import check_proof
from triton_regressors.kernels.errors import PlanError
from triton_regressors.kernels.inputs import Inputs

GOLDEN = "golden.safetensors"


@dataclass(frozen=True)
class Golden:
    """Golden rows. `units` has, for each output, the standard deviation of each of its columns' predictions."""

    tensors: Tensors
    outputs: dict[str, npt.NDArray[np.float64]]  # the estimator's own predictions, each [rows, width]
    units: dict[str, list[float]]
    tolerance: float


def read_golden(version_directory: Path) -> Golden:
    """The golden rows of one version of an entry. Raises RowsError if they cannot be read."""
    try:
        arrays = load_file(version_directory / GOLDEN)
        document = json.loads((version_directory / "plan.json").read_text(encoding="utf-8"))
        check_proof(version_directory, len(arrays["X"]), document["parity"]["tolerance"])
        X = arrays.pop("X")  # the plan's matrix, which has numbers in place of strings
        parity = document["parity"]
        return Golden(
            Inputs.from_json(X.shape[1], document.get("inputs")).decode(X),
            arrays,
            {name: parity["outputs"][name]["unit"] for name in arrays},
            float(parity["tolerance"]),
        )
    except FileNotFoundError as error:
        raise RowsError(f"{version_directory} has no {Path(error.filename or GOLDEN).name}.") from None
    except KeyError as error:
        raise RowsError(f"The golden rows in {version_directory} are incomplete: {error} is missing.") from None
    except PlanError as error:
        raise RowsError(str(error)) from None
    except (OSError, ValueError, TypeError, IndexError, SafetensorError) as error:
        raise RowsError(f"The golden rows in {version_directory} cannot be read: {error}.") from None
