"""The output `contributions`: Shapley values of the columns of the user's table, as steps of a plan.

The margin is walked back through the operations that are linear in their input, which leaves a sum

    margin = constant + Σ_terms weight · value.

The Shapley value of a sum is the sum of the Shapley values. A value that depends on one column of the table adds
`weight · (value − its mean over the background rows)` to that column, and other terms have a file each: `trees.py`,
`products.py`, `points.py`. The mean margin of the background rows is the base. In the path-dependent game, which is
defined for trees alone, a tree's own training covers take the place of background rows.

What is left is computed by Shapley's definition on all coalitions, or where these are too many on those of some orders
of the columns, with the standard errors as an output of their own.

The output is `[rows, targets · (columns + 1)]`, target after target; the base comes after the columns of a target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping

import numpy as np

from triton_regressors.contribution_game import BACKGROUND, ERROR, OUTPUT, PATH
from triton_regressors.exporter.contributions.coalitions import definition_weights
from triton_regressors.exporter.contributions.margin import MARGIN, margin_of
from triton_regressors.exporter.contributions.permutations import draw_orders, joins, number_of_orders
from triton_regressors.exporter.contributions.pieces import add_up_pieces
from triton_regressors.exporter.contributions.players import NOBODY, SEVERAL, players_of_values
from triton_regressors.exporter.contributions.points import point_contributions
from triton_regressors.exporter.contributions.products import factored, product_contributions
from triton_regressors.exporter.contributions.trees import leaf_values, tree_contributions
from triton_regressors.exporter.contributions.values import Values
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.passes.optimise import fuse
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.combine import MAX_INPUTS, Combine
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.columns.slice import Slice
from triton_regressors.kernels.ops.games.coalitions import Coalitions
from triton_regressors.kernels.ops.games.launch import BATCH_EVALUATIONS
from triton_regressors.kernels.ops.games.orders import Orders
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.ordered_affine import OrderedAffine
from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.ops.linear.polynomial import Polynomial
from triton_regressors.kernels.ops.points.pairwise import Pairwise
from triton_regressors.kernels.ops.trees.background_contributions import BackgroundContributions
from triton_regressors.kernels.ops.trees.path_contributions import PathContributions
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_contributions import TreeContributions
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan, Step

GAMES = (BACKGROUND, PATH)
"""The games. `background`: columns that do not take part have the numbers of background rows (Štrumbelj and Kononenko
2014; Janzing, Minorics and Blöbaum 2020). `path`: a tree takes the mean over both children there, weighted by their
training rows (Lundberg et al., From local explanations to global understanding with explainable AI for trees, 2020)."""

PATH_TREES = {
    "linear_leaves": "with numbers in their leaves",
    "tree_ensemble": "that read columns of the table",
    "symmetric_trees": "that read columns of the table",
}
"""The trees that the game `path` is defined for, by the operation that is none of them."""


def no_covers(step: Step) -> np.ndarray:
    """Raise `ExportError`: nobody knows the covers of trees."""
    raise ExportError(f"the training covers of {step.output} are not known")


class Game:
    """The terms of a plan's margin, and the steps that answer their contributions.

    `margin` is the plan of the margin, and `links` are the functions that make the answer of it. `players` is the
    number of columns whose coalitions `contributions` computes, 0 if it computes none, and `permutations` the number of
    orders from which it estimates a part of the values, 0 if all are exact.
    """

    def __init__(
        self,
        plan: Plan,
        of_input: np.ndarray,
        columns: int,
        background: np.ndarray | None,
        covers: Callable[[Step], np.ndarray] = no_covers,
        permutations: int | None = None,
    ) -> None:
        """Take a plan.

        Args:
            plan: the plan as lowered, for the dtype of its input.
            of_input: the players of the columns of its matrix, see `players_of_inputs`.
            columns: the number of columns of the table.
            background: rows of the matrix in that dtype, or None for the path-dependent game.
            covers: returns the training covers of a step's trees, for the path-dependent game.
            permutations: the number of orders for values that are estimated; None: see `number_of_orders`.
        """
        self._asked, self.players, self.permutations = permutations, 0, 0
        self._plan, self._columns, self._covers = plan, columns, covers
        self.margin, self.links = margin_of(plan)
        self._widths, self._players = self.margin.widths(), players_of_values(self.margin, of_input)
        self._whose = PATH if background is None else BACKGROUND
        rows = np.zeros((1, plan.n_features), plan.dtype) if background is None else background
        self._values = Values(self.margin.steps, rows)
        self.targets = self._widths[self.margin.outputs[MARGIN]]
        self._weights: dict[str, np.ndarray] = {}
        self._constant = np.zeros(self.targets)
        self._width = self.targets * (columns + 1)
        self._intercept = np.zeros(self._width)
        self._linear: dict[str, np.ndarray] = {}
        self._rest: dict[str, np.ndarray] = {}
        self._rounded: dict[str, np.ndarray] = {}
        self._steps: list[Step] = []
        self._parts: list[str] = []
        self._errors: dict[str, str] = {}

    def contributions(self) -> Plan:
        """Return the plan whose output is the contributions; with their standard errors, if some are estimated.

        Raises:
            ExportError: a term has no exact form.
        """
        self._weights[self.margin.outputs[MARGIN]] = np.eye(self.targets)
        for step in reversed(self.margin.steps):
            weight = self._weights.pop(step.output, None)
            if weight is None:
                continue
            several = (self._players[step.output] == SEVERAL)[:, None]
            if isinstance(step.operation, Polynomial | SymmetricTrees | TreeEnsemble) and (
                self._whose == PATH or (weight * several).any()
            ):
                self._back(step, weight)
                continue
            self._add_alone(step.output, np.where(several, 0.0, weight), self._players[step.output])
            if (weight * several).any():
                self._back(step, np.where(several, weight, 0.0))
        if INPUT in self._weights:
            weight, players = self._weights.pop(INPUT), self._players[INPUT]
            if weight[players == SEVERAL].any():
                raise ExportError("a number that own code makes of several columns of strings belongs to no column")
            self._add_alone(INPUT, weight, players)
        if self._rest:
            self._add_rest()
        self._intercept.reshape(self.targets, -1)[:, -1] += self._constant
        self._add_linear()
        while len(self._parts) > 1:
            some, self._parts = self._parts[:MAX_INPUTS], self._parts[MAX_INPUTS:]
            self._add_part(Combine("sum", (1.0,) * len(some)), *some)
        steps = (*self.margin.steps, *self._steps)
        outputs = {OUTPUT: self._parts[0], **self._errors}
        found = Plan(self._plan.n_features, steps, outputs, self._plan.dtype)
        return found.with_steps(found.steps_for(list(outputs)))

    def rounding(self, X: np.ndarray) -> float:
        """Return the most that a sum of contributions can differ from the margin because numbers are rounded.

        Tables of trees hold rounded numbers, and walks over trees compute in float32. Where the model rounds sums to
        float32, contributions are those of the sums before that. `X` are rows, `[rows, n_features]`.
        """
        trees = [
            step.operation.rounding_error()
            for step in self._steps
            if isinstance(step.operation, TreeContributions | PathContributions)
        ]
        largest = 0.0
        for values in (self._values, Values(self.margin.steps, X)):
            parts = [np.abs(values[value]) @ weight for value, weight in self._rounded.items()]
            largest = max(largest, float(np.sum(parts, axis=0).max()) if parts else 0.0)
        return 2 * 2.0**-24 * largest + sum(trees)

    def _add(self, operation: Operation, *inputs: str) -> str:
        """Add a step and return the name of its value."""
        step = Step(operation, inputs, f"{OUTPUT} {len(self._steps)}")
        self._steps.append(step)
        self._values.add(step)
        return step.output

    def _add_part(self, operation: Operation, *inputs: str) -> None:
        """Add a step whose value is a part of the answer."""
        self._parts.append(self._add(operation, *inputs))

    def _add_alone(self, value: str, weight: np.ndarray, players: np.ndarray) -> None:
        """Add a term of columns that have one player each, or none."""
        used = (weight != 0).any(axis=1)
        taken = np.flatnonzero(used & (players != NOBODY))
        if not used.any():
            return
        number = self._check_of_categories(value) if self._whose == PATH else None
        if number is None and len(taken):
            self._check_background()
        mean = np.where(used, self._values[value].mean(axis=0) if number is None else number, 0.0)
        if not np.isfinite(mean).all():
            raise ExportError("the background rows must be finite where the model takes no missing numbers")
        self._constant += mean @ weight
        if not len(taken):
            return
        whole = np.zeros((len(weight), self.targets, self._columns + 1))
        whole[taken, :, players[taken]] = weight[taken]
        self._intercept -= np.einsum("i,itc->tc", mean, whole).ravel()
        self._contract(*self._added_up(value, whole.reshape(len(weight), -1)))

    def _added_up(self, value: str, weight: np.ndarray) -> tuple[str, np.ndarray]:
        """Return a value and its weights; in place of many piecewise polynomials of a column it has their sum."""
        maker = self._maker(value)
        if maker is None or not isinstance(maker.operation, Piecewise):
            return value, weight
        found = add_up_pieces(maker.operation, weight)
        return (value, weight) if found is None else (self._add(found[0], *maker.inputs), found[1])

    def _check_of_categories(self, value: str) -> float | None:
        """Return the number of all categories in a look-up that only makes NaN of others; None for another value.

        Encoders that take no unknown category add one to the margin, where it changes nothing.
        """
        maker = self._maker(value)
        if maker is None or not isinstance(maker.operation, Lookup) or maker.operation.function != "identity":
            return None
        table = maker.operation.table
        numbers = np.unique(table[~np.isnan(table)])
        return float(numbers[0]) if len(numbers) == 1 else None

    def _contract(self, value: str, weight: np.ndarray) -> None:
        """Add a linear map of a value to the answer."""
        self._linear[value] = self._linear.get(value, 0.0) + weight

    def _add_linear(self) -> None:
        """Add one map of all values of which the answer is a linear combination."""
        if not self._linear and self._parts and (not self._intercept.any() or self._add_to_trees()):
            return
        if not self._linear:
            self._contract(INPUT, np.zeros((self._plan.n_features, self._width)))
        names = tuple(self._linear)
        together = names[0] if len(names) == 1 else self._add(Concatenate(), *names)
        self._add_part(Affine(np.concatenate([self._linear[name] for name in names]), self._intercept), together)

    def _add_to_trees(self) -> bool:
        """Add the intercept, which is one of bases alone, to the base of trees; return whether there are some."""
        for place, step in enumerate(self._steps):
            if isinstance(step.operation, BackgroundContributions | TreeContributions):
                base = step.operation.base + self._intercept.reshape(self.targets, -1)[:, -1]
                self._steps[place] = dataclasses.replace(step, operation=dataclasses.replace(step.operation, base=base))
                return True
        return False

    def _check_background(self, kinds: Collection[str] = ()) -> None:
        """Raise `ExportError` in the game that is not defined here, for operations of these kinds."""
        if self._whose == PATH:
            trees = next((f"trees {which}" for kind, which in PATH_TREES.items() if kind in kinds), "trees")
            raise ExportError(f"the game '{PATH}' is defined for {trees} alone; '{BACKGROUND}' is for every model")

    def _pass_on(self, value: str, weight: np.ndarray) -> None:
        """Add weights of a value's columns."""
        self._weights[value] = self._weights.get(value, 0.0) + weight

    def _back(self, step: Step, weight: np.ndarray) -> None:
        """Pass weights of a step's value on to its inputs, or add the term."""
        operation, (first, *_) = step.operation, step.inputs
        match operation:
            case Affine(function="identity") | OrderedAffine(function="identity"):
                self._pass_on(first, operation.weight.astype(np.float64) @ weight)
                self._constant += operation.intercept.astype(np.float64) @ weight
            case Columns():
                self._pass_on(first, _scattered(weight, operation.indices, self._widths[first]))
            case Slice():
                places = np.arange(operation.start, operation.start + operation.columns)
                self._pass_on(first, _scattered(weight, places, self._widths[first]))
            case Concatenate():
                widths = [self._widths[name] for name in step.inputs]
                places = np.arange(sum(widths)) if operation.columns is None else operation.columns
                parts = np.split(_scattered(weight, places, sum(widths)), np.cumsum(widths)[:-1])
                for name, part in zip(step.inputs, parts, strict=True):
                    self._pass_on(name, part)
            case Scale():
                self._pass_on(first, operation.factor[:, None] * weight)
                self._constant -= (operation.shift * operation.factor) @ weight
            case Float32():
                self._rounded[first] = self._rounded.get(first, 0.0) + np.abs(weight)
                self._pass_on(first, weight)
            case Elementwise(function="identity", low=None, high=None):
                self._pass_on(first, weight)
            case Combine(operation="sum", exponent=1.0):
                _, *terms = operation.terms()
                for name, factor, offset in zip(step.inputs, terms[::2], terms[1::2], strict=False):
                    own = weight if self._widths[name] == len(weight) else weight.sum(axis=0, keepdims=True)
                    self._pass_on(name, factor * own)
                    self._constant += offset * weight.sum(axis=0)
            case Lookup(summed=True, function="identity"):
                self._add_lookups(step, weight)
            case Polynomial():
                self._add_products(step, weight)
            case SymmetricTrees(function="identity") | TreeEnsemble(function="identity"):
                self._add_trees(step, weight)
            case Pairwise():
                self._add_points(step, weight)
            case _:
                self._rest[step.output] = weight

    def _add_lookups(self, step: Step, weight: np.ndarray) -> None:
        """Add a sum of lookups, if each is a number of one column."""
        operation, (value,) = step.operation, step.inputs
        assert isinstance(operation, Lookup)
        players = self._players[value][operation.columns]
        if (players == SEVERAL).any():
            self._rest[step.output] = weight
            return
        for target in range(self.targets):
            table = operation.table @ weight[:, [target]]
            name = self._add(Lookup(operation.columns, operation.starts, operation.keys, table), value)
            own = np.zeros((len(players), self.targets))
            own[:, target] = 1.0
            self._add_alone(name, own, players)

    def _add_trees(self, step: Step, weight: np.ndarray) -> None:
        """Add trees, unless they read columns that have several players each."""
        operation, (value,) = step.operation, step.inputs
        assert isinstance(operation, SymmetricTrees | TreeEnsemble)
        players = self._players[value]
        if (players[operation.feature[operation.feature >= 0]] == SEVERAL).any():
            self._rest[step.output] = weight
            return
        values, constant = leaf_values(operation, weight)
        game = {"cover": self._covers(step)} if self._whose == PATH else {"background": self._values[value]}
        try:
            found = tree_contributions(operation, values, np.maximum(players, NOBODY), self._columns, **game)
        except ExportError:  # leaves of too many columns
            if self._whose == PATH:
                raise
            self._rest[step.output] = weight
        else:
            self._constant += constant
            for part in found:
                self._add_part(part, value)

    def _add_points(self, step: Step, weight: np.ndarray) -> None:
        """Add functions of stored points, if they are products over columns that have one player each."""
        self._check_background()
        operation, (value,) = step.operation, step.inputs
        assert isinstance(operation, Pairwise)
        players, found = self._players[value], None
        if (players != SEVERAL).all():
            found = point_contributions(operation, weight, players, self._columns, self._values[value])
        if found is None:
            self._rest[step.output] = weight
        else:
            self._add_part(found, value)

    def _add_rest(self) -> None:
        """Add the terms that have no other form, by all coalitions or by those of some orders."""
        names = tuple(self._rest)
        kinds = sorted({maker.operation.kind() for maker in map(self._maker, names) if maker})
        self._check_background(kinds)
        steps = [*self.margin.steps, Step(Concatenate(), names, "side by side")]
        contraction = Affine(np.concatenate([self._rest[name] for name in names]), np.zeros(self.targets))
        steps.append(Step(contraction, ("side by side",), MARGIN))
        whole = Plan(self._plan.n_features, tuple(steps), {MARGIN: MARGIN}, self._plan.dtype)
        rest = fuse(whole.with_steps(whole.steps_for([MARGIN])))
        of_input = self._players[INPUT]
        active = sorted(set(of_input.tolist()) - {NOBODY})
        if SEVERAL in active:
            raise ExportError("a number that own code makes of several columns of strings belongs to no column")
        self.players, self.permutations = len(active), number_of_orders(len(active), self._asked)
        if self.permutations:
            taken, *joined = joins(draw_orders(len(active), self.permutations))
        else:
            taken = (np.arange(2 ** len(active))[:, None] >> np.arange(len(active))) & 1  # [coalitions, players]
        background = self._values[INPUT].astype(self._plan.dtype)
        if (cost := len(taken) * len(background)) > BATCH_EVALUATIONS:
            raise ExportError(
                f"{', '.join(kinds)} has no closed form, and to explain a row by {len(taken):,} coalitions × "
                f"{len(background):,} background rows takes {cost:,} answers of the model; at most "
                f"{BATCH_EVALUATIONS:,} are computed, so give fewer background rows or permutations"
            )
        of_columns = np.zeros((len(taken), self._plan.n_features), dtype=np.uint8)
        for place, player in enumerate(active):
            of_columns[:, of_input == player] = taken[:, [place]]
        value = self._add(Coalitions.of_plan(rest, background, of_columns), INPUT)
        if self.permutations:
            self._add_orders(value, active, *joined)
            return
        weight = np.zeros((len(taken), self.targets, self.targets, self._columns + 1))
        for target in range(self.targets):
            weight[0, target, target, -1] = 1.0
            weight[:, target, target, active] = definition_weights(taken)
        self._contract(value, weight.reshape(-1, self._width))

    def _add_orders(self, worths: str, active: list[int], before: np.ndarray, after: np.ndarray) -> None:
        """Add the means of what the active players add in each order, `[orders, players]`, and their errors.

        The base is a player that joins nothing, −1, and makes the coalition of nobody of it, which is number 0. Players
        that are not active change nothing.
        """
        found = []
        for numbers, base in ((before, -1), (after, 0)):
            whole = np.zeros((len(numbers), self._columns + 1), dtype=np.int32)
            whole[:, active], whole[:, -1] = numbers, base
            found.append(whole.reshape(-1, 2, self._columns + 1))
        both = self._add(Orders(found[0], found[1], self.targets), worths)
        self._add_part(Slice(0, self._width), both)
        self._errors[ERROR] = self._add(Slice(self._width, self._width), both)

    def _maker(self, value: str) -> Step | None:
        """Return the step that makes a value of the margin's plan or of the contributions, or None for the input."""
        return next((step for step in (*self.margin.steps, *self._steps) if step.output == value), None)

    def _add_products(self, step: Step, weight: np.ndarray) -> None:
        """Add monomials of several columns, if each factor has one player."""
        self._check_background()
        operation, (value,) = step.operation, step.inputs
        assert isinstance(operation, Polynomial)
        used = operation.indices[weight.any(axis=1)]
        if (self._players[value][used[used < self._widths[value]]] == SEVERAL).any():
            self._rest[step.output] = weight
            return
        products, weights, intercept = product_contributions(
            operation, weight, self._players[value], self._columns, self._values[value]
        )
        self._intercept += intercept
        if products.indices.shape[1] > 2:
            self._contract(self._add(products, value), weights)
            return
        factors = factored(products, weights, self._players[value], self._columns)
        scaled = self._add(Scale(products.shift, products.factor), value)
        if len(factors.own):
            inner = self._add(Affine(factors.inner, np.zeros(len(factors.own))), scaled)
            outer = self._add(Columns(factors.own), scaled)
            self._contract(self._add(Combine("product"), inner, outer), factors.outer)
        self._contract(scaled, factors.linear)


def _scattered(weight: np.ndarray, places: np.ndarray, width: int) -> np.ndarray:
    """Return weights of chosen columns as weights of all `width` columns."""
    whole = np.zeros((width, weight.shape[1]))
    np.add.at(whole, places, weight)
    return whole


def add_contributions(plan: Plan, contributions: Plan) -> Plan:
    """Return a plan with the outputs of another beside its own, whose steps stay as they are."""

    def renamed(name: str) -> str:
        return name if name == INPUT else f"{OUTPUT}: {name}"

    steps = [
        Step(step.operation, tuple(map(renamed, step.inputs)), renamed(step.output)) for step in contributions.steps
    ]
    more = {name: renamed(value) for name, value in contributions.outputs.items()}
    outputs: Mapping[str, str] = {**plan.outputs, **more}
    return Plan(plan.n_features, (*plan.steps, *steps), outputs, plan.dtype)
