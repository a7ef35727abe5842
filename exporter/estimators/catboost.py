"""CatBoost: `y = f(scale · Σₜ value[leaf(t, x)] + bias)`, with the library's own decisions.

Trees compare float32 numbers and functions of categories: one-hot indicators and statistics, see
`exporter/boosters/catboost_model.py`. Lookups compute these functions as columns, so the plan's trees compare numbers
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from triton_regressors.exporter.boosters.catboost import file_of
from triton_regressors.exporter.boosters.catboost_model import CatBoostModel, read_model
from triton_regressors.exporter.boosters.catboost_trees import FLOAT, ONE_HOT, Nodes, Symmetric
from triton_regressors.exporter.boosters.saved_model import saved
from triton_regressors.exporter.estimators.catboost_categories import add_categories, known_categories
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.memory import hand_back
from triton_regressors.exporter.lowering.registry import answers, lowers, refuses
from triton_regressors.exporter.lowering.soundness import one_line
from triton_regressors.exporter.lowering.tree_nodes import Trees, add_trees, narrow, note_borders, note_thresholds
from triton_regressors.kernels.ops.trees.nodes import MISSING_LEFT
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees

REGRESSOR = "catboost.core.CatBoostRegressor"
UNCERTAIN = "RMSEWithUncertainty"

refuses(
    "it is a classifier of CatBoost, and only regressors are exported",
    "Fit a CatBoostRegressor, or load the model as a catboost.CatBoost, whose predict answers raw scores.",
    "catboost.core.CatBoostClassifier",
)
refuses(
    "it ranks rows of a group, and only regressors are exported",
    "Fit a CatBoostRegressor, or load the model as a catboost.CatBoost, whose predict answers raw scores.",
    "catboost.core.CatBoostRanker",
)


@lowers("catboost.core.CatBoost")
def lower_catboost(estimator: Any, x: Value, builder: Builder) -> Value:
    """The raw scores, for every loss."""
    return _lower_scores(estimator, x, builder, "identity")


@lowers(REGRESSOR)
def lower_catboost_regressor(
    estimator: Any, x: Value, builder: Builder, codes: Mapping[int, int | Sequence[str]] = MappingProxyType({})
) -> Value | dict[str, Value]:
    """The scores, or their exponent, as `predict` has it for the loss; for RMSEWithUncertainty a mean and deviation.

    `codes` are the columns that hold codes from 0 on, each with its categories, or their number if they are the codes.
    """
    kind = estimator._get_default_prediction_type()
    if kind not in ("RawFormulaVal", "Exponent", UNCERTAIN):
        raise builder.refuse(
            estimator, f"its predict answers {kind}; supported: raw scores, their exponent, {UNCERTAIN}"
        )
    scores = _lower_scores(estimator, x, builder, "exp" if kind == "Exponent" else "identity", codes)
    if kind != UNCERTAIN:
        return scores
    return {"y": builder.columns(scores, [0]), "std": builder.elementwise(builder.columns(scores, [1]), "exp")}


@answers(REGRESSOR)
def answer_by_catboost(estimator: Any, table: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """Return the answer of `predict`, which for RMSEWithUncertainty is a mean and a variance."""
    found = np.asarray(estimator.predict(table))
    return {"y": found[:, 0], "std": np.sqrt(found[:, 1])} if "std" in outputs else {"y": found}


def _lower_scores(
    estimator: Any,
    x: Value,
    builder: Builder,
    function: str,
    codes: Mapping[int, int | Sequence[str]] = MappingProxyType({}),
) -> Value:
    """Return `function` of the scores, one column for each of the model's outputs."""
    model = _read(estimator, builder)
    questions, read, selected = model.questions, x, x
    used = sorted({*model.numeric, *model.categorical}) if model.categorical else range(x.width)
    place = {column: index for index, column in enumerate(used)}
    columns: dict[int, int] = {}
    if model.categorical:
        known = known_categories(estimator, model, x, builder, codes)
        selected = x if len(used) == x.width else builder.columns(x, used)
        read, columns = add_categories(estimator, model, known, place, selected, builder)
    columns |= {
        question: place[source]
        for question, source in enumerate(questions.source.tolist())
        if questions.kind[question] == FLOAT
    }
    lower_trees = _symmetric if isinstance(model.trees, Symmetric) else _nodes
    return lower_trees(model, columns, selected, read, function, builder)


def _symmetric(
    model: CatBoostModel, columns: Mapping[int, int], x: Value, read: Value, function: str, builder: Builder
) -> Value:
    """Return the scores of trees that ask one question at each level; see `_nodes`."""
    trees, (column, border, missing) = model.trees, _questions(model, columns)
    assert isinstance(trees, Symmetric)
    note_borders(column[trees.question], border[trees.question], x, builder)
    used, asked = np.unique(trees.question, return_inverse=True)
    symmetric = SymmetricTrees(
        feature=column[used],
        threshold=border[used],
        missing=missing[used].astype(np.uint8),
        asked=asked.astype(np.int32),
        depth=trees.depth.astype(np.int32),
        values=trees.value if model.scale == 1 else model.scale * trees.value,
        baseline=np.array(model.bias),
        function=function,
    )
    y = builder.add(symmetric, read)
    if len(trees.cover):
        builder.note_cover(y, trees.cover.copy)
    return y


def _nodes(
    model: CatBoostModel, columns: Mapping[int, int], x: Value, read: Value, function: str, builder: Builder
) -> Value:
    """Return the scores of trees whose nodes each ask a question.

    Args:
        model: a model with trees of this kind.
        columns: the column in which trees find the answer to a question, or the number that it compares.
        x: the columns of the input, which come before those that are computed for the trees.
        read: the columns that the trees read.
        function: the function of the scores.
        builder: records the location of features.
    """
    nodes, (column, border, missing) = model.trees, _questions(model, columns)
    assert isinstance(nodes, Nodes)
    trees = Trees(
        nodes.sizes,
        narrow(column)[nodes.question],
        border[nodes.question],
        nodes.left,
        nodes.right,
        np.where(missing[nodes.question] | (nodes.question < 0), 0, MISSING_LEFT).astype(np.uint8),
        nodes.value if model.scale == 1 else model.scale * nodes.value,
        np.zeros((0, 8), dtype=np.int32),
        (nodes.cover,) if len(nodes.cover) else (),
    )
    note_thresholds(trees, x, builder)
    return add_trees(trees, read, builder, exact=True, baseline=model.bias, function=function)


def _questions(model: CatBoostModel, columns: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each question's column, its border, float32, and whether NaN exceeds it; the last entry is for leaves."""
    questions = model.questions
    column = np.full(len(questions.kind) + 1, -1, dtype=np.int32)
    column[list(columns)] = list(columns.values())
    border = np.append(np.where(questions.kind == ONE_HOT, 0.5, questions.border), 0.0).astype(np.float32)
    missing = (questions.kind == FLOAT) & np.isin(questions.source, list(model.nan_right))
    return column, border, np.append(missing, False)


def _read(estimator: Any, builder: Builder) -> CatBoostModel:
    """Return the estimator's model, read from the file that it was loaded from or from a newly saved one."""
    try:
        model = read_model(file_of(estimator) or saved(estimator.save_model, "model.cbm"))
    except Exception as error:  # the library raises errors of its own, and an unsupported model is a ValueError
        raise builder.refuse(estimator, one_line(error)) from error
    hand_back()
    return model
