"""Sentences on the models of a fleet."""

from __future__ import annotations

from collections.abc import Iterator

from triton_regressors.kernels.entry import Fleet

FEW = 8
"""The number of classes to show."""


def fleet_sentences(fleet: Fleet) -> Iterator[str]:
    """Yield the number of models, then the classes of like ones, the largest first."""
    yield f"{fleet.members:,} models; {fleet.by} names the one that answers a row."
    classes = sorted(fleet.classes, key=lambda each: -each.members)
    for each in classes[:FEW]:
        many = f"{each.members:,} {each.estimator}s" if each.members > 1 else f"1 {each.estimator}"
        kernels = f"{each.launches:,} launch{'es' * (each.launches != 1)}"
        yield f"{many}: {kernels} for the rows of all of them." if each.stacked else f"{many}: {kernels}."
    if len(classes) > FEW:
        rest = classes[FEW:]
        launches = sum(each.launches for each in rest)
        yield f"{sum(each.members for each in rest):,} further models in {len(rest):,} classes: {launches:,} launches."
