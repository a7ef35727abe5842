"""The player of each column of each value of a plan: the one column of the user's table that it depends on.

Players of a cooperative game are the columns of the table. A one-hot column, a spline's basis function and an imputed
number all belong to the column that they are made of; a principal component belongs to none.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.expression import Expression
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.power import Power
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.columns.slice import Slice
from triton_regressors.kernels.ops.columns.wrap import Wrap
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.ordered_affine import OrderedAffine
from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.ops.linear.polynomial import Polynomial
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan

Players = npt.NDArray[np.int64]

NOBODY, SEVERAL = -1, -2
"""The player of a column that is the same for every row, and of one that depends on several columns of the table."""


def players_of_inputs(inputs: Inputs) -> Players:
    """Return the player of each column of the plan's matrix, int64 `[n_features]`; nobody's are not inputs."""
    players = np.full(inputs.n_features, NOBODY)
    for columns in inputs.columns().values():
        players[list(columns)] = columns
    for column in range(inputs.n_given, inputs.n_features):
        assert inputs.made is not None
        sources = set(inputs.made.sources(inputs.made.columns[column - inputs.n_given]))
        players[column] = sources.pop() if len(sources) == 1 else SEVERAL
    return players


def players_of_values(plan: Plan, of_input: Players) -> dict[str, Players]:
    """Return the players of the columns of each value, int64 `[width]`."""
    found = {INPUT: of_input}
    for step in plan.steps:
        given = [found[name] for name in step.inputs]
        found[step.output] = _players(step.operation, given, plan.widths()[step.output])
    return found


def together(*players: Players) -> Players:
    """Return, element by element, the player on which numbers of all these players depend together."""
    return functools.reduce(_pair, players)


def _pair(a: Players, b: Players) -> Players:
    return np.where(a == NOBODY, b, np.where((b == NOBODY) | (a == b), a, SEVERAL))


def _all(players: Players) -> int:
    """Return the player of a number made of all these columns."""
    distinct = set(players.tolist()) - {NOBODY}
    return NOBODY if not distinct else distinct.pop() if len(distinct) == 1 else SEVERAL


def _of_nonzero(weight: np.ndarray, players: Players) -> Players:
    """Return the player of each column of a matrix with this weight, `[features, targets]`."""
    return np.array([_all(players[used]) for used in (weight != 0).T], dtype=np.int64)


def _players(operation: Operation, given: Sequence[Players], width: int) -> Players:
    """Return the players of an operation's output of this width, by those of its inputs."""
    first, found = given[0], np.full(width, _all(np.concatenate(given)))
    match operation:
        case Columns():
            found = first[operation.indices]
        case Slice():
            found = first[operation.start : operation.start + operation.columns]
        case Concatenate():
            found = np.concatenate(given)
            found = found if operation.columns is None else found[operation.columns]
        case Elementwise() | Float32() | Power() | Scale() | Wrap():
            found = first
        case Impute():
            found = first[np.concatenate([operation.columns, operation.indicators])]
        case Lookup(summed=False):
            found = first[operation.columns]
        case Piecewise():
            found = first[operation.source]
        case Affine() | OrderedAffine():
            found = _of_nonzero(operation.weight, first)
        case Combine():
            found = together(*(np.broadcast_to(each, width) for each in given))
        case Polynomial():
            found = np.array(list(map(_all, np.append(first, NOBODY)[operation.indices])), dtype=np.int64)
        case Expression():
            found = _of_expression(operation, first)
    return found


def _of_expression(operation: Expression, given: Players) -> Players:
    """Return the player of each lane: it reads columns of its own."""
    found = []
    for group in operation.groups:
        end = group.first_column + group.lanes * group.inputs
        read = given[operation.columns[group.first_column : end]].reshape(group.lanes, group.inputs)
        found.append(np.array([_all(each) for each in read], dtype=np.int64))
    return np.concatenate(found)
