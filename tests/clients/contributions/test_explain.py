"""`Client.explain` and `AsyncClient.explain` on a real server."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.clients.contributions.models import parts
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.contributions.contributions import Contributions
from triton_regressors.clients.errors import InvalidRequest

pytestmark = pytest.mark.server

ROWS = 40


@pytest.fixture
def table() -> pd.DataFrame:
    """More rows than a request takes, with the columns in another order and one column too many."""
    rng = np.random.default_rng(0)
    built = pd.Timestamp("2001-02-03") + pd.to_timedelta(np.arange(ROWS), "D")
    size = np.linspace(0, 2, ROWS)
    return pd.DataFrame({"size": size, "id": range(ROWS), "built": built, "age": rng.integers(1, 90, ROWS)})


@pytest.fixture
def asked(explained: Path) -> Path:
    """The log of the requests to `houses`, emptied."""
    log = explained / "houses" / "1" / "model.py.asked"
    log.write_text("")
    return log


def expected(table: pd.DataFrame) -> np.ndarray:
    built = table["built"].to_numpy().astype("datetime64[ns]").astype(np.int64)
    return parts(table["age"].to_numpy(), built, table["size"].to_numpy(np.float32).astype(np.float64))


def test_a_table_of_any_size_in_the_order_of_training(client: Client, table: pd.DataFrame, asked: Path) -> None:
    found = client.explain("houses", table)
    assert type(found) is Contributions
    assert np.array_equal(found.values, expected(table))
    assert (found.values.dtype, found.base_values.tolist()) == (np.float32, [0.25] * ROWS)
    margin = found.values.sum(axis=1, dtype=np.float64) + found.base_values
    np.testing.assert_allclose(found.predictions, np.exp(margin), rtol=1e-6)
    assert (found.columns, found.links, found.game) == (("age", "built", "size"), ("exp",), "background")
    assert found.data.tolist() == table[["age", "built", "size"]].astype(object).to_numpy().tolist()
    assert (found.model, found.version, found.rows.tolist()) == ("houses", "1", list(range(ROWS)))
    asked_for = asked.read_text().split("\n")[:-1]
    assert sorted(asked_for) == sorted(["16 contributions,y", "16 contributions,y", "8 contributions,y"])


def test_a_condition_asks_for_the_contributions_of_some_rows(client: Client, table: pd.DataFrame, asked: Path) -> None:
    y = client.predict("houses", table)
    asked.write_text("")
    found = client.explain("houses", table, where=f"y > {np.median(y)}")
    (rows,) = np.nonzero(y > np.median(y))
    assert found.rows.tolist() == rows.tolist()
    assert np.array_equal(found.values, expected(table)[rows])
    assert np.array_equal(found.predictions, y[rows])
    assert found.data[:, 0].tolist() == table["age"].to_numpy()[rows].tolist()
    lines = [line.split() for line in asked.read_text().splitlines()]
    assert sum(int(count) for count, names in lines if names == "y") == ROWS
    assert sum(int(count) for count, names in lines if names == "contributions,y") == len(rows)
    nothing = client.explain("houses", table, where="y < 0")
    assert nothing.values.shape == (0, 3)
    assert nothing.data.shape == (0, 3)
    assert str(nothing).startswith("<Contributions of 'houses'")


def test_inputs_by_name_have_the_same_cells(client: Client, table: pd.DataFrame) -> None:
    built = table["built"].to_numpy().astype("datetime64[ns]")
    by_input = {"integers": built.astype(np.int64)[:, None], "X": table[["age", "size"]].to_numpy(np.float32)}
    found = client.explain("houses", by_input)
    assert np.array_equal(found.values, expected(table))
    assert found.data[:, 0].tolist() == table["age"].tolist()
    assert found.data[:, 1].tolist() == table["built"].dt.to_pydatetime().tolist()


def test_several_targets_and_columns_without_names(client: Client) -> None:
    X = [[1, 2], [30, 4], [5, 60]]
    found = client.explain("two", X, where="y_1 < -1")
    assert found.rows.tolist() == [0, 1, 2]
    assert found.values.shape == (3, 2, 2)
    assert found.base_values.tolist() == [[0.25, -0.25]] * 3
    assert np.array_equal(found.values[:, :, 0], -found.values[:, :, 1])
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, found.predictions, rtol=1e-6)
    assert found.columns == ("column 0", "column 1")
    assert found.data.tolist() == X
    assert [target.name for target in found.targets()] == ["y_0", "y_1"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("sums", [[1, 2, 3]]), r"^Model 'sums' has no output 'contributions': export it with contributions="),
        (("houses", None, "y > 400 and y < 500"), r"^'y > 400 and y < 500' is no condition; it must be OUTPUT OP NUM"),
        (("houses", None, "y"), r"^'y' is no condition"),
        (("houses", None, "age > 3"), r"^'age > 3' compares 'age'; the conditions of this model are on y\.$"),
        (("two", [[1, 2]], "y > 3"), r"compares 'y'; the conditions of this model are on y_0, y_1\.$"),
    ],
)
def test_what_cannot_be_asked_is_said(client: Client, table: pd.DataFrame, arguments: tuple, says: str) -> None:
    name, rows, *where = arguments
    with pytest.raises(InvalidRequest, match=says):
        client.explain(name, table if rows is None else rows, **({"where": where[0]} if where else {}))


def test_it_can_be_pickled(client: Client, table: pd.DataFrame) -> None:
    found = client.explain("houses", table)
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(again.values, found.values)
    assert again.told == found.told
