"""The check of a running server with golden rows: the estimator's numbers, and the same bits in every batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from triton_regressors.clients.client.client import Client
from triton_regressors.clients.client.tensors import Tensors, row_count, take
from triton_regressors.clients.errors import RowsError
from triton_regressors.defaults import DEFAULT_REPOSITORY
from triton_regressors.kernels.entry import Entry, Golden, find_entry, read_document, read_golden
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.format.parity import Parity, measure

_ODD_SIZES = (3, 1, 7, 5, 13, 11)

_SINGLE_ROWS = 256
"""The most rows that are sent one at a time; a fleet of many models has more golden rows."""

_ODD_REQUESTS = 1024
"""About the most requests of odd sizes, which are multiplied for more rows."""


class Exported(Protocol):
    """The result of `export`, which holds the written entry."""

    @property
    def entry(self) -> Entry:
        """The entry and its version."""


@dataclass(frozen=True)
class OutputCheck:
    """One output: its largest error over all golden rows, in units of the standard deviation of the predictions."""

    name: str
    parity: Parity
    tolerance: float

    @property
    def max_error(self) -> float:
        """The largest error over all golden rows and batchings."""
        return self.parity.max_error

    @property
    def within(self) -> bool:
        """True if the error is within the tolerance that the entry was exported with."""
        return self.parity.within(self.tolerance)


@dataclass(frozen=True, repr=False)
class Verification:
    """The result of `verify`. `batchings` names the ways in which the rows were sent.

    `members` is the number of models that the rows ask, and that of all models, None for an entry of one model.
    """

    model: str
    version: str
    rows: int
    outputs: tuple[OutputCheck, ...]
    batchings: tuple[str, ...]
    bit_identical: bool
    members: tuple[int, int] | None = None

    def __repr__(self) -> str:
        errors = ", ".join(
            f"{check.name}: {check.max_error:.1e} std{'' if check.within else ', beyond tolerance'}"
            for check in self.outputs
        )
        bits = "the same bits" if self.bit_identical else "different bits"
        return (
            f"Verification({self.model} version {self.version} {'passed' if self.passed else 'failed'} on {self.rows} "
            f"golden rows; {errors}; {bits} in {len(self.batchings)} batchings)"
        )

    @property
    def passed(self) -> bool:
        """True if every output is within tolerance, and every row has the same bits in each batching."""
        return self.bit_identical and all(output.within for output in self.outputs)


def verify(
    client: Client,
    entry: Exported | Entry | Path | str,
    *,
    repository: Path | str = DEFAULT_REPOSITORY,
    model: str | None = None,
    version: str | int | None = None,
    seed: int = 0,
    members: int | None = None,
) -> Verification:
    """Send an entry's golden rows to a running server: one at a time, all at once, and shuffled in chunks of odd sizes.

    Up to 256 rows, drawn from those of a larger fleet, are sent one at a time.

    Args:
        client: connected to the server, on whatever host.
        entry: what `export` returned, the entry's directory on this machine in any repository, or its name in
            `repository`.
        repository: where an entry given by name lies.
        model: its name on the server, if it differs from the directory's.
        version: its version; None: the exported one, or the newest in the directory. The request names exactly this
            version.
        seed: of the shuffling and drawing.
        members: how many models of a fleet to ask, which are drawn; None: all.

    Raises:
        RowsError: there is no such entry here, one of its files has changed since the export, or its golden rows cannot
            be read; or `members` is given for an entry of one model, or is below 1.
        InferenceError: the server does not answer, or refuses these rows. A wrong answer raises nothing: see `passed`.
    """
    if not isinstance(entry, Entry | Path | str):
        entry = entry.entry
    if isinstance(entry, Entry):
        version = entry.version if version is None else version
        directory = entry.directory
    else:
        directory = Path(repository) / entry
        if not directory.is_dir():
            directory = Path(entry)
    if not directory.is_dir():
        raise RowsError(
            f"There is no entry {directory}, here or in the repository {repository}; give an entry's directory, its "
            "name and repository, or what export returned."
        )
    try:
        found = find_entry(directory, version)
        document = read_document(found.version_directory)
        golden = read_golden(found.version_directory, document)
    except PlanError as error:
        raise RowsError(str(error)) from None
    models = None if document.fleet is None else document.fleet.members
    if members is not None:
        if models is None:
            raise RowsError(f"{directory} is an entry of one model; members is for a fleet.")
        golden = _of_members(golden, models, members, seed)
    tensors, asked = document.inputs.decode(golden.X), str(found.version)
    rows = row_count(tensors)
    name = model or directory.resolve().name

    batchings = _batchings(rows, seed)
    answers = [
        (np.sort(np.concatenate(chunks)), _ask(client, name, asked, tensors, tuple(golden.outputs), chunks))
        for chunks in batchings.values()
    ]
    whole = max(answers, key=lambda each: len(each[0]))[1]
    return Verification(
        model=name,
        version=asked,
        rows=rows,
        outputs=tuple(
            OutputCheck(
                output,
                max(
                    (
                        _parity(answer[output], wanted[sent], _units(golden.units[output], wanted)[sent])
                        for sent, answer in answers
                    ),
                    key=lambda parity: np.nan_to_num(parity.excess, nan=np.inf),
                ),
                document.parity.tolerance,
            )
            for output, wanted in golden.outputs.items()
        ),
        batchings=tuple(batchings),
        bit_identical=all(
            answer[output].tobytes() == whole[output][sent].tobytes() for sent, answer in answers for output in whole
        ),
        members=None if models is None else (min(members or models, models), models),
    )


def _of_members(golden: Golden, models: int, members: int, seed: int) -> Golden:
    """Return the golden rows of some of a fleet's models, which are drawn."""
    if members < 1:
        raise RowsError(f"members is {members}; at least 1 is needed.")
    drawn = np.random.default_rng(seed).permutation(models)[:members]
    kept = np.isin(golden.X[:, -1], drawn)
    outputs, units = ({name: each[kept] for name, each in arrays.items()} for arrays in (golden.outputs, golden.units))
    return Golden(golden.X[kept], outputs, units)


