"""Names for the columns of estimators that were fitted without any."""

import json

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from triton_regressors import ExportError, export
from triton_regressors.kernels.entry import read_document, read_golden
from triton_regressors.model_config import from_pbtxt

TABLE = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["b", "a", "c"])
y = TABLE.to_numpy() @ [1.0, -2.0, 3.0]
TURNED = TABLE[["c", "b", "a"]].assign(more=1.0)


def test_they_are_what_clients_send_and_bring_tables_into_order(tmp_path):
    model = Ridge().fit(TABLE.to_numpy(), y)
    calibrate = (TURNED[:30], y[:30] + 1)
    given = {"sample": TURNED, "calibrate": calibrate, "profile": TURNED[:40]}
    done = export(model, tmp_path, name="m", columns=TABLE.columns, level=0.5, **given)
    assert "[rows, 3]  b, a, c\n" in repr(done)
    config = from_pbtxt((tmp_path / "m" / "config.pbtxt").read_text())
    assert json.loads(config.parameters["columns"].string_value) == {"X": ["b", "a", "c"]}
    document = read_document(done.entry.version_directory)
    assert document.provenance.feature_names == ("b", "a", "c")
    golden = read_golden(done.entry.version_directory, document)
    np.testing.assert_array_equal(golden.X[:16], TABLE.to_numpy(np.float32)[:16])
    in_their_order = export(model, tmp_path, name="n", calibrate=(TABLE[:30].to_numpy(), y[:30] + 1), level=0.5)
    assert document.interval == read_document(in_their_order.entry.version_directory).interval
    assert done.compilation.profile is not None
    lowest = TABLE[:40].to_numpy(np.float32).min(axis=0)
    np.testing.assert_array_equal(done.compilation.profile.deciles[0], lowest)


def test_strings_are_told_by_their_place(tmp_path):
    table = pd.DataFrame({"size": np.arange(20.0), "kind": ["flat", "house"] * 10})
    model = make_pipeline(OrdinalEncoder(), Ridge()).fit(table.to_numpy(), np.arange(20.0))
    done = export(model, tmp_path, name="m", columns=["size", "kind"], sample=table[["kind", "size"]])
    assert "kind" in repr(done)
    assert document_names(done) == ("size", "kind")


def test_lightgbm_s_underscores_may_be_the_spaces_that_they_were(tmp_path):
    spaced = TABLE.rename(columns={"a": "a b"})
    model = LGBMRegressor(n_estimators=3, min_child_samples=2, verbose=-1).fit(spaced, y)
    assert document_names(export(model, tmp_path, name="m", sample=spaced, columns=list(spaced))) == ("b", "a b", "c")


def document_names(done):
    return read_document(done.entry.version_directory).provenance.feature_names


@pytest.mark.parametrize(
    ("model", "columns", "why"),
    [
        (TABLE, ["b", "c", "a"], "columns has other names than Ridge was fitted on: c against a."),
        (TABLE, ["b", "a"], "columns has other names than Ridge was fitted on: 2 columns against 3."),
        (TABLE.to_numpy(), ["b", "a"], "columns has 2 names, and Ridge takes 3 columns."),
        (TABLE.to_numpy(), ["b", "a", "b"], "columns has the name 'b' more than once."),
        (TABLE.to_numpy(), "bac", "columns must be a sequence of names, not 'bac'."),
        (TABLE.to_numpy(), [1, 2, 3], r"columns must be a sequence of names, not [1, 2, 3]."),
        (TABLE.to_numpy(), 3, "columns must be a sequence of names, not 3."),
        (TABLE.to_numpy(), [], r"columns must be a sequence of names, not []."),
        (TABLE.to_numpy(), ["b", "a", "d"], "The sample lacks the column 'd'."),
    ],
)
def test_what_they_cannot_be_is_said(tmp_path, model, columns, why):
    with pytest.raises(ExportError) as refused:
        export(Ridge().fit(model, y), tmp_path, name="m", columns=columns, sample=TURNED)
    assert str(refused.value) == why


def test_a_column_twice_and_a_source_that_is_none_are_refused(tmp_path):
    model, twice = Ridge().fit(TABLE.to_numpy(), y), pd.concat([TABLE, TABLE[["a"]]], axis=1)
    with pytest.raises(ExportError, match="The sample has the column 'a' twice"):
        export(model, tmp_path, name="m", columns=["b", "a", "c"], sample=twice)
    with pytest.raises(ExportError, match="source must be a Source"):
        export(model, tmp_path, name="m", source="models:/m/1")
