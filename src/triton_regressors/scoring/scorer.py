"""An entry as a function of tables, used to score files; `predictor` makes a class of it for Ray's actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.clients.client.parts import Part, renumbered
from triton_regressors.clients.client.tensors import Tensors, row_count, take
from triton_regressors.clients.contributions.condition import Condition
from triton_regressors.clients.errors import InferenceError, InvalidRequest
from triton_regressors.contribution_game import OUTPUT, field_names, lacking
from triton_regressors.scoring.columns import Columns
from triton_regressors.scoring.entry_choice import game_of
from triton_regressors.scoring.errors import ScoringError
from triton_regressors.scoring.loaded_model import Answers, Model
from triton_regressors.tables.columns import check_columns, in_words
from triton_regressors.tables.errors import raised_as
from triton_regressors.tables.frames import is_table

GROUPS = 64
"""The number of requests into which a refused batch is cut, in order to find the refused rows."""


class Scorer(Model):
    """A model that answers a table with kept columns and output columns.

    Args:
        entry: see `load`, as for version, columns and device.
        outputs: names of outputs, which become columns of float32: y, or y_0, y_1, ... for an output of several, and
            contribution_age, ..., contribution_base for `contributions`; if these are estimated, `contributions_error`
            comes with them.
        keep: columns of a table to copy into its answer, before the outputs.
        where: a condition on an output, as in "y > 400", for contributions: only rows for which it holds have them.
        options: version, columns, device. Without names of columns, all that are not kept are taken in their order.

    Raises:
        ScoringError, MissingExtra: see `load`.
        InvalidRequest: there is no such output, or names clash; from a call: see `Model.predict`.
    """

    def __init__(
        self,
        entry: Path | str,
        *,
        outputs: Sequence[str] = ("y",),
        keep: Sequence[str] = (),
        where: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(entry, **options)
        game = game_of(self.entry) if OUTPUT in outputs else None
        if OUTPUT in outputs and game is None:
            raise InvalidRequest(lacking(self.name))
        self.explaining = () if game is None else game.outputs
        self.asked, self.keep = self.check_outputs(tuple(dict.fromkeys([*outputs, *self.explaining]))), tuple(keep)
        self.fields = {name: _fields(name, self.widths[name]) for name in self.asked}
        self.first = self.asked
        self.condition: Condition | None = None
        if game is not None:
            self.fields |= {name: field_names(name, game.columns, self.widths["y"]) for name in self.explaining}
        if where is not None:
            if game is None:
                raise InvalidRequest(f"where is for contributions, and the outputs are {', '.join(self.asked)}.")
            compared = {name: width for name, width in self.widths.items() if name not in self.explaining}
            self.condition = Condition.parse(where, compared)
            others = [name for name in self.asked if name not in self.explaining]
            self.first = tuple(dict.fromkeys([*others, self.condition.output]))
        clash = {field for fields in self.fields.values() for field in fields} & set(self.keep)
        if clash:
            raise InvalidRequest(f"{in_words(sorted(clash)).capitalize()} cannot be kept: an output has this name.")
        if len(self.inputs) > 1 and not all(tensor.columns for tensor in self.inputs):
            width = sum(tensor.width for tensor in self.inputs)
            raise InvalidRequest(f"Model '{self.name}' has no names of its columns; name the {width} that it takes.")

    def __call__(self, table: Any) -> Any:
        """Return the kept columns and the outputs of a table, in its rows' order.

        Args:
            table: a pandas DataFrame, a pyarrow Table, or a mapping of columns to arrays, such as a batch of Ray's.

        Returns:
            The same kind of table; a DataFrame has the index of the given one.
        """
        columns = Columns(table)
        if self.keep:
            with raised_as(InvalidRequest):
                self.check_columns(columns.names)
        made = self.as_columns(self.answers(columns))
        if is_table(table):
            return pd.concat([table[list(self.keep)], pd.DataFrame(made, index=table.index)], axis=1)
        whole = {**{name: table[name] for name in self.keep}, **made}
        if isinstance(table, Mapping):
            return whole
        import pyarrow as pa

        return pa.table(whole)

    def check_columns(self, present: Sequence[Any]) -> None:
        """Raise `TableError` unless a table has all columns of the inputs by name, and those to keep, each once."""
        by_name = all(isinstance(name, str) for name in present)
        features = [name for tensor in self.inputs for name in tensor.columns if by_name]
        check_columns(present, list(dict.fromkeys([*features, *self.keep])))

    def tensors(self, columns: Columns) -> Tensors:
        """Return the tensors of a table; raise `InvalidRequest` if it does not fit."""
        return super().tensors(columns if all(each.columns for each in self.inputs) else columns.without(self.keep))

    def answers(self, columns: Columns, tensors: Tensors | None = None) -> Answers:
        """Return the outputs of a table, by their names; `tensors` are the table's, if already converted."""
        if not len(columns):
            return self.no_answers(0)
        return self._of_table(columns, self.asked) if tensors is None else self._answers(tensors, self.asked)

    def by_row(self, table: Any, tensors: Tensors | None = None) -> tuple[Answers, list[tuple[int, str]]]:
        """Return the outputs of a table, NaN for refused rows, and the refused rows with the reason of each."""
        return self._by_row(Columns(table), 0, tensors)

    def may_lack(self, field: str) -> bool:
        """Return whether rows that are not refused may have no number in a column of the outputs."""
        return self.condition is not None and any(field in self.fields[name] for name in self.explaining)

    def no_answers(self, rows: int) -> Answers:
        """Return NaN for each output."""
        names = dict.fromkeys([*self.asked, *self.first])
        return {name: np.full((rows, self.widths[name]), np.nan, np.float32) for name in names}

    def as_columns(self, answers: Answers) -> dict[str, np.ndarray]:
        """Return the columns of outputs by their names in a table."""
        return {
            field: np.ascontiguousarray(answers[name][:, place])
            for name, fields in self.fields.items()
            for place, field in enumerate(fields)
        }

    def _by_row(
        self, columns: Columns, first: int, tensors: Tensors | None = None
    ) -> tuple[Answers, list[tuple[int, str]]]:
        """Answer a table. If it cannot be converted, cut it until each failing piece is a single row."""
        rows = len(columns)
        try:
            tensors = self.tensors(columns) if tensors is None else tensors
        except InvalidRequest as error:
            if rows == 1:
                return self.no_answers(1), [(first, renumbered(str(error), first))]
            size = -(-rows // GROUPS)
            pieces = [columns.rows(start, min(start + size, rows)) for start in range(0, rows, size)]
            found = [self._by_row(piece, first + number * size) for number, piece in enumerate(pieces)]
            joined = {name: np.concatenate([answers[name] for answers, _ in found]) for name in self.asked}
            return joined, [refused for _, each in found for refused in each]
        answers, wrong = self.no_answers(rows), list[tuple[int, str]]()
        for part in self._parts(tensors):
            self._fill(answers, wrong, tensors, [(part.first, part.stop)])
        answers |= self._explained(answers, tensors)
        return answers, [(first + row, renumbered(reason, first + row)) for row, reason in wrong]

    def _answers(self, tensors: Tensors, outputs: tuple[str, ...]) -> Answers:
        """Return the outputs of tensors; with a condition contributions only for the rows for which it holds."""
        if self.condition is None or not set(self.explaining) & set(outputs):
            return super()._answers(tensors, outputs)
        answers = super()._answers(tensors, self.first)
        return answers | self._explained(answers, tensors)

    def _explained(self, answers: Answers, tensors: Tensors) -> Answers:
        """Return the contributions to answers for which the condition holds, NaN for others; nothing without one."""
        if self.condition is None:
            return {}
        (rows,) = np.nonzero(self.condition.holds(answers[self.condition.output]))
        total, names = row_count(tensors), self.explaining
        found = {name: np.full((total, self.widths[name]), np.nan, np.float32) for name in names}
        if len(rows):
            for name, array in super()._answers(take(tensors, rows), names).items():
                found[name][rows] = array
        return found

    def _fill(
        self, answers: Answers, wrong: list[tuple[int, str]], tensors: Tensors, spans: Sequence[tuple[int, int]]
    ) -> None:
        """Ask for spans of rows in one batch, and again in smaller spans for refused ones."""
        replies = self._model().execute([take(tensors, slice(*span)) for span in spans], self.first)
        total = row_count(tensors)
        for (start, stop), reply in zip(spans, replies, strict=True):
            if not isinstance(reply, InferenceError):
                for name, array in reply.items():
                    answers[name][start:stop] = array
            elif not isinstance(reply, InvalidRequest):
                raise Part(start, stop, total).error(reply)
            elif stop - start == 1:
                wrong.append((start, str(reply)))
            else:
                size = max((stop - start) // GROUPS, 1)
                smaller = [(begin, min(begin + size, stop)) for begin in range(start, stop, size)]
                self._fill(answers, wrong, tensors, smaller)


def predictor(entry: Path | str, **options: Any) -> type[Scorer]:
    """Return a class whose instances, made without arguments, are `Scorer(entry, **options)`.

        dataset.map_batches(predictor("model_repository/demand"), num_gpus=1,
                            compute=ray.data.ActorPoolStrategy(size=2))

    Ray Data makes an instance in each actor, which loads the entry once and keeps it.

    Raises:
        ScoringError, InvalidRequest: as `Scorer` does, in this call and not in the actors.
    """
    version = Scorer(entry, **options).entry.version
    path, options = Path(entry).resolve(), {**options, "version": version}

    class OfEntry(Scorer):
        """A scorer of one entry."""

        def __init__(self, *given: Any) -> None:
            if given:
                raise ScoringError("predictor(...) makes a class for Ray's actors; predict rows with `tr.load(...)`.")
            super().__init__(path, **options)

    OfEntry.__name__ = OfEntry.__qualname__ = f"PredictorOf_{path.name}"
    return OfEntry


def _fields(name: str, width: int) -> list[str]:
    return [name] if width == 1 else [f"{name}_{place}" for place in range(width)]
