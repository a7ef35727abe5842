"""Sentences on the models of a fleet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from triton_regressors.describe.input_text import labels, listed
from triton_regressors.describe.interval_text import percent
from triton_regressors.kernels.entry import Document
from triton_regressors.kernels.format.fleet import MemberClass
from triton_regressors.kernels.format.id_columns import id_text
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
    inputs = document.inputs
    name = "names" if len(inputs.ids) == 1 else "name"
    yield f"{_models(fleet.members)}; {' and '.join(inputs.ids)} {name} the one that answers a row."
    default = None if inputs.default is None else _called(inputs.models[inputs.default])
    if inputs.id_columns is not None and any(0 < len(each) < len(inputs.ids) for each in inputs.models):
        otherwise = "" if default is None else f", or {default} if there is none"
        yield f"An unknown id is answered by the model of its longest known beginning{otherwise}; model_used says so."
    elif default is not None:
        yield f"{default} answers rows with another id; model_used says so."
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
    yield from _interval_sentences(document, ids, table, number)
    yield from _categories_sentences(document, table, number)


def member_ids(document: Document) -> tuple[str, ...]:
    """Return the ids of a fleet's models by their numbers as texts, see `id_text`."""
    return tuple(map(id_text, document.inputs.models))


def _called(name: Any) -> str:
    return repr(id_text(name) if isinstance(name, tuple) else name)


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
        yield f"{called[column]}: {_called(ids[one])} knows {listed(own)}."


def _parity_sentence(output: str, ids: tuple[str, ...], errors: np.ndarray, one: int | None) -> str:
    """Return a sentence on an output's largest error for the worst model, the median one, and the one of a number."""
    said = _some([f"{error:.1e}" for error in errors], ids, np.argsort(errors, kind="stable"), one)
    return f"{output}, largest error in standard deviations of a model's own predictions: {said}."


def _interval_sentences(document: Document, ids: tuple[str, ...], table: MemberTable, one: int | None) -> Iterator[str]:
    """Yield sentences on the prediction intervals: their level, and the coverage of the worst, the median, and one."""
    fleet, rows, coverage = document.fleet, table.calibration_rows, table.coverage
    if fleet is None or fleet.level is None or rows is None or coverage is None:
        return
    few, most = (f"{count:,}" for count in (rows.min(), rows.max()))
    yield (
        f"lower and upper are made for {percent(fleet.level)} of new rows of each model, from "
        f"{few if few == most else f'{few} to {most}'} calibration rows of its own."
    )
    least = coverage.min(axis=1)
    known = np.flatnonzero(~np.isnan(least))
    if len(known):
        order = known[np.argsort(-least[known], kind="stable")]
        target = "" if coverage.shape[1] == 1 else ", in the target that is covered least,"
        texts = ["none" if np.isnan(share) else percent(share) for share in least]
        yield (
            f"Of the last half of these rows, the interval that the first half gives covers{target} "
            f"{_some(texts, ids, order, one)}."
        )
    if len(known) < len(least):
        few_rows = len(least) - len(known)
        yield f"{_models(few_rows)} {'has' if few_rows == 1 else 'have'} too few of these rows to hold some out."


def _some(texts: Sequence[str], ids: Sequence[str], order: np.ndarray, one: int | None) -> str:
    """Return a text of the worst model, the last in the order, of the median one, and of the one of a number."""
    places = {"worst": int(order[-1]), "median": int(order[(len(order) - 1) // 2])}
    said = [f"{texts[place]} of {ids[place]!r}, the {what}" for what, place in places.items()]
    return "; ".join(said if one is None else [*said, f"{texts[one]} of {ids[one]!r}"])


def _models(count: int) -> str:
    return f"{count:,} model{'s' * (count != 1)}"
