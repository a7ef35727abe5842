"""AutoGluon's models: what each makes of its columns, and the lowering of the library's model that reads it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.autogluon_features import Table, encoded, filled
from triton_regressors.exporter.estimators.catboost import REGRESSOR as CATBOOST
from triton_regressors.exporter.estimators.catboost import lower_catboost_regressor
from triton_regressors.exporter.estimators.lightgbm import lower_booster
from triton_regressors.exporter.estimators.xgboost import lower_xgboost as lower_xgb_regressor
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import qualified_name
from triton_regressors.kernels.ops.columns.expression import Expression, Program
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.columns.lookup import Lookup

ENCODERS = ("OheFeaturesGenerator", "OneHotMergeRaresHandleUnknownEncoder", "OrdinalMergeRaresHandleUnknownEncoder")
"""AutoGluon's own encoders of categories inside ColumnTransformers."""


def _aligned(model: Any, table: Table, builder: Builder) -> Table:
    """Return the columns in the order of the model's fit."""
    return table if model._is_features_in_same_as_ex else table.select(model._features_internal_to_align, builder)


def lower_lightgbm(model: Any, table: Table, builder: Builder) -> Value:
    """A Booster, whose categories are the codes."""
    table = table.renamed(model._features_internal_map) if model._requires_remap else table
    return lower_booster(model, model.model, _aligned(model, table, builder).value, builder)


def lower_catboost(model: Any, table: Table, builder: Builder) -> Value:
    """A CatBoostRegressor; its categories are codes, and one more for a missing cell."""
    table = _aligned(model, table, builder)
    mapping = model._category_mapping or {}
    if qualified_name(type(model.model)) != CATBOOST:
        raise builder.refuse(model, f"it holds a {type(model.model).__name__}; supported: CatBoostRegressor")
    x = filled(table, lambda name: float(mapping[name]["__NaN__"]), np.nan, builder) if mapping else table.value
    codes = {place: len(mapping[name]) for place, name in enumerate(table.names) if name in mapping}
    found = lower_catboost_regressor(model.model, x, builder, codes)
    return found["y"] if isinstance(found, dict) else found


def lower_xgboost(model: Any, table: Table, builder: Builder) -> Value:
    """An XGBRegressor of codes, or of a sparse matrix with one-hot columns in front, in which zeros are missing."""
    table = _aligned(model, table, builder)
    if not model._ohe:
        return lower_xgb_regressor(model.model, table.value, builder, codes=True)
    made = model._ohe_generator
    values = [encoded(made.ohe_encs.transform, table.select(made.cat_cols, builder), builder)] if made.cat_cols else []
    values += [table.select(made.other_cols, builder).value] if made.other_cols else []
    return builder.lower(model.model, dataclasses.replace(builder.concatenate(values), sparse=True))


def lower_forest(model: Any, table: Table, builder: Builder) -> Value:
    """A forest of codes and numbers; a missing code is −1 and a missing number 0."""
    table = _aligned(model, table, builder)
    return builder.lower(model.model, filled(table, lambda _: -1.0, 0.0, builder))


def lower_neighbors(model: Any, table: Table, builder: Builder) -> Value:
    """Neighbours of numbers in float32; a missing number is 0."""
    table = _aligned(model, table, builder)
    x = filled(table, lambda _: np.nan, 0.0, builder)
    return builder.lower(model.model, builder.add(Float32(), x).holding(x, range(x.width)))


def lower_linear(model: Any, table: Table, builder: Builder) -> Value:
    """Ridge or Lasso after a ColumnTransformer."""
    table = _aligned(model, table, builder)
    return builder.lower(model.model, _transformed(model, model._pipeline, table, builder))


def lower_torch(model: Any, table: Table, builder: Builder) -> Value:
    """A network of dense layers, after a ColumnTransformer and embeddings of categories."""
    table = _aligned(model, table, builder)
    kept = [name for name in table.names if name not in model.features_to_drop]
    z = _transformed(model, model.processor, table.select(kept, builder), builder)
    of_kind: dict[str, list[list[int]]] = {"vector": [], "embed": []}
    for name, kind in model.feature_type_map.items():
        of_kind[kind].append(model.feature_arraycol_map[name])
    network, values = model.model, []
    if of_kind["vector"]:
        vector = builder.columns(z, [column for columns in of_kind["vector"] for column in columns])
        values.append(builder.add(Float32(), vector))
    if of_kind["embed"]:
        tables = [_numbers(block.weight) for block in network.embed_blocks]
        values.append(_embedded(z, [column for (column,) in of_kind["embed"]], tables, builder))
    return _constrained(network, _layers(model, network.main_block, builder.concatenate(values), builder), builder)


