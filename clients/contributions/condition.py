"""The condition on a row's outputs under which its contributions are asked for: `y > 400`."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from triton_regressors.clients.errors import InvalidRequest

OPERATORS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt}
_FORM = re.compile(rf"\s*([^\s<>=]+)\s*({'|'.join(OPERATORS)})\s*(\S+)\s*")


@dataclass(frozen=True)
class Condition:
    """A comparison of an output with a number; `column` is the place of a target, None for an output of one."""

    output: str
    column: int | None
    compared: str
    number: float

    @property
    def text(self) -> str:
        """The condition as a text that `parse` reads."""
        name = self.output if self.column is None else f"{self.output}_{self.column}"
        return f"{name} {self.compared} {self.number!r}"

    @classmethod
    def parse(cls, text: str, widths: Mapping[str, int]) -> Condition:
        """Return the condition that a text states: OUTPUT OP NUMBER, where a target of several is y_0, y_1, ....

        Args:
            text: as in "y > 400".
            widths: each output of the model and its number of columns.

        Raises:
            InvalidRequest: it is no such condition, or the model has no such output.
        """
        found = _FORM.fullmatch(text)
        try:
            if found is None:
                raise ValueError
            name, compared, number = found[1], found[2], float(found[3])
        except ValueError:
            raise InvalidRequest(
                f"{text!r} is no condition; it must be OUTPUT OP NUMBER, as in 'y > 400', with one of "
                f"{', '.join(OPERATORS)}."
            ) from None
        columns: dict[str, tuple[str, int | None]] = {}
        for output, width in widths.items():
            if width == 1:
                columns[output] = output, None
            else:
                columns |= {f"{output}_{column}": (output, column) for column in range(width)}
        if name not in columns:
            raise InvalidRequest(
                f"{text!r} compares {name!r}; the conditions of this model are on {', '.join(columns)}."
            )
        return cls(*columns[name], compared, number)

    def holds(self, answers: np.ndarray) -> np.ndarray:
        """Return a mask of the rows of the output `[rows, width]` for which the condition holds; NaN fulfils none."""
        return np.asarray(OPERATORS[self.compared](answers[:, self.column or 0].astype(np.float64), self.number))
