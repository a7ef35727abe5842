"""Counts wrong decisions and wrong bits of XGBoost's, LightGBM's and CatBoost's regressors on adversarial rows.

    python -m docs.boosters                     every estimator of these libraries in the test catalogue, a line each
    python -m docs.boosters --only 'xgboost-*'  only these cases
    python -m docs.boosters --pairs 10000       fewer pairs of a row and a tree than a million

The rows lie at the thresholds and categories of each model, see `tests/exporter/adversarial.py`. A decision is wrong if
a row reaches another leaf of a tree than the library says. The plan numbers leaves differently, so each of its leaves
is matched with the library's leaf that most of its rows have. XGBoost names no leaves of rows with infinity; their
answers are compared. Margins, which are sums of leaves before any function, are compared in bits: with XGBoost's own,
and with the float32 nearest to the float64 of the other libraries. LightGBM compares in float64: its estimators also
get rows in float64, beside its thresholds by units of float64. Exits with 1 if a decision or a bit of XGBoost's is
wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import importlib
import math
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from tests.exporter.adversarial import adversarial_rows, edges_of, in_float64
from tests.exporter.catalogue.cases import CASES, Case
from triton_regressors.exporter.compile import Compilation, compile_estimator
from triton_regressors.exporter.evidence.oracle import Oracle
from triton_regressors.exporter.lowering import tree_nodes
from triton_regressors.exporter.lowering.lower import Lowered, lower
from triton_regressors.exporter.lowering.tree_nodes import Trees, arrange
from triton_regressors.exporter.passes.specialise import specialise
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.parity import ulps
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.ordered_affine import OrderedAffine
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import Plan

Ensemble = TreeEnsemble | SymmetricTrees

PAIRS = 1_000_000
AT_ONCE = 4096
LIBRARIES = ("xgboost", "lightgbm", "catboost")
DTYPES = {"lightgbm": ("float32", "float64")}
"""The types of the rows for a library that does not round them to float32."""

HEADER = f"{'variant':34}{'trees':>7}{'rows':>9}{'pairs':>11}{'wrong':>7}{'answers':>10}{'other bits':>12}{'ulp':>6}"


@dataclass(frozen=True)
class Found:
    """The counts of one variant; `ulp` is the largest difference of an answer from the library's own."""

    name: str
    trees: int
    rows: int
    pairs: int
    wrong: int
    answers: int
    other_bits: int
    ulp: float

    def __str__(self) -> str:
        counts = f"{self.trees:>7,}{self.rows:>9,}{self.pairs:>11,}{self.wrong:>7,}"
        return f"{self.name:34}{counts}{self.answers:>10,}{self.other_bits:>12,}{self.ulp:>6.1f}"


def variants() -> dict[str, Case]:
    """Return the cases of the catalogue whose estimator is itself one of these libraries' own."""
    return {name: case for name, case in CASES.items() if library_of(case.estimator) in LIBRARIES}


def library_of(estimator: Any) -> str:
    """Return the name of the package of an estimator's class."""
    return type(estimator).__module__.partition(".")[0]


def count(name: str, case: Case, pairs: int, dtype: str = "float32") -> Found:
    """Return the results of `compare` for a case."""
    return compare(name, *case.fitted(), pairs, dtype)


