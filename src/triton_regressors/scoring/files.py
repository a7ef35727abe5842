"""Files of rows: which there are, what they hold, the parts that they are scored in, and their rows batch by batch."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyarrow import compute, types

from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.clients.tables import check_columns
from triton_regressors.scoring.columns import rows_together
from triton_regressors.scoring.errors import ScoringError
from triton_regressors.scoring.scorer import Scorer

SUFFIXES = (".parquet", ".csv")
PART_ROWS = 1_000_000
"""A part ends with the row group that makes it so many rows: what a crash costs at most."""

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class Unreadable(Exception):  # noqa: N818
    """A file cannot be read, or does not fit the entry; where that ends a run it becomes a `ScoringError`."""


@dataclass(frozen=True)
class Source:
    """A file of rows. groups: the rows of a .parquet's row groups; () of a .csv, whose rows nobody has counted.

    below: its path within the folder that was given, or its name. own: its columns; schema: with those that its path
    states, as folders date=2026-01-31 do, whose values are hive. size and mtime_ns tell a changed file from an
    unchanged one.
    """

    path: str
    below: str
    size: int
    mtime_ns: int
    groups: tuple[int, ...]
    own: pa.Schema
    schema: pa.Schema
    hive: tuple[tuple[str, str | None], ...]

    def unchanged(self) -> bool:
        """Whether the file is as it was found."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return (status.st_size, status.st_mtime_ns) == (self.size, self.mtime_ns)

    @property
    def csv(self) -> bool:
        """Whether it is a .csv."""
        return self.path.lower().endswith(".csv")


@dataclass(frozen=True)
class Part:
    """Some row groups of a source, or all of a .csv (None): what is done or not done after a crash."""

    number: int
    source: int
    groups: tuple[int, ...] | None
    first_row: int
    rows: int | None


def find_files(inputs: Sequence[Path | str]) -> list[tuple[Path, Path]]:
    """Return the files that files, folders and globs name, each with the folder it was looked for in, sorted by path.

    In folders it is those that end in .parquet or .csv, at any depth; what begins with . or _ is left out.
    """
    found: dict[Path, Path] = {}
    for given in map(str, inputs):
        path = Path(given)
        if path.is_dir():
            inside = [each for each in sorted(path.rglob("*")) if each.suffix.lower() in SUFFIXES and each.is_file()]
            files = [each for each in inside if not any(part[0] in "._" for part in each.relative_to(path).parts)]
            base = path
        else:
            files = [path] if path.is_file() else [Path(each) for each in sorted(glob.glob(given, recursive=True))]
            files = [each for each in files if each.is_file()]
            base = path.parent if path.is_file() else Path(os.path.dirname(glob.escape(given).partition("[")[0]))
            other = [each for each in files if each.suffix.lower() not in SUFFIXES]
            if other:
                raise ScoringError(f"Cannot read rows from {other[0]}: the suffix must be {', '.join(SUFFIXES)}.")
        if not files:
            raise ScoringError(f"There is no file of rows at {given}; files end in {', '.join(SUFFIXES)}.")
        for each in files:
            found.setdefault(each.resolve(), base.resolve())
    return list(found.items())


def look(path: Path, base: Path, scorer: Scorer, *, by_row: bool = False) -> Source:
    """Return what a file is, after reading no more than where it says so.

    With `by_row` a cell of a .csv that is no number is the matter of its row, and not looked at here.

    Raises:
        Unreadable: it cannot be read, or lacks a column that the entry takes, or has one of another kind.
    """
    below = path.relative_to(base) if path.is_relative_to(base) else Path(path.name)
    try:
        status = path.stat()
        if path.suffix.lower() == ".csv":
            kinds, found = _kinds(str(path), scorer)
            groups, own = (), pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in found])
            if not by_row:
                with _csv_reader(str(path), kinds) as reader:
                    own = reader.schema
        else:
            with pq.ParquetFile(path) as file:
                groups = tuple(file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups))
                own = file.schema_arrow
    except (OSError, ValueError) as error:  # pyarrow's are either
        raise Unreadable(f"Cannot read rows from {path}: {one_line(error)}.") from None
    pairs = [part.partition("=") for part in path.parent.parts if "=" in part]
    stated = {name: None if value == HIVE_NULL else unquote(value) for name, _, value in pairs if name not in own.names}
    schema = pa.schema([*own, *(pa.field(name, _stated(name, scorer)) for name in stated)])
    source = Source(
        *(str(path), below.as_posix(), status.st_size, status.st_mtime_ns, groups, own, schema), tuple(stated.items())
    )
    try:
        _check(schema, scorer)
    except InvalidRequest as error:
        raise Unreadable(f"{path}: {error}") from None
    return source


