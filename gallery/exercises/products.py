"""The exercises on products of matrices."""

from __future__ import annotations

import math

import torch

from gallery.exercises.arguments import ENDS, FORMULA, LARGE, SIXTEEN, STRIDES, cancelling, case, many, nan_case
from gallery.exercises.exercise import Exercise
from gallery.exhibit import Arguments, Size
from gallery.kernels import attention, matmul_relu


def sums_in_16_bits(size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    """Return matrices whose product needs sums in float32, and a bias, given M, N and K."""
    M, N, K = size
    a, b = cancelling((1, K), dtype, device, along=1)
    scale = torch.linspace(0.5, 2.0, M, device=device).to(dtype)
    return (a * scale[:, None]).to(dtype), b.T.repeat(1, N), torch.randn(N, dtype=dtype, device=device)


def mean_of_values(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float, diagonal: int = 1
) -> torch.Tensor:
    """Return attention with another scale, or with a mask that begins at another diagonal."""
    s = q @ k.mT * scale
    if causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(diagonal), -math.inf)
    return torch.softmax(s, -1) @ v


def of_tokens(size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    """Return q, k and v, [heads, tokens, 64], and whether the mask is causal."""
    heads, tokens, causal = size
    q, k, v = torch.randn(3, heads, tokens, 64, dtype=dtype, device=device).unbind()
    return q, k, v, bool(causal)


def of_large_scores(size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    """Return the same with scores of some hundreds."""
    q, k, v, causal = of_tokens(size, dtype, device)
    return 30 * q, k, v, causal


def gallery_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Return the gallery's attention of one batch."""
    return attention.attention(q[None], k[None], v[None], causal)[0]


EXERCISES = [
    Exercise(
        name="matmul_relu",
        formula=matmul_relu.EXHIBIT.formula,
        reference=matmul_relu.reference,
        cases=[
            case("64 × 64, K 64", matmul_relu.sample, (64, 64, 64), FORMULA),
            *(
                case(f"{m} × {n}, K {k}", matmul_relu.sample, (m, n, k), ENDS)
                for m, n, k in ((1, 1, 1), (5, 7, 3), (64, 64, 33), (72, 80, 104))
            ),
            case("200 × 130, K 300", matmul_relu.sample, (200, 130, 300), LARGE, large=True),
            case("transposed matrices", matmul_relu.sample, (40, 72, 50), STRIDES, layout="transposed", special=True),
            case("elements that lie apart", matmul_relu.sample, (40, 72, 50), STRIDES, layout="apart", special=True),
            case("float16", sums_in_16_bits, (40, 72, 512), SIXTEEN, dtype=torch.float16, special=True),
            nan_case(matmul_relu.sample, (40, 72, 50)),
        ],
        tolerances={torch.float32: 1e-5, torch.float16: 2e-3},
        hints=(
            "A program has one tile of Y. It goes along K in steps of BLOCK_K, and adds the product of two blocks to "
            "its float32 sums.",
            '`sums = tl.dot(a_block, b_block, sums, input_precision="ieee")`; elements from K on must be 0 in both '
            "blocks: `other=0.0`.",
            "Bias and ReLU come after the loop: `tl.maximum(sums + bias[None, :], 0.0, "
            "propagate_nan=tl.PropagateNan.ALL)`.",
        ),
        solution=[
            ("gallery/kernels/matmul.py", ["product_by_pointers"]),
            ("gallery/kernels/matmul_relu.py", ["finished", "pointer_relu_kernel"]),
        ],
        solve=matmul_relu.matmul_relu,
        mistakes={
            "ReLU is missing: negative numbers come through.": lambda a, b, bias: a @ b + bias,
            "The bias is missing.": lambda a, b, bias: torch.relu(a @ b),
            "ReLU comes before the bias: add the bias first.": lambda a, b, bias: torch.relu(a @ b) + bias,
        },
        sweep=lambda dtype, device: matmul_relu.sample((2048, 2048, 2048), dtype, device),
    ),
    Exercise(
        name="attention",
        formula="oᵢ = Σⱼ softmaxⱼ(qᵢ · kⱼ / √d) vⱼ, q, k, v [heads, tokens, d], causal: only j ≤ i",
        reference=lambda q, k, v, causal: mean_of_values(q, k, v, causal, 1 / math.sqrt(q.shape[-1])),
        cases=[
            case("2 heads, 64 tokens", of_tokens, (2, 64, 0), FORMULA),
            *(case(f"one head, {many(n, 'token')}", of_tokens, (1, n, 0), ENDS) for n in (5, 77, 1)),
            case("64 tokens, causal", of_tokens, (1, 64, 1), "The causal mask is wrong: query i sees keys j ≤ i."),
            case("77 tokens, causal", of_tokens, (1, 77, 1), "The causal mask is wrong: query i sees keys j ≤ i."),
            case("2 heads, 200 tokens, causal", of_tokens, (2, 200, 1), LARGE, large=True),
            case(
                "scores of some hundreds",
                of_large_scores,
                (1, 77, 0),
                "The softmax is computed without the row's maximum: keep the largest score so far, and rescale the "
                "sums when it rises.",
                special=True,
            ),
            case("slices of wider tensors", of_tokens, (2, 40, 1), STRIDES, layout="slices", special=True),
            case("float16", of_tokens, (1, 200, 0), SIXTEEN, dtype=torch.float16, special=True),
            nan_case(of_tokens, (1, 40, 1)),
        ],
        tolerances={torch.float32: 3e-5, torch.float16: 4e-3},
        hints=(
            "A program has a block of queries, and goes along the keys in blocks of BN: s = q kᵀ / √d, a tile of "
            "[BM, BN].",
            "Keep three things: `top`, the largest s so far in each row, `total`, the sum of exp(s − top), and `mean`, "
            "the sum of exp(s − top) v. Keys beyond the end, and behind the diagonal, have s = −∞.",
            "When `top` rises to `higher`, multiply `total` and `mean` by exp(top − higher) before you add. At the end "
            "the answer is `mean / total[:, None]`.",
        ),
        solution=[("gallery/kernels/attention.py", ["attention_kernel", "over_keys"])],
        solve=gallery_attention,
        mistakes={
            "The scores are not divided by √d.": lambda q, k, v, causal: mean_of_values(q, k, v, causal, 1.0),
            "The scores are divided by d instead of √d.": lambda q, k, v, causal: mean_of_values(
                q, k, v, causal, 1 / q.shape[-1]
            ),
            "The causal mask is missing: query i sees keys beyond i.": lambda q, k, v, causal: mean_of_values(
                q, k, v, False, 1 / math.sqrt(q.shape[-1])
            ),
            "The causal mask is off by one: query i sees key i + 1.": lambda q, k, v, causal: mean_of_values(
                q, k, v, causal, 1 / math.sqrt(q.shape[-1]), 2
            ),
            "The causal mask is off by one: query i does not see key i.": lambda q, k, v, causal: mean_of_values(
                q, k, v, causal, 1 / math.sqrt(q.shape[-1]), 0
            ),
        },
        sweep=lambda dtype, device: of_tokens((16, 2048, 1), dtype, device),
    ),
]
