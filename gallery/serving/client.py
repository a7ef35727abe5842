"""Queries served exhibits over gRPC and HTTP: an example of a client, and a check.

    with Connection("grpc", "127.0.0.1:8001") as connection:
        (y,) = connection.ask("softmax", {"x": x})

tritonclient has a client for each protocol, and their classes have the same names and methods.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
from tritonclient.utils import InferenceServerException

from gallery.catalogue import find
from gallery.check import error
from gallery.errors import GalleryError
from gallery.exhibit import Answer, Exhibit, Size
from gallery.serving.names import service_of
from gallery.serving.services import DATATYPES, NUMBER, SERVICES, Scalar, Service, written
from triton_regressors.clients.errors import plain_reason

PROTOCOLS = ("grpc", "http")
NAMES = {"grpc": "gRPC", "http": "HTTP"}
COMPILING_S = 600.0
"""The time limit of the first request of a new size, for which a GPU compiles and tunes, in seconds."""


class Connection:
    """A Triton server over one protocol.

    Raises:
        GalleryError: nothing answers, or the server or the kernel refuses a request, in its own words.
    """

    def __init__(self, protocol: str, url: str) -> None:
        self.protocol, self.url = protocol, url
        self._library = importlib.import_module(f"tritonclient.{protocol}")
        patience = {"network_timeout": COMPILING_S} if protocol == "http" else {}  # gRPC waits for as long as it takes
        self._client = self._library.InferenceServerClient(url, **patience)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def ask(
        self, name: str, tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Scalar] | None = None
    ) -> tuple[torch.Tensor, ...]:
        """Return a served exhibit's answers to tensors, and to scalars that differ from its defaults."""
        service, inputs = service_of(name), []
        for tensor, values in tensors.items():
            inputs.append(self._library.InferInput(tensor, list(values.shape), service.datatype))
            inputs[-1].set_data_from_numpy(values.cpu().numpy())
        parameters = {scalar: written(value) for scalar, value in (scalars or {}).items()}
        try:
            answer = self._client.infer(name, inputs, parameters=parameters)
        except InferenceServerException as refused:
            if refused.status() == "StatusCode.UNAVAILABLE":
                raise self._unreachable(refused) from None
            raise GalleryError(f"{name} over {NAMES[self.protocol]}: {_sentence(refused)}") from None
        except OSError as unreachable:
            raise self._unreachable(unreachable) from None
        return tuple(torch.from_numpy(answer.as_numpy(output).copy()) for output in service.outputs)

    def ready(self, name: str) -> bool:
        """Return whether an exhibit is served."""
        try:
            return bool(self._client.is_model_ready(name))
        except (InferenceServerException, OSError) as unreachable:
            raise self._unreachable(unreachable) from None

    def _unreachable(self, error: Exception) -> GalleryError:
        return GalleryError(f"Nothing answers over {NAMES[self.protocol]} at {self.url}: {_sentence(error)}")


def served(connection: Connection) -> list[str]:
    """Return the exhibits that a server serves."""
    names = [name for name in SERVICES if connection.ready(name)]
    if not names:
        raise GalleryError(f"The Triton server at {connection.url} serves no exhibit; `python -m gallery serve` does.")
    return names


@dataclasses.dataclass(frozen=True)
class Row:
    """The result of checking a served exhibit at one size over one protocol."""

    name: str
    protocol: str
    size: Size
    error: float
    """The largest error, in units of the truth's largest magnitude."""
    allowed: float
    milliseconds: float
    """The time from the last call to its answer."""

    @property
    def agrees(self) -> bool:
        """True if the answer equals the reference's."""
        return self.error <= self.allowed


def check(
    connection: Connection, name: str, sizes: Sequence[Size] | None = None, *, timed: bool = True
) -> Iterator[Row]:
    """Query a served exhibit with samples, by default of all sizes to check, and compare the answers with the truth.

    A `timed` sample is sent twice, since a GPU may compile a kernel for the first request.
    """
    exhibit, service = find(name), service_of(name)
    dtype = DATATYPES[service.datatype]
    remote = Remote(exhibit, service, connection)
    asked = dataclasses.replace(exhibit, ways={"served": remote})
    for size in exhibit.sizes if sizes is None else sizes:
        torch.manual_seed(7)
        arguments = exhibit.sample(size, dtype, torch.device("cpu"))
        if remote.takes(arguments):
            found = error(asked, "served", arguments)
            if timed:
                remote(*arguments)
            yield Row(name, connection.protocol, size, found, exhibit.tolerances[dtype], remote.milliseconds)


class Remote:
    """An exhibit's function that a Triton server computes."""

    def __init__(self, exhibit: Exhibit, service: Service, connection: Connection) -> None:
        self._exhibit, self._service, self._connection = exhibit, service, connection
        self._names = tuple(inspect.signature(exhibit.reference).parameters)
        self.milliseconds = 0.0  # that the last call took

    def __call__(self, *arguments: Any) -> Answer:
        """Return the answer of the exhibit's function."""
        named = dict(zip(self._names, arguments, strict=False))
        tensors = {name: named.pop(name) for name in self._service.inputs}
        start = time.perf_counter()
        found = self._connection.ask(self._exhibit.name, tensors, named)
        self.milliseconds = 1e3 * (time.perf_counter() - start)
        numbers = [tuple(dims) == NUMBER for dims in self._service.outputs.values()]
        answers = tuple(each.reshape(()) if number else each for each, number in zip(found, numbers, strict=True))
        return answers if len(answers) > 1 else answers[0]

    def takes(self, arguments: tuple[Any, ...]) -> bool:
        """Return whether the entry takes tensors of these dimensions; the server takes no empty batch."""
        named = dict(zip(self._names, arguments, strict=False))
        joins = self._service.joins
        return all(
            named[name].dim() == len(dims) + joins and not (joins and not len(named[name]))
            for name, dims in self._service.inputs.items()
        )


def _sentence(error: Exception) -> str:
    """Return the server's own words without its number for the request."""
    text = str(error.message() if isinstance(error, InferenceServerException) else error)
    return plain_reason(text) + "."
