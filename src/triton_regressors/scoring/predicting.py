"""`Predictor`: an entry as a function of tables, in this process; `predictor`: the same as a class for Ray's actors."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.clients.configuration import Configuration
from triton_regressors.clients.errors import InferenceError, InvalidRequest
from triton_regressors.clients.parts import Part
from triton_regressors.clients.tensors import Given, InputTensor, Tensors, model_tensors, row_count, take
from triton_regressors.extras import require
from triton_regressors.scoring.ahead import ahead
from triton_regressors.scoring.buffers import Buffers, pinned_by_columns
from triton_regressors.scoring.columns import Columns, check_tensors, rows_together, tensors_of
from triton_regressors.scoring.errors import ScoringError
from triton_regressors.scoring.found import choose_device, choose_entry, digest_of, read_config
from triton_regressors.tables import in_words, is_table

ROW = re.compile(r"(?<=\brow )\d+|(?<=^Row )\d+|(?<=\[)\d+(?=, \d+\])")
"""How a sentence names the first row that is wrong: row 3, Row 3 of column, X[3, 1]."""

GROUPS = 64
"""Into so many requests a refused batch is cut, to find the rows that are refused."""

Answers = dict[str, np.ndarray]


class Predictor:
    """An entry's answers without a server, with the bits and the rules of one.

        houses = Predictor("model_repository/houses", outputs=["y", "std"], keep=["id"])
        answers = houses(table)  # the kind of table that was given: columns id, y and std

    What runs is the entry's own code, as a Triton server would run it: score entries that you trust. The first call
    loads it, checks its files and proves it on its golden rows, which takes seconds; a process loads it once. A
    predictor can be pickled, and then holds where the entry lies and no more: other machines need to find it there. One
    call at a time computes, in one thread on a CPU.

    Args:
        entry: the entry's directory.
        version: which one; None: the one that a server answers with, which config.pbtxt decides, now.
        outputs: names of outputs, which become columns of float32: y, or y_0, y_1, ... where one has several.
        keep: columns of a table that its answer has too, before the outputs.
        columns: names of a table's columns that are the features, those of one input after those of another, in place
            of the names that the entry has. Without either all columns that are not kept are taken in their order.
        device: "auto" is a GPU where there is one that the entry may use; "cpu", "gpu", "gpu:1".

    Raises:
        ScoringError: there is no such entry, version or device, or it does not load.
        InvalidRequest: there is no such output, or names clash; from a call: the table does not fit, or a row holds
            what the model does not take, with the sentence that a request would get.
        MissingExtra: torch and the Triton language, which entries compute with, are not installed.
    """

    def __init__(
        self,
        entry: Path | str,
        *,
        version: int | str | None = None,
        outputs: Sequence[str] = ("y",),
        keep: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        device: str = "auto",
    ) -> None:
        require("serve", "Scoring")
        self.entry = choose_entry(Path(entry), version)
        config = read_config(self.entry.directory)
        self.digest = digest_of(self.entry, config)
        self.outputs, self.keep, self.device = tuple(outputs), tuple(keep), device
        widths = {tensor.name: int(tensor.dims[0]) for tensor in config.output}
        unknown = [name for name in self.outputs if name not in widths]
        if unknown or not self.outputs or isinstance(outputs, str):
            asked = f"no output {unknown[0]!r}" if unknown else "outputs, of which one at least is named"
            raise InvalidRequest(f"Model '{self.name}' has {asked}; it has {', '.join(widths)}.")
        self.fields = {name: _fields(name, widths[name]) for name in self.outputs}
        clash = {field for fields in self.fields.values() for field in fields} & set(self.keep)
        if clash:
            raise InvalidRequest(f"{in_words(sorted(clash)).capitalize()} cannot be kept: an output has this name.")
        known = Configuration.of(config)
        self._known = replace(known, inputs=_with_names(known.inputs, columns, self.name))
        self._lock = threading.RLock()
        self._loaded: Any = None
        self._buffers = Buffers()

    def __repr__(self) -> str:
        return f"<Predictor of {self.name} version {self.entry.version}: {', '.join(self.outputs)}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None, "_loaded": None, "_buffers": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock(), _buffers=Buffers())

    @property
    def name(self) -> str:
        """The entry's name."""
        return self.entry.name

    @property
    def inputs(self) -> tuple[InputTensor, ...]:
        """What the entry takes."""
        return self._known.inputs

    @property
    def where(self) -> str:
        """What computes, in words: "torch on the CPU"; it loads the entry."""
        model = self._model()
        return f"{model.engine} on {model.where}"

    def on_gpu(self) -> bool:
        """Return whether it computes on a GPU of this machine."""
        return choose_device(self.device, read_config(self.entry.directory))[0]

    def __call__(self, table: Any) -> Any:
        """Return the kept columns and the outputs of a table, in its rows' order.

        Args:
            table: a pandas DataFrame, a pyarrow Table, or a mapping of columns to arrays, such as a batch of Ray's.

        Returns:
            The same kind of table; a DataFrame has the index of the one that was given.
        """
        columns = Columns(table)
        answers = self.answers(columns)
        made = self.as_columns(answers)
        if is_table(table):
            return pd.concat([self._kept(table), pd.DataFrame(made, index=table.index)], axis=1)
        if isinstance(table, Mapping):
            return {**{name: table[name] for name in self._kept(table)}, **made}
        import pyarrow as pa

        kept = {name: table[name] for name in self._kept(table.schema.names)}
        return pa.table({**kept, **made})

    def infer(self, X: Given) -> Answers:
        """Return output name → float32 [rows, width] for rows in any form that `Client.infer` takes."""
        if is_table(X):
            return self._of_table(Columns(X))
        tensors = model_tensors(X, self.inputs, self.name)
        check_tensors(tensors, self.inputs, self.name)
        return self._answers(tensors)

    def predict(self, X: Given) -> np.ndarray:
        """Return the first output alone, float32 [rows, width]."""
        return self.infer(X)[self.outputs[0]]

    def tensors(self, columns: Columns) -> Tensors:
        """Return the tensors of a table; `InvalidRequest` where it does not fit."""
        features = columns if all(tensor.columns for tensor in self.inputs) else columns.without(self.keep)
        new = pinned_by_columns if self._model().reads_gpu else self._buffers.by_columns
        return tensors_of(features, self.inputs, self.name, new)

    def answers(self, columns: Columns, tensors: Tensors | None = None) -> Answers:
        """Return the outputs of a table, by their names; `tensors` are the table's, if they are at hand."""
        if not len(columns):
            return self.no_answers(0)
        return self._of_table(columns) if tensors is None else self._answers(tensors)

    def by_row(self, table: Any, tensors: Tensors | None = None) -> tuple[Answers, list[tuple[int, str]]]:
        """Return the outputs of a table, NaN where a row is refused, and the refused rows with the reason of each."""
        return self._by_row(Columns(table), 0, tensors)

    def no_answers(self, rows: int) -> Answers:
        """Return NaN for each output."""
        return {name: np.full((rows, len(fields)), np.nan, np.float32) for name, fields in self.fields.items()}

    def as_columns(self, answers: Answers) -> dict[str, np.ndarray]:
        """Return outputs column by column, by their names in a table."""
        return {
            field: np.ascontiguousarray(answers[name][:, place])
            for name, fields in self.fields.items()
            for place, field in enumerate(fields)
        }

    def _kept(self, table: Any) -> Any:
        """Return the kept columns of a DataFrame, or their names where there is only a list or a mapping of these."""
        names = list(table.columns) if is_table(table) else list(table)
        missing = [name for name in self.keep if name not in names]
        if missing:
            raise InvalidRequest(f"The table lacks {in_words(missing)} to keep; it has {', '.join(map(str, names))}.")
        return table[list(self.keep)] if is_table(table) else list(self.keep)

    def _of_table(self, columns: Columns) -> Answers:
        """Return the outputs of a table; of a large one some rows are converted while those before are computed."""
        rows, size = len(columns), rows_together(sum(tensor.width for tensor in self.inputs))
        if rows <= size:
            return self._answers(self.tensors(columns))
        pieces = (columns.rows(start, min(start + size, rows)) for start in range(0, rows, size))
        found = list[Answers]()
        try:
            for tensors in ahead(map(self.tensors, pieces)):
                found.append(self._answers(tensors))
        except InvalidRequest as error:
            raise InvalidRequest(renumbered(str(error), size * len(found))) from None
        return {name: np.concatenate([answers[name] for answers in found]) for name in self.outputs}

    def _answers(self, tensors: Tensors) -> Answers:
        """Return the outputs of tensors of any number of rows."""
        found = []
        for part in self._parts(tensors):
            (answer,) = self._execute([part.of(tensors)])
            if isinstance(answer, InferenceError):
                raise part.error(answer)
            found.append(answer)
        return {name: np.concatenate([answer[name] for answer in found]) for name in self.outputs}

    def _by_row(
        self, columns: Columns, first: int, tensors: Tensors | None = None
    ) -> tuple[Answers, list[tuple[int, str]]]:
        """The table is cut until what cannot be converted is one row; what the model refuses is found at once."""
        rows = len(columns)
        try:
            tensors = self.tensors(columns) if tensors is None else tensors
        except InvalidRequest as error:
            if rows == 1:
                return self.no_answers(1), [(first, renumbered(str(error), first))]
            size = -(-rows // GROUPS)
            pieces = [columns.rows(start, min(start + size, rows)) for start in range(0, rows, size)]
            found = [self._by_row(piece, first + number * size) for number, piece in enumerate(pieces)]
            joined = {name: np.concatenate([answers[name] for answers, _ in found]) for name in self.outputs}
            return joined, [refused for _, each in found for refused in each]
        answers, wrong = self.no_answers(rows), list[tuple[int, str]]()
        for part in self._parts(tensors):
            self._fill(answers, wrong, tensors, [(part.first, part.stop)])
        return answers, [(first + row, renumbered(reason, first + row)) for row, reason in wrong]

    def _fill(
        self, answers: Answers, wrong: list[tuple[int, str]], tensors: Tensors, spans: Sequence[tuple[int, int]]
    ) -> None:
        """Ask for spans of rows in one batch, and for those that are refused again in smaller ones."""
        replies = self._execute([take(tensors, slice(*span)) for span in spans])
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

    def _parts(self, tensors: Tensors) -> list[Part]:
        """Return the rows that are computed at once."""
        return replace(self._known, max_batch_size=self._model().max_rows).parts(tensors)

    def _execute(self, requests: Sequence[Tensors]) -> list[Any]:
        with self._lock:
            return list(self._model().execute(requests, self.outputs))

    def _model(self) -> Any:
        """Return the model, loaded; a process has one of each."""
        with self._lock:
            if self._loaded is None:
                from triton_regressors.scoring.model import load

                config = read_config(self.entry.directory)
                if digest_of(self.entry, config) != self.digest:
                    raise ScoringError(f"{self.entry.version_directory} or its config.pbtxt has changed meanwhile.")
                self._loaded = load(self.entry, *choose_device(self.device, config), self.digest)
            return self._loaded


def predictor(entry: Path | str, **options: Any) -> type[Predictor]:
    """Return a class whose instances, made without arguments, are `Predictor(entry, **options)`.

        dataset.map_batches(predictor("model_repository/demand"), num_gpus=1,
                            compute=ray.data.ActorPoolStrategy(size=2))

    Ray Data makes an instance in each actor, which loads the entry once and keeps it.

    Raises:
        ScoringError, InvalidRequest: as `Predictor` does; at once, not in the actors.
    """
    version = Predictor(entry, **options).entry.version
    path, options = Path(entry).resolve(), {**options, "version": version}

    class OfEntry(Predictor):
        """A predictor of one entry."""

        def __init__(self, *given: Any) -> None:
            if given:
                raise ScoringError("predictor(...) makes a class for Ray's actors; `Predictor(...)` takes tables.")
            super().__init__(path, **options)

    OfEntry.__name__ = OfEntry.__qualname__ = f"PredictorOf_{path.name}"
    return OfEntry


def renumbered(sentence: str, first: int) -> str:
    """Return a sentence on rows of which the first is another table's row `first`, with the row counted there."""
    return ROW.sub(lambda row: str(int(row[0]) + first), sentence, count=1)


def _fields(name: str, width: int) -> list[str]:
    return [name] if width == 1 else [f"{name}_{place}" for place in range(width)]


def _with_names(inputs: Sequence[InputTensor], columns: Sequence[str] | None, model: str) -> tuple[InputTensor, ...]:
    """Return the inputs with these names of their columns, if any are given."""
    unnamed = [tensor for tensor in inputs if not tensor.columns]
    width = sum(tensor.width for tensor in inputs)
    if columns is None:
        if unnamed and len(inputs) > 1:
            raise InvalidRequest(f"Model '{model}' has no names of its columns; name the {width} that it takes.")
        return tuple(inputs)
    if len(columns) != width:
        raise InvalidRequest(f"{len(columns)} columns are named; model '{model}' takes {width}.")
    names = iter(columns)
    return tuple(replace(tensor, columns=tuple(next(names) for _ in range(tensor.width))) for tensor in inputs)
