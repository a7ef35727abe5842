"""PyCaret's Pipeline: transformers that each read some columns of a DataFrame by name, then the estimator.

Steps that only change the rows of a fit are left out, and the inverses of target transformers come last.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import counts_columns, lowers, names_columns, qualified_name

PIPELINE = "pycaret.internal.pipeline.Pipeline"
_TRANSFORMERS = "pycaret.internal.preprocess.transformers."
WRAPPERS = (f"{_TRANSFORMERS}TransformerWrapper", f"{_TRANSFORMERS}TransformerWrapperWithInverse")


@names_columns(PIPELINE)
def columns_of_pipeline(pipeline: Any) -> list[str] | None:
    """Return the columns of the DataFrame of the fit, without the target, which PyCaret counts among them."""
    names = pipeline.feature_names_in_
    targets = {getattr(step, "target_name_", None) for _, step in pipeline.steps}
    return None if names is None else [str(name) for name in names if name not in targets]


@counts_columns(PIPELINE)
def count_columns_of_pipeline(pipeline: Any) -> int | None:
    """Return how many columns the DataFrame has."""
    names = columns_of_pipeline(pipeline)
    return None if names is None else len(names)


@lowers(PIPELINE)
def lower_pycaret_pipeline(pipeline: Any, x: Value, builder: Builder) -> Value:
    """The estimator's answer to the transformed columns, and the inverses of what transformed the target."""
    *before, (name, last) = pipeline.steps
    steps = [(name, step) for name, step in before if not getattr(step, "_train_only", False)]
    x = dataclasses.replace(x, names=tuple(columns_of_pipeline(pipeline) or ()))
    for each, step in steps:
        with builder.at(each):
            x = _transformed(step, x, builder)
    with builder.at(name):
        y = builder.lower(last, x)
    for each, step in reversed(steps):
        if hasattr(step, "inverse_transform"):
            with builder.at(each):
                y = builder.lower_inverse(step.transformer.estimator, y)
    return y


def _transformed(wrapper: Any, x: Value, builder: Builder) -> Value:
    """Return the columns that a step makes, in the order in which it puts them, with their names."""
    if qualified_name(type(wrapper)) not in WRAPPERS:
        raise builder.refuse(wrapper, "it is not one of PyCaret's own steps; supported: what setup() makes")
    inner, include = wrapper.transformer, wrapper._include
    if (
        "X" not in inspect.signature(inner.transform).parameters or include == []
    ):  # it transforms the target, or nothing
        return x
    read = builder.columns(x, [x.names.index(name) for name in include])
    kind = type(inner).__name__
    if qualified_name(type(inner)) == f"{_TRANSFORMERS}CleanColumnNames":
        made, names = read, inner.transform(_empty(include)).columns.tolist()
    elif qualified_name(type(inner)) == f"{_TRANSFORMERS}RemoveMulticollinearity":
        kept = [name for name in include if name not in inner.drop_]
        made, names = builder.columns(read, [include.index(name) for name in kept]), kept
    elif type(inner).__module__ == _TRANSFORMERS.rstrip("."):
        raise builder.refuse(inner, f"a plan has no {kind}; supported: what setup() makes without it")
    else:
        made, names = builder.lower_transform(inner, read), [str(name) for name in inner.get_feature_names_out()]
    order = names if len(include) == len(x.names) else _reordered(list(x.names), include, names)
    places = [names.index(name) if name in names else len(names) + x.names.index(name) for name in order]
    found = builder.columns(builder.concatenate([made, x]), places)
    return dataclasses.replace(found, names=tuple(order))


def _reordered(before: Sequence[str], include: Sequence[str], made: Sequence[str]) -> list[str]:
    """Return the columns of a table in which a step has replaced those of `include` by `made`, as PyCaret orders them.

    A column stays where it was, and those whose names begin with its name come behind it.
    """
    order: dict[str, None] = {}
    for column in before:
        if column in made or column not in include:
            order[column] = None
        order |= {name: None for name in made if name.startswith(f"{column}_") and name not in before}
    return list(order | dict.fromkeys(made))


def _empty(names: Sequence[str]) -> Any:
    """Return a DataFrame of these columns without rows."""
    import pandas as pd

    return pd.DataFrame(np.zeros((0, len(names))), columns=list(names))
