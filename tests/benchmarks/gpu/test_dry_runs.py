"""The benchmarks of kernels on toy sizes, on a CPU; their times are not checked."""

import numpy as np
import pytest

from benchmarks.gpu import families, host_to_host, kernels, unlike_rows


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
