"""Answers rows that lie in the device's memory with new tensors there, on torch's current stream.

A small call costs latency. One captured CUDA graph copies its rows, searches and computes them, and writes the answers
to their tensors. The addresses of rows and answers and the number of rows change from call to call. They lie in a table
in pinned memory, which the first kernel reads. A large call costs bandwidth. Its rows are read in place, in pieces as
large as the memory for intermediate values allows.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..plan.plan import INPUT, Step
from .gather import Gathering
from .graphs import Chunk, Lane, graph_rows
from .program import Program
from .staging import chunk_rows
from .streams import Task

MOST_ROWS, MOST_NUMBERS = 2**17, 2**24
"""The most rows of a piece and numbers of an intermediate value, unless a chunk has more rows."""

MOST_STREAMED_ROWS, MOST_STREAMED_NUMBERS = 2**20, 2**26
"""The same limits if one kernel makes the answers and reads its rows once, so that it needs no other memory."""

ALIGNED_BYTES = 16
"""The alignment of buffers that kernels are compiled for; another alignment might change an answer's bits."""

BLOCK, WARPS = 1024, 4
SEARCHED_BLOCK, SEARCHED_WARPS = 8192, 8

ADDRESS, NUMBERS, ROWS, WRONG, ANSWERS = range(5)
"""Places of a call's table: the address of its rows, the count of their numbers, the count of rows, a flag for
forbidden numbers, and from `ANSWERS` on the addresses of its answers."""

Outputs = tuple[str, ...]

Answers = dict[str, torch.Tensor]

Prepared = Callable[[torch.Tensor, bool], Answers | None]
"""Returns the outputs of rows, or None if a number is not allowed; if the flag is set, one column as `[rows]`."""


@triton.jit
def note_refused(x, start, here, nan_allowed, wrong, n_features, NAN: tl.constexpr, BLOCK: tl.constexpr):
    """Store 1 to `wrong` if one of the numbers from index `start` on is infinite, or NaN in a column without NaN."""
    refused = here & ~(tl.abs(x) < float("inf"))
    if tl.max(refused.to(tl.int32), 0) > 0:
        if NAN:
            column = ((start % n_features).to(tl.int32) + tl.arange(0, BLOCK)) % n_features
            may = tl.load(nan_allowed + column, mask=refused, other=0) != 0
            refused = refused & ~(may & (x != x))
        if tl.max(refused.to(tl.int32), 0) > 0:
            tl.store(wrong, 1)


