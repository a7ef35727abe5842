"""The profile of the rows that a model was exported with, which served rows are compared with.

On disk it is a safetensors file of the version, which exists if the export was given rows. For each column of the
plan's matrix it holds the share of NaN and the deciles of the other numbers, from the smallest to the largest. For
columns of numbers that are categories it holds the categories. For each output's first column it holds the deciles, and
bins with the share of the answers in each.

A decile is a number of the rows: the smallest that at least a tenth, two tenths, ... of them do not exceed (Hyndman and
Fan, "Sample Quantiles in Statistical Packages" (1996), definition 1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save

from .errors import PlanError
from .inputs import UNKNOWN

PROFILE = "profile.safetensors"
DECILES = np.linspace(0, 1, 11)


@dataclass(frozen=True)
class AnswerProfile:
    """The profile of an output's first column.

    `deciles` are float64 `[11]`. Bin b has the answers above `edges[b − 1]` and up to `edges[b]`. The edges ascend; bin
    0 lies below the first edge, and the last bin above the last edge. `shares`, `[bins]`, add up to 1, and none is 0.
    There are ten bins, or fewer if deciles are equal. `rows` is the number of finite answers behind the profile; in
    profiles that do not hold it, it is the number of all rows.
    """

    deciles: np.ndarray
    edges: np.ndarray
    shares: np.ndarray
    rows: int

    @staticmethod
    def of(answers: np.ndarray) -> AnswerProfile | None:
        """Return the profile of answers `[rows]`, or None if none of them is finite.

        An edge lies halfway between an answer and the next larger one. The last digits of an answer, which differ
        between processors, therefore do not move it into another bin.
        """
        known = np.sort(answers[np.isfinite(answers)].astype(np.float64))
        if not len(known):
            return None
        deciles = np.quantile(known, DECILES, method="inverted_cdf")
        distinct = np.unique(known)
        at = np.searchsorted(distinct, np.unique(deciles[1:-1]))
        at = at[at < len(distinct) - 1]
        edges = (distinct[at] + distinct[at + 1]) / 2
        counts = np.bincount(np.searchsorted(edges, known), minlength=len(edges) + 1)
        return AnswerProfile(deciles, edges, counts / len(known), len(known))


@dataclass(frozen=True)
class RowProfile:
    """The profile of rows of a plan's matrix and of the answers to them.

    `deciles` are `[11, n_features]`, NaN for a column of categories or without a number, and `nan_share` is
    `[n_features]`; both are float64. `known` holds the ascending categories that the model knows, for columns of
    numbers that are categories. `answers` holds the profiles of outputs that have finite answers.
    """

    rows: int
    deciles: np.ndarray
    nan_share: np.ndarray
    known: Mapping[int, np.ndarray]
    answers: Mapping[str, AnswerProfile]

    @staticmethod
    def of(
        X: np.ndarray,
        answers: Mapping[str, np.ndarray],
        known: Mapping[int, np.ndarray],
        coded: Collection[int] = (),
    ) -> RowProfile:
        """Return the profile of rows `[rows, n_features]`, one at least, and answers `[*, width]` of each output.

        The columns `coded` hold the places of categories, which are not quantities.
        """
        deciles = np.full((len(DECILES), X.shape[1]), np.nan)
        for column, numbers in enumerate(X.T):  # one at a time: all rows may be a large table
            present = numbers[~np.isnan(numbers)]
            if len(present) and column not in known and column not in coded:
                deciles[:, column] = np.quantile(present, DECILES, method="inverted_cdf")
        found = {name: AnswerProfile.of(values[:, 0]) for name, values in answers.items()}
        return RowProfile(
            len(X),
            deciles,
            np.isnan(X).mean(axis=0),
            {column: np.unique(numbers[~np.isnan(numbers)]) for column, numbers in known.items()},
            {name: profile for name, profile in found.items() if profile is not None},
        )

    @property
    def low(self) -> np.ndarray:
        """The smallest number of each column, `[n_features]`; NaN if there was none."""
        found: np.ndarray = self.deciles[0]
        return found

    @property
    def high(self) -> np.ndarray:
        """The largest number of each column."""
        found: np.ndarray = self.deciles[-1]
        return found

    @property
    def expected_outside(self) -> float:
        """The largest expected share of rows like these that lie outside the range of a column of numbers.

        If m numbers and a new one are exchangeable, each of the m + 1 is the smallest with the same probability, and
        likewise the largest. The new number lies outside with probability 2 / (m + 1), or less if numbers are equal.
        With a share p of missing values the probability is p' · 2 / (p' · m + 1) with p' = 1 − p, which is less.
        """
        return 2 / (self.rows + 1)

    def outside(self, X: np.ndarray, coded: Sequence[int] = ()) -> np.ndarray:
        """Return in float64 `[rows, 1]` the number of columns in which each row of the matrix is unlike the profile.

        A column is unlike the profile if it has a number outside the range, an unknown category, or NaN although the
        profile has none. The columns `coded` hold the places of categories.
        """
        missing = np.isnan(X)
        found = (self.low > X) | (self.high < X) | (missing & (self.nan_share == 0))
        found[:, list(coded)] |= X[:, list(coded)] == UNKNOWN
        for column, known in self.known.items():
            found[:, column] |= ~np.isin(X[:, column], known) & ~missing[:, column]
        counts: np.ndarray = found.sum(axis=1, keepdims=True).astype(np.float64)
        return counts

    def write(self, version: Path) -> None:
        """Write the profile into a version's directory."""
        arrays = {"rows": np.array([self.rows]), "deciles": self.deciles, "nan_share": self.nan_share}
        arrays |= {f"known.{column}": numbers for column, numbers in self.known.items()}
        for name, answer in self.answers.items():
            arrays |= {f"answers.{name}.{field}": np.asarray(value) for field, value in vars(answer).items()}
        (version / PROFILE).write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def read_profile(version: Path) -> RowProfile | None:
    """Return a version's profile, or None if it has none; raise `PlanError` if no export wrote it."""
    path = version / PROFILE
    if not path.is_file():
        return None
    try:
        arrays = load_file(path)
        columns = {name: name.split(".", 1)[1] for name in arrays if name.startswith("known.")}
        outputs = [name.removeprefix("answers.").removesuffix(".edges") for name in arrays if name.endswith(".edges")]
        return RowProfile(
            int(arrays["rows"][0]),
            arrays["deciles"],
            arrays["nan_share"],
            {int(column): arrays[name] for name, column in columns.items()},
            {
                output: AnswerProfile(
                    arrays[f"answers.{output}.deciles"],
                    arrays[f"answers.{output}.edges"],
                    arrays[f"answers.{output}.shares"],
                    int(arrays.get(f"answers.{output}.rows", arrays["rows"])[0]),
                )
                for output in outputs
            },
        )
    except Exception as error:  # of safetensors' own type, or a key or number that is not there
        raise PlanError(f"Cannot read the profile {path}: {error}.") from error
