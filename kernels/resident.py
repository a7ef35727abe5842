"""Answers rows that lie in the device's memory with new tensors there, on torch's current stream.

A small call costs latency. One captured graph brings its rows, searches and computes them, and puts the answers where
they belong. The addresses of rows and answers and the number of rows change from call to call: they lie in a table in
pinned memory, which the first kernel reads. A large call costs bandwidth. Its rows are read where they lie, in pieces
as large as the memory for intermediate values allows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from .branches import Task
from .chunks import Chunk, Lane, graph_rows
from .gather import Gathering
from .plan import INPUT
from .program import Program
from .staging import chunk_rows

MOST_ROWS, MOST_NUMBERS = 2**16, 2**24
"""Rows of a piece, and numbers of each value made on the way, unless a chunk has more."""

MOST_STREAMED_ROWS, MOST_STREAMED_NUMBERS = 2**20, 2**26
"""The same where one kernel makes the answers and reads its rows once, so that no other memory is needed."""

ALIGNED_BYTES = 16
"""Kernels are compiled for buffers that begin at a multiple of so many bytes; others might change an answer's bits."""

BLOCK = 2048
WARPS = 8

SEARCH_BLOCK = 8192

ADDRESS, NUMBERS, ROWS, ANSWERS = range(4)
"""Places of a call's table: of its rows their address, how many numbers and how many rows they are, then of each answer
its address."""

Outputs = tuple[str, ...]

Answers = dict[str, torch.Tensor]

Prepared = Callable[[torch.Tensor], Answers | None]
"""Returns the outputs of rows, or None where a number is not allowed."""


@triton.jit
def refused(x, column, here, nan_allowed, NAN: tl.constexpr):
    """Return which numbers are infinite, or NaN in a column that may not hold it."""
    found = here & ~(tl.abs(x) < float("inf"))
    if NAN:
        may = tl.load(nan_allowed + column, mask=found, other=0) != 0
        found = found & ~(may & (x != x))
    return found


