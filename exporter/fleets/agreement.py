"""The facts on which all models of a fleet agree, and the error if two of them do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.fleets.categories import columns_with_categories
from triton_regressors.exporter.fleets.member import Member
from triton_regressors.kernels.format.member_tensors import joined_with, numbered


def check_alike(members: Sequence[Member], by: Sequence[str]) -> None:
    """Raise `ExportError` unless members agree on their columns; it names two of them and the difference."""
    first = members[0]
    facts = _facts(first)
    for other in members[1:]:
        for (what, mine), theirs in zip(facts.items(), _facts(other).values(), strict=True):
            if mine != theirs:
                raise ExportError(
                    f"The models of a fleet must take the same columns: {first.id!r} and {other.id!r} differ in {what} "
                    f"({_brief(mine)} and {_brief(theirs)})."
                )
    together = "_".join(by)
    for name in (*by, together, numbered(together), joined_with(numbered(together))):
        if name in {*first.columns, *first.inputs.columns(), *first.plan.outputs}:
            raise ExportError(f"The models have a column or a tensor {name!r} already; choose another name with by=.")
    if first.inputs.made is not None:
        raise ExportError("A fleet cannot take columns that are made of strings, such as a part of a name.")


def _facts(member: Member) -> dict[str, Any]:
    """Return what members have in common, by its name in an error."""
    inputs, of_type = member.inputs, dict[str, list[int]]()
    for tensor, columns in inputs.columns().items():  # strings may be in other groups
        of_type.setdefault(inputs.datatypes()[tensor], []).extend(columns)
    return {
        "the names of their columns": member.columns,
        "the number of their columns": inputs.n_features,
        "the types of their columns": {datatype: sorted(columns) for datatype, columns in of_type.items()},
        "the columns with categories": sorted(columns_with_categories(inputs)),
        "their dates": inputs.dates,
        "the columns that are float32": inputs.float32,
        "their outputs": member.plan.output_widths(),
        "the shape of their answers": member.answers_column,
        "their further inputs": inputs.made,
    }


def _brief(fact: Any) -> str:
    text = str(fact)
    return text if len(text) <= 100 else f"{text[:100]}…"
