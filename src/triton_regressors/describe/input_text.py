"""Descriptions of an entry's inputs, in words: their columns, and what may be missing, rounded or unknown in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from triton_regressors.kernels.entry import Document
from triton_regressors.kernels.format.inputs import NAT, DateColumn, TextInput
from triton_regressors.kernels.format.text_steps import MadeTexts

FEW = 4
"""The number of a column's categories to show."""
BRIEF_WIDTH = 60
"""The number of characters for an input's columns in the brief form."""
SINCE = "nanoseconds since 1970-01-01 UTC"
"""The numbers that stand for dates in requests."""


@dataclass(frozen=True)
class Input:
    """An input tensor `[rows, len(columns)]` and the server's name of its type.

    `columns` are the labels of its columns, in their order: their names, or "column 3" if they had none in training.
    `in_order` says that they are all the columns of a training without names. `notes` are sentences on missing values
    and on categories. `dates` are the labels of the columns of dates.
    """

    name: str
    datatype: str
    columns: tuple[str, ...]
    in_order: bool
    notes: tuple[str, ...]
    dates: tuple[str, ...] = ()

    @property
    def shape(self) -> str:
        """The tensor's shape in words."""
        return f"[rows, {len(self.columns)}]"

    def few(self) -> str:
        """Return the columns in a few words."""
        ends = accumulate(len(name) + 2 for name in self.columns)
        count = max(sum(end <= BRIEF_WIDTH for end in ends), 1)
        more = f", and {len(self.columns) - count:,} more" if count < len(self.columns) else ""
        named = "in training order" if self.in_order else ", ".join(self.columns[:count]) + more
        if not self.dates:
            return named
        which = "" if len(self.dates) == len(self.columns) else f"{', '.join(self.dates)}: "
        return f"{named} ({which}{SINCE}; NaT = {NAT})"

    def all(self) -> str:
        """Return a sentence that names all columns."""
        count = f"{len(self.columns):,} column{'s' * (len(self.columns) != 1)}"
        return f"{count}, in training order." if self.in_order else f"{count}: {', '.join(self.columns)}."


def labels(document: Document) -> list[str]:
    """Return a label for each column: its name, or "column 3" if it had none in training."""
    names = document.provenance.feature_names
    return [shown(name) for name in names] or [f"column {number}" for number in range(document.inputs.n_given)]


SHOWN = {"part": "split", "part_from_right": "rsplit", "append": "+", "prepend": "+", "join": "+", "fill": "fillna"}
"""Steps of strings that pandas calls otherwise."""


def inputs_of(document: Document) -> tuple[Input, ...]:
    """Return the input tensors of an entry."""
    inputs, called = document.inputs, labels(document)
    texts, nan_columns, tensors = {group.name: group for group in inputs.text}, set(document.nan_columns), []
    for tensor, datatype in inputs.datatypes().items():
        columns = inputs.columns()[tensor]
        missing = _where({called[column]: column in nan_columns for column in columns})
        if tensor in texts:
            notes = _notes_on_strings(texts[tensor], called, missing, inputs.made)
        elif inputs.id_columns is not None and tensor in inputs.ids:
            known = inputs.id_columns.known(inputs.ids.index(tensor))
            notes = (f"A part of ids: {listed(known)}.",)
        else:
            single = [called[i] for i in columns if i in (inputs.float32 or ())]
            kept = [called[i] for i in columns if i in inputs.categorical and called[i] not in single]
            notes = _notes_on_numbers(datatype, missing, kept, single, len(columns))
        dates = {called[column]: inputs.dates[column] for column in columns if column in inputs.dates}
        if dates:
            lost = _where({name: column in nan_columns for name, column in zip(dates, inputs.dates, strict=True)})
            notes = (*_notes_on_dates(dates, lost), *(notes if len(dates) < len(columns) else ()))
        in_order = not document.provenance.feature_names and len(columns) == inputs.n_given
        names = (shown(tensor),) if tensor in inputs.ids else tuple(called[column] for column in columns)
        tensors.append(Input(tensor, datatype, names, in_order, notes, tuple(dates)))
    return tuple(tensors)