def plan_parts(sources: Sequence[Source], part_rows: int = PART_ROWS) -> list[Part]:
    """Cut files into parts, in order."""
    parts: list[Part] = []
    for place, source in enumerate(sources):
        if source.csv:
            parts.append(Part(len(parts), place, None, 0, None))
            continue
        first, held, groups = 0, 0, list[int]()
        for number, rows in enumerate(source.groups):
            groups.append(number)
            held += rows
            if held >= part_rows or number == len(source.groups) - 1:
                parts.append(Part(len(parts), place, tuple(groups), first, held))
                first, held, groups = first + held, 0, []
        if not source.groups:
            parts.append(Part(len(parts), place, (), 0, 0))
    return parts


def kept_fields(sources: Sequence[Source], scorer: Scorer) -> list[pa.Field]:
    """Return the kept columns as the output has them: the same type in every file."""
    fields = []
    for name in scorer.keep:
        kinds = {_plain(source.schema.field(name).type): source for source in sources}
        if len(kinds) > 1:
            (one, a), (other, b) = list(kinds.items())[:2]
            raise ScoringError(f"Column '{name}' to keep is {one} in {a.path} and {other} in {b.path}.")
        fields.append(pa.field(name, next(iter(kinds))))
    return fields


def batches(source: Source, part: Part, scorer: Scorer, *, by_row: bool = False) -> Iterator[pa.Table]:
    """Yield the rows of a part in their order, with the columns that are needed and no others.

    With `by_row` the numbers of a .csv are strings still: see `as_numbers`.
    """
    stated = dict(source.hive)
    wanted = list(dict.fromkeys([*(name for each in scorer.inputs for name in each.columns), *scorer.keep]))
    own = [name for name in wanted if name not in stated]
    for batch in _own_batches(source, part, scorer, own, rows_together(len(wanted)), by_row=by_row):
        if batch.num_rows:
            table = pa.Table.from_batches([batch])
            for field in (field for field in source.schema if field.name in stated and field.name in wanted):
                value = pa.scalar(stated[field.name], pa.string()).cast(field.type)
                table = table.append_column(field, pa.repeat(value, batch.num_rows))
            yield table