def lower_fastai(model: Any, table: Table, builder: Builder) -> Value:
    """A network of fastai: embeddings of codes from 1 on, 0 for a missing one, beside standardised numbers."""
    table = _aligned(model, table, builder)
    network, values = model.model.model, []
    if model.cat_columns:
        codes = table.select(model.cat_columns, builder)
        tables = [_numbers(block.weight) for block in network.embeds]
        values.append(_embedded(codes.value, list(range(len(tables))), tables, builder, missing_first=True))
    if model.cont_columns:
        fills = np.array([model.columns_fills.get(name, np.nan) for name in model.cont_columns], dtype=np.float64)
        every = np.arange(len(fills), dtype=np.int32)
        numbers = builder.add(Impute(every, fills, every[:0], None), table.select(model.cont_columns, builder).value)
        numbers = builder.add(Float32(), builder.divide(numbers, *model._cont_normalization))
        values.append(_normalised(network.bn_cont, numbers, builder))
    y = _layers(model, _flat(network.layers), builder.concatenate(values), builder)
    for _, step in reversed(model.y_scaler.steps if hasattr(model.y_scaler, "steps") else [("", model.y_scaler)]):
        clip = getattr(step, "inverse_func", None)
        if isinstance(clip, functools.partial) and clip.func is np.clip:
            y = builder.elementwise(y, "identity", float(clip.keywords["a_min"]), float(clip.keywords["a_max"]))
        elif step is not None:
            y = builder.lower_inverse(step, y)
    return y


def _normalised(norm: Any, z: Value, builder: Builder) -> Value:
    """Return what batch norm makes of columns."""
    if norm is None:
        return z
    factor, shift = _batch_norm(norm)
    return builder.multiply(z, factor, shift)


def _flat(block: Any) -> list[Any]:
    """Return the layers of nested Sequentials in order."""
    parts = list(block.children())
    return [layer for part in parts for layer in _flat(part)] if parts else [block]


def _embedded(
    z: Value, columns: list[int], tables: list[np.ndarray], builder: Builder, missing_first: bool = False
) -> Value:
    """Return the rows of tables for the codes in some columns, side by side.

    With `missing_first` the first row of each table is that of a missing code, and the others follow.
    """
    first = np.concatenate([table[0] for table in tables]) if missing_first else np.nan  # or every cell has a code
    tables = [table[1:] for table in tables] if missing_first else tables
    wide = np.repeat(np.arange(len(tables)), [table.shape[1] for table in tables])
    sizes = np.array([len(tables[place]) for place in wide])
    keys = np.concatenate([np.arange(size, dtype=np.float64) for size in sizes])
    found = np.concatenate([table[:, dimension] for table in tables for dimension in range(table.shape[1])])
    absent = np.tile(np.broadcast_to(first, len(wide)), 2)
    starts = np.cumsum([0, *sizes], dtype=np.int32)
    read = np.array(columns, dtype=np.int32)[wide]
    return builder.add(Lookup(read, starts, keys, np.append(found, absent)[:, None], False), z)


def _layers(model: Any, block: Any, z: Value, builder: Builder) -> Value:
    """Return the answer of a Sequential of dense layers; batch norm belongs to the layer behind it."""
    factor, shift = np.ones(z.width), np.zeros(z.width)
    weight: np.ndarray | None = None
    intercept = np.zeros(0)
    for layer in block:
        kind = type(layer).__name__
        if kind == "BatchNorm1d":
            factor, shift = _batch_norm(layer)
        elif kind == "Linear":
            z = z if weight is None else builder.affine(z, weight, intercept)
            plain = _numbers(layer.weight).T
            bias = np.zeros(plain.shape[1]) if layer.bias is None else _numbers(layer.bias)
            weight, intercept = factor[:, None] * plain, shift @ plain + bias
            factor, shift = np.ones(plain.shape[1]), np.zeros(plain.shape[1])
        elif kind in ACTIVATIONS and weight is not None:
            z, weight = builder.affine(z, weight, intercept, ACTIVATIONS[kind]), None
        elif kind == "ELU" and weight is not None and layer.alpha == 1.0:
            z, weight = builder.affine(z, weight, intercept), None
            every = np.arange(z.width, dtype=np.int32)
            z = builder.add(Expression((ELU,), np.array([z.width], dtype=np.int32), every, np.zeros(z.width)), z)
        elif kind not in ("Dropout", "Identity"):
            raise builder.refuse(
                model,
                f"its network has a layer {kind}; supported: Linear, BatchNorm1d, Dropout, {', '.join(ACTIVATIONS)}, "
                f"ELU. Train it with hyperparameters={{'{type(model).ag_key}': {{'activation': 'relu'}}}}",
            )
    z = z if weight is None else builder.affine(z, weight, intercept)
    return z if (factor == 1.0).all() and (shift == 0.0).all() else builder.multiply(z, factor, shift)