def shown(name: str) -> str:
    """Return a column's name for a list of names: unchanged, or quoted if it would mislead unquoted."""
    plain = name.isprintable() and name == name.strip() and name and "," not in name
    return name if plain else json.dumps(name)


def _notes_on_numbers(
    datatype: str, missing: str | None, categorical: Sequence[str], single: Sequence[str], count: int
) -> tuple[str, ...]:
    """Return notes on a tensor of `count` columns of numbers.

    They say in which columns numbers may be missing, which are categories, and which are float32 in the exact table.
    """
    if datatype == "INT64":
        first = "No number may be missing."
    else:
        first = "NaN and infinity are refused." if missing is None else f"A missing number is NaN{missing}."
    notes = [first]
    if categorical:
        notes.append(f"Categories, which must not be rounded: {', '.join(categorical)}.")
    if single:
        where = "" if len(single) == count else f" in {', '.join(single)}"
        notes.append(f'Float64 numbers{where} are rounded as astype("float32") rounds them.')
    return tuple(notes)


def _notes_on_dates(dates: Mapping[str, DateColumn], missing: str | None) -> tuple[str, ...]:
    """Return notes on a tensor's columns of dates: their unit, their time zones, and in which a date may be missing."""
    of_zone = [f"{name}, whose time zone is {date.zone}" if date.zone else name for name, date in dates.items()]
    lost = "No date may be missing." if missing is None else f"A missing date is {NAT}{missing}."
    return f"Dates, in {SINCE}: {'; '.join(of_zone)}.", lost


def _notes_on_strings(
    group: TextInput, called: Sequence[str], missing: str | None, made: MadeTexts | None
) -> tuple[str, ...]:
    """Return notes on a tensor of strings: the missing strings, and the categories of each column or made of one."""
    spelled = f" ({', '.join(map(shown, group.missing))} too, unless it is a category)" if group.missing else ""
    notes = [
        f'A missing string is refused: ""{spelled}.'
        if missing is None
        else f'A missing string is ""{spelled}{missing}.'
    ]
    for column, known, closed in zip(group.columns, group.categories, group.closed, strict=True):
        if made is None or column not in made.unread:
            notes.append(_categories(called[column], known, closed))
        notes += [] if made is None else _notes_on_made(column, called, made)
    return tuple(notes)


def _notes_on_made(column: int, called: Sequence[str], made: MadeTexts) -> list[str]:
    """Return the notes on what is made of the strings of a column, alone or with those of others behind it."""
    notes = []
    for each in made.columns:
        sources = made.sources(each)
        if sources[0] == column:
            names = [SHOWN.get(step, step.removesuffix("_each")) for step in made.names(each)]
            what = f"{' and '.join(called[source] for source in sources)} after {', '.join(names)}"
            known = each.categories
            notes.append(f"{what}: a number." if known is None else _categories(what, known, each.closed))
    return notes


def _categories(what: str, known: Sequence[str], closed: bool) -> str:
    """Return the note on the categories of a column, or of what is made of one."""
    return f"{what}: {listed(known)}; any other is {'refused' if closed else 'an unknown one'}."


def listed(known: Sequence[Any]) -> str:
    """Return the first of some categories, and how many there are besides."""
    some = ", ".join(json.dumps(each, ensure_ascii=not str(each).isprintable()) for each in known[:FEW])
    return f"{some} and {len(known) - FEW:,} more" if len(known) > FEW else some


def _where(holds: Mapping[str, bool]) -> str | None:
    """Return the columns in which something holds, as words that may follow a sentence; None if there are none."""
    inside, outside = ([name for name, held in holds.items() if held is wanted] for wanted in (True, False))
    if not inside or not outside:
        return "" if inside else None
    if len(outside) < len(inside):
        return f"; it is refused in {', '.join(outside)}"
    return f" in {', '.join(inside)}; elsewhere it is refused"
