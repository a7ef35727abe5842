"""`Contributions` with shap's plots, drawn for real; the tests that need shap are skipped without it."""

import datetime
import importlib
import sys

import numpy as np
import pytest

from triton_regressors.clients.contributions.contributions import Contributions
from triton_regressors.clients.contributions.target import cell_numbers
from triton_regressors.contribution_game import ERROR, OUTPUT, Game
from triton_regressors.errors import MissingExtra

ROWS = 60


def contributions(targets: int = 1, permutations: int = 0) -> Contributions:
    """Return contributions of three columns, one of them of strings, with missing cells; estimated from some orders."""
    rng = np.random.default_rng(0)
    cells = np.empty((ROWS, 3), dtype=object)
    cells[:, 0], cells[:, 1] = rng.normal(size=ROWS), rng.choice(["a", "b", None], ROWS)
    cells[:, 2] = [float("nan") if row == 3 else row for row in range(ROWS)]
    answers = rng.normal(size=(ROWS, 4 * targets)).astype(np.float32)
    y = answers.reshape(ROWS, targets, 4).sum(axis=2)
    game = Game("background", 100, (), ("age", "city", "size"), {"X": (0, 2), "text": (1,)}, permutations)
    found = {OUTPUT: answers, ERROR: np.abs(answers) / 100}
    return Contributions.of("houses", "1", game, found, y, cells, np.arange(ROWS))


def test_shap_draws_what_it_is_given() -> None:
    plots = pytest.importorskip("shap").plots
    importlib.import_module("matplotlib").use("Agg")
    found = contributions()
    for of_rows in (plots.beeswarm, plots.bar, plots.heatmap):
        of_rows(found, show=False)
    plots.waterfall(found[0], show=False)
    for cell in ("a", datetime.datetime(2026, 5, 1), None):  # the last one is of a column that the rows lack
        found.data[0, 1] = cell
        plots.bar(found[0], show=False)
    plots.scatter(found[:, "age"], show=False)
    for number_needed in (plots.violin, plots.scatter):
        number_needed(found.shap(), show=False)
    importlib.import_module("matplotlib.pyplot").close("all")


def test_shaps_object_has_the_same_numbers() -> None:
    shap = pytest.importorskip("shap")
    found = contributions()
    assert isinstance(found, shap.Explanation)
    assert isinstance(found, Contributions)
    made = found.shap()
    assert type(made) is shap.Explanation
    assert made.values.tolist() == found.values.tolist()
    assert made.base_values.tolist() == found.base_values.tolist()
    assert made.feature_names == ["age", "city", "size"]
    assert made[0].display_data.tolist() == found.data[0].tolist()
    assert found[5].values.tolist() == found.values[5].tolist()
    assert found.abs.mean(0).values.tolist() == np.abs(made.values).mean(axis=0).tolist()
    assert made.error_std is None
    several = contributions(targets=2, permutations=8)
    assert several.shap().error_std.tolist() == several.errors.tolist()
    assert several.shap().shape == (ROWS, 3, 2)
    assert several[0, :, 1].values.tolist() == several.values[0, :, 1].tolist()
    with pytest.raises(AttributeError):
        _ = found.nothing_of_this_name


def test_without_shap_one_sentence_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(MissingExtra, match=r"^Contributions\.shap needs shap; `pip install shap` brings it"):
        contributions().shap()
    with pytest.raises(AttributeError, match="'Contributions' object has no attribute 'abs'"):
        _ = contributions().abs
    assert contributions().__class__ is Contributions


def test_cells_that_are_no_numbers_are_numbered_in_their_order() -> None:
    cells = np.array([["b", 1, None], ["a", None, True], [None, 2.5, False], ["b", np.nan, True]], dtype=object)
    assert np.array_equal(
        cell_numbers(cells),
        [[1, 1, np.nan], [0, np.nan, 1], [np.nan, 2.5, 0], [1, np.nan, 1]],
        equal_nan=True,
    )
