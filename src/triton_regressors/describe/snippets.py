"""Code that asks a server on this machine for an entry's answers, ready to be copied.

Its row is made of numbers and strings that the model is known to take: the middle value of each column of the golden
rows. It is therefore no row of the user's data.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from triton_regressors.contribution_game import OUTPUT, OUTPUTS
from triton_regressors.kernels.entry import Golden
from triton_regressors.kernels.format.inputs import INTEGERS, NAT, DateColumn, Inputs

MANY = 64
"""Above this many columns, no row is written out."""
WIDTH = 100
DIGITS = 4
MINUTE = 60 * 10**9
HOUR = 60 * MINUTE
"""The nanoseconds of an hour, to which dates are rounded down."""


def python_snippet(
    name: str,
    inputs: Inputs,
    outputs: Sequence[str],
    feature_names: Sequence[str],
    golden: Golden,
    booleans: Collection[int] = (),
    explained: str | None = None,
) -> str:
    """Return Python that asks for one row with this package's client: a DataFrame if the columns have names.

    The columns `booleans` of the DataFrame hold True and False. `explained` is the meaning of the contributions, which
    are asked for by themselves, if the model has some.
    """
    row = example(inputs, golden)
    if feature_names and _width(inputs) <= MANY:
        imports, rows = "import pandas as pd\n", _table(inputs, feature_names, row, booleans)
    else:
        values = {tensor: _array(part) for tensor, part in row.items()}
        imports = "import numpy as np\n" if any(value.startswith("np.") for value in values.values()) else ""
        items = [f"{_literal(tensor)}: {value}" for tensor, value in values.items()]
        alone = len(values) == 1 and not inputs.dates  # only a mapping takes dates as numbers
        rows = next(iter(values.values())) if alone else _laid_out("{", items, "}")
    which = "any table with these columns" if feature_names else "their columns in training order"
    asked = f"predict({_literal(name)}, rows)"
    others = [output for output in outputs if output not in OUTPUTS]
    if others != ["y"]:
        asked = f"infer({_literal(name)}, rows, outputs={json.dumps(others)})"
    more = "" if explained is None else f"\n    print(client.explain({_literal(name)}, rows))  # {explained}"
    return f"""\
{imports}import triton_regressors as tr

rows = {rows}  # or yours: {which}
with tr.Client("127.0.0.1:8001") as client:
    print(client.{asked}){more}"""


def curl_command(
    name: str, inputs: Inputs, outputs: Sequence[str], golden: Golden, explained: str | None = None
) -> str:
    """Return a shell command that asks for all outputs in JSON; for wide rows, a sentence instead.

    A comment before it says what the contributions are, if the model has some.
    """
    columns, row = inputs.columns(), example(inputs, golden)
    if _width(inputs) > MANY:
        return f"# A row of more than {MANY} columns is too long for a command line."
    request = {
        "inputs": [
            {"name": tensor, "datatype": datatype, "shape": [1, len(columns[tensor])], "data": [row[tensor]]}
            for tensor, datatype in inputs.datatypes().items()
        ],
        "outputs": [{"name": output} for output in outputs],
    }
    url = f"127.0.0.1:8000/v2/models/{quote(name)}/infer"
    about = "" if explained is None else f"# {OUTPUT}: {explained}\n"
    command = f"{about}curl -s {url} -d {shlex.quote(json.dumps(request, ensure_ascii=False))}"
    dates = [row[INTEGERS][place] for place in inputs.integers.date_places()]
    known = next((_time(date) for date in dates if date != NAT), "2026-01-31 14:05")
    return f"# Nanoseconds of a date: date -d '{known} UTC' +%s%N\n{command}" if dates else command


def _width(inputs: Inputs) -> int:
    """Return the number of columns of a row, over all inputs."""
    return sum(map(len, inputs.columns().values()))


def example(inputs: Inputs, golden: Golden) -> dict[str, list[Any]]:
    """Return a row that the model takes, each tensor's part of it as Python's numbers and strings."""
    middle = np.sort(golden.X, axis=0)[len(golden.X) // 2 :][:1]
    if inputs.numbered is not None:  # a model and categories that it knows are those of one row
        middle[:, inputs.coded] = golden.X[len(golden.X) // 2, inputs.coded]
    whole = ((np.round(golden.X) == golden.X) | np.isnan(golden.X)).all(axis=0)
    found: dict[str, list[Any]] = {}
    columns = inputs.columns()
    for tensor, values in inputs.decode(middle).items():
        if values.dtype == object:
            found[tensor] = [text.decode() for text in values[0]]
        elif values.dtype.kind == "i":
            found[tensor] = values[0].tolist()
            for place, column in enumerate(columns[tensor]):
                if column in inputs.dates and found[tensor][place] != NAT:
                    found[tensor][place] -= found[tensor][place] % HOUR
        else:
            found[tensor] = [
                _shown(value, whole=bool(whole[column]), category=column in inputs.categorical)
                for column, value in zip(columns[tensor], values[0].tolist(), strict=True)
            ]
    return found


def _shown(value: float, *, whole: bool, category: bool) -> float | int:
    """Return a number of a column in few digits, but whole if all of them are, and a category unchanged."""
    if whole and np.isfinite(value):
        return int(value)
    return value if category else float(f"{value:.{DIGITS}g}")


def _table(
    inputs: Inputs, feature_names: Sequence[str], row: Mapping[str, Sequence[Any]], booleans: Collection[int]
) -> str:
    """Return a row as Python's DataFrame, its columns in training order."""
    cells = [
        (column, tensor if tensor in inputs.ids else feature_names[column], value)
        for tensor, columns in inputs.columns().items()
        for column, value in zip(columns, row[tensor], strict=True)
    ]
    items = []
    for column, name, value in sorted(cells, key=lambda cell: cell[0]):
        cell = bool(value) if column in booleans and value in (0, 1) else value
        shown = _date(cell, inputs.dates[column]) if column in inputs.dates else _literal(cell)
        items.append(f"{_literal(name)}: [{shown}]")
    return _laid_out("pd.DataFrame({", items, "})")


def _array(part: Sequence[Any]) -> str:
    """Return a tensor's part of a row as Python code; zeros if there are many numbers."""
    if len(part) > MANY and not isinstance(part[0], str):
        return f"np.zeros((1, {len(part)}))"
    return _laid_out("[[", [_literal(value) for value in part], "]]")


def _date(nanoseconds: int, column: DateColumn) -> str:
    """Return pandas' date as Python code."""
    if nanoseconds == NAT:
        return "pd.NaT"
    if column.zone is None:
        return f'pd.Timestamp("{_time(nanoseconds)}")'
    return f'pd.Timestamp("{_time(nanoseconds)}Z").tz_convert({_literal(column.zone)})'


def _time(nanoseconds: int) -> str:
    """Return nanoseconds since 1970-01-01 UTC in ISO 8601, rounded down to the minute."""
    return str(np.datetime64(nanoseconds // MINUTE, "m")).replace("T", " ")


def _literal(value: Any) -> str:
    """Return a number or a string as Python code."""
    if isinstance(value, float) and np.isnan(value):
        return 'float("nan")'
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _laid_out(start: str, items: Sequence[str], end: str) -> str:
    """Return items between brackets: in one line, or in lines of up to `WIDTH` characters."""
    whole = start + ", ".join(items) + end
    if len(whole) <= WIDTH // 2:
        return whole
    lines = [start]
    for item in items:
        if len(lines) > 1 and len(lines[-1]) + len(item) + 2 <= WIDTH:
            lines[-1] += f" {item},"
        else:
            lines.append(f"    {item},")
    return "\n".join([*lines, end])
