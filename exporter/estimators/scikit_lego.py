"""scikit-lego's containers of models, which are exported as fleets."""

from __future__ import annotations

from triton_regressors.exporter.lowering.containers import CONTAINERS
from triton_regressors.exporter.lowering.registry import refuses

refuses(
    "it holds a model for each group, which makes it a fleet",
    "Write all of them as one entry with export_fleet or `triton-regressors export-fleet`.",
    *CONTAINERS,
)
