"""Answers to the exercises: the lines that fill each gap, and mistakes as people make them."""

from dataclasses import dataclass

GAP = "    # Your part"

RIGHT = {
    "map": """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, value.to(tl.float32) + c, mask=at < n)
""",
    "zip": """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(z + at, value, mask=at < n)
""",
    "map_2d": """
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (i < rows) & (j < columns)
    value = tl.load(x + i * row_stride + j * column_stride, mask=inside).to(tl.float32)
    tl.store(y + i * columns + j, value + c, mask=inside)
""",
    "broadcast": """
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    column = tl.load(a + i, mask=i < rows)
    row = tl.load(b + j, mask=j < columns)
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    tl.store(z + i[:, None] * columns + j[None, :], column[:, None] + row[None, :], mask=inside)
""",
    "pooling": """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for d in range(0, WINDOW):
        total += tl.load(x + at + d, mask=at < n_out, other=0.0)
    tl.store(y + at, total, mask=at < n_out)
""",
    "dot": """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    total = tl.sum(left * tl.load(y + at, mask=at < n, other=0.0).to(tl.float32), 0)
    tl.atomic_add(d, total)
""",
    "softmax": """
    row, j = tl.program_id(0), tl.arange(0, COLUMNS)
    value = tl.load(x + row * x_stride + j, mask=j < columns, other=float("-inf")).to(tl.float32)
    above = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * columns + j, above / tl.sum(above, 0), mask=j < columns)
""",
    "layer_norm": """
    row, j = tl.program_id(0), tl.arange(0, WIDTH)
    value = tl.load(x + row * x_stride + j, mask=j < width, other=0.0).to(tl.float32)
    off = tl.where(j < width, value - tl.sum(value, 0) / width, 0.0)
    r = 1 / tl.sqrt(tl.sum(off * off, 0) / width + eps)
    scale = tl.load(w + j, mask=j < width, other=0.0).to(tl.float32)
    shift = tl.load(b + j, mask=j < width, other=0.0).to(tl.float32)
    tl.store(y + row * width + j, off * r * scale + shift, mask=j < width)
""",
    "matmul_relu": """
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a_inside, b_inside = (m < M)[:, None] & (k < K)[None, :], (k < K)[:, None] & (n < N)[None, :]
        left = tl.load(a + m[:, None] * a_rows + k[None, :] * a_columns, mask=a_inside, other=0.0)
        right = tl.load(b + k[:, None] * b_rows + n[None, :] * b_columns, mask=b_inside, other=0.0)
        sums += tl.dot(left, right, input_precision="ieee")
    shift = tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)
    value = tl.maximum(sums + shift[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + m[:, None] * N + n[None, :], value, mask=(m < M)[:, None] & (n < N)[None, :])
""",
    "attention": """
    head = tl.program_id(1) * tokens * D
    i, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    at = head + i[:, None] * D + d[None, :]
    query = tl.load(q + at, mask=(i < tokens)[:, None], other=0.0)
    top = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    mean = tl.zeros([BM, D], tl.float32)
    for start in range(0, tokens, BN):
        j = start + tl.arange(0, BN)
        there = head + j[:, None] * D + d[None, :]
        keys = tl.load(k + there, mask=(j < tokens)[:, None], other=0.0)
        values = tl.load(v + there, mask=(j < tokens)[:, None], other=0.0)
        s = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        seen = (j < tokens)[None, :]
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
        s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - higher[:, None])
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(p, 1)
        mean = mean * shrink[:, None] + tl.dot(p.to(values.dtype), values, input_precision="ieee")
        top = higher
    tl.store(o + at, mean / total[:, None], mask=(i < tokens)[:, None])
""",
}

VECTOR_ADDITION = """
@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(z + at, value, mask=at < n)


def solve(x, y, BLOCK=1024, num_warps=4):
    x, y = x.contiguous(), y.contiguous()
    z = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), BLOCK),)](x, y, z, x.numel(), BLOCK=BLOCK, num_warps=num_warps)
    return z
"""


@dataclass
class Wrong:
    """A right answer in which a text is replaced, and a part of the sentence that must be said about it."""

    exercise: str
    name: str
    old: str
    new: str
    said: str


