"""The catalogue: every supported estimator with every option that changes a prediction, fitted on small data.

`CASES` maps a name, which is also a valid model name, to a `Case`; `case.fitted()` gives the fitted estimator and rows
to ask it, float64. A case belongs to a family:

- "affine": the prediction is affine in the features, so the plan is one affine step and its answer within one float32
  unit in the last place of scikit-learn's float64 answer;
- "link": affine, then one function of each element, with the same promise;
- "std": a Bayesian linear model, whose standard deviation is an output too;
- "polynomial": products of features;
- "steps": something that no pass can fold into one affine step, such as clipping.
"""

import importlib
import sys
from pathlib import Path

from tests.exporter.catalogue.case import CASES, Case

for _path in sorted(Path(__file__).parent.glob("cases_*.py")):  # each adds its cases
    if _path.stem == "cases_skrub" and sys.version_info < (3, 11):  # which skrub needs
        continue
    importlib.import_module(f"{__package__}.{_path.stem}")

__all__ = ["CASES", "Case"]