def compare(
    name: str, estimator: Any, like: Any, pairs: int, dtype: str = "float32", engine: str = "auto", seed: int = 0
) -> Found:
    """Compare at least `pairs` pairs of a row and a tree, if there are trees, and the answers to these rows.

    Args:
        name: the estimator's name in the table.
        estimator: the fitted estimator.
        like: rows that it was fitted on.
        pairs: the least number of pairs.
        dtype: the type of the rows, "float32" or "float64".
        engine: the engine that runs the plan.
        seed: the seed of the rows.
    """
    compilation = compile_estimator(estimator, sample=like, **({"input": "fp64"} if dtype == "float64" else {}))
    with _numbered_leaves(library_of(estimator)) as made:
        lowered = lower(estimator, like)
    plan, oracle = compilation.plan, Oracle(estimator, lowered.profile, tuple(lowered.plan.outputs))
    trees = made[0][1].output_width(lowered.plan.n_features) if made else 0  # a number for each
    X = _rows(compilation, lowered, made, _rows_for(pairs, trees), dtype, seed)
    finite = ~np.isinf(X).any(axis=1)
    compared = wrong = 0
    if made:
        asked = X[finite] if library_of(estimator) == "xgboost" else X
        leaves = _predict(_of_leaves(lowered.plan, *made[0], dtype), asked, engine)
        library = _leaves(estimator, oracle.asked(asked))
        compared, wrong = library.size, _conflicts(leaves.astype(np.int64), library)
    if any(isinstance(step.operation, Affine | OrderedAffine) for step in plan.steps):
        X = X[finite]  # no request holds infinity, and what multiplies it by 0 answers with NaN
    expected = _margins(estimator, oracle.asked(X))
    rows = X.astype(plan.dtype)
    answers, own = _predict(plan, rows, engine), oracle.of_matrix(X)["y"]
    found = answers if expected is None else _predict(_without_function(plan), rows, engine)
    margins = own if expected is None else expected.reshape(len(X), -1)
    with np.errstate(over="ignore", invalid="ignore"):
        other = (found != margins.astype(np.float32)) & np.isfinite(margins)
        ulp = np.abs(answers - own) / ulps(own)
    largest = float(np.max(ulp, initial=0.0, where=np.isfinite(ulp)))
    return Found(name, trees, len(X), compared, wrong, answers.size, int(np.count_nonzero(other)), largest)


