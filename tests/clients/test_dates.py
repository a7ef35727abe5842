"""Columns of dates of tables and files as a request's tensors, by the configuration alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.client.configuration import Configuration
from triton_regressors.clients.client.tensors import input_tensors, model_tensors
from triton_regressors.clients.errors import InvalidRequest, RowsError, ServerFault
from triton_regressors.clients.rows import read_by_row, read_tensors
from triton_regressors.kernels.format.inputs import NAT

DATES = [{"column": 1, "unit": "ns", "zone": None}, {"column": 2, "unit": "ns", "zone": "Europe/Berlin"}]
TABLE = pd.DataFrame(
    {
        "paid": pd.to_datetime(["2026-01-31T12:00Z", "1969-12-31T23:59:59.5Z", None], format="ISO8601"),
        "id": [2**62 + 1, 2, 3],
        "ordered": pd.to_datetime(["2026-01-31", None, "1970-01-02"]),
    }
)
WANTED = [
    [2**62 + 1, 1_769_817_600 * 10**9, 1_769_860_800 * 10**9],
    [2, NAT, -(10**9) // 2],
    [3, 86_400 * 10**9, NAT],
]


def config(dates: Any = DATES, columns: tuple[str, ...] = ("id", "ordered", "paid")) -> Any:
    """Return what a server tells of a model whose one input has three columns."""
    found = model_config_pb2.ModelConfig(name="orders", max_batch_size=8)
    found.input.add(name="integers", data_type=model_config_pb2.TYPE_INT64, dims=[3])
    found.parameters["dates"].string_value = json.dumps({"integers": dates})
    found.parameters["checks_columns"].string_value = "true"
    if columns:
        found.parameters["columns"].string_value = json.dumps({"integers": columns})
    return found


def integers(X: Any, told: Any = None) -> list[list[int]]:
    told = config() if told is None else told
    found: np.ndarray = model_tensors(X, input_tensors(told), "orders")["integers"]
    assert found.dtype == np.int64
    return found.tolist()


def test_tables() -> None:
    assert integers(TABLE) == WANTED
    assert integers(TABLE.astype({"ordered": object, "paid": object})) == WANTED
    assert integers(TABLE.to_dict("records")) == WANTED
    assert integers(TABLE[["id", "ordered", "paid"]].to_numpy(), config(columns=())) == WANTED
    assert repr(input_tensors(config())[0]).endswith(", columns 'id', 'ordered', 'paid', 2 of them dates>")


def test_numbers_by_hand_and_only_by_hand() -> None:
    assert integers({"integers": WANTED}) == WANTED
    assert integers({"integers": np.array(WANTED)}) == WANTED
    with pytest.raises(InvalidRequest, match=r"^integers's columns 'ordered', 'paid' must be dates: 'ordered' holds"):
        integers(np.array(WANTED))
    with pytest.raises(InvalidRequest, match=r"^integers's columns 'ordered', 'paid' must be dates"):
        integers({"integers": pd.DataFrame(WANTED, columns=["id", "ordered", "paid"])})


def test_the_other_columns_keep_their_rules() -> None:
    with pytest.raises(InvalidRequest, match=r"^integers\[1, 0\] \('id'\) is 0\.5, which is not a whole number"):
        integers(TABLE.assign(id=[1.0, 0.5, 2.0]))
    with pytest.raises(InvalidRequest, match=r"^The table has shape \(3, 2\)"):
        integers(pd.DataFrame(TABLE[["id", "ordered"]].to_numpy()), config(columns=()))


def test_dates_of_a_remembered_configuration_may_be_out_of_date() -> None:
    known = Configuration.of(config())
    assert known.tensors({"integers": np.array(WANTED)})[1]  # the server sees whether they fit
    times = np.array([["2026-01-31"] * 3], "datetime64[ns]")
    alone = Configuration.of(config([{"column": place, "unit": "ns", "zone": None} for place in range(3)]))
    assert not alone.tensors(times)[1]
    assert not known.tensors(TABLE)[1]
    assert known.digest != Configuration.of(config([])).digest


def test_a_configuration_that_cannot_be_read() -> None:
    with pytest.raises(ServerFault, match="Parameter 'dates' of model 'orders' does not describe"):
        input_tensors(config([{"zone": None}]))


def test_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(
        "ordered, id,paid\n2026-01-31,4611686018427387905,2026-01-31 13:00:00+01:00\nNA,2,1969-12-31T23:59:59.5Z\n"
        "1970-01-02,3,\n".replace(", id", ",id")
    )
    assert read_tensors(path, config())["integers"].tolist() == WANTED
    rows, kept, refused = read_by_row(path, config())
    assert (integers(rows), kept.tolist(), refused) == (WANTED, [0, 1, 2], {})
    path.write_text("ordered,id,paid\n2026-01-31,1,2026-01-31\n31.01.2026,2,\n1970-01-02,x,\n1970-01-02,4,\n")
    with pytest.raises(
        RowsError, match=r"orders.csv: The table's columns 'ordered', 'paid' must be dates: 'ordered' h"
    ):
        read_tensors(path, config())
    rows, kept, refused = read_by_row(path, config())
    assert integers(rows) == [[4, 86_400 * 10**9, NAT]]
    assert kept.tolist() == [3]
    assert refused == {
        0: "Row 0 of column 'paid' holds '2026-01-31', without an offset from UTC such as +01:00, and the model's "
        "dates are in Europe/Berlin.",
        1: "Row 1 of column 'ordered' holds '31.01.2026'; a .csv holds dates as 2026-01-31 or 2026-01-31 14:05:09.25.",
        2: "Row 2 of column 'id' holds 'x', which is not a number.",
    }


def test_a_csv_without_a_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("1,2026-01-31,\n")
    with pytest.raises(RowsError, match="does not name its columns"):
        read_tensors(path, config())


def test_a_parquet(tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    TABLE.to_parquet(path)
    assert read_tensors(path, config())["integers"].tolist() == WANTED
    TABLE.assign(ordered=[date.date() if date is not pd.NaT else None for date in TABLE["ordered"]]).to_parquet(path)
    rows, kept, _ = read_by_row(path, config())
    assert (integers(rows), len(kept)) == (WANTED, 3)
