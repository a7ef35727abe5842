"""CatBoost: `y = f(scale · Σₜ value[leaf(t, x)] + bias)`, with every decision as its library makes it.

Trees compare float32 numbers, and what categories become: whether they are a certain one, and statistics of them, see
`exporter/boosters/catboost_model.py`. Both are columns that lookups make, so that trees of plain nodes remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.boosters.catboost_model import CatBoostModel, read_model
from triton_regressors.exporter.boosters.catboost_trees import FLOAT, ONE_HOT
from triton_regressors.exporter.boosters.saved import saved
from triton_regressors.exporter.builder import Builder, Value
from triton_regressors.exporter.lowerings.catboost_categories import add_categories, known_categories
from triton_regressors.exporter.lowerings.trees import Trees, arrange, narrow, note_thresholds
from triton_regressors.exporter.memory import hand_back
from triton_regressors.exporter.registry import answers, lowers, refuses
from triton_regressors.exporter.soundness import one_line
from triton_regressors.kernels.trees import MISSING_LEFT

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
    """The raw scores, whatever the loss."""
    return _lower_scores(estimator, x, builder, "identity")


@lowers(REGRESSOR)
def lower_catboost_regressor(estimator: Any, x: Value, builder: Builder) -> Value | dict[str, Value]:
    """What `predict` makes of the scores of the estimator's loss; of RMSEWithUncertainty a mean and its deviation."""
    kind = estimator._get_default_prediction_type()
    if kind not in ("RawFormulaVal", "Exponent", UNCERTAIN):
        raise builder.refuse(
            estimator, f"its predict answers {kind}; supported: raw scores, their exponent, {UNCERTAIN}"
        )
    scores = _lower_scores(estimator, x, builder, "exp" if kind == "Exponent" else "identity")
    if kind != UNCERTAIN:
        return scores
    return {"y": builder.columns(scores, [0]), "std": builder.elementwise(builder.columns(scores, [1]), "exp")}


@answers(REGRESSOR)
def answer_by_catboost(estimator: Any, table: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """What `predict` answers; with RMSEWithUncertainty this is a mean and a variance."""
    found = np.asarray(estimator.predict(table))
    return {"y": found[:, 0], "std": np.sqrt(found[:, 1])} if "std" in outputs else {"y": found}


def _lower_scores(estimator: Any, x: Value, builder: Builder, function: str) -> Value:
    """Return `function` of the scores, one column for each of the model's outputs."""
    model = _read(estimator, builder)
    questions, read, selected = model.questions, x, x
    used = sorted({*model.numeric, *model.categorical}) if model.categorical else range(x.width)
    place = {column: index for index, column in enumerate(used)}
    columns: dict[int, int] = {}
    if model.categorical:
        known = known_categories(estimator, model, x, builder)
        selected = x if len(used) == x.width else builder.columns(x, used)
        read, columns = add_categories(estimator, model, known, place, selected, builder)
    columns |= {
        question: place[source]
        for question, source in enumerate(questions.source.tolist())
        if questions.kind[question] == FLOAT
    }
    trees, bias = _trees(model, columns), model.bias
    del model, questions  # a large one is half as large again as its trees
    note_thresholds(trees, selected, builder)
    ensemble = arrange(trees, exact=True, baseline=bias, function=function)
    del trees
    return builder.add(ensemble, read)


def _trees(model: CatBoostModel, columns: dict[int, int]) -> Trees:
    """Return the trees, which find the answer to a question, or the number it is about, in its column."""
    nodes, questions = model.nodes, model.questions
    column = np.full(len(questions.kind) + 1, -1)  # the last one is of leaves, whose question is −1
    column[list(columns)] = list(columns.values())
    one_hot = questions.kind == ONE_HOT
    left = ~one_hot & ~((questions.kind == FLOAT) & np.isin(questions.source, list(model.nan_right)))
    threshold = np.append(np.where(one_hot, 0.5, questions.border), 0.0).astype(np.float32)
    flags = np.append(np.where(left, MISSING_LEFT, 0), 0).astype(np.uint8)
    return Trees(
        nodes.sizes,
        narrow(column)[nodes.question],
        threshold[nodes.question],
        nodes.left,
        nodes.right,
        flags[nodes.question],
        nodes.value if model.scale == 1 else model.scale * nodes.value,
        np.zeros((0, 8), dtype=np.int32),
    )


def _read(estimator: Any, builder: Builder) -> CatBoostModel:
    """Return the estimator's model, which CatBoost writes to a file alone."""
    try:
        model = read_model(saved(estimator.save_model, "model.cbm"))
    except Exception as error:  # the library raises its own, and what is not read is a ValueError
        raise builder.refuse(estimator, one_line(error)) from error
    hand_back()
    return model