@contextlib.contextmanager
def _numbered_leaves(library: str) -> Iterator[list[tuple[Ensemble, Ensemble]]]:
    """Yield the ensembles of a library's lowering, each with another one that finds a row's leaves.

    The second one answers for each tree, in the library's order, with the number of the node or leaf in it.
    """
    made: list[tuple[Ensemble, Ensemble]] = []

    def keep(trees: Trees, **options: Any) -> TreeEnsemble:
        place = np.arange(len(trees.left)) - np.repeat(np.cumsum(trees.sizes) - trees.sizes, trees.sizes)
        numbered = dataclasses.replace(trees, value=place[trees.left < 0, None].astype(np.float64))
        compared = {name: options[name] for name in ("exact", "rounding") if name in options}
        ensemble = arrange(trees, **options)
        made.append((ensemble, arrange(numbered, output="each", **compared)))
        return ensemble

    def keep_symmetric(**fields: Any) -> SymmetricTrees:
        trees = SymmetricTrees(**fields)
        made.append((trees, number_leaves(trees)))
        return trees

    module = importlib.import_module(f"triton_regressors.exporter.estimators.{library}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(tree_nodes, "arrange", keep))
        if hasattr(module, "SymmetricTrees"):
            stack.enter_context(mock.patch.object(module, "SymmetricTrees", keep_symmetric))
        yield made


def number_leaves(trees: SymmetricTrees) -> SymmetricTrees:
    """Return the trees with an output for each tree: the number of the leaf that a row reaches."""
    leaves, count = 1 << trees.depth, len(trees.depth)
    tree = np.repeat(np.arange(count), leaves)
    values = np.zeros((len(tree), count))
    values[np.arange(len(tree)), tree] = np.arange(len(tree)) - np.repeat(np.cumsum(leaves) - leaves, leaves)
    return dataclasses.replace(trees, values=values, baseline=np.zeros(count), function="identity")


def _of_leaves(plan: Plan, ensemble: Ensemble, numbered: Ensemble, dtype: str) -> Plan:
    """Return a lowered plan for rows of this dtype up to an ensemble, with another ensemble in its place."""
    place = next(place for place, step in enumerate(plan.steps) if step.operation is ensemble)
    step = plan.steps[place]
    steps = (*plan.steps[:place], dataclasses.replace(step, operation=numbered))
    return specialise(Plan(plan.n_features, steps, {"y": step.output}), dtype)


def _rows_for(pairs: int, trees: int) -> int:
    """Return the number of rows for a number of pairs; a tenth of the rows may hold infinity."""
    return math.ceil(1.15 * pairs / trees) if trees else 10_000


def _rows(
    compilation: Compilation,
    lowered: Lowered,
    made: Sequence[tuple[Ensemble, Any]],
    rows: int,
    dtype: str,
    seed: int,
) -> np.ndarray:
    """Return adversarial rows of the plan's matrix, without values for which a request is refused."""
    profile, like = lowered.profile, compilation.sample.X
    thresholds, codes = edges_of(made[0][0]) if made else ({}, {})
    codes = {**profile.choices, **codes}
    X = adversarial_rows(like, thresholds, codes, rows=rows, seed=seed)
    if dtype == "float64":
        X = in_float64(X, thresholds, seed=seed)
    rng, texts, exact = (
        np.random.default_rng(seed),
        profile.text.columns(),
        profile.categories.keys() | profile.never_floats,
    )
    drawn = X.astype(np.float64)
    profile.text.draw(drawn, rng)
    for feature in sorted(exact & profile.choices.keys()):
        known = profile.choices[feature]
        others = [] if feature in profile.categories else [known.min() - 1, known.max() + 1]
        drawn[:, feature] = rng.choice([*known, *others], rows)
    for feature in sorted({*texts, *exact}):
        missing = rng.random(rows) < (0.05 if feature in compilation.nan_columns else 0.0)
        X[:, feature] = np.where(missing, np.nan, drawn[:, feature])
    return X


def _predict(plan: Plan, X: np.ndarray, engine: str) -> np.ndarray:
    """Return `y` as an engine computes it; "auto" means the kernels, or on a CPU their references."""
    runner = Runner(plan, engine=engine, max_rows=min(AT_ONCE, len(X)))
    parts = [runner.predict(np.ascontiguousarray(X[at : at + AT_ONCE]))["y"] for at in range(0, len(X), AT_ONCE)]
    return np.concatenate(parts)


def _without_function(plan: Plan) -> Plan:
    """Return the plan that ends in sums of trees, or of XGBoost's features, without a function of them."""
    steps = [
        dataclasses.replace(step, operation=dataclasses.replace(step.operation, function="identity"))
        if isinstance(step.operation, TreeEnsemble | SymmetricTrees | OrderedAffine)
        else step
        for step in plan.steps
    ]
    return plan.with_steps(steps)


def _leaves(estimator: Any, table: Any) -> np.ndarray:
    """Return the leaf of each row in each tree, `[rows, trees]`, by the library's number."""
    match library_of(estimator):
        case "xgboost":
            leaves = estimator.apply(table)
        case "lightgbm":
            leaves = estimator.predict(table, pred_leaf=True)
        case _:
            leaves = estimator.calc_leaf_indexes(table)
    return np.asarray(leaves).reshape(len(table), -1).astype(np.int64)


def _margins(estimator: Any, table: Any) -> np.ndarray | None:
    """Return XGBoost's float32 margins; None for others, whose sums are compared after their function."""
    return np.asarray(estimator.predict(table, output_margin=True)) if library_of(estimator) == "xgboost" else None


def _conflicts(ours: np.ndarray, theirs: np.ndarray) -> int:
    """Return how many pairs have another library's leaf than most pairs with the same leaf of the plan."""
    if ours.shape != theirs.shape:
        raise ValueError(f"The plan has leaves of {ours.shape} rows and trees, and the library of {theirs.shape}.")
    wrong = 0
    for plan, library in zip(ours.T, theirs.T, strict=True):
        pair, counts = np.unique(np.stack([plan, library]), axis=1, return_counts=True)
        most = np.zeros(plan.max() + 1, np.int64)
        np.maximum.at(most, pair[0], counts)
        wrong += int(len(plan) - most.sum())
    return wrong


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m docs.boosters", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="*", help="which cases, as a file name pattern")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="how many pairs of a row and a tree of each case")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(HEADER)
    found, start = [], time.monotonic()
    for name, case in variants().items():
        if fnmatch.fnmatch(name, arguments.only):
            for dtype in DTYPES.get(library_of(case.estimator), ("float32",)):
                said = name if dtype == "float32" else f"{name} {dtype}"
                found.append(count(said, case, arguments.pairs, dtype))
                print(found[-1], flush=True)
    wrong, pairs = sum(one.wrong for one in found), sum(one.pairs for one in found)
    bits = sum(one.other_bits for one in found if one.name.startswith("xgboost"))
    seconds = time.monotonic() - start
    print(f"{wrong:,} wrong decisions of {pairs:,}; {bits:,} other bits of XGBoost's sums; {seconds:.0f} s")
    return int(wrong > 0 or bits > 0)


if __name__ == "__main__":
    sys.exit(main())
