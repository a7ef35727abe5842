"""Reused memory is free: no array lies over it any more."""

import numpy as np

from triton_regressors.scoring.buffers import MOST_KEPT, Buffers

FLOAT32 = np.dtype(np.float32)


def test_memory_is_used_again_once_no_array_lies_over_it() -> None:
    buffers = Buffers()
    whole = buffers.by_columns(2**16, 8, FLOAT32)
    place = whole.__array_interface__["data"]
    part = whole[100:200].T[3]
    part[:] = 7
    del whole
    others = [buffers.by_columns(2**16, 8, FLOAT32) for _ in range(MOST_KEPT + 1)]
    for other in others:
        other[:] = 0
    assert (part == 7).all()
    assert place not in [other.__array_interface__["data"] for other in others]
    del part, other
    smaller = buffers.by_columns(2**14, 8, np.dtype(np.float64))
    assert smaller.__array_interface__["data"] == place
    larger = buffers.by_columns(2**17, 8, FLOAT32)
    larger[:] = 1
    assert larger.shape == (2**17, 8)
    del others, smaller, larger
    assert len(buffers._free) == MOST_KEPT


def test_columns_of_a_large_matrix_lie_in_one_piece_each() -> None:
    for rows, columns in [(3, 5), (1024, 4), (2**16, 8)]:
        matrix = Buffers().by_columns(rows, columns, FLOAT32)
        assert matrix.shape == (rows, columns)
        assert matrix[:, 0].flags.c_contiguous
        assert matrix.flags.writeable
