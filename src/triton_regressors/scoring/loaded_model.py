"""`load`: an entry as a model in this process, with answers on the device of a user's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from triton_regressors.clients.client.configuration import Configuration
from triton_regressors.clients.client.parts import Part, as_predicted, renumbered
from triton_regressors.clients.client.tensors import InputTensor, Tensors, model_tensors
from triton_regressors.clients.errors import InferenceError, InvalidRequest
from triton_regressors.extras import require
from triton_regressors.scoring.arrays import Given, given, on_gpu
from triton_regressors.scoring.buffers import Buffers, pinned_by_columns
from triton_regressors.scoring.columns import Columns, check_tensors, rows_together, tensors_of
from triton_regressors.scoring.entry_choice import answers_column, choose_device, choose_entry, digest_of, read_config
from triton_regressors.scoring.errors import ScoringError
from triton_regressors.scoring.prefetch import ahead
from triton_regressors.tables import is_tabular

if TYPE_CHECKING:
    import torch

Y, STD, LOWER, UPPER = "y", "std", "lower", "upper"
Answers = dict[str, np.ndarray]


class Model:
    """An entry in this process: `predict` with the bits and the rules of a server, see `load`.

        model = tr.load("model_repository/diabetes")
        y = model.predict(X)
        y, std = model.predict(X, return_std=True)
        lower, upper = model.predict_interval(X)

    **Rows** are a NumPy array, a list of lists or of records, a DataFrame of pandas or polars, a pyarrow Table or
    RecordBatch, a mapping of column names to columns or of input names to matrices, or a tensor `[rows, n_features]` of
    torch, CuPy or any library with DLPack. Columns are taken by name if the model and the rows have names. Numbers are
    converted to the input's type as for a request; a number that the type cannot hold is refused.

    **Answers** are float32. They are on the device and of the kind of the rows: a torch tensor for torch's, on the same
    device, CuPy's array for CuPy's, and NumPy's array for arrays, lists and tables. A library without `from_dlpack`
    gets a torch tensor, which itself supports DLPack. No answer has a gradient.

    **On a GPU** rows lie on the model's own device and are read there. All work goes on torch's current stream of that
    device, and DLPack's protocol waits for a tensor's own stream. A call returns when its answers are complete and its
    rows are known to hold nothing that the model refuses: the CPU waits only for this stream. Rows of an entry with
    further inputs, strings or integers, go through the CPU, and their answers back.

    Threads may share a model and wait for each other. A pickled model holds the path of its entry and is loaded again
    at its first use. A forked process may use a model on a CPU; a model on a GPU has to be loaded in that process.
    """

    def __init__(
        self,
        entry: Path | str,
        *,
        version: int | str | None = None,
        columns: Sequence[str] | None = None,
        device: Any = "auto",
    ) -> None:
        require("serve", f"{__name__.partition('.')[0]}.load")
        self.entry = choose_entry(Path(entry), version)
        config = read_config(self.entry.directory)
        self.digest = digest_of(self.entry, config)
        self.device = str(device)
        self.widths = {tensor.name: int(tensor.dims[0]) for tensor in config.output}
        known = Configuration.of(config)
        self._known = replace(
            known,
            inputs=_with_names(known.inputs, columns, self.name),
            answers_column=answers_column(self.entry),  # config.pbtxt tells it of the newest version
        )
        self._loaded: Any = None
        self._buffers = Buffers()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} version {self.entry.version}: {', '.join(self.outputs)}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_loaded": None, "_buffers": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _buffers=Buffers())

    @property
    def name(self) -> str:
        """The entry's name."""
        return self.entry.name

    @property
    def inputs(self) -> tuple[InputTensor, ...]:
        """The entry's inputs."""
        return self._known.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the entry's outputs."""
        return tuple(self.widths)

    @property
    def where(self) -> str:
        """The engine and device in words: "torch on the CPU". Reading it loads the entry."""
        model = self._model()
        return f"{model.engine} on {model.where}"

    def on_gpu(self) -> bool:
        """Return whether the model computes on a GPU of this machine."""
        return choose_device(self.device, read_config(self.entry.directory))[0]

    def predict(self, X: Any, *, return_std: bool = False) -> Any:
        """Return the estimator's predictions as float32.

        Args:
            X: the rows, see `Model`.
            return_std: return the predictions and their standard deviations, as scikit-learn's Gaussian processes do.

        Returns:
            `[rows]`, `[rows, 1]` if the estimator answers one target in this shape, or `[rows, n_targets]` for several
            targets; with `return_std` two of these.

        Raises:
            InvalidRequest: the rows do not fit, or a row holds a value that the model does not take, with the message
                that a request would get; or the entry has no standard deviations.
            ScoringError: the entry has changed since it was found, or does not load.
        """
        found = self._infer(X, (Y, STD) if return_std else (Y,), squeeze=True)
        return (found[Y], found[STD]) if return_std else found[Y]

    def predict_interval(self, X: Any) -> tuple[Any, Any]:
        """Return the lower and the upper end of each row's prediction interval, each shaped as `predict`'s answer.

        Raises:
            InvalidRequest: the entry was exported without an interval; see `predict` for the others.
        """
        found = self._infer(X, (LOWER, UPPER), squeeze=True)
        return found[LOWER], found[UPPER]

    def infer(self, X: Any, *, outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Return output name → float32 `[rows, width]`, like a server's answer.

        Args:
            X: the rows, see `Model`.
            outputs: their names; None: all that the entry has.

        Raises:
            InvalidRequest: see `predict`.
        """
        return self._infer(X, self.outputs if outputs is None else outputs)

    def tensors(self, columns: Columns) -> Tensors:
        """Return the tensors of a table; raise `InvalidRequest` if it does not fit."""
        new = pinned_by_columns if self._model().reads_gpu else self._buffers.by_columns
        return tensors_of(columns, self.inputs, self.name, new)

    def check_outputs(self, outputs: Sequence[str]) -> tuple[str, ...]:
        """Return names of outputs without duplicates; raise `InvalidRequest` unless all exist and there is one."""
        unknown = [name for name in outputs if name not in self.widths]
        if unknown or not outputs or isinstance(outputs, str):
            asked = f"no output {unknown[0]!r}" if unknown else "outputs, and at least one must be named"
            raise InvalidRequest(f"Model '{self.name}' has {asked}; it has {', '.join(self.widths)}.")
        return tuple(dict.fromkeys(outputs))

    def _infer(self, X: Any, outputs: Sequence[str], *, squeeze: bool = False) -> dict[str, Any]:
        names = self.check_outputs(outputs)
        at_once = self._as_it_lies(X, names, flat=squeeze and not self._known.answers_column)
        if at_once is not None:
            return at_once
        rows = given(X)
        found = self._of_given(rows, names)
        if squeeze:
            found = {name: as_predicted(answer, self._known.answers_column) for name, answer in found.items()}
        return {name: rows.answer(answer) for name, answer in found.items()}

    def _of_given(self, rows: Given, outputs: tuple[str, ...]) -> Mapping[str, Any]:
        """Return the outputs of rows in any form, tensors on the model's device or arrays."""
        matrix = rows.matrix(self.inputs[0].name)
        found = None if matrix is None else self._of_gpu(matrix, outputs)
        return self._of_host(rows.host(), outputs) if found is None else found

    def _as_it_lies(self, X: Any, outputs: tuple[str, ...], *, flat: bool = False) -> dict[str, Any] | None:
        """Return the outputs of a tensor or an array with nothing to convert; None if the slower path is needed.

        The slower path is needed if X is anything else, or holds a refused number. See `LocalModel.answer` for `flat`.
        """
        model = self._loaded
        if model is None or not model.takes(X):
            return None
        found: dict[str, Any] | None = model.answer(X, outputs, flat=flat)
        return found

    def _of_gpu(self, X: torch.Tensor, outputs: tuple[str, ...]) -> dict[str, torch.Tensor] | None:
        """Return the outputs of rows that the model's GPU reads in place; None if the CPU has to check them.

        The CPU has to check them if a number is refused, to name it in the error, or if there are other inputs.
        """
        model, tensor = self._model(), self.inputs[0]
        if model.device != X.device:
            place = model.device if model.device.type == "cuda" else "the CPU"
            raise InvalidRequest(
                f"{tensor.name} lies on {X.device}, and model '{self.name}' computes on {place}; load it with "
                f"device='{X.device}', or give the rows in CPU memory."
            )
        matrix = on_gpu(X, tensor, self.name) if model.reads_gpu else None
        if matrix is None:
            return None
        found: dict[str, torch.Tensor] | None = self._as_it_lies(matrix, outputs) or model.on_device(matrix, outputs)
        return found

    def _of_host(self, X: Any, outputs: tuple[str, ...]) -> Answers:
        """Return the outputs of rows in CPU memory."""
        if is_tabular(X) or (isinstance(X, Mapping) and not self._by_input(X)):
            return self._of_table(Columns(X), outputs)
        tensors = model_tensors(X, self.inputs, self.name)
        check_tensors(tensors, self.inputs, self.name)
        return self._answers(tensors, outputs)

    def _by_input(self, X: Mapping[str, Any]) -> bool:
        """Return whether a mapping names inputs rather than columns, which have one dimension each."""
        names = {tensor.name for tensor in self.inputs}
        columns = {name for tensor in self.inputs for name in tensor.columns}
        return set(X) <= names - columns or not any(map(_is_column, X.values()))

    def _of_table(self, columns: Columns, outputs: tuple[str, ...]) -> Answers:
        """Return the outputs of a table; for a large one, conversion of the next rows overlaps with computation."""
        rows, size = len(columns), rows_together(sum(tensor.width for tensor in self.inputs))
        if rows <= size:
            return self._answers(self.tensors(columns), outputs)
        pieces = (columns.rows(start, min(start + size, rows)) for start in range(0, rows, size))
        found = list[Answers]()
        try:
            for tensors in ahead(map(self.tensors, pieces)):
                found.append(self._answers(tensors, outputs))
        except InvalidRequest as error:
            raise InvalidRequest(renumbered(str(error), size * len(found))) from None
        return {name: np.concatenate([answers[name] for answers in found]) for name in outputs}

    def _answers(self, tensors: Tensors, outputs: tuple[str, ...]) -> Answers:
        """Return the outputs of tensors of any number of rows."""
        answers = self._as_it_lies(next(iter(tensors.values())), outputs) if len(tensors) == 1 else None
        if answers is not None:
            return answers
        found = []
        for part in self._parts(tensors):
            (answer,) = self._model().execute([part.of(tensors)], outputs)
            if isinstance(answer, InferenceError):
                raise part.error(answer)
            found.append(answer)
        return {name: np.concatenate([answer[name] for answer in found]) for name in outputs}

    def _parts(self, tensors: Tensors) -> list[Part]:
        """Return the parts of the rows that are computed at once."""
        return replace(self._known, max_batch_size=self._model().max_rows).parts(tensors)

    def _model(self) -> Any:
        """Return the loaded model; a process shares one for each entry and device."""
        if self._loaded is None:
            from triton_regressors.scoring.model_instance import load

            config = read_config(self.entry.directory)
            if digest_of(self.entry, config) != self.digest:
                raise ScoringError(f"{self.entry.version_directory} or its config.pbtxt has changed meanwhile.")
            self._loaded = load(self.entry, *choose_device(self.device, config), self.digest)
        return self._loaded


def load(
    entry: Path | str,
    *,
    version: int | str | None = None,
    columns: Sequence[str] | None = None,
    device: Any = "auto",
) -> Model:
    """Load an entry into this process.

        model = tr.load("model_repository/diabetes")
        y = model.predict(X)

    The entry's own code runs, as on a Triton server: load only entries that you trust. Its files are checked, and it is
    tested on its golden rows, which takes seconds; a process loads it once. It needs torch, the Triton language, NumPy
    and safetensors, but not scikit-learn.

    Args:
        entry: the entry's directory.
        version: the entry's version; None: the one that a server answers with, by config.pbtxt at this time.
        columns: names of a table's feature columns, input after input, in place of the entry's own names. Without any
            names all columns are taken in their order.
        device: "auto" is the first GPU if there is one that the entry may use, or else the CPU; "cpu", "gpu",
            "gpu:1", as well as torch's "cuda", "cuda:1" and `torch.device`.

    Raises:
        ScoringError: there is no such entry, version or device, or it does not load.
        InvalidRequest: the number of `columns` differs from the entry's.
        MissingExtra: torch and the Triton language, which entries compute with, are not installed.
    """
    model = Model(entry, version=version, columns=columns, device=device)
    model._model()
    return model


def _is_column(values: Any) -> bool:
    ndim = getattr(values, "ndim", None)
    if ndim is None:
        return not isinstance(next(iter(values), None), (list, tuple, np.ndarray))
    return bool(ndim == 1)


def _with_names(inputs: Sequence[InputTensor], columns: Sequence[str] | None, model: str) -> tuple[InputTensor, ...]:
    """Return the inputs with these names of their columns, if any are given."""
    if columns is None:
        return tuple(inputs)
    width = sum(tensor.width for tensor in inputs)
    if len(columns) != width:
        raise InvalidRequest(f"{len(columns)} columns are named; model '{model}' takes {width}.")
    names = iter(columns)
    return tuple(replace(tensor, columns=tuple(next(names) for _ in range(tensor.width))) for tensor in inputs)