def _own_batches(
    source: Source, part: Part, scorer: Scorer, names: Sequence[str], rows: int, *, by_row: bool
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a part that stand in the file itself.

    A reader of one file keeps its rows in order; of some row groups of a file, pyarrow's datasets were seen not to.
    """
    try:
        if source.csv:
            kinds = dict.fromkeys(names, pa.string()) if by_row else _kinds(source.path, scorer)[0]
            with _csv_reader(source.path, kinds, names) as reader:
                yield from reader
        else:
            with pq.ParquetFile(source.path) as file:
                yield from file.iter_batches(rows, row_groups=list(part.groups or ()), columns=list(names))
    except (OSError, ValueError) as error:  # pyarrow's are either
        raise Unreadable(f"Cannot read rows from {source.path}: {one_line(error)}.") from None


def as_numbers(table: pa.Table, source: Source, scorer: Scorer) -> tuple[pa.Table, dict[int, str]]:
    """Return a table of `batches` with numbers where the entry takes them, and the reason for each row without.

    A cell that is no number is null in the table.
    """
    refused: dict[int, str] = {}
    if not source.csv:
        return table, refused
    missing = pa.array(pyarrow.csv.ConvertOptions().null_values, pa.string())
    for name in (name for tensor in scorer.inputs if not tensor.text for name in tensor.columns):
        place, kind = table.schema.get_field_index(name), source.schema.field(name).type
        column = table.column(place)
        if not types.is_string(column.type):  # a folder's name states it
            continue
        trimmed = compute.utf8_trim_whitespace(column)
        cells = compute.if_else(compute.is_in(trimmed, value_set=missing), pa.scalar(None, pa.string()), trimmed)
        try:
            numbers = cells.cast(kind)
        except pa.ArrowInvalid:
            found = list(map(partial(_number, kind=kind), cells.to_pylist()))
            for row, (number, cell) in enumerate(zip(found, cells.to_pylist(), strict=True)):
                if number is None and cell is not None:
                    what = "whole number" if types.is_integer(kind) else "number"
                    refused.setdefault(row, f"Row {row} of column '{name}' holds {cell!r}, which is no {what}.")
            numbers = pa.array(found, kind)
        table = table.set_column(place, name, numbers)
    return table, refused


def _number(cell: str | None, kind: pa.DataType) -> Any:
    """Return what a cell of a .csv holds, None where that is nothing of this type."""
    try:
        return pa.scalar(cell, pa.string()).cast(kind).as_py()
    except pa.ArrowInvalid:
        return None


def one_line(error: Exception) -> str:
    """Return what an error of pyarrow's or the system's says."""
    return " ".join(str(error).split()).rstrip(".")


def _kinds(path: str, scorer: Scorer) -> tuple[dict[str, Any], pa.Schema]:
    """Return the types that columns of a .csv are read as, and those that pyarrow takes its first rows for.

    Numbers are read as floats or whole numbers as the entry takes them, strings and what is kept as they stand there.
    A column of numbers whose first cells are True and False is read as booleans.
    """
    kinds: dict[str, Any] = dict.fromkeys(scorer.keep, pa.string())
    for tensor in scorer.inputs:
        kind = {"BYTES": pa.string(), "INT64": pa.int64()}.get(tensor.datatype, pa.float64())
        kinds |= dict.fromkeys(tensor.columns, kind)
    numbers = [name for tensor in scorer.inputs if not tensor.text for name in tensor.columns]
    with pyarrow.csv.open_csv(path) as reader:
        first = reader.schema
    kinds |= {name: pa.bool_() for name in numbers if name in first.names and types.is_boolean(first.field(name).type)}
    return kinds, first


def _csv_reader(path: str, kinds: Mapping[str, Any], names: Sequence[str] | None = None) -> Any:
    """Return what reads a .csv block by block, with columns of these types, and these columns alone."""
    options = pyarrow.csv.ConvertOptions(column_types=kinds, strings_can_be_null=False, include_columns=names)
    return pyarrow.csv.open_csv(path, convert_options=options)


def _check(schema: pa.Schema, scorer: Scorer) -> None:
    """Raise InvalidRequest where a column is missing, is there twice, or is of a kind that the entry does not take."""
    owners = {tensor.name: f" of input '{tensor.name}'" for tensor in scorer.inputs}
    groups = [(tensor.columns, owners[tensor.name]) for tensor in scorer.inputs]
    check_columns(pd.DataFrame(columns=schema.names), [*groups, (scorer.keep, " to keep")])
    for tensor in scorer.inputs:
        owner = owners[tensor.name]
        for name in tensor.columns:
            kind = _plain(schema.field(name).type)
            if not (types.is_null(kind) or (_is_text(kind) if tensor.text else _is_number(kind))):
                takes = "strings" if tensor.text else "numbers"
                raise InvalidRequest(f"The table's column '{name}'{owner} is {kind}; the model takes {takes} there.")


def _stated(name: str, scorer: Scorer) -> pa.DataType:
    """Return the type of a column that folders' names state: a number where the entry takes one."""
    inputs = [tensor for tensor in scorer.inputs if name in tensor.columns and not tensor.text]
    return pa.string() if not inputs else pa.int64() if inputs[0].datatype == "INT64" else pa.float64()


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if types.is_dictionary(kind) else kind


def _is_number(kind: pa.DataType) -> bool:
    return any(check(kind) for check in (types.is_floating, types.is_integer, types.is_boolean, types.is_decimal))


def _is_text(kind: pa.DataType) -> bool:
    return any(
        check(kind) for check in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )
