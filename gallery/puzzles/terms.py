"""The terms of CUDA, as Numba has them, beside those of the Triton language."""

from __future__ import annotations

HEADINGS = ("CUDA, in Numba", "Triton language", "what differs")
TERMS = (
    ("`@cuda.jit`", "`@triton.jit`", "the program of one thread; the program of a block of lanes"),
    ("`cuda.threadIdx.x`", "`tl.arange(0, BLOCK)`", "one thread's number; the numbers of all lanes at once"),
    ("`cuda.blockIdx.x`", "`tl.program_id(0)`", "the same"),
    ("`cuda.blockDim.x`", "`BLOCK: tl.constexpr`", "threads of a block; lanes of a block, a power of two"),
    ("`cuda.gridDim.x`", "`tl.num_programs(0)`", "the same"),
    ("`cuda.grid(1)`", "`tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)`", "one place; a block of places"),
    ("`kernel[blocks, threads]`", "`kernel[(programs,)]`", "a block's threads by hand; `num_warps`, for all lanes"),
    ("`if i < n:`", "`mask=at < n`", "a branch of each thread; lanes that neither load nor store"),
    ("`x[i, j]`", "`tl.load(x + i * stride + j, mask=…, other=…)`", "arrays with strides; pointers"),
    ("`z[i] = value`", "`tl.store(z + at, value, mask=…)`", "likewise"),
    ("`cuda.shared.array(…)`", "–", "the compiler puts into shared memory what threads share"),
    ("`cuda.syncthreads()`", "–", "the compiler places the barriers"),
    ("a tree in shared memory", "`tl.sum`, `tl.max`, `tl.reduce`", "log₂ steps with barriers; one word"),
    ("`cuda.atomic.add(z, i, value)`", "`tl.atomic_add(z + at, value)`", "the same"),
    ("`value if condition else other`", "`tl.where(condition, value, other)`", "one of the two; both are computed"),
    ("`NUMBA_ENABLE_CUDASIM=1`", "`TRITON_INTERPRET=1`", "runs without a GPU, slowly"),
)
"""What corresponds, a line each, in the order of `HEADINGS`."""


def markdown() -> str:
    """Return the terms as a table of a page."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *TERMS]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
