"""The text of LightGBM's models is read whole: numbers, sets, linear leaves; and what is damaged is told."""

import functools
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from tests.exporter.catalogue.cases_lightgbm import lgbm, with_codes, with_missing
from tests.exporter.data import small
from triton_regressors.exporter.boosters.lightgbm_model import (
    NEAR_ZERO,
    LightGBMModel,
    checked_text,
    read_model,
)
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL, MISSING_LEFT

GROUPED = {"min_data_per_group": 5, "cat_smooth": 1.0, "cat_l2": 1.0}


@functools.cache
def text_of_codes() -> str:
    X, y = with_codes()
    return str(lgbm(n_estimators=3, categorical_feature=[1, 2], **GROUPED).fit(X, y).booster_.model_to_string())


@functools.cache
def text_of_linear_trees() -> str:
    X, y = with_missing()
    return str(lgbm(n_estimators=3, num_leaves=12, linear_tree=True).fit(X, y).booster_.model_to_string())


def line(text: str, name: str) -> str:
    """Return the first line of a text that says something of a name."""
    return next(found for found in text.splitlines() if found.startswith(f"{name}="))


def one_tree(threshold: str, decision_type: int) -> LightGBMModel:
    """Return the model of a single node."""
    text = lgbm(n_estimators=1, num_leaves=2).fit(*small()).booster_.model_to_string()
    text = text.replace(line(text, "threshold"), f"threshold={threshold}")
    return read_model(text.replace(line(text, "decision_type"), f"decision_type={decision_type}"))


def test_nodes_lie_tree_after_tree() -> None:
    text = text_of_codes()
    model = read_model(text)
    leaves = [int(line.split("=")[1]) for line in text.splitlines() if line.startswith("num_leaves")]
    assert model.trees.sizes.tolist() == [2 * count - 1 for count in leaves]
    values = [float(number) for number in line(text, "leaf_value").split("=")[1].split()]
    assert model.trees.value[: leaves[0], 0].tolist() == values
    assert (model.trees.left[: leaves[0] - 1] > 0).all()
    assert (model.trees.left[leaves[0] - 1 : 2 * leaves[0] - 1] == -1).all()
    assert (model.n_features, model.outputs, model.rounds, model.averaged) == (4, 1, len(leaves), False)
    assert model.objective == ("regression",)


def test_sets_are_those_of_the_text() -> None:
    text = text_of_codes()
    model = read_model(text)
    expected = []
    for tree in text.partition("\nend of trees")[0].split("\nTree=")[1:]:
        boundaries = [int(number) for number in line(tree, "cat_boundaries").split("=")[1].split()]
        words = [int(number) for number in line(tree, "cat_threshold").split("=")[1].split()]
        for begin, end in itertools.pairwise(boundaries):
            expected.append(words[begin:end] + [0] * (2 - end + begin))
    assert model.trees.sets.view(np.uint32).tolist() == expected
    asks = (model.trees.left >= 0) & (model.trees.flags & CATEGORICAL > 0)
    assert sorted(model.trees.threshold[asks]) == list(range(len(expected)))


@pytest.mark.parametrize(
    ("threshold", "becomes"),
    [
        ("0.5", 0.5),
        ("1.0000000180025095e-35", 1.0000000180025095e-35),
        ("0", NEAR_ZERO),
        ("-0", NEAR_ZERO),
        ("1e-36", NEAR_ZERO),
        ("-1e-36", np.nextafter(-NEAR_ZERO, -1)),
        (repr(-NEAR_ZERO), np.nextafter(-NEAR_ZERO, -1)),
        ("-2e-35", -2e-35),
    ],
)
def test_thresholds_stand_for_all_numbers_that_are_read_as_zero(threshold: str, becomes: float) -> None:
    assert one_tree(threshold, 2).trees.threshold[0] == becomes


@pytest.mark.parametrize(
    ("decision_type", "threshold", "left", "zero"),
    [
        (0, "0.5", True, False),  # nothing is missing: NaN goes where 0 does, whatever the default
        (2, "-0.5", False, False),
        (4, "0.5", False, True),
        (6, "-0.5", True, True),
        (8, "0.5", False, False),
        (10, "-0.5", True, False),
    ],
)
def test_where_nan_goes(decision_type: int, threshold: str, left: bool, zero: bool) -> None:
    model = one_tree(threshold, decision_type)
    assert (model.trees.flags[0] == MISSING_LEFT) == left
    assert model.zero_missing[0] == zero


