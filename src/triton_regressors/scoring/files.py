"""Files of rows: the search for them, their columns, their division into parts, and their rows batch by batch."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyarrow import compute, types

from triton_regressors.scoring.columns import rows_together
from triton_regressors.scoring.errors import ScoringError
from triton_regressors.scoring.scorer import Scorer
from triton_regressors.tables.dates import written_dates
from triton_regressors.tables.errors import TableError, raised_as
from triton_regressors.tables.files import first_line, nameless, unreadable
from triton_regressors.tables.values import MISSING_WORDS, WrongCell, WrongColumn, cell_numbers, wrong_columns

SUFFIXES = (".parquet", ".csv")
PART_ROWS = 1_000_000
"""A part ends with the row group that brings it to this many rows: a crash loses at most one part."""

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Source:
    """A file of rows. groups: the rows of a .parquet's row groups; () for a .csv, whose rows are not counted.

    below: its path within the folder that was given, or its name. own: its columns; schema: with those that its path
    states, as folders date=2026-01-31 do, whose values are hive. size and mtime_ns tell a changed file from an
    unchanged one. reading: how pyarrow finds the columns of a .csv whose first line does not name them.
    """

    path: str
    below: str
    size: int
    mtime_ns: int
    groups: tuple[int, ...]
    own: pa.Schema
    schema: pa.Schema
    hive: tuple[tuple[str, str | None], ...]
    reading: Mapping[str, Any]

    def unchanged(self) -> bool:
        """Return whether the file is unchanged since it was found."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return (status.st_size, status.st_mtime_ns) == (self.size, self.mtime_ns)

    @property
    def csv(self) -> bool:
        """True if the file is a .csv."""
        return self.path.lower().endswith(".csv")


@dataclass(frozen=True)
class Part:
    """Some row groups of a source, or all of a .csv (None): the unit that is either done or not done after a crash."""

    number: int
    source: int
    groups: tuple[int, ...] | None
    first_row: int
    rows: int | None


def find_files(inputs: Sequence[Path | str]) -> list[tuple[Path, Path]]:
    """Return the files that files, folders and globs name, each with its base folder, sorted by path.

    Folders give their files that end in .parquet or .csv, at any depth; names that begin with . or _ are left out.
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
    """Return the description of a file, reading only its metadata or its first block.

    With `by_row` a cell of a .csv that is not a number concerns only its row, and is not checked here.

    Raises:
        TableError: the file cannot be read, or lacks a column that the entry takes, or has one of another kind.
    """
    below = path.relative_to(base) if path.is_relative_to(base) else Path(path.name)
    groups: tuple[int, ...] = ()
    reading: dict[str, Any] = {}
    try:
        status = path.stat()
        if path.suffix.lower() == ".csv":
            reading = _reading(path, scorer)
            own = _csv_schema(path, reading, scorer, by_row=by_row)
        else:
            with pq.ParquetFile(path) as file:
                groups = tuple(file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups))
                own = file.schema_arrow
    except (OSError, ValueError) as error:  # pyarrow's are either
        raise unreadable(path, error) from None
    pairs = [part.partition("=") for part in path.parent.parts if "=" in part]
    stated = {name: None if value == HIVE_NULL else unquote(value) for name, _, value in pairs if name not in own.names}
    schema = pa.schema([*own, *(pa.field(name, _stated(name, scorer)) for name in stated)])
    with raised_as(TableError, f"{path}: "):
        scorer.check_columns(schema.names)
        _check_types(schema, scorer)
    return Source(
        str(path), below.as_posix(), status.st_size, status.st_mtime_ns, groups, own, schema, tuple(stated.items()),
        reading,
    )  # fmt: skip


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
    """Return the fields of the kept columns in the output; each has the same type in every file."""
    fields = []
    for name in scorer.keep:
        kinds = {_plain(source.schema.field(name).type): source for source in sources}
        if len(kinds) > 1:
            (one, a), (other, b) = list(kinds.items())[:2]
            raise ScoringError(f"Column '{name}' to keep is {one} in {a.path} and {other} in {b.path}.")
        fields.append(pa.field(name, next(iter(kinds))))
    return fields


def batches(source: Source, part: Part, scorer: Scorer) -> Iterator[pa.Table]:
    """Yield the rows of a part in their order, with only the needed columns.

    A column of a .csv with a cell that is not a number, or not a date, is a column of strings: see `as_numbers`.
    """
    stated = dict(source.hive)
    wanted = list(dict.fromkeys([*(name for each in scorer.inputs for name in each.columns), *scorer.keep]))
    own = [name for name in wanted if name not in stated]
    for table in _own_batches(source, part, scorer, own, rows_together(len(wanted))):
        if table.num_rows:
            for field in (field for field in source.schema if field.name in stated and field.name in wanted):
                value = pa.scalar(stated[field.name], pa.string()).cast(field.type)
                table = table.append_column(field, pa.repeat(value, table.num_rows))
            yield table


def _own_batches(source: Source, part: Part, scorer: Scorer, names: Sequence[str], rows: int) -> Iterator[pa.Table]:
    """Yield columns of a part that are in the file itself.

    A reader of one file keeps its rows in order; pyarrow's datasets were seen not to, for some row groups of a file.
    """
    try:
        if source.csv:
            yield from _csv_tables(source.path, source.reading, scorer, names)
        else:
            with pq.ParquetFile(source.path) as file:
                for batch in file.iter_batches(rows, row_groups=list(part.groups or ()), columns=list(names)):
                    yield pa.Table.from_batches([batch])
    except (OSError, ValueError) as error:  # pyarrow's are either
        raise unreadable(source.path, error) from None


def as_numbers(table: pa.Table, scorer: Scorer) -> tuple[pa.Table, dict[int, str]]:
    """Return a .csv's table with numbers and dates in the entry's columns of these, and the reason for each wrong row.

    A cell that is not a number, or not a date, is null in the table.
    """
    refused: dict[int, str] = {}
    for name in _unread(table.schema, scorer):
        table = _put(table, name, _of_words(table, name, scorer, refused))
    return table, refused


def _of_words(table: pa.Table, name: str, scorer: Scorer, refused: dict[int, str] | None = None) -> pa.Array:
    """Return a .csv's column of strings as dates or numbers; raise `WrongCell` for other cells without `refused`."""
    cells, zones = table[name].to_pylist(), _zones(scorer)
    if name in zones:
        return pa.array(written_dates(cells, zones[name], name, refused)).cast(_date_type(zones[name]))
    return pa.array(cell_numbers(cells, name, refused, written=True), from_pandas=True)


