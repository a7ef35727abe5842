"""The encoders of the library category_encoders, each tabulated by its own `transform`; see `category_tables.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from triton_regressors.exporter.estimators.category_tables import tabulate_categories
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers, refuses
from triton_regressors.tables.values import is_missing

refuses(
    "it hashes the characters of whatever string a row holds, and an entry reads strings only as known categories",
    "Use a BinaryEncoder or a CountEncoder, which also make few columns, or transform rows before they are sent: "
    "export the steps behind it, as in pipeline[1:].",
    "category_encoders.hashing.HashingEncoder",
)
refuses(
    "it splits the strings of a row at a delimiter, and an entry reads strings only as known categories",
    "Transform rows before they are sent: export the steps behind it, as in pipeline[1:].",
    "category_encoders.multi_hot.MultiHotEncoder",
)


@lowers(
    "category_encoders.backward_difference.BackwardDifferenceEncoder",
    "category_encoders.basen.BaseNEncoder",
    "category_encoders.binary.BinaryEncoder",
    "category_encoders.cat_boost.CatBoostEncoder",
    "category_encoders.count.CountEncoder",
    "category_encoders.count_target.CountTargetEncoder",
    "category_encoders.glmm.GLMMEncoder",
    "category_encoders.gray.GrayEncoder",
    "category_encoders.helmert.HelmertEncoder",
    "category_encoders.james_stein.JamesSteinEncoder",
    "category_encoders.leave_one_out.LeaveOneOutEncoder",
    "category_encoders.m_estimate.MEstimateEncoder",
    "category_encoders.one_hot.OneHotEncoder",
    "category_encoders.ordinal.OrdinalEncoder",
    "category_encoders.polynomial.PolynomialEncoder",
    "category_encoders.quantile_encoder.QuantileEncoder",
    "category_encoders.quantile_encoder.SummaryEncoder",
    "category_encoders.rankhot.RankHotEncoder",
    "category_encoders.sum_coding.SumEncoder",
    "category_encoders.target_encoder.TargetEncoder",
    "category_encoders.woe.WOEEncoder",
)
def lower_category_encoder(encoder: Any, x: Value, builder: Builder) -> Value:
    """The columns of `cols`, encoded as for rows without a target, and the other columns as they are."""
    if getattr(encoder, "composite_members_", None):
        raise builder.refuse(encoder, "composite_cols encodes several columns together; supported: each column alone")
    if callable(encoder.handle_unknown) and type(encoder).__name__ == "OrdinalEncoder":
        raise builder.refuse(encoder, "handle_unknown is a function of the unknown category; supported: one number")
    names, encoded = list(encoder.feature_names_in_), list(encoder.cols)
    places = {name: place for place, name in enumerate(names) if name not in encoded}
    passed = [places.get(name, -1) for name in encoder.get_feature_names_out().tolist()]
    return tabulate_categories(
        encoder, {names.index(name): _known(encoder, name) for name in encoded}, passed, x, builder
    )


def _known(encoder: Any, name: Any) -> list[Any]:
    """Return the categories of a column that an encoder was fitted on, without missing ones."""
    inner = (getattr(encoder, "encoder_list", None) or [encoder])[0]
    ordinal = getattr(inner, "ordinal_encoder", None)
    mapping = inner.mapping if ordinal is None else ordinal.mapping
    if not isinstance(mapping, dict):
        mapping = {each["col"]: each["mapping"] for each in mapping}
    lumped: Iterable[Any] = getattr(encoder, "min_group_lumping_", {}).get(name, ())
    return [value for value in dict.fromkeys([*mapping[name].index.tolist(), *lumped]) if not is_missing(value)]
