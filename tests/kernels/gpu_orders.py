"""Compares the order of sums in kernels for a fleet's members and for one model: `python -m tests.kernels.gpu_orders`.

The compiler spreads a block over threads as it reads it, and the threads' parts of a sum are added in an order that
follows from this layout. A stacked operation reads the arrays of each row's member and gives a row the bits of this
member's own operation only if its sums and products have the same layouts. The interpreter cannot show that.

The program compiles both for a GPU, without one, and prints one line of JSON for each operation in `ORDERED`: its name
and the layouts of sums and products that both kernels have. TRITON_INTERPRET must not be set.
"""

from __future__ import annotations

import json
import re
from typing import Any

import torch
from triton.runtime.jit import JITFunction

from tests.kernels.gpu_compile import compile_for
from tests.kernels.gpu_launches import record
from tests.kernels.operations_stacked import MEMBERS, stacked
from triton_regressors.kernels.plan.plan import Operation

KINDS = ((90, torch.float32), (80, torch.float64))

ORDERED = {n: each for n, each in MEMBERS.items() if not (n.endswith("in int8") or "neighbors" in n)}
"""The members whose sums follow a layout: those of integers have no order, and those of neighbours one of their own."""

EXACT = ("rows_as_digits_kernel", "stacked_rows_as_digits_kernel")
"""Kernels whose sums are exact, those of `fp16_digits.squared_norm`: they have the same bits in any order."""


def layouts(capability: int, kernel: JITFunction[Any], arguments: dict[str, Any], options: dict[str, Any]) -> set[str]:
    """Return the types, with their layouts, of float blocks that a kernel adds up or multiplies.

    Blocks with one column and blocks of integers are left out: their sums have no order. Exact sums have no layout.
    """
    if kernel.__name__ in EXACT:
        return {"exact sums"}
    code = compile_for(capability, kernel, arguments, options).asm["ttgir"]
    named = dict(re.findall(r"^(#\w+) = (#ttn?g\..*)$", code, re.MULTILINE))
    sums = re.findall(r'"tt\.reduce".*?\}\) : \((tensor<.*?>)\) -> ', code, re.DOTALL)
    products = re.findall(r"tt\.dot .* : (tensor<.*>) -> ", code)
    found = {each for each in [*sums, *products] if not re.match(r"tensor<(\d+x1xf|(\d+x)+i|\d+xf)", each)}
    for _ in range(2):  # a layout may name another
        found = {re.sub(r"#\w+\b(?![.<])", lambda name: named.get(name[0], name[0]), each) for each in found}
    return found


def orders(operation: Operation, widths: list[int]) -> list[list[str]]:
    """Return the layouts of an operation's sums and products for each of the kinds."""
    return [
        sorted(set().union(*(layouts(capability, *each) for each in record(operation, widths, dtype))))
        for capability, dtype in KINDS
    ]


def main() -> None:
    """Print the layouts of each stacked operation, and of the operation of its first member."""
    for name, (members, widths) in ORDERED.items():
        alone, together = orders(members[0], list(widths)), orders(stacked(members, 2), [*widths, 1])
        print(json.dumps({"name": name, "alone": alone, "together": together}), flush=True)


if __name__ == "__main__":
    main()
