"""Places in a flat matrix."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def below(at, size, WIDTH: tl.constexpr):
    """Return whether places that follow each other are below the size of a matrix, a multiple of WIDTH.

    Where WIDTH is a multiple of four, four places in a row are all below it or none is. Told so, the compiler has a
    thread load four numbers at once, the 16 bytes of a load.
    """
    inside = at < size
    if WIDTH % 4 == 0:
        inside = tl.max_constancy(inside, [4])
    return inside