NO_LOAD_MASK, NO_STORE_MASK = "The mask of a load is missing", "The mask of a store is missing"
NO_MASK, STRIDES, RACE = "There is no mask, or a wrong one", "Strides are ignored", "A race: programs store"
SIXTEEN, UNWRITTEN = "sums are kept in 16 bits", "elements are never written"

WRONG = [
    Wrong("map", "no load mask", "x + at, mask=at < n", "x + at", NO_LOAD_MASK),
    Wrong("map", "no store mask", "+ c, mask=at < n", "+ c", NO_STORE_MASK),
    Wrong("map", "mask off by one", "at < n", "at <= n", NO_MASK),
    Wrong("map", "one program", "triton.cdiv(n, BLOCK)", "1", UNWRITTEN),
    Wrong("map", "rounded down", "triton.cdiv(n, BLOCK)", "n // BLOCK", "Nothing is stored"),
    Wrong("map", "strides", "x = x.contiguous()", "pass", STRIDES),
    Wrong("map", "in place", "tl.store(y", "tl.store(x", "overwrites its argument x"),
    Wrong("zip", "no load mask of y", "y + at, mask=at < n", "y + at", NO_LOAD_MASK),
    Wrong("zip", "no store mask", "value, mask=at < n", "value", NO_STORE_MASK),
    Wrong("zip", "x twice", "tl.load(y", "tl.load(x", "both loads read the same array"),
    Wrong("zip", "all programs do the first block", "tl.program_id(0) * BLOCK + ", "", UNWRITTEN),
    Wrong("vector_addition", "no mask", ", mask=at < n", "", NO_MASK),
    Wrong("vector_addition", "one program", "triton.cdiv(x.numel(), BLOCK)", "1", UNWRITTEN),
    Wrong("vector_addition", "strides", "x, y = x.contiguous(), y.contiguous()", "pass", STRIDES),
    Wrong("map_2d", "strides", "i * row_stride + j * column_stride", "i * columns + j", STRIDES),
    Wrong("map_2d", "rows' stride alone", "j * column_stride", "j", STRIDES),
    Wrong("map_2d", "no mask of columns", " & (j < columns)", "", NO_MASK),
    Wrong("map_2d", "no store mask", "+ c, mask=inside", "+ c", NO_STORE_MASK),
    Wrong("map_2d", "no load mask", "column_stride, mask=inside", "column_stride", NO_LOAD_MASK),
    Wrong("broadcast", "no mask of a", "a + i, mask=i < rows", "a + i", NO_LOAD_MASK),
    Wrong("broadcast", "no store mask", "row[None, :], mask=inside", "row[None, :]", NO_STORE_MASK),
    Wrong("broadcast", "b alone", "column[:, None] + row", "0 * column[:, None] + row", "a is not added"),
    Wrong("broadcast", "a race of rows", "i[:, None] * columns", "0 * i[:, None]", RACE),
    Wrong("pooling", "one too late", "x + at + d", "x + at + d + 1", "begin one element too late"),
    Wrong("pooling", "one too long", "range(0, WINDOW)", "range(0, WINDOW + 1)", "one element too long"),
    Wrong("pooling", "one too short", "range(0, WINDOW)", "range(1, WINDOW)", "lack their first element"),
    Wrong("pooling", "no load mask", "x + at + d, mask=at < n_out, other=0.0", "x + at + d", NO_LOAD_MASK),
    Wrong("pooling", "sums in 16 bits", "tl.zeros([BLOCK], tl.float32)", "tl.zeros([BLOCK], x.dtype.element_ty)",
          SIXTEEN),
    Wrong("dot", "a race", "tl.atomic_add(d, total)", "tl.store(d, tl.load(d) + total)", RACE),
    Wrong("dot", "the last program wins", "tl.atomic_add(d, total)", "tl.store(d, total)", RACE),
    Wrong("dot", "sums in 16 bits", ".to(tl.float32)", "", SIXTEEN),
    Wrong("dot", "no `other`", ", other=0.0", "", "masked lanes have none unless `other` gives them one"),
    Wrong("dot", "no load mask", ", mask=at < n, other=0.0", "", NO_LOAD_MASK),
    Wrong("softmax", "no maximum", "value - tl.max(value, 0)", "value", "without the row's maximum"),
    Wrong("softmax", "lanes counted", 'float("-inf")', "0.0", "Lanes beyond the row are counted in the sum"),
    Wrong("softmax", "no load mask", ', mask=j < columns, other=float("-inf")', "", NO_LOAD_MASK),
    Wrong("softmax", "no store mask", "tl.sum(above, 0), mask=j < columns", "tl.sum(above, 0)", NO_STORE_MASK),
    Wrong("softmax", "strides", "row * x_stride", "row * columns", STRIDES),
    Wrong("softmax", "no quotient", " / tl.sum(above, 0)", "", "The division by the row's sum is missing"),
    Wrong("softmax", "16 bits", "tl.exp(value - tl.max(value, 0))",
          "tl.exp((value - tl.max(value, 0)).to(x.dtype.element_ty))", "Exponentials, logarithms and roots"),
    Wrong("softmax", "a block too small", "triton.next_power_of_2(columns)", "1024", UNWRITTEN),
    Wrong("layer_norm", "lanes counted", "tl.where(j < width, value - tl.sum(value, 0) / width, 0.0)",
          "value - tl.sum(value, 0) / width", "Lanes beyond the row are counted in the variance"),
    Wrong("layer_norm", "no ε", "/ width + eps", "/ width", "ε is missing"),
    Wrong("layer_norm", "cancels", "tl.sum(off * off, 0) / width + eps",
          "tl.sum(value * value, 0) / width - (tl.sum(value, 0) / width) * (tl.sum(value, 0) / width) + eps",
          "The variance cancels"),
    Wrong("layer_norm", "n − 1", "tl.sum(off * off, 0) / width", "tl.sum(off * off, 0) / tl.maximum(width - 1, 1)",
          "divided by n − 1"),
    Wrong("layer_norm", "no store mask", "+ shift, mask=j < width", "+ shift", NO_STORE_MASK),
    Wrong("layer_norm", "strides", "row * x_stride", "row * width", STRIDES),
    Wrong("matmul_relu", "sums in 16 bits", 'right, input_precision="ieee")',
          'right, input_precision="ieee").to(a.dtype.element_ty).to(tl.float32)', SIXTEEN),
    Wrong("matmul_relu", "no ReLU", "tl.maximum(sums + shift[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL)",
          "sums + shift[None, :]", "ReLU is missing"),
    Wrong("matmul_relu", "no mask of K", " & (k < K)[None, :]", "", NO_LOAD_MASK),
    Wrong("matmul_relu", "strides", "m[:, None] * a_rows + k[None, :] * a_columns", "m[:, None] * K + k[None, :]",
          STRIDES),
    Wrong("matmul_relu", "no store mask", "value, mask=(m < M)[:, None] & (n < N)[None, :]", "value", NO_STORE_MASK),
    Wrong("attention", "no maximum", "p = tl.exp(s - higher[:, None])\n        shrink = tl.exp(top - higher)",
          "p = tl.exp(s)\n        shrink = 1.0 + 0.0 * total", "without the row's maximum"),
    Wrong("attention", "diagonal", "<= i[:, None]", "<= i[:, None] + 1", "query i sees key i + 1"),
    Wrong("attention", "no scale", " * scale", "", "The scores are not divided by √d"),
    Wrong("attention", "not causal", "if CAUSAL:", "if False:", "The causal mask is missing"),
    Wrong("attention", "no store mask", "total[:, None], mask=(i < tokens)[:, None]", "total[:, None]", NO_STORE_MASK),
]  # fmt: skip


def answer(exercise: str, source: str) -> str:
    """Return an exercise's file with its gap filled."""
    if exercise == "vector_addition":
        return source[: source.index("# Your part: a kernel")] + VECTOR_ADDITION
    before, _, after = source.partition(GAP)
    return before.rstrip() + RIGHT[exercise] + after.partition("\n")[2]


def mistaken(wrong: Wrong, source: str) -> str:
    """Return an answer with a mistake."""
    right = answer(wrong.exercise, source)
    assert wrong.old in right, wrong
    return right.replace(wrong.old, wrong.new)
