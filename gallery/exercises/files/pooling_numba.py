"""Pooling in Numba CUDA: yᵢ = Σ x[i + k] over 0 ≤ k < window, for x [n] and y [n − window + 1].

    x        0  1  2  3  4  5  6  7  8
             └── block 0 ─┘               4 threads a block, window = 3
    shared   0  1  2  3  4  5             THREADS + window − 1 numbers, read once
    y₀       └──┴──┘
    y₁          └──┴──┘
    y₂             └──┴──┘
    y₃                └──┴──┘             the last windows hang over the block's end

Every thread makes one element of y from shared memory. Complete `add_window`; `solve` is done.
Page: docs/gallery.md, step 5 and the puzzles in Numba.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try pooling_numba --hint 1        (and 2, and 3)
    python -m gallery try pooling_numba --solution
"""

import torch
from numba import cuda, float32

EXERCISE = "pooling_numba"
THREADS = 128
"""The threads of a block."""


def array(tensor: torch.Tensor):
    """Return a tensor as an array that Numba takes, over the same memory."""
    return tensor if tensor.is_cuda else tensor.numpy()


@cuda.jit
def add_window(x, y, window):
    """Write one element of y; x: [n], y: [n − window + 1]."""
    shared = cuda.shared.array(0, float32)  # of THREADS + window − 1 numbers, as the launch says
    # Your part: copy, wait for all threads, and sum a window of `shared`.


def solve(x: torch.Tensor, window: int) -> torch.Tensor:
    """Return the sums of all windows."""
    y = torch.empty(len(x) - window + 1, device=x.device)
    shared_bytes = 4 * (THREADS + window - 1)
    add_window[-(-len(y) // THREADS), THREADS, 0, shared_bytes](array(x), array(y), window)
    return y
