"""What an entry's output `contributions` means: the game, and the columns of the user's table that play it.

The configuration on the server says it too, as the JSON of its parameter `PARAMETER`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triton_regressors.kernels.entry import Document

OUTPUT = "contributions"
"""Name of the output, FP32 `[rows, targets · (columns + 1)]`: target after target, and of each target the base last."""
ERROR = "contributions_error"
"""Name of the output with the standard errors, in the places of `OUTPUT`, of an entry that estimates contributions."""
OUTPUTS = (OUTPUT, ERROR)
BASE = "base"
_FIELDS = {OUTPUT: "contribution", ERROR: "contribution_error"}
PARAMETER = "contributions"
"""Parameter of the configuration of a model with this output: the JSON of a `Game`."""
PATH, BACKGROUND = "path", "background"
"""The games: of a tree's paths by the cover of its branches, and against background rows."""


@dataclass(frozen=True)
class Game:
    """The game that the contributions of an entry are the Shapley values of.

    game: `PATH` or `BACKGROUND`. rows: the number of background rows, 0 for `PATH`. links: the functions that make the
    answer of the sum, the first one first, such as ("exp",). columns: the labels of the columns of the table, in the
    order of training, which is that of the contributions. places: the places among them of each input's columns.
    permutations: the number of orders of the columns from which contributions are estimated, with the output `ERROR`; 0
    for exact ones.
    """

    game: str
    rows: int
    links: tuple[str, ...]
    columns: tuple[str, ...]
    places: Mapping[str, tuple[int, ...]]
    permutations: int = 0

    @classmethod
    def of(cls, document: Document) -> Game | None:
        """Return the game of an entry, or None if it has no contributions."""
        report, inputs = document.contributions, document.inputs
        if report is None:
            return None
        names = document.provenance.feature_names or [f"column {place}" for place in range(inputs.n_given)]
        columns = tuple(names[: inputs.n_given])
        return cls(report.game, report.rows, report.links, columns, inputs.columns(), report.permutations)

    @classmethod
    def read(cls, text: str) -> Game:
        """Return the game that a parameter holds; raise ValueError if it holds none."""
        try:
            told = json.loads(text)
            places = {str(name): tuple(map(int, found)) for name, found in told["places"].items()}
            links, columns = (tuple(map(str, told[name])) for name in ("links", "columns"))
            orders = int(told.get("permutations", 0))
            return cls(str(told["game"]), int(told["rows"]), links, columns, places, orders)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError(f"{text!r} describes no contributions") from None

    def parameter(self) -> str:
        """Return the parameter of a configuration that `read` reads."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs of the entry that belong to the contributions."""
        return OUTPUTS if self.permutations else OUTPUTS[:1]

    @property
    def meaning(self) -> str:
        """The meaning of the contributions, in a sentence."""
        return meaning(self.game, self.rows, self.links, self.permutations)


def meaning(game: str, rows: int, links: tuple[str, ...], permutations: int = 0) -> str:
    """Return the meaning of the contributions of a game, in a sentence: which game, against what, and their sum."""
    against, mean = {
        PATH: (
            "in the path game, where the branches of a tree weigh as much as the training rows that took them",
            ", which is the mean by these weights,",
        ),
        BACKGROUND: (
            f"against {rows:,} background row{'s' * (rows != 1)}",
            ", which is the mean over these rows," if rows != 1 else ", which is that row's,",
        ),
    }.get(game, (f"in the game {game!r}", ""))
    whole = f"what stands before {links[0]}, and y = {called('the sum', links)}" if links else "the answer"
    if permutations:
        against += f", estimated from {permutations:,} orders of the columns with the standard errors in '{ERROR}'"
    return f"Shapley values of the columns of the table {against}; with the base{mean} they add up to {whole}."


def lacking(model: str) -> str:
    """Return what to do about a model without contributions, in a sentence."""
    return (
        f"Model '{model}' has no output '{OUTPUT}': export it with contributions=\"{BACKGROUND}\" and background=rows, "
        f'or for trees also contributions="{PATH}" (`export --contributions`).'
    )


def called(inner: str, links: tuple[str, ...]) -> str:
    """Return what makes the answer of a sum, as "exp(the sum)", or "own function of the sum"."""
    for link in links:
        inner = f"{link}({inner})" if link.isidentifier() else f"{link} of {inner}"
    return inner


def field_names(output: str, columns: tuple[str, ...], targets: int) -> list[str]:
    """Return the name in a table of each number of an output: "contribution_age", or with targets "..._age_0"."""
    names = [f"{_FIELDS[output]}_{name}" for name in (*columns, BASE)]
    return names if targets == 1 else [f"{name}_{target}" for target in range(targets) for name in names]
