"""AutoGluon's feature generators: from the columns of a user's table to those that its models read.

The generators fix the type of each column, turn categories into codes, and split dates. Each column of their result is
a function of one column of the table, so a `Cell` describes it, and all cells become three steps: selected columns,
lookups and an expression.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.encoding import Codes, lookup
from triton_regressors.exporter.estimators.strings import number_strings
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.kernels.ops.columns.expression import Expression, Program
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.tables.values import is_missing

DAY = 86_400e6
"""Microseconds of a day."""

WITHOUT_TEXT = (
    "Train it with feature_generator=AutoMLPipelineFeatureGenerator(enable_text_special_features=False, "
    "enable_text_ngram_features=False), or leave the text out"
)
TEXT_GENERATORS = ("TextSpecialFeatureGenerator", "TextNgramFeatureGenerator")
SUPPORTED = "supported: numbers, categories, booleans and dates, as AutoMLPipelineFeatureGenerator makes them"


@dataclass(frozen=True)
class Cell:
    """A column that generators make of one `column` of the table, by its `kind` and `detail`.

    | kind | value | detail |
    | --- | --- | --- |
    | number | the number | |
    | single | the number as float32 | |
    | whole | the number without its fraction, 0 for a missing one | |
    | truth | whether the cell equals the detail | the cell that is true |
    | text, category | the cell, not yet a number | what a missing cell is; the categories |
    | date | the date, not yet a number | its unit |
    | code | the number of the category | `Coding` |
    | instant | the date as a number of units since 1970 | `Moment` |
    | year, month, day, … | a part of the date | `Moment` |
    """

    column: int
    kind: str
    detail: Any = None


@dataclass(frozen=True)
class Coding:
    """Numbers for cells: those of `categories`, `missing` for a missing cell, `unknown` for any other."""

    categories: tuple[Any, ...]
    missing: float
    unknown: float


@dataclass(frozen=True)
class Moment:
    """How dates become numbers: of a unit, and the nanoseconds of the date that replaces a missing one."""

    unit: str
    fill: int


@dataclass(frozen=True)
class Table:
    """Columns by name as a model of AutoGluon reads them; categorical ones hold codes, NaN for a missing one.

    `categories` holds pandas' index of the categories of each categorical column.
    """

    value: Value
    names: tuple[str, ...]
    categories: Mapping[str, Any]

    def select(self, names: Sequence[str], builder: Builder) -> Table:
        """Return some columns."""
        if tuple(names) == self.names:
            return self
        kept = {name: self.categories[name] for name in names if name in self.categories}
        value = builder.columns(self.value, [self.names.index(name) for name in names])
        return Table(value, tuple(names), kept)

    def renamed(self, names: Mapping[str, str]) -> Table:
        """Return the table with other names for some columns."""
        kept = {names.get(name, name): known for name, known in self.categories.items()}
        return Table(self.value, tuple(names.get(name, name) for name in self.names), kept)


def lower_features(predictor: Any, generators: Iterable[Any], x: Value, builder: Builder) -> Table:
    """Return what a predictor's feature generators make of the user's columns."""
    names = builder.profile.names or tuple(f"column {column}" for column in range(x.width))
    cells = {str(name): Cell(column, "raw") for column, name in enumerate(names)}
    categories: dict[str, Any] = {}
    for generator in generators:
        cells = _generate(_Generation(predictor, builder, categories), generator, cells)
    if not cells:
        raise builder.refuse(predictor, "its feature generator found no useful column, so it answers with one number")
    value = _numbers(predictor, list(cells.values()), x, builder)
    return Table(value, tuple(cells), {name: categories[name] for name in cells if name in categories})


def tabulate(
    transform: Callable[[Any], Any], names: Sequence[str], categories: Mapping[str, Any], known: Mapping[str, Any]
) -> list[Codes]:
    """Return the codes that a transformer of categorical columns makes, each a function of one column.

    The transformer is asked about every category of each column, about a missing cell and about an unknown number.

    Args:
        transform: maps a DataFrame of the columns to a matrix, dense or sparse.
        names: the columns' names.
        categories: pandas' categories of each column that holds their codes.
        known: the numbers that it knows of each other column, ascending; NaN may be among them.
    """
    import pandas as pd

    keys = [
        np.arange(len(categories[name]))
        if name in categories
        else np.array([n for n in known[name] if not np.isnan(n)])
        for name in names
    ]
    asked = [
        [*key, -1, -1] if name in categories else [*key, key[-1] + 1, np.nan]
        for name, key in zip(names, keys, strict=True)
    ]
    starts = np.cumsum([0, *map(len, asked)])
    frame = {}
    for name, cells, start in zip(names, asked, starts, strict=False):
        filled = np.full(starts[-1], cells[0], dtype=np.asarray(cells).dtype)
        filled[start : start + len(cells)] = cells
        frame[name] = pd.Categorical.from_codes(filled, categories[name]) if name in categories else filled
    found = transform(pd.DataFrame(frame))
    found = np.asarray(found.toarray() if hasattr(found, "toarray") else found, dtype=np.float64)
    made: list[Codes] = []
    for output in found.T:
        parts = np.split(output, starts[1:-1])
        varying = [column for column, part in enumerate(parts) if (part != part[0]).any()] or [0]
        if len(varying) > 1:
            raise ValueError("a column that depends on several categories")
        (column,) = varying
        *values, unknown, missing = parts[column]
        made.append(Codes(column, keys[column].astype(np.float64), np.array(values), missing, unknown))
    return made


@dataclass(frozen=True)
class _Generation:
    """What generators need beside the cells; they fill `categories`."""

    predictor: Any
    builder: Builder
    categories: dict[str, Any]

    def refuse(self, reason: str) -> Exception:
        return self.builder.refuse(self.predictor, reason)


def _generate(own: _Generation, generator: Any, cells: dict[str, Cell]) -> dict[str, Cell]:
    """Return the cells that a generator makes."""
    kind = type(generator).__name__
    if kind in TEXT_GENERATORS:
        named = ", ".join(f"'{name}'" for name in generator.features_in)
        raise own.refuse(f"its {kind} counts words and signs of the text in {named}. {WITHOUT_TEXT}")
    cells = {name: cells[name] for name in generator.features_in}
    if generator._pre_astype_generator is not None:
        cells = _generate(own, generator._pre_astype_generator, cells)
    if any(base.__name__ == "BulkFeatureGenerator" for base in type(generator).__mro__):
        made = cells
        for group in generator.generators:
            made = {name: cell for each in group for name, cell in _generate(own, each, made).items()}
    elif kind in GENERATORS and type(generator).__module__.startswith("autogluon."):
        made = GENERATORS[kind](own, generator, cells)
    else:
        raise own.refuse(f"its feature generator has a {kind}, which no plan computes; {SUPPORTED}")
    if getattr(generator, "passthrough_features", None):
        raise own.refuse(f"its {kind} passes columns through beside its own (passthrough); {SUPPORTED}")
    for after in generator._post_generators:
        made = _generate(own, after, made)
    return made


def _fix_types(own: _Generation, generator: Any, cells: dict[str, Cell]) -> dict[str, Cell]:
    """Each column in the type that it had in training; a column with two different cells becomes a boolean."""
    made, types = {}, generator._type_map_real_opt
    for name, cell in cells.items():
        if cell.kind != "raw":  # a second generator of this kind changes no type
            made[name] = cell
        elif name in generator._bool_features:
            made[name] = Cell(cell.column, "truth", generator._bool_features[name])
        else:
            made[name] = _typed(own, name, cell, types[name])
    return made


def _typed(own: _Generation, name: str, cell: Cell, dtype: Any) -> Cell:
    kind = getattr(dtype, "kind", "")
    if isinstance(dtype, np.dtype | type):
        dtype = np.dtype(dtype)
        if dtype.kind == "f" and dtype.itemsize >= 4:
            return Cell(cell.column, "single" if dtype.itemsize == 4 else "number")
        if dtype.kind in "iu":
            return Cell(cell.column, "whole")
        if dtype.kind == "b":
            return Cell(cell.column, "truth", True)
        if dtype.kind == "O":
            return Cell(cell.column, "text")
    elif hasattr(dtype, "categories"):
        return Cell(cell.column, "category", tuple(dtype.categories.tolist()))
    elif type(dtype).__name__ == "StringDtype":
        return Cell(cell.column, "text")
    if kind == "M":
        unit, zone = getattr(dtype, "unit", None) or np.datetime_data(dtype)[0], getattr(dtype, "tz", None)
        own.builder.profile.note_date(cell.column, unit, None if zone is None else str(zone))
        return Cell(cell.column, "date", unit)
    raise own.refuse(f"column '{name}' was fitted as {dtype}; {SUPPORTED}")


def _fill_missing(own: _Generation, generator: Any, cells: dict[str, Cell]) -> dict[str, Cell]:
    """A string in place of missing cells of columns of strings."""
    made = dict(cells)
    for name, fill in generator._fillna_feature_map.items():
        if cells[name].kind == "text":
            made[name] = dataclasses.replace(cells[name], detail=fill)
        elif cells[name].kind != "truth":  # no missing cell is left in a boolean
            raise own.refuse(f"its FillNaFeatureGenerator fills column '{name}', which holds no strings")
    return made


def _keep(own: _Generation, generator: Any, cells: dict[str, Cell]) -> dict[str, Cell]:
    return cells


def _code(own: _Generation, generator: Any, cells: dict[str, Cell]) -> dict[str, Cell]:
    """The number of each cell among the categories that are frequent enough."""
    made = {}
    for name, categories in (generator.category_map or {}).items():
        cell, known = cells[name], categories.tolist()
        if cell.kind not in ("text", "category"):
            raise own.refuse(f"its CategoryFeatureGenerator reads column '{name}', a {cell.kind}; {SUPPORTED}")
        filled = (generator._fillna_map or {}).get(name)
        unknown = np.nan if filled is None else float(known.index(filled))
        missing = float(known.index(cell.detail)) if cell.kind == "text" and cell.detail in known else unknown
        if cell.kind == "category":  # cells outside the dtype's categories are missing there
            missing = unknown
        made[name] = Cell(cell.column, "code", Coding(tuple(known), missing, unknown))
        own.categories[name] = categories
    return made


def _number_categories(own: _Generation, generator: Any, cells: dict[str, Cell]) -> dict[str, Cell]:
    """Categories replaced by their numbers, which are the cells already."""
    own.categories.update({name: known for name, known in (generator._category_maps or {}).items() if name in cells})
    return {name: cells[name] for name in generator._category_maps or cells}


def _split_dates(own: _Generation, generator: Any, cells: dict[str, Cell]) -> dict[str, Cell]:
    """A date as a number, followed by its parts in UTC; the mean date of the training in place of a missing one."""
    made = {}
    for name, cell in cells.items():
        unit = cell.detail
        if cell.kind == "text":  # written dates, which a client sends as dates
            unit = "ns"
            own.builder.profile.note_date(cell.column, unit)
        elif cell.kind != "date":
            raise own.refuse(f"its DatetimeFeatureGenerator reads column '{name}', a {cell.kind}; {SUPPORTED}")
        moment = Moment(unit, generator._fillna_map[name].as_unit("ns").value)
        made[name] = Cell(cell.column, "instant", moment)
        for part in generator.features:
            if part not in PARTS:
                raise own.refuse(f"its DatetimeFeatureGenerator takes '{part}' of dates; supported: {', '.join(PARTS)}")
            made[f"{name}.{part}"] = Cell(cell.column, part, moment)
    return made


GENERATORS: dict[str, Callable[[_Generation, Any, dict[str, Cell]], dict[str, Cell]]] = {
    "AsTypeFeatureGenerator": _fix_types,
    "CategoryFeatureGenerator": _code,
    "CategoryMemoryMinimizeFeatureGenerator": _number_categories,
    "DatetimeFeatureGenerator": _split_dates,
    "DropDuplicatesFeatureGenerator": _keep,
    "DropUniqueFeatureGenerator": _keep,
    "FillNaFeatureGenerator": _fill_missing,
    "IdentityFeatureGenerator": _keep,
}
"""AutoGluon's generators by name, and what each makes of cells."""