def _batchings(rows: int, seed: int) -> dict[str, list[np.ndarray]]:
    """Return name → the rows of each request."""
    in_order, shuffled = np.arange(rows), np.random.default_rng(seed).permutation(rows)
    single = in_order if rows <= _SINGLE_ROWS else np.sort(shuffled[:_SINGLE_ROWS])
    alone = "one row at a time" if len(single) == rows else f"{len(single)} of the rows one at a time"
    return {
        alone: [single[row : row + 1] for row in range(len(single))],
        "all at once": [in_order],
        "shuffled, in odd sizes": list(_odd_chunks(shuffled)),
    }


def _odd_chunks(order: np.ndarray) -> Iterator[np.ndarray]:
    times = 1 + 2 * (len(order) * len(_ODD_SIZES) // (2 * sum(_ODD_SIZES) * _ODD_REQUESTS))  # odd: sizes stay odd
    first = count = 0
    while first < len(order):
        size = times * _ODD_SIZES[count % len(_ODD_SIZES)]
        yield order[first : first + size]
        first, count = first + size, count + 1


def _ask(
    client: Client,
    model: str,
    version: str,
    tensors: Tensors,
    outputs: tuple[str, ...],
    chunks: list[np.ndarray],
) -> dict[str, np.ndarray]:
    """Return output name → answers [rows, width], in the order of the tensors' rows."""
    parts = [client.infer(model, take(tensors, rows), outputs=outputs, version=version) for rows in chunks]
    back = np.argsort(np.concatenate(chunks))
    return {name: np.concatenate([part[name] for part in parts])[back] for name in outputs}


def _units(units: Sequence[float] | np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the unit of each answer's error, `[rows, width]`."""
    return np.broadcast_to(np.asarray(units), wanted.shape)


def _parity(answer: np.ndarray, wanted: np.ndarray, units: Sequence[float] | np.ndarray) -> Parity:
    """Return the result of `measure`; infinite if the server answers with another width."""
    if answer.shape != wanted.shape:
        return Parity(np.inf, np.inf, np.inf)
    return measure(answer, wanted, units)
