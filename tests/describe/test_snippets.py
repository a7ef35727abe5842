"""The code that asks for a model: its rows are such as the entry takes. `tests/server/` runs it against a server."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tests.exporter.dated import DayNumber, fitted, orders
from triton_regressors import export
from triton_regressors.clients.client.tensors import Tensors, input_tensors, model_tensors
from triton_regressors.describe.contract import Contract
from triton_regressors.kernels.entry import read_document
from triton_regressors.model_config import from_pbtxt

RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.normal(100, 20, (80, 3))
IDS = 2**53 + 1 + 2 * np.arange(80)
TABLE = pd.DataFrame(NUMBERS, columns=["a", 'b "2"', "c"]).assign(city=["Paris", "Rome"] * 40, id=IDS)
WIDE = pd.DataFrame(RANDOM.normal(size=(80, 70)), columns=[f"f{number}" for number in range(70)]).assign(
    city=TABLE["city"]
)


def strings(X: Any, columns: Any) -> Any:
    encoders = make_column_transformer((OneHotEncoder(), columns), remainder="passthrough")
    return make_pipeline(encoders, Ridge()).fit(X, np.arange(80.0))


def ids() -> Any:
    encoders = make_column_transformer((OneHotEncoder(handle_unknown="error"), ["id"]), remainder="passthrough")
    return make_pipeline(encoders, Ridge()).fit(TABLE[["a", "id"]], np.arange(80.0))


BERLIN = orders(zone="Europe/Berlin")
MISSING = orders(80)
MISSING.loc[MISSING.index % 5 != 0, "ordered"] = pd.NaT
TIMES = orders(80)[["ordered"]].to_numpy()
UNNAMED = np.column_stack([TABLE["city"].to_numpy(dtype=object), *NUMBERS.T])
MODELS = {
    "plain": (Ridge().fit(NUMBERS, NUMBERS[:, 0]), NUMBERS, list),
    "named": (strings(TABLE[["a", 'b "2"', "city"]], ["city"]), TABLE[["a", 'b "2"', "city"]], pd.DataFrame),
    "mapping": (strings(UNNAMED, [0]), UNNAMED, dict),
    "ids": (ids(), TABLE[["a", "id"]], pd.DataFrame),
    "dates": (fitted(orders(unit="s")), orders(unit="s"), pd.DataFrame),
    "zones": (fitted(BERLIN), BERLIN, pd.DataFrame),
    "missing": (fitted(MISSING, trees=True), MISSING, pd.DataFrame),
    "times": (make_pipeline(DayNumber(), Ridge()).fit(TIMES, np.arange(80.0)), TIMES, dict),
    "wide": (Ridge().fit(WIDE.drop(columns="city"), NUMBERS[:, 0]), WIDE.drop(columns="city"), np.ndarray),
    "wide_mapping": (strings(WIDE, ["city"]), WIDE, dict),
}


def rows_of(python: str) -> Any:
    """Return what the code asks about, which stands before the server does."""
    names: dict[str, Any] = {}
    exec(compile(python.partition("with tr.Client")[0], "snippet", "exec"), names)
    return names["rows"]


@pytest.mark.parametrize("name", MODELS)
def test_the_rows_are_such_as_the_entry_takes(name: str, tmp_path: Path) -> None:
    model, X, kind = MODELS[name]
    result = export(model, tmp_path, name=name, sample=X)
    config = from_pbtxt((result.entry.directory / "config.pbtxt").read_bytes())
    contract, inputs = result.contract, result.compilation.inputs
    rows = rows_of(contract.python)
    assert type(rows) is kind
    tensors = model_tensors(rows, input_tensors(config), name)
    assert {tensor: array.shape for tensor, array in tensors.items()} == {
        tensor.name: (1, len(tensor.columns)) for tensor in contract.inputs
    }
    matrix = inputs.encode(tensors)
    assert np.isfinite(matrix).all() or name == "missing"
    assert not (matrix[:, inputs.closed] == -1).any()
    if not name.startswith("wide"):
        _assert_the_shell_sends_the_same(contract, tensors)
        assert not (matrix == result.compilation.sample.X).all(axis=1).any() or name == "ids"
    if kind is pd.DataFrame:
        model.predict(rows)
        assert list(rows.columns) == list(X.columns)


def _assert_the_shell_sends_the_same(contract: Contract, tensors: Tensors) -> None:
    request = json.loads(shlex.split(contract.shell)[-1])
    for tensor in request["inputs"]:
        sent = tensors[tensor["name"]]
        assert tensor["shape"] == list(sent.shape)
        values = np.array(tensor["data"], dtype=object)
        assert [value.encode() if isinstance(value, str) else value for value in values[0]] == pytest.approx(sent[0])


def test_a_missing_value_in_most_rows_is_one_in_the_code(tmp_path: Path) -> None:
    X = NUMBERS.copy()
    X[np.arange(80) % 5 != 0, 1] = np.nan
    contract = export(HistGradientBoostingRegressor().fit(X, X[:, 0]), tmp_path, name="gaps", sample=X).contract
    assert np.isnan(rows_of(contract.python)[0]).tolist() == [False, True, False]
    assert ", NaN, " in contract.shell


FLAGS = TABLE[["a", "city"]].assign(flag=np.arange(80) % 3 == 0, some=pd.array([True, None] * 40, dtype="boolean"))
ENCODED = make_pipeline(
    make_column_transformer((OneHotEncoder(), ["flag"]), remainder="passthrough"), HistGradientBoostingRegressor()
)


@pytest.mark.parametrize("sample", [FLAGS[["a", "flag"]], None], ids=["a sample", "drawn"])
def test_booleans_are_printed_as_booleans(sample: Any, tmp_path: Path) -> None:
    model = ENCODED.fit(FLAGS[["a", "flag"]], NUMBERS[:, 1])
    contract = export(model, tmp_path, name="flags", sample=sample).contract
    rows = rows_of(contract.python)
    assert rows.dtypes.astype(str).tolist() == ["float64", "bool"]
    assert np.isfinite(model.predict(rows)).all()
    document = read_document(tmp_path / "flags" / "1")
    assert document.boolean_columns == (1,)
    inputs = document.inputs
    tensors = model_tensors(rows, input_tensors(from_pbtxt((tmp_path / "flags/config.pbtxt").read_bytes())), "flags")
    assert inputs.encode(tensors)[0, 1] == float(rows["flag"][0])
    assert "true" not in contract.shell.lower()  # the server reads numbers there


def test_booleans_that_only_the_sample_tells(tmp_path: Path) -> None:
    X = FLAGS[["a", "flag", "some"]]
    model = HistGradientBoostingRegressor().fit(X.astype(float), NUMBERS[:, 1])
    contract = export(model, tmp_path, name="told", sample=X).contract
    assert re.search(r'"flag": \[(True|False)\]', contract.python)
    assert '"some": [float("nan")]' in contract.python or '"some": [True]' in contract.python
    rows = rows_of(contract.python)
    assert np.isfinite(model.predict(rows.astype(float))).all()
    undone = export(model, tmp_path, name="untold", sample=X.astype(float)).contract
    assert re.search(r'"flag": \[[01]\]', undone.python)
    assert "boolean_columns" not in json.loads((tmp_path / "untold" / "1" / "plan.json").read_text())


def test_whole_numbers_are_printed_whole(tmp_path: Path) -> None:
    stores = pd.DataFrame(
        {"store_id": 100_000_000 + 4 * np.arange(80), "rooms": np.arange(80) % 5, "area": NUMBERS[:, 0]}
    )
    stores["rooms"] = stores["rooms"].astype(float).where(stores.index % 7 != 3)
    contract = export(HistGradientBoostingRegressor().fit(stores, NUMBERS[:, 1]), tmp_path, name="s", sample=stores)
    rows = rows_of(contract.contract.python)
    assert rows.dtypes.astype(str).tolist()[::2] == ["int64", "float64"]
    assert rows["store_id"][0] >= 100_000_000
    assert "e+" not in contract.contract.python + contract.contract.shell
    assert json.loads(shlex.split(contract.contract.shell)[-1])["inputs"][0]["data"][0][0] == rows["store_id"][0]
