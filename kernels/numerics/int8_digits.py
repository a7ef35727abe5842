"""Whole numbers of 32 bits as four digits of eight, which a GPU's matrix units multiply."""

from __future__ import annotations

import triton
import triton.language as tl

from .dot import INTERPRETED

TRANSPOSED = tl.constexpr("""{
    .reg .b32 a, b, c, d;
    prmt.b32 a, $4, $5, 0x5140;
    prmt.b32 b, $4, $5, 0x7362;
    prmt.b32 c, $6, $7, 0x5140;
    prmt.b32 d, $6, $7, 0x7362;
    prmt.b32 $3, a, c, 0x5410;
    prmt.b32 $2, a, c, 0x7632;
    prmt.b32 $1, b, d, 0x5410;
    prmt.b32 $0, b, d, 0x7632;
}""")
"""The bytes of four numbers, grouped by place, the highest place first."""


@triton.jit
def split(q):
    """Return the digits of int32 numbers as int8, the highest first."""
    signed = (q + 0x808080) ^ 0x808080
    if INTERPRETED:
        d0, d1 = (signed >> 24).to(tl.int8), (signed >> 16).to(tl.int8)
        d2, d3 = (signed >> 8).to(tl.int8), signed.to(tl.int8)
    else:
        d0, d1, d2, d3 = tl.inline_asm_elementwise(
            TRANSPOSED, "=r,=r,=r,=r,r,r,r,r", [signed], (tl.int8, tl.int8, tl.int8, tl.int8), True, 4
        )
    return d0, d1, d2, d3
