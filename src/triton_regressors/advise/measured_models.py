"""Benchmark times of models of each family and size: `worth.json`, which `benchmarks.figures.tables` writes.

It holds medians in µs from host rows to host answers; each library had all cores of that host to itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triton_regressors.kernels.plan.plan import Plan

TABLE = Path(__file__).with_name("worth.json")

Times = Mapping[str, Mapping[int, float]]
"""Engine or library → rows in a call → µs."""


@dataclass(frozen=True)
class Shape:
    """The features that tell models apart: the plan's largest operation, and its counts of numbers and features."""

    operation: str
    parameters: int
    n_features: int


@dataclass(frozen=True)
class Measured:
    """A measured model: the device, the number of cores, its title and shape, and its times."""

    device: str
    cores: int
    title: str
    shape: Shape
    times: Times


def shape_of(plan: Plan) -> Shape:
    """Return the shape of the part of a plan that computes its prediction."""
    steps = plan.steps_for(("y",))
    counts = [sum(array.size for _, array in step.operation.arrays()) for step in steps]
    return Shape(steps[counts.index(max(counts))].operation.kind(), sum(counts), plan.n_features)


def measured() -> Iterator[Measured]:
    """Yield every model of the table; none if there is no table."""
    if not TABLE.exists():
        return
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    for model in table["models"]:
        times = {who: {int(rows): us for rows, us in found.items()} for who, found in model["us"].items()}
        shape = Shape(model["operation"], model["parameters"], model["n_features"])
        yield Measured(table["device"], table["cores"], model["title"], shape, times)


def nearest(shape: Shape) -> Measured | None:
    """Return the measured model of the same operation whose size is nearest, or None if there is no such operation."""

    def distance(found: Measured) -> float:
        ratios = (found.shape.parameters / max(shape.parameters, 1), found.shape.n_features / shape.n_features)
        return sum(abs(math.log(ratio)) for ratio in ratios)

    alike = (found for found in measured() if found.shape.operation == shape.operation)
    return min(alike, key=distance, default=None)


def small_table(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table from a benchmark's worth.json: each library's fastest way at each batch size."""
    models = []
    for family in document["families"]:
        for model in family["models"]:
            us: dict[str, dict[str, float]] = {}
            for point in model["points"]:
                for way, timing in point["timings"].items():
                    found = us.setdefault(way.split(", ")[0], {})
                    rows = str(point["rows"])
                    found[rows] = min(timing["median_us"], found.get(rows, math.inf))
            kept = {name: model[name] for name in ("title", "operation", "parameters", "n_features")}
            models.append({**kept, "us": us})
    environment = document["environment"]
    return {"device": environment["device"], "cores": environment["cores"], "models": models}