def _zones(scorer: Scorer) -> dict[str, str | None]:
    """Return the columns of dates, each with its time zone or None."""
    return {name: zone for tensor in scorer.inputs for name, zone in tensor.zones().items()}


def _date_type(zone: str | None) -> pa.DataType:
    """Return the type of a .csv's column of dates."""
    return pa.timestamp("ns", None if zone is None else "UTC")


def _read_dates(table: pa.Table, scorer: Scorer) -> pa.Table:
    """Return a .csv's table with the columns of strings that hold only dates converted to dates."""
    for name in set(_unread(table.schema, scorer)) & _zones(scorer).keys():
        with suppress(WrongCell):
            table = _put(table, name, _of_words(table, name, scorer))
    return table


def _read_numbers(table: pa.Table, scorer: Scorer) -> pa.Table:
    """Return a .csv's table with the columns of strings that hold only numbers converted to numbers."""
    missing = pa.array(sorted(MISSING_WORDS), pa.string())
    for name in set(_unread(table.schema, scorer)) - _zones(scorer).keys():
        trimmed = compute.utf8_trim_whitespace(table[name])
        cells = compute.if_else(compute.is_in(trimmed, value_set=missing), pa.scalar(None, pa.string()), trimmed)
        for kind in (pa.int64(), pa.float64()):
            with suppress(pa.ArrowInvalid):
                table = _put(table, name, cells.cast(kind))
                break
        else:
            try:
                table = _put(table, name, pa.array(cell_numbers(cells.to_pylist(), written=True), from_pandas=True))
            except WrongCell:
                table = _put(table, name, cells)
    return table


def _unread(schema: pa.Schema, scorer: Scorer) -> list[str]:
    """Return the columns of strings for which the entry takes numbers or dates."""
    names = [name for tensor in scorer.inputs if not tensor.text for name in tensor.columns]
    return [name for name in names if name in schema.names and types.is_string(schema.field(name).type)]


