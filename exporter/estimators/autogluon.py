"""AutoGluon's TabularPredictor of regression: features, then models that read them and each other's answers.

A model answers in float32. An ensemble of weights adds the answers of others, times their weights, in float64; a bag
adds those of its children in float32. A model of a higher layer reads the answers of lower layers beside the features,
so these are rounded exactly as AutoGluon rounds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.autogluon_features import Table, lower_features
from triton_regressors.exporter.estimators.autogluon_models import MODELS
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import answers, lowers, names_columns, qualified_name
from triton_regressors.kernels.ops.columns.expression import Expression, Instruction

PREDICTOR = "autogluon.tabular.predictor.predictor.TabularPredictor"


@names_columns(PREDICTOR)
def columns_of_predictor(predictor: Any) -> list[str]:
    """Return the columns that the predictor's `predict` needs."""
    return [str(name) for name in _generators(predictor)[0].features_in] if predictor.is_fit else []


@answers(PREDICTOR)
def answer_by_predictor(predictor: Any, table: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """Return the answer of `predict`; the models stay in memory, as each call would read them again."""
    if predictor.model_best not in predictor.model_names(persisted=True):
        predictor.persist(models=[predictor.model_best], max_memory=None)
    return {"y": predictor.predict(table, as_pandas=False)}


@lowers(PREDICTOR)
def lower_tabular_predictor(predictor: Any, x: Value, builder: Builder) -> Value:
    """The answer of the best model, `predictor.model_best`."""
    if not predictor.is_fit:
        raise builder.refuse(predictor, "it is not fitted; call fit first")
    if predictor.problem_type != "regression":
        raise builder.refuse(predictor, f"its problem_type is '{predictor.problem_type}'; supported: 'regression'")
    table = lower_features(predictor, _generators(predictor), x, builder)
    return _Stack(predictor, table, builder).answer(predictor.model_best)


def _generators(predictor: Any) -> list[Any]:
    """Return the feature generators, which are applied one after the other."""
    return list(predictor._learner.feature_generators)


class _Stack:
    """The models of a predictor, each lowered once."""

    def __init__(self, predictor: Any, table: Table, builder: Builder) -> None:
        self._predictor, self._table, self._builder = predictor, table, builder
        self._trainer = predictor._learner.load_trainer()
        self._known: dict[str, Value] = {}

    def answer(self, name: str) -> Value:
        """Return the answer of a model by its name, not yet rounded to float32."""
        if name not in self._known:
            with self._builder.at(name):
                self._known[name] = self._lowered(self._trainer.load_model(name))
        return self._known[name]

    def _lowered(self, model: Any) -> Value:
        if not hasattr(model, "models"):
            return self._member(model, self._features(model, self._table))
        children = [model.load_child(child) for child in model.models]
        if all(_kind(child) in WEIGHTED for child in children):
            (child,) = children
            below = model.stack_column_prefix_to_model_map  # a refitted ensemble keeps the names of bags
            values = [self.answer(below[name]) for name in child.base_model_names]
            return self._sum(values, "multiply", child.weights_)
        table = self._table
        names = model.stack_column_prefix_lst
        if names:
            values = [self.answer(model.stack_column_prefix_to_model_map[name]) for name in names]
            value = self._builder.concatenate([self._rounded(values), table.value])
            table = Table(value, (*names, *table.names), table.categories)
            if model.params["use_orig_features"] is not True:
                table = table.select(names, self._builder)
        table = self._features(children[0], table)
        values = []
        for child in children:
            with self._builder.at(child.name):
                values.append(self._member(child, table))
        return self._sum(values, "add", ())

    def _features(self, model: Any, table: Table) -> Table:
        """Return the columns that a model selects by name."""
        if getattr(model, "_model_specific_feature_generators", None) not in (None, "NOTSET"):
            raise self._refuse(model, "which has a feature generator of its own (ag.model_specific_feature_generator)")
        return table.select(model.features, self._builder)

    def _member(self, model: Any, table: Table) -> Value:
        """Return the answer of a model that is no ensemble."""
        lower = MODELS.get(_kind(model))
        if lower is None:
            raise self._refuse(model, "which no plan computes")
        if getattr(getattr(model, "_compiler", None), "name", "native") != "native":
            raise self._refuse(model, "which is compiled; export it before predictor.compile()")
        return lower(model, table, self._builder)

    def _refuse(self, model: Any, why: str) -> Exception:
        predictor, key = self._predictor, getattr(type(model), "ag_key", None)
        without = f"excluded_model_types=['{key}'] or other hyperparameters" if key else "a preset without it"
        return self._builder.refuse(
            predictor,
            f"its best model {predictor.model_best} needs '{model.name}', a {type(model).__name__}, {why}. Choose a "
            f"model that does without by predictor.set_model_best(…), or train with {without}",
        )

    def _rounded(self, values: list[Value]) -> Value:
        """Return answers side by side, in float32."""
        together = self._builder.concatenate(values)
        width = together.width
        rounding = Expression((ROUNDED,), np.array([width], dtype=np.int32), np.arange(width, dtype=np.int32))
        return self._builder.add(rounding, together)

    def _sum(self, values: list[Value], how: str, weights: Sequence[float]) -> Value:
        """Return the sum of answers in float32, as AutoGluon adds them.

        With "multiply" each is multiplied by its weight, in float64; with "add" all sums are rounded to float32, and
        the last one is divided by their number.
        """
        count = len(values)
        if count == 1 and (how == "add" or weights[0] == 1.0):
            return values[0]
        program: list[Instruction] = [("float32", f"x{place}") for place in range(count)]
        if how == "multiply":
            program += [("multiply", f"v{place}", f"c{place}") for place in range(count)]
            program += _added([f"v{count + place}" for place in range(count)], len(program), ())
            constants = np.array(weights, dtype=np.float64)
        else:
            program += _added([f"v{place}" for place in range(count)], len(program), ("float32",))
            program.append(("divide", f"v{len(program) - 1}", "c0"))
            constants = np.array([float(count)])
        columns = np.arange(count, dtype=np.int32)
        one = np.array([1], dtype=np.int32)
        return self._builder.add(
            Expression((tuple(program),), one, columns, constants), self._builder.concatenate(values)
        )


ROUNDED = (("float32", "x0"),)

WEIGHTED = tuple(
    f"autogluon.core.models.greedy_ensemble.greedy_weighted_ensemble_model.{name}"
    for name in ("GreedyWeightedEnsembleModel", "SimpleWeightedEnsembleModel")
)
"""The classes of an ensemble's weights."""


def _kind(model: Any) -> str:
    return qualified_name(type(model))


def _added(terms: list[str], made: int, after: tuple[str, ...]) -> list[Instruction]:
    """Return the instructions that add terms from left to right, each sum rounded by the functions `after`.

    `made` is the number of instructions before them.
    """
    found: list[Instruction] = []
    total = terms[0]
    for term in terms[1:]:
        found.append(("add", total, term))
        total = f"v{made + len(found) - 1}"
        for function in after:
            found.append((function, total))
            total = f"v{made + len(found) - 1}"
    return found
