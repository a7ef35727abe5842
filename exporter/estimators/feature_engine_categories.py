"""feature_engine's transformers of categories: encoders, the grouping of rare ones, and imputers of strings."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.category_tables import as_array, tabulate_categories
from triton_regressors.exporter.estimators.encoding import Codes, are_strings, category_numbers, lookup
from triton_regressors.exporter.estimators.feature_engine import guard_missing, impute, in_place, places
from triton_regressors.exporter.estimators.strings import number_strings
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers
from triton_regressors.tables.values import is_missing


@lowers(
    "feature_engine.encoding.count_frequency.CountFrequencyEncoder",
    "feature_engine.encoding.decision_tree.DecisionTreeEncoder",
    "feature_engine.encoding.mean_encoding.MeanEncoder",
    "feature_engine.encoding.one_hot.OneHotEncoder",
    "feature_engine.encoding.ordinal.OrdinalEncoder",
    "feature_engine.encoding.woe.WoEEncoder",
)
def lower_encoder(encoder: Any, x: Value, builder: Builder) -> Value:
    """The numbers of `encoder_dict_` in place of categories, or indicators of its categories behind the columns."""
    chosen = places(encoder).tolist()
    known = {
        place: [value for value in encoder.encoder_dict_[name] if not is_missing(value)]
        for name, place in zip(encoder.variables_, chosen, strict=True)
    }
    others = {name: place for place, name in enumerate(encoder.feature_names_in_) if place not in known}
    passed = [others.get(name, -1) for name in encoder.get_feature_names_out()]
    return tabulate_categories(encoder, known, passed, x, builder)


@lowers("feature_engine.encoding.rare_label.RareLabelEncoder")
def lower_rare_labels(encoder: Any, x: Value, builder: Builder) -> Value:
    """The frequent categories as they are, and one label for all others; these stay columns of strings."""
    chosen, codes = places(encoder), []
    for name, place in zip(encoder.variables_, chosen.tolist(), strict=True):
        frequent = as_array([value for value in encoder.encoder_dict_[name] if not is_missing(value)])
        strings = are_strings(frequent)
        if isinstance(encoder.replace_with, str) != strings:
            called = builder.profile.called(x.features, place)
            reason = f"it puts the label {encoder.replace_with!r} among the categories of {called}"
            raise builder.refuse(encoder, f"{reason}; supported: a string among strings, a number among numbers")
        numbers = category_numbers(builder, encoder, x, place, frequent)
        rare = float(encoder.replace_with) if not strings else np.nan
        if strings:
            (rare,) = number_strings(builder, encoder, x, place, [encoder.replace_with]).tolist()
            builder.profile.text.open(x.features[place])
        keys, first = np.unique(numbers, return_index=True)
        codes.append(Codes(place, keys, numbers[first], np.nan, rare))
    if encoder.missing_values == "raise":
        guard_missing(x, chosen, builder)
    made = lookup(builder, x, codes)
    kept = tuple(x.features[place] for place in chosen) if x.features else ()
    return in_place(dataclasses.replace(made, features=kept), chosen, x, builder)


@lowers("feature_engine.preprocessing.match_categories.MatchCategories")
def lower_match_categories(transformer: Any, x: Value, builder: Builder) -> Value:
    """The known categories as they are, and a missing value for all others; these stay columns of categories."""
    chosen, codes = places(transformer, list(transformer.category_dict_)), []
    for categories, place in zip(transformer.category_dict_.values(), chosen.tolist(), strict=True):
        known = as_array(categories.tolist())
        numbers = category_numbers(builder, transformer, x, place, known)
        if are_strings(known) and x.features:
            builder.profile.text.open(x.features[place])
        keys, first = np.unique(numbers, return_index=True)
        codes.append(Codes(place, keys, numbers[first], np.nan, np.nan))
    made = lookup(builder, x, codes)
    if transformer.missing_values == "raise":  # an unknown category becomes a missing one
        guard_missing(made, np.arange(made.width), builder)
    kept = tuple(x.features[place] for place in chosen) if x.features else ()
    return in_place(dataclasses.replace(made, features=kept), chosen, x, builder)


@lowers("feature_engine.imputation.categorical.CategoricalImputer")
def lower_category_imputer(imputer: Any, x: Value, builder: Builder) -> Value:
    """The label or number of `imputer_dict_` in place of a missing category; columns of strings stay such."""
    chosen = places(imputer, list(imputer.imputer_dict_))
    numbers = []
    for place, value in zip(chosen.tolist(), imputer.imputer_dict_.values(), strict=True):
        if isinstance(value, str):
            numbers.append(number_strings(builder, imputer, x, place, [value])[0])
        else:
            numbers.append(float(value))
    return impute(x, chosen, np.array(numbers), builder, keep=True)