def _batch_norm(layer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the factor and the term of a layer of batch norm for each column."""
    scale = 1.0 / np.sqrt(_numbers(layer.running_var) + layer.eps)
    scale = scale * _numbers(layer.weight) if layer.affine else scale
    shift = -_numbers(layer.running_mean) * scale
    return scale, shift + _numbers(layer.bias) if layer.affine else shift


def _constrained(network: Any, z: Value, builder: Builder) -> Value:
    """Return the answer within the range that the network keeps to."""
    if network.y_constraint is None:
        return z
    if network.y_constraint == "bounded":
        return builder.multiply(builder.elementwise(z, "expit"), network.y_span, network.y_lower)
    if network.y_constraint == "nonnegative":
        return builder.multiply(builder.elementwise(z, "absolute"), 1.0, network.y_lower)
    return builder.multiply(builder.elementwise(z, "absolute"), -1.0, network.y_upper)


def _transformed(model: Any, transformer: Any, table: Table, builder: Builder) -> Value:
    """Return the output of a ColumnTransformer whose members are scikit-learn's, or AutoGluon's encoders."""
    values = []
    for name, member, _ in transformer.transformers_:
        places = transformer._transformer_to_input_indices[name]
        if not len(places) or (isinstance(member, str) and member == "drop"):
            continue
        columns = [str(transformer.feature_names_in_[place]) for place in places]
        part = table.select(columns, builder)
        with builder.at(name):
            last = member.steps[-1][1] if hasattr(member, "steps") else member
            if type(last).__name__ in ENCODERS:
                # A network's encoder also takes numbers: a column that held two of them in the training.
                known = dict(zip(columns, getattr(last, "categories_", ()), strict=False))
                values.append(encoded(member.transform, part, builder, known))
            elif isinstance(member, str):  # "passthrough"
                values.append(part.value)
            else:
                values.append(builder.lower_transform(member, part.value))
    return builder.concatenate(values)


def _numbers(tensor: Any) -> np.ndarray:
    """Return a tensor of torch as float64."""
    found: np.ndarray = tensor.detach().cpu().double().numpy()
    return found


ACTIVATIONS = {"ReLU": "relu", "Tanh": "tanh", "Sigmoid": "expit"}
"""The activations of torch, with the kernels' names for them."""

ELU: Program = (("expm1", "x0"), ("greater", "x0", "c0"), ("where", "v1", "x0", "v0"))
"""The activation of that name; its constant is 0."""

_TABULAR = "autogluon.tabular.models."

MODELS: dict[str, Callable[[Any, Table, Builder], Value]] = {
    f"{_TABULAR}catboost.catboost_model.CatBoostModel": lower_catboost,
    f"{_TABULAR}fastainn.tabular_nn_fastai.NNFastAiTabularModel": lower_fastai,
    f"{_TABULAR}knn.knn_model.KNNModel": lower_neighbors,
    f"{_TABULAR}lgb.lgb_model.LGBModel": lower_lightgbm,
    f"{_TABULAR}lr.lr_model.LinearModel": lower_linear,
    f"{_TABULAR}rf.rf_model.RFModel": lower_forest,
    f"{_TABULAR}tabular_nn.torch.tabular_nn_torch.TabularNeuralNetTorchModel": lower_torch,
    f"{_TABULAR}xgboost.xgboost_model.XGBoostModel": lower_xgboost,
    f"{_TABULAR}xt.xt_model.XTModel": lower_forest,
}
"""The lowering of each of AutoGluon's models, by its qualified name."""