# From cells to steps

FILLED: Program = (("isnan", "x0"), ("where", "v0", "c0", "x0"))
"""A date in microseconds, or the one that replaces a missing one."""


def _of_date(*instructions: tuple[str, ...]) -> Program:
    """Return a program of a date's day, "v2"; its first constants are the missing date's and the length of a day."""
    return (*FILLED, ("floor_divide", "v1", "c1"), *instructions)


PARTS: dict[str, tuple[Program, tuple[float, ...]]] = {
    "year": (_of_date(("civil_year", "v2")), (DAY,)),
    "month": (_of_date(("civil_month", "v2")), (DAY,)),
    "day": (_of_date(("civil_day", "v2")), (DAY,)),
    **dict.fromkeys(
        ("dayofweek", "weekday", "day_of_week"),  # 1970-01-01 was a Thursday
        (_of_date(("add", "v2", "c2"), ("remainder", "v3", "c3")), (DAY, 3.0, 7.0)),
    ),
    "hour": (_of_date(("remainder", "v2", "c2")), (3600e6, 24.0)),
    "minute": (_of_date(("remainder", "v2", "c2")), (60e6, 60.0)),
    "second": (_of_date(("remainder", "v2", "c2")), (1e6, 60.0)),
}
"""The parts of dates: the program, and its constants after the date that replaces a missing one."""

