"""Sentences on the models of a fleet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from triton_regressors.describe.input_text import labels, listed
from triton_regressors.kernels.entry import Document
from triton_regressors.kernels.format.fleet import MemberClass
from triton_regressors.kernels.format.member_table import MemberTable
from triton_regressors.tables.columns import in_words

FEW = 8
"""The number of classes to show."""


def fleet_sentences(document: Document, table: MemberTable, member: str | None = None) -> Iterator[str]:
    """Yield the number of a fleet's models, the classes of like ones, the largest first, and the parity of some models.

    The parity is that of the worst model, of the median one, and of the one with the id `member` if it is given, which
    must be a model of the fleet, and whose categories are named if models know different ones.
    """
    fleet = document.fleet
    assert fleet is not None
    yield f"{_models(fleet.members)}; {fleet.by} names the one that answers a row."
    if document.inputs.default is not None:
        yield f"{document.inputs.models[document.inputs.default]!r} answers rows with another id; model_used says so."
    classes = sorted(fleet.classes, key=lambda each: -each.members)
    for each in classes[:FEW]:
        yield _class_sentence(each)
    if len(classes) > FEW:
        members, launches, size = (
            sum(getattr(each, what) for each in classes[FEW:]) for what in ("members", "launches", "bytes")
        )
        yield (f"{members:,} further models in {len(classes) - FEW:,} classes: {launches:,} launches, {size:,} bytes.")
    ids = member_ids(document)
    number = None if member is None else ids.index(member)
    for output, errors in table.errors.items():
        yield _parity_sentence(output, ids, errors, number)
    yield from _categories_sentences(document, table, number)


def member_ids(document: Document) -> tuple[str, ...]:
    """Return the ids of a fleet's models by their numbers, whole numbers as strings."""
    return tuple(map(str, document.inputs.models))


def _class_sentence(each: MemberClass) -> str:
    """Return a sentence on like models."""
    together = " for the rows of all of them" if each.stacked else ""
    launches = f"{each.launches:,} launch{'es' * (each.launches != 1)}{together}"
    return f"{_models(each.members)} ({each.estimator}): {launches}, {each.bytes:,} bytes."


def _categories_sentences(document: Document, table: MemberTable, one: int | None) -> Iterator[str]:
    """Yield sentences on columns whose categories models do not share, and on those of the model with a number."""
    called, ids = labels(document), document.inputs.models
    if table.categories is not None:
        names = in_words([called[column] for column in table.categories.columns.tolist()])
        yield f"Models know different categories of {names}; any other is unknown to them."
    for column, count in enumerate([] if table.closed is None else table.closed.sum(axis=0).tolist()):
        if count:
            yield f"{called[column]}: {count:,} of {_models(len(ids))} refuse categories that they do not know."
    if table.categories is None or one is None:
        return
    groups = document.inputs.groups
    known = {column: each for group in groups for column, each in zip(group.columns, group.categories, strict=True)}
    for column, numbers in table.categories.of_member(one).items():
        own = [known[column][number] for number in numbers.tolist()]
        yield f"{called[column]}: {ids[one]!r} knows {listed(own)}."


def _parity_sentence(output: str, ids: tuple[str, ...], errors: np.ndarray, one: int | None) -> str:
    """Return a sentence on an output's largest error for the worst model, the median one, and the one of a number."""
    order = np.argsort(errors, kind="stable")
    places = {"worst": int(order[-1]), "median": int(order[(len(order) - 1) // 2])}
    said = [f"{errors[place]:.1e} of {ids[place]!r}, the {what}" for what, place in places.items()]
    said += [] if one is None else [f"{errors[one]:.1e} of {ids[one]!r}"]
    return f"{output}, largest error in standard deviations of a model's own predictions: {'; '.join(said)}."


def _models(count: int) -> str:
    return f"{count:,} model{'s' * (count != 1)}"
