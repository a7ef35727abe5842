"""AutoGluon's TabularPredictor of regression: features, then models that read them and each other's answers.

A model answers in float32. An ensemble of weights adds the answers of others, times their weights, in float64; a bag
adds those of its children in float32. A model of a higher layer reads the answers of lower layers beside the features,
so these are rounded exactly as AutoGluon rounds them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.autogluon_features import Table, lower_features
from triton_regressors.exporter.estimators.autogluon_models import MODELS
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import answers, lowers, names_columns, qualified_name
from triton_regressors.kernels.ops.columns.expression import Expression, Instruction, Program

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
        self._known: dict[str, list[Value]] = {}

    def answer(self, name: str) -> Value:
        """Return the answer of a model by its name."""
        members = self._members(name)
        return members[0] if len(members) == 1 else self._means([name])

    def _members(self, name: str) -> list[Value]:
        """Return the answers whose mean is a model's, not yet rounded to float32: one for each child of a bag."""
        if name not in self._known:
            with self._builder.at(name):
                self._known[name] = self._lowered(self._trainer.load_model(name))
        return self._known[name]

    def _lowered(self, model: Any) -> list[Value]:
        if not hasattr(model, "models"):
            self._check(model)
            return [self._member(model, self._features(model, self._table))]
        children = [model.load_child(child) for child in model.models]
        if all(_kind(child) in WEIGHTED for child in children):
            (child,) = children
            below = model.stack_column_prefix_to_model_map  # a refitted ensemble keeps the names of bags
            return self._weighted([below[name] for name in child.base_model_names], child.weights_)
        self._check(children[0])
        table = self._table
        names = model.stack_column_prefix_lst
        if names:
            means = self._means([model.stack_column_prefix_to_model_map[name] for name in names])
            value = self._builder.concatenate([means, table.value])
            table = Table(value, (*names, *table.names), table.categories)
            if model.params["use_orig_features"] is not True:
                table = table.select(names, self._builder)
        table = self._features(children[0], table)
        values = []
        for child in children:
            with self._builder.at(child.name):
                values.append(self._member(child, table))
        return values

    def _check(self, model: Any) -> None:
        """Refuse a model that no plan computes; the children of a bag are of one kind."""
        if _kind(model) not in MODELS:
            raise self._refuse(model, "which no plan computes")
        if getattr(model, "_model_specific_feature_generators", None) not in (None, "NOTSET"):
            raise self._refuse(
                model, "which has a feature generator of its own (ag.model_specific_feature_generator_kwargs)"
            )
        if getattr(getattr(model, "_compiler", None), "name", "native") != "native":
            raise self._refuse(model, "which is compiled; export it before predictor.compile()")

    def _features(self, model: Any, table: Table) -> Table:
        """Return the columns that a model selects by name."""
        return table.select(model.features, self._builder)

    def _member(self, model: Any, table: Table) -> Value:
        """Return the answer of a model that is no ensemble."""
        return MODELS[_kind(model)](model, table, self._builder)

    def _refuse(self, model: Any, why: str) -> Exception:
        predictor, key = self._predictor, getattr(type(model), "ag_key", None)
        without = f"excluded_model_types=['{key}'] or other hyperparameters" if key else "a preset without it"
        return self._builder.refuse(
            predictor,
            f"its best model {predictor.model_best} needs '{model.name}', a {type(model).__name__}, {why}. Choose a "
            f"model that does without by predictor.set_model_best(…), or train with {without}",
        )

    def _means(self, names: Sequence[str]) -> Value:
        """Return the answers of models side by side, in float32: those of a bag's children are added in float32."""
        members = [self._members(name) for name in names]
        programs, lanes, constants = [], [], []
        for count, alike in itertools.groupby(map(len, members)):
            programs.append(_mean(count))
            lanes.append(len(list(alike)))
            constants += [float(count)] * lanes[-1] * (count > 1)
        together = self._builder.concatenate(list(itertools.chain.from_iterable(members)))
        columns = np.arange(together.width, dtype=np.int32)
        means = Expression(tuple(programs), np.array(lanes, dtype=np.int32), columns, np.array(constants))
        return self._builder.add(means, together)

    def _weighted(self, names: Sequence[str], weights: Sequence[float]) -> list[Value]:
        """Return the sum of models' answers times their weights, in float64, as the only member."""
        count = len(names)
        if count == 1 and weights[0] == 1.0:
            return self._members(names[0])
        terms = [("multiply", f"x{place}", f"c{place}") for place in range(count)]
        program = (*terms, *_added([f"v{place}" for place in range(count)], count))
        columns, one = np.arange(count, dtype=np.int32), np.array([1], dtype=np.int32)
        weighted = Expression((program,), one, columns, np.array(weights, dtype=np.float64))
        return [self._builder.add(weighted, self._means(names))]


WEIGHTED = tuple(
    f"autogluon.core.models.greedy_ensemble.greedy_weighted_ensemble_model.{name}"
    for name in ("GreedyWeightedEnsembleModel", "SimpleWeightedEnsembleModel")
)
"""The classes of an ensemble's weights."""


def _kind(model: Any) -> str:
    return qualified_name(type(model))


def _mean(count: int) -> Program:
    """Return the program of a mean in float32, each sum rounded; its constant is the number of terms."""
    rounded = [("float32", f"x{place}") for place in range(count)]
    if count == 1:
        return tuple(rounded)
    sums = _added([f"v{place}" for place in range(count)], count, ("float32",))
    last = count + len(sums)
    return (*rounded, *sums, ("divide", f"v{last - 1}", "c0"), ("float32", f"v{last}"))


def _added(terms: list[str], made: int, after: tuple[str, ...] = ()) -> list[Instruction]:
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
