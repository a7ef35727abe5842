"""The benchmarks of kernels on toy sizes, on a CPU; their times are not checked."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import triton_regressors as tr
from benchmarks.entry_rows import drawn, read_rows, write_rows
from benchmarks.gpu import entry, families, host_to_host, kernels, unlike_rows
from triton_regressors.scoring.columns import Columns


@pytest.mark.usefixtures("_torch_threads")
def test_kernel_cases_agree_with_float64_on_toy_sizes(capsys):
    kernels.run(None, dry_run=True)
    printed = capsys.readouterr().out
    assert "X·w, 13 features" in printed
    assert "triton_regressors, float64, as exported" in printed
    assert "(pairs @ W · z).sum" in printed


@pytest.mark.usefixtures("_torch_threads")
def test_rows_unlike_the_data_are_drawn_for_every_kind_of_work(capsys):
    unlike_rows.run(None, ["neighbors", "layers"], "5 of 1,100 × 4, euclidean", dry_run=True)
    unlike_rows.run(None, ["layers"], dry_run=True)
    unlike_rows.run(None, ["trees"], "symmetric trees", dry_run=True)
    printed = capsys.readouterr().out
    for kind in unlike_rows.KINDS:
        assert kind in printed
    assert "layers 4-8-1: 5 rows" in printed
    assert "symmetric trees, 5 of depth 6: 5 rows" in printed


def test_borders_of_symmetric_trees_are_asked_by_rows_beside_them():
    work = unlike_rows.symmetric(toy=True)
    (step,) = work.plan.steps
    x = unlike_rows.rows_of(work, "beside", 50, 0)
    for feature in range(x.shape[1]):
        borders = step.operation.threshold[step.operation.feature == feature]
        assert (np.isin(x[:, feature], borders) | np.isin(np.nextafter(x[:, feature], -np.inf), borders)).all()


@pytest.mark.usefixtures("_torch_threads")
def test_every_family_agrees_with_its_reference_on_toy_sizes(capsys):
    families.run(None, families.FAMILIES, dry_run=True)
    printed = capsys.readouterr().out
    for work in ("5 of 1,100 × 4, manhattan", "RBF, 60 points × 3", "forest of 5, grown out", "layers 4-8-1"):
        assert work in printed


@pytest.mark.usefixtures("_torch_threads")
def test_host_to_host_agrees_with_scikit_learn_on_toy_sizes(capsys):
    host_to_host.run(None, ["ridge", "boosting", "one_hot"], dry_run=True)
    printed = capsys.readouterr().out
    assert printed.count(" × the larger") == 6
    assert "one-hot + scaler + degree 2 + Ridge: 5 rows" in printed


@pytest.mark.usefixtures("_torch_threads")
def test_an_entry_of_strings_is_measured_from_a_file_of_rows(tmp_path, capsys):
    table = pd.DataFrame({"town": ["Ås", "", "Oslo", "Rome"] * 5, "size": np.arange(20.0)})
    encoder = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    estimator = make_pipeline(encoder, Ridge()).fit(table, np.arange(20) ** 2)
    written = tr.export(estimator, tmp_path / "models", name="towns", sample=table).entry.directory
    tensors = tr.load(written, device="cpu").tensors(Columns(table))
    write_rows(tmp_path / "rows.npz", tensors, estimator.predict(table))
    again, answers = read_rows(tmp_path / "rows.npz")
    assert all(np.array_equal(again[name], X) and again[name].dtype == X.dtype for name, X in tensors.items())
    assert np.array_equal(answers, estimator.predict(table))
    assert {len(X) for X in drawn(again, 50, 0).values()} == {50}
    entry.run([written], [tmp_path / "rows.npz"], entry.TOY_SIZES, dry_run=True)
    assert "towns: 5 rows" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="1 entries and 0 files of rows"):
        entry.run([written], [], dry_run=True)
