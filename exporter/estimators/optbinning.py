"""optbinning's BinningProcess: a number for the bin of each variable, found by asking the process itself.

Bins of numbers include their lower edge. Special codes, missing and unknown values have numbers of their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.category_tables import as_array
from triton_regressors.exporter.estimators.encoding import Codes, category_numbers, lookup
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.pieces import Pieces, add_pieces, constant_pieces
from triton_regressors.exporter.lowering.registry import lowers, names_columns
from triton_regressors.exporter.lowering.text_columns import UNKNOWN_TEXT
from triton_regressors.kernels.ops.columns.impute import Impute

PROCESS = "optbinning.binning.binning_process.BinningProcess"


@names_columns(PROCESS)
def variables_of_process(process: Any) -> list[str]:
    """Return the names of the variables."""
    return [str(name) for name in process.variable_names]


@lowers(PROCESS)
def lower_binning_process(process: Any, x: Value, builder: Builder) -> Value:
    """The number of each selected variable's bin, by the metric that `transform` chooses."""
    chosen = [str(name) for name in process.get_support(names=True)]
    names = list(x.names) if x.names else variables_of_process(process)
    if not chosen or len(names) != x.width or not set(chosen) <= set(names):
        reason = (
            "it selects no variable" if not chosen else f"it would get {x.width} columns that are not its variables"
        )
        raise builder.refuse(process, reason)
    numeric, functions, fills, codes = list[int](), list[Pieces](), list[float](), list[Codes]()
    for name in chosen:
        binning, column = process.get_binned_variable(name), names.index(name)
        if not hasattr(binning, "_splits_optimal"):
            raise builder.refuse(process, f"{name} has a {type(binning).__name__}; supported: bins of one number each")
        special = _special(binning)
        ask = _Asking(process, name, builder)
        if binning.dtype == "numerical":
            knots, values = _steps(np.asarray(binning._splits_optimal, dtype=np.float64), special, ask)
            builder.profile.note_scale([x.features[column]] if x.features else [], *_middle(knots))
            numeric.append(column)
            functions.append(constant_pieces(knots, values))
            fills.extend(ask([np.nan]))
        else:
            codes.append(_categories(process, binning, special, column, x, ask, builder))
    parts = list[Value]()
    if numeric:
        every = np.arange(len(numeric), dtype=np.int32)
        found = add_pieces(builder, x, np.array(numeric), functions)
        parts.append(builder.add(Impute(every, np.array(fills), every[:0], None), found))
    if codes:
        parts.append(lookup(builder, x, codes))
    made = [*numeric, *(code.column for code in codes)]
    return builder.columns(builder.concatenate(parts), [made.index(names.index(name)) for name in chosen])


class _Asking:
    """Asks a process what it makes of values of one variable, with nothing in the other ones."""

    def __init__(self, process: Any, name: str, builder: Builder) -> None:
        self._process, self._name, self._builder = process, name, builder

    def __call__(self, values: Sequence[Any]) -> list[float]:
        """Return the numbers of some values."""
        import pandas as pd

        process = self._process
        cells = as_array(values)
        table = pd.DataFrame(dict.fromkeys(process.variable_names, np.full(len(cells), np.nan)))
        table[self._name] = cells
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = process.transform(table)[self._name].tolist()
        if any(isinstance(each, str) for each in found):
            raise self._builder.refuse(
                process, f"the metric of {self._name} is 'bins', which are strings; use 'indices'"
            )
        return [float(each) for each in found]


def _special(binning: Any) -> list[Any]:
    """Return the special codes of a variable."""
    codes = binning.special_codes
    given = list(codes.values()) if isinstance(codes, dict) else list(() if codes is None else codes)
    return [code for each in given for code in (each if isinstance(each, list | np.ndarray) else [each])]


def _steps(splits: np.ndarray, special: list[Any], ask: _Asking) -> tuple[np.ndarray, np.ndarray]:
    """Return the knots of a step function and its values: special codes are steps of a single number."""
    codes = np.array([code for code in special if isinstance(code, int | float | np.number)], dtype=np.float64)
    knots = np.unique(np.concatenate([splits, codes, np.nextafter(codes, np.inf)]))
    below = np.nextafter(knots[:1], -np.inf) if len(knots) else np.zeros(1)
    return knots, np.array(ask(np.concatenate([below, knots]).tolist()))


def _middle(knots: np.ndarray) -> tuple[float, float]:
    """Return the location and the scale of a variable with these knots."""
    return (float(knots.mean()), float(knots.std()) or 1.0) if len(knots) else (0.0, 1.0)


def _categories(
    process: Any, binning: Any, special: list[Any], column: int, x: Value, ask: _Asking, builder: Builder
) -> Codes:
    """Return the numbers of a variable's categories."""
    bins = [np.ravel(np.asarray(each, dtype=object)).tolist() for each in binning.splits]
    known = [category for each in bins for category in each]
    strings = any(isinstance(each, str) for each in known)
    known = list(dict.fromkeys([*known, *(code for code in special if isinstance(code, str) == strings)]))
    numbers = category_numbers(builder, process, x, column, as_array(known))
    unknown: Any = UNKNOWN_TEXT if strings else max(known, default=0) + 1
    *values, missing, other = ask([*known, None, unknown])
    keys, first = np.unique(numbers, return_index=True)
    return Codes(column, keys, np.array(values)[first], missing, other)