@triton.jit(do_not_specialize=["n_features"])
def take_kernel(
    table,  # int64 [TABLE], in pinned memory: see ADDRESS
    copied,  # int64 [TABLE]
    nan_allowed,  # uint8 [n_features]: whether a column may hold NaN
    out,  # [rows, n_features], of at least as many rows as the call
    n_features,
    WRONG: tl.constexpr,  # which place of the table becomes 1 where a number is not allowed
    NAN: tl.constexpr,  # whether any column may hold NaN
    TABLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy and search `BLOCK` numbers with each program; the first also copies the table for the last kernels."""
    program = tl.program_id(0)
    which = tl.arange(0, 2)
    read = tl.load(table + which)  # the address and the number of numbers
    address, size = tl.sum(tl.where(which == 0, read, 0), 0), tl.sum(tl.where(which == 1, read, 0), 0)
    if program == 0:
        place = tl.arange(0, TABLE)
        tl.store(copied + place, tl.load(table + place))
    start = program.to(tl.int64) * BLOCK
    if start < size:
        offset = tl.arange(0, BLOCK)
        here = offset < size - start
        x = tl.load(address.to(tl.pointer_type(out.dtype.element_ty)) + start + offset, mask=here, other=0)
        tl.store(out + start + offset, x, mask=here)
        note_refused(x, start, here, nan_allowed, table + WRONG, n_features, NAN, BLOCK)


@triton.jit
def give_kernel(
    source,  # float32 [rows, WIDTH], of at least as many rows as the call
    copied,  # int64 [TABLE]
    ROWS: tl.constexpr,
    PLACE: tl.constexpr,  # where the table has the answer's address
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy `BLOCK` numbers of the call's rows to its answer with each program."""
    address = tl.load(copied + PLACE)
    size = tl.load(copied + ROWS) * WIDTH
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = at < size
    tl.store(address.to(tl.pointer_type(tl.float32)) + at, tl.load(source + at, mask=here), mask=here)


@triton.jit(do_not_specialize=["n_features"])
def search_kernel(
    x,  # [size]
    nan_allowed,  # uint8 [n_features]: whether a column may hold NaN
    wrong,  # int64 [1]: becomes 1 where a number is not allowed
    size,
    n_features,
    NAN: tl.constexpr,  # whether any column may hold NaN
    BLOCK: tl.constexpr,
):
    """Search `BLOCK` numbers with each program; whole blocks are read without a mask, 16 bytes at a time."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offset = tl.arange(0, BLOCK)
    here = offset < size - start
    if start + BLOCK <= size:  # noqa: SIM108
        numbers = tl.load(x + start + offset)
    else:
        numbers = tl.load(x + start + offset, mask=here, other=0)
    note_refused(numbers, start, here, nan_allowed, wrong, n_features, NAN, BLOCK)


class Resident:
    """Computes outputs in the device's memory from rows there; one call at a time.

    The device must be the current one. No two calls' answers share memory.
    """

    def __init__(self, program: Program, lane: Lane, gathering: Gathering, dtype: torch.dtype) -> None:
        self._program = program
        self._lane = lane
        self._dtype = dtype
        self._on_gpu = program.device.type == "cuda"
        self._nan_allowed, self._nan = gathering.nan_allowed, gathering.nan
        self._wrong = torch.zeros(1, dtype=torch.int64, pin_memory=self._on_gpu)
        self._found = self._wrong.numpy()
        self._n_features = program.plan.n_features
        self._chunk_rows = chunk_rows(self._n_features * dtype.itemsize, MOST_STREAMED_ROWS)
        self._held: dict[str, torch.Tensor] = {}
        self._small: dict[Outputs, _Small] = {}
        self._large: dict[Outputs, _Large] = {}

    def prepared(self, rows: int, outputs: Outputs) -> Prepared | None:
        """Return a function that answers `rows` rows by a captured graph; None unless an earlier call captured it."""
        small = self._small.get(outputs)
        return None if small is None else small.prepared.get(graph_rows(rows))

    def answer(self, X: torch.Tensor, outputs: Outputs) -> Answers | None:
        """Return outputs of rows, or None if a number is not allowed, once they are computed.

        The work runs after earlier work on torch's current stream, such as the kernels that made `X`. The call waits
        for this stream only. The first call with a graph size also captures the graph and waits for that.

        Args:
            X: contiguous `[rows, n_features]` of the plan's dtype, at least one row.
            outputs: the names of the outputs.
        """
        size = graph_rows(len(X))
        if size > self._chunk_rows:
            return self._in_pieces(X if X.data_ptr() % ALIGNED_BYTES == 0 else X.clone(), outputs)
        small = self._small.get(outputs)
        if small is None:
            small = self._small[outputs] = self._bind(outputs)
        return (small.prepared.get(size) or small.prepare(size))(X, False)

    def _bind(self, outputs: Outputs) -> _Small:
        """Lay out buffers and launches for at most a chunk of rows."""
        program, rows = self._program, self._chunk_rows
        given = torch.zeros(rows, self._n_features, dtype=self._dtype, device=program.device)
        buffers = {name: self._new(rows, name) for name in outputs}
        table = torch.zeros(triton.next_power_of_2(ANSWERS + len(outputs)), dtype=torch.int64, pin_memory=self._on_gpu)
        copied = torch.zeros(len(table), dtype=torch.int64, device=program.device)
        take = Task((), INPUT, functools.partial(self._take, table, copied, given))
        compute = program.tasks(program.plan.steps_for(outputs), self._held, rows, buffers, given)
        made = {task.makes for task in compute}
        give = []
        for place, (name, buffer) in enumerate(buffers.items(), ANSWERS):
            copy = f"output {name}"
            reads = copy if copy in made else program.plan.outputs[name]
            give.append(Task((reads,), f"answer {name}", functools.partial(_give, buffer, copied, place)))
        self._settle()
        return _Small(Chunk((take, *compute, *give), self._lane), buffers, table, given)

    def _take(self, table: torch.Tensor, copied: torch.Tensor, given: torch.Tensor, rows: int) -> None:
        take_kernel[(triton.cdiv(rows * self._n_features, BLOCK),)](
            table=table,
            copied=copied,
            nan_allowed=self._nan_allowed,
            out=given,
            n_features=self._n_features,
            WRONG=WRONG,
            NAN=self._nan,
            TABLE=len(table),
            BLOCK=BLOCK,
            num_warps=WARPS,
        )

    def _in_pieces(self, X: torch.Tensor, outputs: Outputs) -> Answers | None:
        """Compute any number of rows in place.

        If an output is never finite for a row with a number that is not finite, this method searches that output, which
        is smaller than the rows. It searches the rows only if the output holds such a number.
        """
        large = self._large.get(outputs)
        if large is None:
            large = self._large[outputs] = self._plan_pieces(outputs)
        rows, size, held = len(X), large.rows, dict[str, torch.Tensor]()
        answers = {name: self._new(rows, name) for name in outputs}
        self._found[0] = 0
        if large.telling is None:
            self._search(X, nan=self._nan)
        for start in range(0, rows, size):
            given, into = X, answers
            if rows > size:
                given = X[start : start + size]
                into = {name: answer[start : start + size] for name, answer in answers.items()}
            for task in self._program.tasks(large.steps, held, min(size, rows), into, given):
                task.launch(len(given))
        if large.telling is not None:
            self._search(answers[large.telling], nan=False)
        self._settle()
        if large.telling is not None and self._found[0]:
            self._found[0] = 0
            self._search(X, nan=False)
            self._settle()
        return None if self._found[0] else answers

    def _plan_pieces(self, outputs: Outputs) -> _Large:
        plan, widths = self._program.plan, self._program.widths
        steps = plan.steps_for(outputs)
        streamed = len(steps) == 1 and steps[0].operation.reads_input_once()
        rows, numbers = (MOST_STREAMED_ROWS, MOST_STREAMED_NUMBERS) if streamed else (MOST_ROWS, MOST_NUMBERS)
        rows = max(min(rows, numbers // max(self._n_features, *(widths[step.output] for step in steps))), 1)
        rows = max(rows, self._chunk_rows) // ALIGNED_BYTES * ALIGNED_BYTES
        telling = {
            step.output
            for step in steps
            if not self._nan and list(step.inputs) == [INPUT] and step.operation.passes_on_not_finite()
        }
        return _Large(
            steps, next((name for name in outputs if plan.outputs[name] in telling), None), max(rows, ALIGNED_BYTES)
        )

    def _search(self, x: torch.Tensor, *, nan: bool) -> None:
        """Start to search a contiguous matrix."""
        search_kernel[(triton.cdiv(x.numel(), SEARCHED_BLOCK),)](
            x=x,
            nan_allowed=self._nan_allowed,
            wrong=self._wrong,
            size=x.numel(),
            n_features=self._n_features,
            NAN=nan,
            BLOCK=SEARCHED_BLOCK,
            num_warps=SEARCHED_WARPS,
        )

    def _new(self, rows: int, output: str) -> torch.Tensor:
        width = self._program.widths[self._program.plan.outputs[output]]
        return torch.empty(rows, width, dtype=torch.float32, device=self._program.device)

    def _settle(self) -> None:
        """Wait for torch's current stream."""
        if self._on_gpu:
            torch.cuda.current_stream(self._program.device).synchronize()


class _Large(NamedTuple):
    """The work for any number of rows: the steps, the rows of a piece, and the output to search.

    `telling` is an output that is not finite if a number of its row is not; if it is None, the rows are searched.
    """

    steps: Sequence[Step]
    telling: str | None
    rows: int


class _Small:
    """A set of outputs of at most a chunk of rows; `prepared` holds the answering functions by their graph's rows."""

    def __init__(
        self, chunk: Chunk, buffers: Mapping[str, torch.Tensor], table: torch.Tensor, given: torch.Tensor
    ) -> None:
        self._chunk = chunk
        self._widths = [(name, buffer.shape[1]) for name, buffer in buffers.items()]
        self._table = table
        self._n_features, self._device = given.shape[1], given.device
        self.prepared: dict[int, Prepared] = {}

    def prepare(self, size: int) -> Prepared:
        """Return a function that answers at most `size` rows, and keep it."""
        self._table.zero_()  # no rows: the launches that compile the kernels read and write nothing
        begin = self._chunk.replayer(size, self._device)
        n_features, widths = self._n_features, self._widths
        table = self._table.numpy().data
        lay = struct.Struct(f"{ANSWERS + len(widths)}q").pack_into

        def answer(X: torch.Tensor, flat: bool) -> Answers | None:
            rows = X.shape[0]
            found = {name: X.new_empty((rows, width), dtype=torch.float32) for name, width in widths}
            lay(table, 0, X.data_ptr(), rows * n_features, rows, 0, *[each.data_ptr() for each in found.values()])
            wait = begin()
            if flat:
                found = {name: found[name].view(rows) if width == 1 else found[name] for name, width in widths}
            wait()
            return None if table[WRONG] else found

        self.prepared[size] = answer
        return answer


def _give(buffer: torch.Tensor, copied: torch.Tensor, place: int, rows: int) -> None:
    width = buffer.shape[1]
    give_kernel[(triton.cdiv(rows * width, BLOCK),)](
        source=buffer, copied=copied, ROWS=ROWS, PLACE=place, WIDTH=width, BLOCK=BLOCK, num_warps=WARPS
    )