@triton.jit(do_not_specialize=["n_features"])
def take_kernel(
    table,  # int64 [TABLE], in pinned memory: see ADDRESS
    copied,  # int64 [TABLE]
    nan_allowed,  # uint8 [n_features]: whether a column may hold NaN
    wrong,  # int32 [1]: becomes 1 where a number is not allowed
    out,  # [rows, n_features], of at least as many rows as the call
    n_features,
    ADDRESS: tl.constexpr,
    NUMBERS: tl.constexpr,
    NAN: tl.constexpr,  # whether any column may hold NaN
    TABLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program copies and searches `BLOCK` numbers; the first also copies the table, for the last kernels."""
    program = tl.program_id(0)
    address = tl.load(table + ADDRESS)
    size = tl.load(table + NUMBERS)
    if program == 0:
        place = tl.arange(0, TABLE)
        tl.store(copied + place, tl.load(table + place))
    start = program.to(tl.int64) * BLOCK
    if start < size:
        offset = tl.arange(0, BLOCK)
        here = offset < size - start
        x = tl.load(address.to(tl.pointer_type(out.dtype.element_ty)) + start + offset, mask=here, other=0)
        tl.store(out + start + offset, x, mask=here)
        column = ((start % n_features).to(tl.int32) + offset) % n_features
        if tl.max(refused(x, column, here, nan_allowed, NAN).to(tl.int32), 0) > 0:
            tl.store(wrong, 1)


@triton.jit
def give_kernel(
    source,  # float32 [rows, WIDTH], of at least as many rows as the call
    copied,  # int64 [TABLE]
    ROWS: tl.constexpr,
    PLACE: tl.constexpr,  # where the table has the answer's address
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program copies `BLOCK` numbers of the call's rows to its answer."""
    address = tl.load(copied + PLACE)
    size = tl.load(copied + ROWS) * WIDTH
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = at < size
    tl.store(address.to(tl.pointer_type(tl.float32)) + at, tl.load(source + at, mask=here), mask=here)


@triton.jit(do_not_specialize=["n_features"])
def search_kernel(
    x,  # [size]
    nan_allowed,  # uint8 [n_features]: whether a column may hold NaN
    wrong,  # int32 [1]: becomes 1 where a number is not allowed
    size,
    n_features,
    NAN: tl.constexpr,  # whether any column may hold NaN
    BLOCK: tl.constexpr,
):
    """A program searches `BLOCK` numbers; whole blocks are read without a mask, 16 bytes at a time."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offset = tl.arange(0, BLOCK)
    here = offset < size - start
    if start + BLOCK <= size:  # noqa: SIM108
        numbers = tl.load(x + start + offset)
    else:
        numbers = tl.load(x + start + offset, mask=here, other=0)
    column = ((start % n_features).to(tl.int32) + offset) % n_features
    if tl.max(refused(numbers, column, here, nan_allowed, NAN).to(tl.int32), 0) > 0:
        tl.store(wrong, 1)


class Resident:
    """Rows of a program's input in its device's memory to outputs there; one call at a time.

    The device is the current one. No two calls' answers share memory.
    """

    def __init__(self, program: Program, lane: Lane, gathering: Gathering, dtype: torch.dtype) -> None:
        self._program = program
        self._lane = lane
        self._dtype = dtype
        self._on_gpu = program.device.type == "cuda"
        self._nan_allowed, self._nan = gathering.nan_allowed, gathering.nan
        self._wrong = torch.zeros(1, dtype=torch.int32, pin_memory=self._on_gpu)
        self._found = self._wrong.numpy()
        self._n_features = program.plan.n_features
        self._chunk_rows = chunk_rows(self._n_features * dtype.itemsize, MOST_STREAMED_ROWS)
        self._held: dict[str, torch.Tensor] = {}
        self._small: dict[Outputs, _Small] = {}

    def prepared(self, rows: int, outputs: Outputs) -> Prepared | None:
        """Return what answers so many rows by a graph that is captured; None unless such a call came before."""
        small = self._small.get(outputs)
        return None if small is None else small.prepared.get(graph_rows(rows))

    def answer(self, X: torch.Tensor, outputs: Outputs) -> Answers | None:
        """Return outputs of rows, or None where a number is not allowed, once they are there.

        What made `X` on torch's current stream comes before. This stream is waited for, and no other one: but a call
        whose number of rows is met first captures a graph, and waits for that.

        Args:
            X: contiguous `[rows, n_features]` of the plan's dtype, at least one row.
            outputs: their names.
        """
        size = graph_rows(len(X))
        if size > self._chunk_rows:
            return self._in_pieces(X if X.data_ptr() % ALIGNED_BYTES == 0 else X.clone(), outputs)
        small = self._small.get(outputs)
        if small is None:
            small = self._small[outputs] = self._bind(outputs)
        return (small.prepared.get(size) or small.prepare(size))(X)

    def _bind(self, outputs: Outputs) -> _Small:
        """Lay out what computes at most a chunk of rows."""
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
        return _Small(Chunk((take, *compute, *give), self._lane), buffers, table, self._wrong, given)

    def _take(self, table: torch.Tensor, copied: torch.Tensor, given: torch.Tensor, rows: int) -> None:
        take_kernel[(triton.cdiv(rows * self._n_features, BLOCK),)](
            table=table,
            copied=copied,
            nan_allowed=self._nan_allowed,
            wrong=self._wrong,
            out=given,
            n_features=self._n_features,
            ADDRESS=ADDRESS,
            NUMBERS=NUMBERS,
            NAN=self._nan,
            TABLE=len(table),
            BLOCK=BLOCK,
            num_warps=WARPS,
        )

    def _in_pieces(self, X: torch.Tensor, outputs: Outputs) -> Answers | None:
        """Compute any number of rows where they lie.

        Where an output cannot be finite for a row that holds what is not finite, the outputs are searched, which are
        less than the rows; these are only searched if one is found.
        """
        program = self._program
        steps = program.plan.steps_for(outputs)
        answers = {name: self._new(len(X), name) for name in outputs}
        telling = None if self._nan else self._telling(outputs)
        self._found[0] = 0
        if telling is None:
            self._search(X, nan=self._nan)
        size, held = self._piece_rows(outputs), dict[str, torch.Tensor]()
        for start in range(0, len(X), size):
            given = X[start : start + size]
            into = {name: answer[start : start + size] for name, answer in answers.items()}
            for task in program.tasks(steps, held, min(size, len(X)), into, given):
                task.launch(len(given))
        if telling is not None:
            self._search(answers[telling], nan=False)
        self._settle()
        if telling is not None and self._found[0]:
            self._found[0] = 0
            self._search(X, nan=False)
            self._settle()
        return None if self._found[0] else answers

    def _telling(self, outputs: Outputs) -> str | None:
        """Return an output that is not finite where a number of its row is not, if there is one."""
        steps = {step.output: step for step in self._program.plan.steps_for(outputs)}
        for name in outputs:
            step = steps.get(self._program.plan.outputs[name])
            if step is not None and list(step.inputs) == [INPUT] and step.operation.passes_on_not_finite():
                return name
        return None

    def _piece_rows(self, outputs: Outputs) -> int:
        """Return how many rows are computed at once, a multiple of `ALIGNED_BYTES`."""
        steps = self._program.plan.steps_for(outputs)
        streamed = len(steps) == 1 and steps[0].operation.reads_input_once()
        rows, numbers = (MOST_STREAMED_ROWS, MOST_STREAMED_NUMBERS) if streamed else (MOST_ROWS, MOST_NUMBERS)
        widest = max(self._n_features, *(self._program.widths[step.output] for step in steps))
        rows = max(min(rows, numbers // widest), self._chunk_rows)
        return max(rows // ALIGNED_BYTES * ALIGNED_BYTES, 1)

    def _search(self, x: torch.Tensor, *, nan: bool) -> None:
        """Begin to search a contiguous matrix."""
        search_kernel[(triton.cdiv(x.numel(), SEARCH_BLOCK),)](
            x=x,
            nan_allowed=self._nan_allowed,
            wrong=self._wrong,
            size=x.numel(),
            n_features=self._n_features,
            NAN=nan,
            BLOCK=SEARCH_BLOCK,
            num_warps=WARPS,
        )

    def _new(self, rows: int, output: str) -> torch.Tensor:
        width = self._program.widths[self._program.plan.outputs[output]]
        return torch.empty(rows, width, dtype=torch.float32, device=self._program.device)

    def _settle(self) -> None:
        """Wait for torch's current stream."""
        if self._on_gpu:
            torch.cuda.current_stream(self._program.device).synchronize()


class _Small:
    """A set of outputs of at most a chunk of rows; `prepared` has what answers, by the rows of its graph."""

    def __init__(
        self,
        chunk: Chunk,
        buffers: Mapping[str, torch.Tensor],
        table: torch.Tensor,
        wrong: torch.Tensor,
        given: torch.Tensor,
    ) -> None:
        self._chunk = chunk
        self._widths = {name: buffer.shape[1] for name, buffer in buffers.items()}
        self._table, self._wrong = table.numpy(), wrong.numpy()
        self._n_features, self._device = given.shape[1], given.device
        self.prepared: dict[int, Prepared] = {}

    def prepare(self, size: int) -> Prepared:
        """Return what answers at most `size` rows, and keep it."""
        table, wrong, n_features, device = self._table, self._wrong, self._n_features, self._device
        table[:] = 0  # no rows: what compiles the kernels reads and writes nowhere
        run = self._chunk.replayer(size, device)
        widths, last = list(self._widths.items()), ANSWERS + len(self._widths)

        def answer(X: torch.Tensor) -> Answers | None:
            rows = X.shape[0]
            found = {name: torch.empty((rows, width), dtype=torch.float32, device=device) for name, width in widths}
            table[:last] = [X.data_ptr(), rows * n_features, rows, *[each.data_ptr() for each in found.values()]]
            wrong[0] = 0
            run()
            return None if wrong[0] else found

        self.prepared[size] = answer
        return answer


def _give(buffer: torch.Tensor, copied: torch.Tensor, place: int, rows: int) -> None:
    width = buffer.shape[1]
    give_kernel[(triton.cdiv(rows * width, BLOCK),)](
        source=buffer, copied=copied, ROWS=ROWS, PLACE=place, WIDTH=width, BLOCK=BLOCK, num_warps=WARPS
    )