def test_linear_leaves_answer_as_linear_trees_do() -> None:
    model = read_model(text_of_linear_trees())
    trees, linear = model.trees, model.linear
    assert linear is not None
    X = with_missing()[0].copy()
    X[::5, 1], y = np.nan, np.zeros(len(X))
    number, first = np.cumsum(trees.left < 0) - 1, np.cumsum(linear.terms) - linear.terms
    for start in np.cumsum(trees.sizes) - trees.sizes:
        for row, x in enumerate(X):
            node = start
            while trees.left[node] >= 0:
                value = x[trees.feature[node]]
                to_left = trees.flags[node] == MISSING_LEFT if np.isnan(value) else value <= trees.threshold[node]
                node = start + (trees.left if to_left else trees.right)[node]
            terms = slice(first[number[node]], first[number[node]] + linear.terms[number[node]])
            answer = linear.constant[number[node]] + linear.coefficient[terms] @ x[linear.feature[terms]]
            y[row] += trees.value[number[node], 0] if np.isnan(answer) else answer
    expected = lgbm(n_estimators=3, num_leaves=12, linear_tree=True).fit(*with_missing()).predict(X)
    np.testing.assert_allclose(y, expected, rtol=1e-12)


DAMAGES: dict[str, tuple[Callable[[str], str], str]] = {
    "no model": (lambda text: "hello", "it is not a complete text of trees by LightGBM"),
    "cut": (lambda text: text[: len(text) // 3], "it is not a complete text of trees by LightGBM"),
    "fewer thresholds": (lambda text: text.replace("threshold=", "threshold=1 ", 1), "threshold does not have as many"),
    "no number": (
        lambda text: text.replace("threshold=", "threshold=x ", 1),
        "threshold holds a value that is not a number",
    ),
    "child": (lambda text: text.replace(line(text, "left_child"), "left_child=" + "99 " * 8, 1), "a node's child"),
    "feature": (lambda text: text.replace("max_feature_idx=3", "max_feature_idx=0"), "a node asks for a feature"),
    "leaves": (lambda text: text.replace("num_leaves=9", "num_leaves=0", 1), "a tree has no leaf"),
    "sets": (lambda text: text.replace("cat_boundaries=0", "cat_boundaries=1", 1), "cat_boundaries do not ascend"),
    "no set": (
        lambda text: text.replace(line(text, "decision_type"), "decision_type=" + "1 " * 8, 1),
        "a node asks for a set of categories",
    ),
    "leaf": (lambda text: text.replace("leaf_value=", "leaf_value=1 ", 1), "leaf_value does not have as many"),
    "not finite": (
        lambda text: text.replace(line(text, "leaf_value"), "leaf_value=" + "inf " * 9, 1),
        "the value of a leaf is not finite",
    ),
    "outputs": (lambda text: text.replace("per_iteration=1", "per_iteration=2"), "3 trees are not shared among 2"),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_damaged_texts(damage: str) -> None:
    change, says = DAMAGES[damage]
    with pytest.raises(ValueError, match=says):
        read_model(change(text_of_codes()))


@pytest.mark.parametrize("text", [text_of_codes, text_of_linear_trees])
def test_a_text_is_checked_and_keeps_all_but_where_its_trees_are(text: Callable[[], str]) -> None:
    assert checked_text(text()) == text().replace(line(text(), "tree_sizes") + "\n", "")


TREE_BY_TREE: dict[str, tuple[Callable[[str], str], str]] = {
    "unread": (lambda text: text.replace("split_gain=", "split_gain=1 ", 1), "split_gain does not have as many"),
    "twice": (
        lambda text: text.replace("\nshrinkage", "\nleaf_value=1\nshrinkage", 1),
        "leaf_value does not have as many",
    ),
    "above itself": (
        lambda text: text.replace(line(text, "left_child"), "left_child=" + "0 " * 8, 1),
        "a node's child does not come after it",
    ),
    "classes": (
        lambda text: text.replace("num_class=1", "num_class=9"),
        "its head does not match its classes or features",
    ),
    "names": (
        lambda text: text.replace("feature_names=", "feature_names=x "),
        "its head does not match its classes or fea",
    ),
    "returns": (lambda text: text.replace("\n", "\r\n"), "it holds characters that LightGBM"),
    "a number of the next tree": (
        lambda text: (
            text.replace(line(text, "split_feature"), line(text, "split_feature")[:-2], 1)
            .replace("split_feature=", "split_feature=0 ", 2)
            .replace("split_feature=0 ", "split_feature=", 1)
        ),
        "split_feature does not have as many numbers as its tree",
    ),
    "parameter": (lambda text: text.replace("[boosting: ", "[boosting "), "a parameter is not a name with a value"),
    "huge": (lambda text: text.replace("num_leaves=9", "num_leaves=2147483647", 1), "more leaves than the text could"),
}


@pytest.mark.parametrize("damage", list(TREE_BY_TREE))
def test_texts_that_lightgbm_would_trust(damage: str) -> None:
    change, says = TREE_BY_TREE[damage]
    with pytest.raises(ValueError, match=says):
        checked_text(change(text_of_codes()))