UNITS = {"s": 1e-6, "ms": 1e-3, "us": 1.0, "ns": 1000.0}
"""The units of dates in a microsecond."""

WHOLE: Program = (("isnan", "x0"), ("trunc", "x0"), ("where", "v0", "c0", "v1"))
SINGLE: Program = (("float32", "x0"),)
INSTANT: Program = (("isnan", "x0"), ("multiply", "x0", "c0"), ("where", "v0", "c1", "v1"))


def _program(cell: Cell) -> tuple[Program, tuple[float, ...]]:
    """Return the program of a cell of numbers, and its constants."""
    if cell.kind == "whole":
        return WHOLE, (0.0,)
    if cell.kind == "single":
        return SINGLE, ()
    moment: Moment = cell.detail
    if cell.kind == "instant":
        factor = UNITS[moment.unit]
        return INSTANT, (factor, float(moment.fill // 1000) * factor if moment.unit != "ns" else float(moment.fill))
    program, constants = PARTS[cell.kind]
    return program, (float(moment.fill // 1000), *constants)


def _numbers(predictor: Any, cells: list[Cell], x: Value, builder: Builder) -> Value:
    """Return a value with a column for each cell."""
    plain = [place for place, cell in enumerate(cells) if cell.kind == "number"]
    found = [place for place, cell in enumerate(cells) if cell.kind in ("truth", "code")]
    if left := [cell for cell in cells if cell.kind in ("text", "category", "date")]:
        called = builder.profile.called(x.features, left[0].column)
        raise builder.refuse(predictor, f"its feature generator hands {called} on as it is; {SUPPORTED}")
    computed = [place for place in range(len(cells)) if place not in {*plain, *found}]
    programs = {place: _program(cells[place]) for place in computed}
    computed.sort(key=lambda place: (programs[place][0], place))
    parts: list[Value] = []
    if plain:
        parts.append(builder.columns(x, [cells[place].column for place in plain]))
    if computed:
        groups = list(dict.fromkeys(programs[place][0] for place in computed))
        lanes = [sum(programs[place][0] == group for place in computed) for group in groups]
        columns = np.array([cells[place].column for place in computed], dtype=np.int32)
        constants = np.array([number for place in computed for number in programs[place][1]], dtype=np.float64)
        made = builder.add(Expression(tuple(groups), np.array(lanes, dtype=np.int32), columns, constants), x)
        same = [cells[place].column if cells[place].kind in ("whole", "single") else -1 for place in computed]
        features = tuple(x.features[column] if column >= 0 and x.features else -1 for column in same)
        parts.append(dataclasses.replace(made, features=features if max(features) >= 0 else ()))
    if found:
        parts.append(lookup(builder, x, [_codes(predictor, cells[place], x, builder) for place in found]))
    order = np.argsort([*plain, *computed, *found])
    together = builder.concatenate(parts)
    return together if (order == np.arange(len(order))).all() else builder.columns(together, order)


def _codes(predictor: Any, cell: Cell, x: Value, builder: Builder) -> Codes:
    """Return the numbers that a boolean or a category becomes."""
    if cell.kind == "truth":
        coding = Coding((cell.detail,), 0.0, 0.0)
        keys, values = _keys(predictor, cell.column, (cell.detail,), x, builder)
        return Codes(cell.column, keys, np.ones(len(values)), coding.missing, coding.unknown)
    coding = cell.detail
    keys, values = _keys(predictor, cell.column, coding.categories, x, builder)
    return Codes(cell.column, keys, values, coding.missing, coding.unknown)


def _keys(
    predictor: Any, column: int, categories: tuple[Any, ...], x: Value, builder: Builder
) -> tuple[np.ndarray, np.ndarray]:
    """Return the plan's numbers for the categories of a column, ascending, and the place of each among them.

    The empty string beside numbers stands for a missing cell.
    """
    feature = x.features[column]
    strings = [place for place, category in enumerate(categories) if isinstance(category, str)]
    if len(strings) == len(categories):
        builder.profile.name_tensor([feature], "categories")
        keys = number_strings(builder, predictor, x, column, categories)
        places = np.arange(len(categories))
    else:
        places = np.array([place for place in range(len(categories)) if place not in strings])
        rest = [categories[place] for place in places]
        kinds = sorted({type(value).__name__ for value in rest if not is_missing(value)})
        written = any(categories[place] for place in strings)
        if written or not all(isinstance(value, bool | int | float | np.number | np.bool_) for value in rest):
            which = " and ".join([*(["str"] if written else []), *kinds])
            what = f"{builder.profile.called(x.features, column)} has categories of type {which}"
            raise builder.refuse(predictor, f"{what}; supported: numbers, or strings")
        keys = np.array(rest, dtype=np.float64)
        builder.profile.note_choices(feature, np.array(rest))
    order = np.argsort(keys)
    return keys[order], places[order].astype(np.float64)


def filled(table: Table, code: Callable[[str], float], number: float, builder: Builder) -> Value:
    """Return a table's columns with a code in place of NaN in categorical columns, and a number in the others."""
    fill = np.array([code(name) if name in table.categories else number for name in table.names])
    every = np.arange(len(fill), dtype=np.int32)
    return builder.add(Impute(every, fill, every[:0], None), table.value).holding(table.value, every)


def encoded(
    transform: Callable[[Any], Any], table: Table, builder: Builder, known: Mapping[str, Any] = MappingProxyType({})
) -> Value:
    """Return what a transformer of categorical columns makes of all columns of a table; `known` as in `tabulate`."""
    codes = tabulate(transform, table.names, table.categories, known)
    return lookup(builder, table.value, codes)