def _put(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    """Return a table with a column replaced."""
    return table.set_column(table.schema.get_field_index(name), name, column)


def _kinds(scorer: Scorer) -> dict[str, Any]:
    """Return the types in which a .csv's columns are read; strings, dates and kept columns stay text."""
    kinds: dict[str, Any] = dict.fromkeys(scorer.keep, pa.string())
    for tensor in scorer.inputs:
        kind = {"BYTES": pa.string(), "INT64": pa.int64()}.get(tensor.datatype, pa.float64())
        kinds |= dict.fromkeys(tensor.columns, kind) | dict.fromkeys(tensor.zones(), pa.string())
    return kinds


def _reading(path: Path, scorer: Scorer) -> dict[str, Any]:
    """Return pyarrow's options for the columns of a .csv: none if its first line names them as pyarrow reads it."""
    wanted = [name for tensor in scorer.inputs for name in tensor.columns]
    line = first_line(path, wanted, text=any(tensor.text or tensor.dates for tensor in scorer.inputs))
    if line.names:
        with pyarrow.csv.open_csv(path) as reader:
            if list(reader.schema.names) == list(line.names):
                return {}
    elif wanted and line.width != len(wanted):
        raise nameless(path, wanted, scorer.name)
    names = line.names or wanted or [f"column {place}" for place in range(line.width)]
    return {"column_names": list(names), "skip_rows_after_names": int(line.header)}


def _csv_schema(path: Path, reading: Mapping[str, Any], scorer: Scorer, *, by_row: bool) -> pa.Schema:
    """Return the columns of a .csv; the first block gives the types of the entry's columns of numbers and dates.

    Raises:
        TableError: the block holds a value there that is not a number or a date, and `by_row` is False.
    """
    with pyarrow.csv.open_csv(path, read_options=pyarrow.csv.ReadOptions(**reading)) as reader:
        kinds = _kinds(scorer)
        schema = pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in reader.schema])
    table = next(_csv_tables(str(path), reading, scorer, [name for name in kinds if name in schema.names]), None)
    if table is None:  # a header alone
        dated = {name: _date_type(zone) for name, zone in _zones(scorer).items()}
        return pa.schema([field.with_type(dated.get(field.name, field.type)) for field in schema])
    numbers, _ = as_numbers(table, scorer)
    wrong = dict[str, WrongColumn]()
    for name in _unread(table.schema, scorer) if not by_row else ():
        try:
            _of_words(table, name, scorer)
        except WrongCell as error:
            wrong[name] = error
    if wrong:
        raise TableError(f"{path}: {wrong_columns(wrong)}")
    return pa.schema(
        [numbers.schema.field(field.name) if field.name in numbers.schema.names else field for field in schema]
    )


def _csv_tables(
    path: str, reading: Mapping[str, Any], scorer: Scorer, names: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Yield a .csv block by block, with only these columns, and numbers and dates in the entry's columns of these.

    pyarrow reads plain numbers fastest. If it finds anything else in their place, the rest of the file is read again as
    strings. A column with a value that is not a number, or not a date, stays a column of strings.
    """
    kinds, done = _kinds(scorer), 0
    try:
        for batch in _csv_reader(path, reading, kinds, names):
            yield _read_dates(pa.Table.from_batches([batch]), scorer)
            done += batch.num_rows
    except pa.ArrowInvalid:
        first = 0
        for batch in _csv_reader(path, reading, dict.fromkeys(kinds, pa.string()), names):
            rows, first = batch.slice(max(done - first, 0)), first + batch.num_rows
            if rows.num_rows:
                yield _read_dates(_read_numbers(pa.Table.from_batches([rows]), scorer), scorer)


def _csv_reader(
    path: str, reading: Mapping[str, Any], kinds: Mapping[str, Any], names: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    """Yield the blocks of a .csv, with columns of these types."""
    options = pyarrow.csv.ConvertOptions(column_types=kinds, strings_can_be_null=False, include_columns=names)
    read = pyarrow.csv.ReadOptions(**reading)
    with pyarrow.csv.open_csv(path, convert_options=options, read_options=read) as reader:
        yield from reader


def _check_types(schema: pa.Schema, scorer: Scorer) -> None:
    """Raise `TableError` if columns are of a kind that the entry does not take."""
    for tensor in scorer.inputs:
        zones = tensor.zones()
        others = [name for name in tensor.columns if name not in zones]
        wanted = (_is_text, "string") if tensor.text else (is_number, "number")
        for names, (fits, kind) in ((others, wanted), (zones, (_is_date, "date"))):
            held = {name: _plain(schema.field(name).type) for name in names}
            wrong = {
                name: WrongColumn(kind, f"is of type {found}")
                for name, found in held.items()
                if not (types.is_null(found) or fits(found))
            }
            if wrong:
                raise wrong_columns(wrong)


def _stated(name: str, scorer: Scorer) -> pa.DataType:
    """Return the type of a column that folders' names state: a number or a date if the entry takes one.

    The names state dates without a time zone, so that a column with one is a string, which is refused.
    """
    zones = _zones(scorer)
    if name in zones:
        return pa.string() if zones[name] else _date_type(None)
    inputs = [tensor for tensor in scorer.inputs if name in tensor.columns and not tensor.text]
    return pa.string() if not inputs else pa.int64() if inputs[0].datatype == "INT64" else pa.float64()


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if types.is_dictionary(kind) else kind


def is_number(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds numbers or booleans."""
    return any(check(kind) for check in (types.is_floating, types.is_integer, types.is_boolean, types.is_decimal))


def _is_date(kind: pa.DataType) -> bool:
    return bool(types.is_timestamp(kind) or types.is_date(kind))


def _is_text(kind: pa.DataType) -> bool:
    return any(
        check(kind) for check in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )
