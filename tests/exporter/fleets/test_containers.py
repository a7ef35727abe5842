"""scikit-lego's containers as fleets: the answers of the container itself, and what cannot be one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklego.meta import GroupedPredictor, GroupedRegressor, HierarchicalPredictor, HierarchicalRegressor

import triton_regressors as tr
from tests.exporter.conftest import Snapshot
from tests.exporter.fleets.fleets import COLUMNS, ridges, target
from tests.exporter.fleets.fleets import table as shops
from triton_regressors import ExportError, InvalidRequest
from triton_regressors.kernels.entry import read_document

TABLE = shops(ridges(3), 240)[["x0", "shop", *COLUMNS[1:]]]
Y = target(TABLE[COLUMNS], 0) + TABLE["shop"].map({"shop-0": 1, "shop-1": 20, "shop-2": 300}).to_numpy()
NUMBERED = TABLE.assign(shop=TABLE["shop"].str.removeprefix("shop-").astype(int))
TWO = TABLE.assign(
    country=np.where(TABLE["shop"] == "shop-2", "CH", np.where(TABLE["x0"] > TABLE["x1"], "AT", "DE")),
    kind=(TABLE["x2"] > TABLE["x3"]).astype(int),
)
PIPELINE, BOOSTED = make_pipeline(StandardScaler(), Ridge()), HistGradientBoostingRegressor(max_iter=5)

CONTAINERS = {
    "global": (GroupedPredictor(PIPELINE, groups="shop"), TABLE),
    "no global": (GroupedPredictor(PIPELINE, groups=["shop"], use_global_model=False), TABLE),
    "numbers": (GroupedRegressor(BOOSTED, groups=["shop"]), NUMBERED),
    "numbers, no global": (GroupedRegressor(BOOSTED, groups="shop", use_global_model=False), NUMBERED),
    "hierarchy": (HierarchicalRegressor(PIPELINE, groups=["shop"]), TABLE),
    "hierarchy of numbers": (HierarchicalRegressor(PIPELINE, groups="shop"), NUMBERED),
    "hierarchy that raises": (HierarchicalRegressor(PIPELINE, groups="shop", fallback_method="raise"), TABLE),
    "two columns": (GroupedPredictor(PIPELINE, groups=["country", "shop"]), TWO),
    "two columns, no global": (GroupedRegressor(BOOSTED, groups=["country", "shop"], use_global_model=False), TWO),
    "hierarchy of two columns": (HierarchicalRegressor(PIPELINE, groups=["country", "shop"]), TWO),
    "hierarchy of three columns": (HierarchicalRegressor(Ridge(), groups=["shop", "kind", "country"]), TWO),
    "hierarchy of two columns that raises": (
        HierarchicalRegressor(PIPELINE, groups=["country", "shop"], fallback_method="raise"),
        TWO,
    ),
}


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("name", CONTAINERS)
def test_an_entry_answers_as_its_container(name: str, sampled: bool, tmp_path: Path) -> None:
    """Rows of groups that were not fitted included: a global model answers them, or an error names them."""
    container, table = CONTAINERS[name]
    container = container.fit(table, Y)
    written = tr.export_fleet(container, tmp_path, name="demand", samples=table if sampled else None)
    model = tr.load(written.entry.directory)
    expected = container.predict(table)
    np.testing.assert_allclose(model.predict(table), expected, rtol=0, atol=1e-5 * expected.std())
    mixed = table.copy()
    mixed.loc[mixed.index[::3], "shop"] = 77 if table is NUMBERED else "global"
    if table is TWO:
        mixed.loc[mixed.index[::4], "country"] = "FR"
        mixed.loc[mixed.index[::5], "kind"] = 9
    if "no global" in name or "raises" in name:
        with pytest.raises((ValueError, KeyError), match=r"new group|No estimator found"):
            container.predict(mixed)
        says = r"shop must name a model of this fleet: row 0 is (77|'FR', 'global'|'global')\."
        with pytest.raises(InvalidRequest, match=says):
            model.predict(mixed)
        assert model.outputs == ("y",)
    else:
        expected = container.predict(mixed)
        np.testing.assert_allclose(model.predict(mixed), expected, rtol=0, atol=1e-5 * expected.std())
        inputs = read_document(written.entry.version_directory).inputs
        used = model.infer(mixed, outputs=["model_used"])["model_used"].ravel()
        if table is TWO:
            assert inputs.models[inputs.default] == ()
            lengths = {len(inputs.models[int(number)]) for number in used}
            assert lengths == ({*range(len(inputs.ids) + 1)} if "hierarchy" in name else {0, len(inputs.ids)})
        else:
            assert inputs.models[inputs.default] == (-1 if table is NUMBERED else "global")
            assert (used[::3] == inputs.default).all()


def test_a_container_that_refuses_nan_is_an_entry_that_does(tmp_path: Path) -> None:
    missing = TABLE.copy()
    missing.loc[5, "x2"] = np.nan
    for checked in (True, False):
        container = GroupedPredictor(BOOSTED, groups="shop", check_X=checked).fit(TABLE, Y)
        model = tr.load(tr.export_fleet(container, tmp_path, name=f"checked-{checked}").entry.directory)
        if checked:
            with pytest.raises(ValueError, match="contains NaN"):
                container.predict(missing)
            with pytest.raises(InvalidRequest, match=r"X must be finite: row 5, column 2 \('x2'\) is nan"):
                model.predict(missing)
        else:
            np.testing.assert_allclose(model.predict(missing), container.predict(missing), atol=1e-5 * Y.std())


def test_columns_without_names_have_groups_in_one_of_them(tmp_path: Path) -> None:
    """A matrix of float64 has whole numbers as groups: they are INT64 in the entry."""
    matrix = NUMBERED.to_numpy()
    container = GroupedPredictor(Ridge(), groups=1).fit(matrix, Y)
    written = tr.export_fleet(container, tmp_path, name="demand", by="shop", samples=matrix)
    rows = {"X": np.delete(matrix, 1, axis=1), "shop": matrix[:, [1]].astype(np.int64)}
    answers = tr.load(written.entry.directory).predict(rows)
    np.testing.assert_allclose(answers, container.predict(matrix), atol=1e-5 * Y.std())


def test_a_group_may_have_the_name_of_the_global_model(tmp_path: Path) -> None:
    table = TABLE.assign(shop=TABLE["shop"].replace("shop-1", "global"))
    container = GroupedPredictor(Ridge(), groups="shop").fit(table, Y)
    written = tr.export_fleet(container, tmp_path, name="demand", samples=table)
    inputs = read_document(written.entry.version_directory).inputs
    assert inputs.models[inputs.default] == "global_"
    model = tr.load(written.entry.directory)
    np.testing.assert_allclose(model.predict(table), container.predict(table), atol=1e-5 * Y.std())


class Doubled(GroupedPredictor):
    """Answers otherwise than what it holds."""

    def predict(self, X: Any) -> Any:
        return 2 * super().predict(X)


REFUSED = {
    "no column": (
        GroupedPredictor(Ridge(), groups=None),
        {},
        "Cannot make a fleet of GroupedPredictor: it has no columns of groups.",
    ),
    "shrinkage of two columns": (
        HierarchicalRegressor(Ridge(), groups=["country", "shop"], shrinkage="equal").fit(TWO.drop(columns="kind"), Y),
        {},
        "Cannot make a fleet of HierarchicalRegressor: shrinkage='equal' mixes the answers of several models in a",
    ),
    "columns in another order": (
        GroupedPredictor(Ridge(), groups=["country", "shop"]).fit(TWO, Y),
        {"by": ["shop", "country"]},
        "by must be ['country', 'shop'], the GroupedPredictor's columns of groups, not ['shop', 'country'].",
    ),
    "columns without names": (
        GroupedPredictor(Ridge(), groups=[0, 1]).fit(NUMBERED.assign(x0=1)[["x0", "shop", "x1"]].to_numpy(), Y),
        {"by": "shop"},
        "by must name the columns 0, 1 of the GroupedPredictor's groups, not 'shop'.",
    ),
    "shrinkage": (
        GroupedPredictor(Ridge(), groups="shop", shrinkage="equal").fit(TABLE, Y),
        {},
        "Cannot make a fleet of GroupedPredictor: shrinkage='equal' mixes the answers of several models in a row's. "
        "Fit it with shrinkage=None.",
    ),
    "not fitted": (
        HierarchicalPredictor(Ridge(), groups="shop"),
        {},
        "Cannot make a fleet of HierarchicalPredictor: it is not fitted.",
    ),
    "another column": (
        GroupedPredictor(Ridge(), groups="shop").fit(TABLE, Y),
        {"by": "store"},
        "by must be 'shop', the GroupedPredictor's column of groups, not 'store'.",
    ),
    "a default": (
        GroupedPredictor(Ridge(), groups="shop").fit(TABLE, Y),
        {"default": "shop-0"},
        "A GroupedPredictor says itself which model answers rows of unknown groups; leave out default=.",
    ),
    "samples by id": (
        GroupedPredictor(Ridge(), groups="shop").fit(TABLE, Y),
        {"samples": {"shop-0": TABLE[COLUMNS]}},
        "samples must be a table with the column 'shop' of the rows' groups.",
    ),
    "samples of unknown groups": (
        GroupedPredictor(Ridge(), groups="shop", use_global_model=False).fit(TABLE, Y),
        {"samples": TABLE.replace("shop-1", "shop-7")},
        "The samples have no rows for the model 'shop-1'.",
    ),
    "groups that are no ids": (
        GroupedPredictor(Ridge(), groups="shop").fit(NUMBERED.assign(shop=NUMBERED["shop"] / 4), Y),
        {},
        "The id of a model must be",
    ),
    "classifiers": (
        GroupedPredictor(LogisticRegression(), groups="shop").fit(TABLE, TABLE["x0"] < TABLE["x1"]),
        {},
        "Cannot export LogisticRegression: it is a classifier",
    ),
    "contributions": (
        GroupedPredictor(Ridge(), groups="shop").fit(TABLE, Y),
        {"contributions": "path"},
        "A fleet has no contributions, so it takes no contributions; export its models one by one.",
    ),
    "other answers": (Doubled(Ridge(), groups="shop").fit(TABLE, Y), {}, "A fleet needs a mapping"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_a_fleet_says_why(case: str, tmp_path: Path, snapshot: Snapshot) -> None:
    container, options, says = REFUSED[case]
    with pytest.raises(ExportError) as refusal:
        tr.export_fleet(container, tmp_path, name="demand", **options)
    assert says in str(refusal.value)
    assert not snapshot()


@pytest.mark.parametrize("name", ["global", "numbers", "hierarchy"])
def test_export_names_export_fleet(name: str, tmp_path: Path) -> None:
    container, table = CONTAINERS[name]
    for given in (container.fit(table, Y), make_pipeline(container).fit(table, Y)):
        with pytest.raises(ExportError, match=r"it holds a model for each group.* as one entry with export_fleet"):
            tr.export(given, tmp_path, name="demand")


def test_own_subclasses_that_compute_the_same_are_taken(tmp_path: Path) -> None:
    class Ours(GroupedPredictor):
        """Only adds a method."""

        def count(self) -> int:
            return len(self.estimators_)

    container = Ours(Ridge(), groups="shop").fit(TABLE, Y)
    assert tr.export_fleet(container, tmp_path, name="demand").document.fleet.members == container.count() + 1
