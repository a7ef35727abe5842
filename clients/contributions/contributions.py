"""`Contributions`: what each column of a table adds to the answers, as `Client.explain` returns it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from triton_regressors.clients.contributions.page import fragment
from triton_regressors.clients.contributions.target import Target, cell_numbers, plain, shown_cell
from triton_regressors.clients.contributions.text import mean_lines, row_lines
from triton_regressors.clients.errors import ServerFault
from triton_regressors.contribution_game import ERROR, OUTPUT, Game
from triton_regressors.errors import MissingExtra

_DISPLAYED = np.frompyfunc(lambda cell: cell if isinstance(cell, Real) else shown_cell(cell), 1, 1)


@dataclass(frozen=True, eq=False, repr=False)
class Contributions:
    """The contributions of a table's columns to the answers of a model.

        found = client.explain("houses", table)
        found.values                      # [rows, columns]
        shap.plots.waterfall(found[0])    # for whoever has shap
        shap.plots.beeswarm(found)

    The base and a row's values add up to its answer, or to what stands before `links`: y = exp(sum) with ("exp",).

    **shap.** Where shap is imported, this is a `shap.Explanation` to `isinstance`, which shap's plots ask, and has its
    methods; indices are shap's, as in `found[0]` and `found[:, "age"]`. `shap()` returns shap's own object.

    model, version: who answered. values: float32 `[rows, columns]`, or `[rows, columns, targets]` with several targets.
    base_values: float32 `[rows]` or `[rows, targets]`, the mean answer of the game. predictions: y of the same request,
    in the same shape. data: the cells of the rows, an object array `[rows, columns]`. rows: their places in the table
    that was asked for. told: the game, and the names of the columns. errors: the standard errors of estimated values,
    in their shape; None: the values are exact.
    """

    model: str
    version: str
    values: np.ndarray
    base_values: np.ndarray
    predictions: np.ndarray
    data: np.ndarray
    rows: np.ndarray
    told: Game
    errors: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        model: str,
        version: str,
        told: Game,
        answers: Mapping[str, np.ndarray],
        y: np.ndarray,
        data: np.ndarray,
        rows: np.ndarray,
    ) -> Contributions:
        """Return the contributions in the outputs `told.outputs` and `y`, each `[rows, width]`.

        Raises:
            ServerFault: the width of an output is not that of the columns and the base.
        """
        each, targets = len(told.columns) + 1, y.shape[1]

        def parts(output: str) -> tuple[np.ndarray, np.ndarray]:
            """Return the numbers of the columns and of the base; without the axis of targets if there is one."""
            found = answers[output]
            if found.shape[1] != targets * each:
                raise ServerFault(
                    f"Model '{model}' answered output '{output}' with {found.shape[1]} numbers a row; "
                    f"{len(told.columns)} columns and the base, for {targets} targets, are {targets * each}."
                )
            whole = found.reshape(len(found), targets, each).transpose(0, 2, 1)  # [rows, columns + 1, targets]
            whole = whole[:, :, 0] if targets == 1 else whole
            return np.ascontiguousarray(whole[:, :-1]), np.ascontiguousarray(whole[:, -1])

        values, base = parts(OUTPUT)
        errors = parts(ERROR)[0] if told.permutations else None
        return cls(model, version, values, base, y[:, 0] if targets == 1 else y, data, rows, told, errors)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the table's columns, in the order of training; "column 3" without names."""
        return self.told.columns

    @property
    def links(self) -> tuple[str, ...]:
        """The functions that make y of the sum, the first one first, such as ("exp",); () if the sum is y."""
        return self.told.links

    @property
    def game(self) -> str:
        """The game: "background" or "path"."""
        return self.told.game

    @property
    def meaning(self) -> str:
        """What the numbers are, in a sentence."""
        return self.told.meaning

    def targets(self) -> list[Target]:
        """Return the contributions to each target alone."""
        several, names = self.values.ndim == 3, tuple(map(plain, self.columns))
        places: list[Any] = [(..., target) for target in range(self.values.shape[2])] if several else [...]
        return [
            Target(
                f"y_{number}" if several else "y",
                names,
                self.values[place],
                self.base_values[place],
                self.predictions[place],
                self.data,
                self.rows,
                self.links,
                None if self.errors is None else self.errors[place],
            )
            for number, place in enumerate(places)
        ]

    def shap(self) -> Any:
        """Return shap's own `Explanation` of these numbers, in float64.

        Its `data` are numbers, which shap's colours need: strings and dates are numbered in their order, and a missing
        one is NaN. `display_data` are the numbers as they are, and other cells as text. `error_std` are the standard
        errors of estimated values.

        Raises:
            MissingExtra: shap is not installed.
        """
        try:
            import shap
        except ImportError as error:
            raise MissingExtra(
                f"{type(self).__name__}.shap needs shap; `pip install shap` brings it ({error})."
            ) from None
        outputs = None if self.values.ndim == 2 else [f"y_{target}" for target in range(self.values.shape[2])]
        return shap.Explanation(
            self.values.astype(np.float64),
            base_values=self.base_values.astype(np.float64),
            data=cell_numbers(self.data),
            display_data=_DISPLAYED(self.data),
            feature_names=list(self.columns),
            output_names=outputs,
            error_std=None if self.errors is None else self.errors.astype(np.float64),
        )

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class that `isinstance` asks for besides the type: shap's plots take only their own, by this question."""
        shap = sys.modules.get("shap")
        return type(self) if shap is None else getattr(shap, "Explanation", type(self))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or sys.modules.get("shap") is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.shap(), name)

    def __getitem__(self, place: Any) -> Any:
        return self.shap()[place]

    def __len__(self) -> int:
        return len(self.values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(vars(self)[name] for name in self.__dataclass_fields__)  # `pickle` distrusts __class__

    def __repr__(self) -> str:
        shape = " × ".join(f"{size:,}" for size in self.values.shape)
        return f"<{type(self).__name__} of '{self.model}' version {self.version}: {shape}, {self.game}>"

    def __str__(self) -> str:
        targets = self.targets()
        lines = [line for target in targets for line in row_lines(target, 0)] if len(self) else []
        lines += [line for target in targets for line in mean_lines(target)] if len(self) > 1 else []
        return "\n".join([repr(self), *lines, self.meaning])

    def _repr_html_(self) -> str:
        """Return the waterfall of the first row, and the means over many, for a notebook."""
        return fragment(repr(self), self.meaning, self.targets())
