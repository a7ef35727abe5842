"""A client's knowledge of a model: the server's last answer about its inputs and its request size.

A configuration may be out of date: a model can be loaded again at any time, also from another directory under the same
name and version number, and no answer reports it. `Configuration.tensors` says which conversions are right even then.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.client.parts import Part, cut
from triton_regressors.clients.client.tensors import (
    DTYPES,
    Given,
    InputTensor,
    Tensors,
    input_tensors,
    model_tensors,
    same,
)
from triton_regressors.clients.contributions.cells import cells_of
from triton_regressors.clients.errors import InvalidRequest, ServerFault
from triton_regressors.contribution_game import PARAMETER, Game, lacking
from triton_regressors.kernels.format.columns_digest import ANSWERS_COLUMN, CHECKS_COLUMNS, columns_digest
from triton_regressors.kernels.format.inputs import NUMBERS
from triton_regressors.kernels.format.member_tensors import WORD, JoinedIds

REQUEST_BYTES = 2**25
"""The limit on the bytes of tensors in one message, in either direction. gRPC carries 2 GiB, and the HTTP endpoint of
newer Triton servers takes 64 MiB; a server reports neither limit."""


@dataclass(frozen=True)
class Configuration:
    """A model's inputs and limits. max_batch_size: rows, 0 without batches. answer_bytes: for a row of all outputs.

    digest: of the columns, for a model that refuses requests made for other columns; "" for one that does not check.
    widths: each output and its number of columns.
    answers_column: whether the estimator's `predict` answers one target as [rows, 1].
    game: the parameter that describes the output `contributions`; "" without this output.
    joined: the input of a fleet that has rows and ids of models in one tensor, and its width; None if there is none.
    """

    model: str
    inputs: tuple[InputTensor, ...]
    max_batch_size: int
    answer_bytes: int
    digest: str = ""
    widths: tuple[tuple[str, int], ...] = ()
    answers_column: bool = False
    game: str = ""
    joined: tuple[JoinedIds, int] | None = None

    @classmethod
    def of(cls, config: model_config_pb2.ModelConfig) -> "Configuration":
        """Read the configuration from a server's answer."""
        answer_bytes = 0
        for tensor in config.output:
            name = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
            dtype = np.dtype(DTYPES.get(name, np.float64))
            answer_bytes += dtype.itemsize * int(np.prod([max(dim, 1) for dim in tensor.dims]))
        parameters = {name: value.string_value for name, value in config.parameters.items()}
        digest = columns_digest(parameters) if CHECKS_COLUMNS in parameters else ""
        widths = tuple((each.name, max(int(each.dims[-1]), 1) if each.dims else 1) for each in config.output)
        inputs, column = input_tensors(config), parameters.get(ANSWERS_COLUMN) == "true"
        game, joined = parameters.get(PARAMETER, ""), _joined(config, inputs)
        return cls(config.name, inputs, config.max_batch_size, answer_bytes, digest, widths, column, game, joined)

    def explained(self) -> Game:
        """Return what the model's output `contributions` is.

        Raises:
            InvalidRequest: it has none.
            ServerFault: its configuration does not describe it.
        """
        if not self.game:
            raise InvalidRequest(lacking(self.model))
        try:
            return Game.read(self.game)
        except ValueError as error:
            raise ServerFault(f"Parameter {PARAMETER!r} of model '{self.model}': {error}.") from None

    def cells(self, X: Given, game: Game) -> np.ndarray:
        """Return the cells of rows, tables as DataFrames, see `cells_of`."""
        names = {tensor.name: tensor.columns for tensor in self.inputs}
        return cells_of(X, game, names, {tensor.name: tuple(dict(tensor.dates)) for tensor in self.inputs})

    def tensors(self, X: Given) -> tuple[Tensors, bool]:
        """Return X as tensors, and whether they are right for any model that the server lets take them.

        The server itself refuses tensors whose names, types or widths differ from the model's. It cannot see that the
        order of named columns has changed since, or that a rounded number has become a category since.

        Raises:
            InvalidRequest: X does not fit; see `model_tensors`.
        """
        tensors = model_tensors(X, self.inputs, self.model)
        given: Mapping[str, object] = X if isinstance(X, Mapping) else dict.fromkeys(tensors, X)
        return tensors, all(same(given[name], array) for name, array in tensors.items())

    def parts(self, tensors: Tensors) -> list[Part]:
        """Return the rows of each request: as many as the model and a message take; all rows without batches."""
        return cut(tensors, self.max_batch_size, REQUEST_BYTES, self.answer_bytes)

    def sent(self, tensors: Tensors) -> Tensors:
        """Return the tensors of a request as they travel: rows and the ids of their models in one if that holds them.

        A server answers a request with one tensor sooner.
        """
        if self.joined is None or len(tensors) != len(self.inputs):
            return tensors
        ids, width = self.joined
        if len(tensors[NUMBERS]) * width * WORD > REQUEST_BYTES:
            return tensors
        both = ids.join(tensors[NUMBERS], tensors[ids.by], width)
        return tensors if both is None else {ids.name: both}


def _joined(config: model_config_pb2.ModelConfig, inputs: tuple[InputTensor, ...]) -> tuple[JoinedIds, int] | None:
    """Return the input of a configuration that has the numbers and the ids of the other two, and its width."""
    if len(inputs) != 2 or all(tensor.name != NUMBERS for tensor in inputs):
        return None
    numbers, ids = sorted(inputs, key=lambda tensor: tensor.name != NUMBERS)
    found = JoinedIds(ids.name, numbers.width, numbers.datatype, ids.datatype)
    widths = [int(tensor.dims[0]) for tensor in config.input if tensor.name == found.name and len(tensor.dims) == 1]
    return next(((found, width) for width in widths if found.takes(width)), None)
