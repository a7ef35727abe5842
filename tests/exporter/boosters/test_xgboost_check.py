"""Documents of XGBoost that hold together, and those that would have its compiled code read elsewhere."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xgboost import XGBRegressor

from tests.exporter.catalogue.cases import CASES
from tests.exporter.catalogue.cases_xgboost import SIZE
from tests.exporter.data import small
from triton_regressors import ExportError, export, load_estimator
from triton_regressors.exporter.boosters.ubjson import parse_ubjson
from triton_regressors.exporter.boosters.xgboost_check import check_document

NAMES = [name for name, case in CASES.items() if isinstance(case.estimator, XGBRegressor)]


def document(name: str) -> Any:
    return json.loads(bytes(CASES[f"xgboost-{name}"].fitted()[0].get_booster().save_raw("json")))


def model(written: Any) -> Any:
    """Return what of a document its trees or weights are in."""
    booster = written["learner"]["gradient_booster"]
    return booster.get("gbtree", booster)["model"]


def tree(written: Any) -> Any:
    return model(written)["trees"][1]


@pytest.mark.parametrize("name", NAMES)
def test_what_xgboost_writes_holds_together(name: str) -> None:
    booster = CASES[name].fitted()[0].get_booster()
    check_document(json.loads(bytes(booster.save_raw("json"))))
    check_document(parse_ubjson(booster.save_raw("ubj")))


def test_pruned_trees_hold_together() -> None:
    estimator = XGBRegressor(**SIZE, tree_method="exact", gamma=20).fit(*small())
    written = json.loads(bytes(estimator.get_booster().save_raw("json")))
    assert any(int(one["tree_param"]["num_deleted"]) for one in model(written)["trees"])
    check_document(written)


def first_inner(one: Any) -> int:
    """Return a node below the root that has children."""
    return next(node for node, child in enumerate(one["left_children"]) if node and child != -1)


def put(name: str, number: Any, place: Callable[[Any], int] = lambda _: 0) -> Callable[[Any], None]:
    """Return a change of one number of a tree."""

    def change(written: Any) -> None:
        tree(written)[name][place(tree(written))] = number

    return change


DAMAGES: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "no model": ("exact", lambda d: d.pop("learner"), "KeyError: 'learner'"),
    "a list": ("exact", lambda d: d.update(learner=[]), "TypeError"),
    "no trees": ("exact", lambda d: model(d).update(trees=[]), "it has no trees"),
    "fewer trees": ("exact", lambda d: model(d)["trees"].pop(), "num_trees is not the number of trees"),
    "output": ("targets", lambda d: model(d)["tree_info"].__setitem__(0, 4), "a tree adds to an output that does not"),
    "rounds": ("exact", lambda d: model(d)["iteration_indptr"].__setitem__(3, 99), "iteration_indptr does not ascend"),
    "best": (
        "early",
        lambda d: d["learner"]["attributes"].update(best_iteration="999"),
        "its best iteration does not exist",
    ),
    "weights": ("linear", lambda d: model(d)["weights"].pop(), "weights do not match features and outputs"),
    "dropped": (
        "dart",
        lambda d: d["learner"]["gradient_booster"]["weight_drop"].pop(),
        "weight_drop does not match the",
    ),
    "names": ("categories", lambda d: d["learner"]["feature_names"].pop(), "feature_names do not match"),
    "booster": ("exact", lambda d: d["learner"]["gradient_booster"].update(name="x"), "its booster is 'x'"),
    "nodes": ("exact", lambda d: tree(d)["tree_param"].update(num_nodes="3"), "left_children does not match the nodes"),
    "values": ("exact", lambda d: tree(d)["base_weights"].pop(), "base_weights does not match the nodes"),
    "child": ("exact", put("left_children", 999), "a node's child is not in its tree"),
    "negative child": ("exact", put("right_children", -7), "a node's child is not in its tree"),
    "child of itself": ("exact", put("left_children", 0), "a node's child is not in its tree"),
    "child of two": ("exact", put("left_children", 1, first_inner), "a node is the child of several"),
    "parent": ("exact", put("parents", 99, lambda _: 1), "a node's parent is not in its tree"),
    "other parent": ("exact", put("parents", 2, lambda _: 1), "a node's parent is another one"),
    "feature": ("exact", put("split_indices", 5), "a node asks for a feature that does not exist"),
    "no number": ("exact", put("split_indices", "x"), "split_indices are not numbers"),
    "fraction": ("exact", put("split_indices", 0.5), "split_indices are not whole numbers"),
    "width": ("exact", lambda d: tree(d)["tree_param"].update(size_leaf_vector="3"), "a leaf has another number of"),
    "leaf row": (
        "vector-leaves",
        put("right_children", 99, lambda one: one["left_children"].index(-1)),
        "a leaf has no row of leaf_weights",
    ),
    "leaf rows": ("vector-leaves", lambda d: tree(d)["leaf_weights"].pop(), "leaf_weights does not match the outputs"),
    "segment": ("codes", put("categories_segments", 9999), "a set is empty"),
    "set": ("codes", put("categories_sizes", 400, lambda _: -1), "a set of categories lies elsewhere"),
    "category": ("codes", put("categories", -3), "a category is not in [0, 16,777,216)"),
    "asking": ("codes", put("categories_nodes", 99, lambda _: -1), "nodes of categories do not ascend"),
    "kind": ("codes", put("split_type", 1, lambda one: one["left_children"].index(-1)), "a node asks for no set"),
    "text": (
        "categories",
        lambda d: model(d)["cats"]["enc"][1]["offsets"].__setitem__(1, 999),
        "a category's name lies elsewhere",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_documents(damage: str) -> None:
    name, change, says = DAMAGES[damage]
    written = document(name)
    check_document(written)
    change(written)
    with pytest.raises(ValueError, match=r"^its document does not hold together: ") as raised:
        check_document(written)
    assert says in str(raised.value)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    written = document("exact")
    put("left_children", 999)(written)
    (tmp_path / "model.json").write_text(json.dumps(written))
    with pytest.raises(ExportError, match="its document does not hold together: a node's child is not in its tree"):
        load_estimator(tmp_path / "model.json", missing=0)
    CASES["xgboost-exact"].fitted()[0].save_model(tmp_path / "model.ubj")
    whole = (tmp_path / "model.ubj").read_bytes()
    (tmp_path / "model.ubj").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ExportError, match="it is not UBJSON, or its end is missing"):
        load_estimator(tmp_path / "model.ubj", missing=0)


@pytest.mark.parametrize("name", ["num_target", "num_class"])
def test_more_outputs_than_trees_are_refused_before_anything_is_as_large(tmp_path: Path, name: str) -> None:
    written = document("exact")
    written["learner"]["learner_model_param"][name] = str(2 * 10**9)
    (tmp_path / "model.json").write_text(json.dumps(written))
    with pytest.raises(ExportError, match=r"hold together: it has 2,000,000,000 outputs, and trees of fewer\.$"):
        load_estimator(tmp_path / "model.json", missing=0)


def test_more_features_than_any_model_has_are_refused_in_one_sentence(tmp_path: Path) -> None:
    written = document("exact")
    written["learner"]["learner_model_param"]["num_feature"] = str(2 * 10**9)
    (tmp_path / "model.json").write_text(json.dumps(written))
    estimator = load_estimator(tmp_path / "model.json", missing=0)
    says = r"^Cannot export XGBRegressor: it states 2,000,000,000 features; at most 4,194,304 are exported\.$"
    with pytest.raises(ExportError, match=says):
        export(estimator, tmp_path / "repository", name="model")
