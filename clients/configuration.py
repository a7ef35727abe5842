"""What a client goes by when it asks a model: what the server said last of its inputs and of how much it takes at once.

A configuration may be out of date: a model can be loaded anew at any time, from another directory under the same name
and the same version number too, and no answer tells of it. `Configuration.tensors` says which conversions cannot be
wrong then.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.parts import Part, cut
from triton_regressors.clients.tensors import DTYPES, Given, InputTensor, Tensors, input_tensors, model_tensors, same
from triton_regressors.kernels.format.columns_digest import ANSWERS_COLUMN, CHECKS_COLUMNS, columns_digest

REQUEST_BYTES = 2**25
"""Tensors of at most so many bytes travel in one message, either way. gRPC carries 2 GiB, and the HTTP endpoint of
newer Triton servers takes 64 MiB; a server tells neither."""


@dataclass(frozen=True)
class Configuration:
    """What a model takes. max_batch_size: rows, 0 where it has no batches. answer_bytes: of a row of all outputs.

    digest: of the columns, for a model that refuses requests made for others; "" for one that does not look.
    widths: each output and how many columns it has.
    answers_column: whether the estimator's `predict` answers one target as [rows, 1].
    """

    model: str
    inputs: tuple[InputTensor, ...]
    max_batch_size: int
    answer_bytes: int
    digest: str = ""
    widths: tuple[tuple[str, int], ...] = ()
    answers_column: bool = False

    @classmethod
    def of(cls, config: model_config_pb2.ModelConfig) -> "Configuration":
        """Read it from a server's answer."""
        answer_bytes = 0
        for tensor in config.output:
            name = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
            dtype = np.dtype(DTYPES.get(name, np.float64))
            answer_bytes += dtype.itemsize * int(np.prod([max(dim, 1) for dim in tensor.dims]))
        parameters = {name: value.string_value for name, value in config.parameters.items()}
        digest = columns_digest(parameters) if CHECKS_COLUMNS in parameters else ""
        widths = tuple((each.name, max(int(each.dims[-1]), 1) if each.dims else 1) for each in config.output)
        inputs, column = input_tensors(config), parameters.get(ANSWERS_COLUMN) == "true"
        return cls(config.name, inputs, config.max_batch_size, answer_bytes, digest, widths, column)

    def tensors(self, X: Given) -> tuple[Tensors, bool]:
        """X as tensors, and whether they are right for whatever model takes them.

        The server itself refuses tensors of other names, types and widths than the model's. It cannot see that columns
        were taken by names that stand elsewhere by now, or that a number was rounded which is a category by now.

        Raises:
            InvalidRequest: X does not fit; see `model_tensors`.
        """
        tensors = model_tensors(X, self.inputs, self.model)
        given: Mapping[str, object] = X if isinstance(X, Mapping) else dict.fromkeys(tensors, X)
        return tensors, all(same(given[name], array) for name, array in tensors.items())

    def parts(self, tensors: Tensors) -> list[Part]:
        """Return the rows of each request: as many as the model and a message take; all where it has no batches."""
        return cut(tensors, self.max_batch_size, REQUEST_BYTES, self.answer_bytes)
