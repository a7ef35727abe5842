"""The exercises in which many numbers become one: windows, sums and rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import triton

from gallery.exercises.arguments import ENDS, FORMULA, LARGE, SIXTEEN, STRIDES, cancelling, case, many, nan_case
from gallery.exercises.exercise import Case, Exercise
from gallery.exhibit import Arguments, Size
from gallery.kernels import dot, layer_norm, pooling, softmax


def windows(x: torch.Tensor, window: int) -> torch.Tensor:
    """Return the sums of all windows of x, [n − window + 1]."""
    return x.unfold(0, window, 1).sum(-1)


def other_windows(early: int, longer: int) -> Callable[..., torch.Tensor]:
    """Return a function that sums windows which begin so much too early and are so much too long."""

    def sums(x: torch.Tensor, window: int) -> torch.Tensor:
        beyond = x.new_zeros(2)
        start = 2 - early
        return windows(torch.cat([beyond, x, beyond]), window + longer)[start : start + len(x) - window + 1]

    return sums


def windowed(size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    """Return x and a window, given n and the window."""
    n, window = size
    return torch.randn(n, dtype=dtype, device=device), window


def sums_in_16_bits(size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    """Return vectors whose product needs sums in float32."""
    return cancelling(size, dtype, device, along=0)


def scaled_rows(factor: float, size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    """Return rows of large numbers."""
    return (factor * torch.randn(size, dtype=dtype, device=device),)


def counted_lanes(x: torch.Tensor) -> torch.Tensor:
    """Return a softmax whose sum has lanes beyond the row, loaded as 0."""
    lanes = triton.next_power_of_2(x.shape[-1])
    return torch.softmax(torch.nn.functional.pad(x, (0, lanes - x.shape[-1])), -1)[:, : x.shape[-1]]


def normalised(x: torch.Tensor, variance: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return rows that are moved to mean 0, over the root of a variance, scaled and shifted."""
    return (x - x.mean(-1, keepdim=True)) / variance.sqrt() * weight + bias


def lanes_variance(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the layer normalisation whose variance has lanes beyond the row, loaded as 0."""
    beyond = triton.next_power_of_2(x.shape[-1]) - x.shape[-1]
    mean = x.mean(-1, keepdim=True)
    return normalised(x, x.var(-1, correction=0, keepdim=True) + beyond * mean**2 / x.shape[-1] + eps, weight, bias)


def shifted_rows(shift: float, spread: float, size: Size, dtype: torch.dtype, device: torch.device) -> Arguments:
    """Return rows with another mean and standard deviation, weights, biases and ε."""
    _, weight, bias, eps = layer_norm.sample(size, dtype, device)
    return shift + spread * torch.randn(size, dtype=dtype, device=device), weight, bias, eps


ONE = "Rows of one number are wrong: their block has one lane."


def rows_cases(sample: Callable[..., Arguments]) -> list[Case]:
    """Return the cases of functions of rows, the last three special in other ways than by strides."""
    return [
        case("64 × 128", sample, (64, 128), FORMULA),
        *(case(f"{n} × {m:,}", sample, (n, m), ENDS) for n, m in ((3, 5), (37, 50), (5, 1000))),
        case("30 × 5,003", sample, (30, 5003), LARGE, large=True),
        case("the first columns of a wider matrix", sample, (20, 50), STRIDES, layout="slices", special=True),
        case("a transposed matrix", sample, (20, 50), STRIDES, layout="transposed", special=True),
        case("rows of one number", sample, (3, 1), ONE, special=True),
        case("float16", sample, (6, 3000), SIXTEEN, dtype=torch.float16, special=True),
        nan_case(sample, (20, 50)),
    ]


EXERCISES = [
    Exercise(
        name="pooling",
        formula="yᵢ = Σ x[i + d] over 0 ≤ d < window, x [n], y [n − window + 1]",
        reference=windows,
        cases=[
            case("4,098 elements, windows of 3", windowed, (4098, 3), FORMULA),
            *(
                case(f"{many(n, 'element')}, windows of {w}", windowed, (n, w), ENDS)
                for n, w in ((5, 5), (1030, 4), (1, 1))
            ),
            case("20,003 elements, windows of 7", windowed, (20_003, 7), LARGE, large=True),
            case("elements that lie apart", windowed, (1000, 3), STRIDES, layout="apart", special=True),
            case("float16", windowed, (1000, 40), SIXTEEN, dtype=torch.float16, special=True),
            nan_case(windowed, (1000, 3)),
        ],
        tolerances={torch.float32: 2e-6, torch.float16: 6e-4},
        hints=(
            "Lane i makes yᵢ: it goes through its window with a loop, and the block keeps one sum for each lane.",
            "`total = tl.zeros([BLOCK], tl.float32)`, and `for d in range(WINDOW): total += ...`",
            "The elements are at `x + at + d`. Only lanes with `at < n_out` have a window: mask loads and the store "
            "alike.",
        ),
        solution=[("gallery/kernels/pooling.py", ["windows_each", "loaded", "pooling_kernel"])],
        solve=lambda x, window: pooling.pooling(x, [window], [1], [0], "sum"),
        mistakes={
            "The windows begin one element too late: off by one.": other_windows(-1, 0),
            "The windows begin one element too early: off by one.": other_windows(1, 0),
            "The windows are one element too long: off by one.": other_windows(0, 1),
            "The windows lack their last element: off by one.": other_windows(0, -1),
            "The windows lack their first element: off by one.": other_windows(-1, -1),
        },
        sweep=lambda dtype, device: windowed((2**24, 7), dtype, device),
        traffic=lambda x, window: 2 * x.numel() * x.element_size(),
    ),
    Exercise(
        name="dot",
        formula=dot.EXHIBIT.formula,
        reference=dot.reference,
        cases=[
            case("8,192 elements", dot.sample, (8192,), FORMULA),
            *(case(many(n, "element"), dot.sample, (n,), ENDS) for n in (7, 1000, 12_293, 1)),
            case("200,003 elements", dot.sample, (200_003,), LARGE, large=True),
            case("elements that lie apart", dot.sample, (1000,), STRIDES, layout="apart", special=True),
            case("float16", sums_in_16_bits, (3000,), SIXTEEN, dtype=torch.float16, special=True),
            nan_case(dot.sample, (1000,)),
        ],
        tolerances={torch.float32: 4e-6, torch.float16: 2e-3},
        hints=(
            "A program sums the products of its own block: `tl.sum(block, 0)` is one number.",
            "Masked lanes are summed too: `other=0.0` makes them count nothing.",
            "All programs add to one number. `tl.load`, `+` and `tl.store` lose what others add in between; "
            "`tl.atomic_add(d, ...)` does all three at once.",
        ),
        solution=[("gallery/kernels/dot.py", ["sum_of_blocks", "partial_sums_kernel", "sum_kernel", "atomic_kernel"])],
        solve=dot.atomic_dot,
        mistakes={
            "The answer is Σ x: it is not multiplied with y.": lambda x, y: x.sum(),
            "The answer is Σ x²: both loads read the same array.": lambda x, y: (x * x).sum(),
        },
        sweep=lambda dtype, device: dot.sample((2**24,), dtype, device),
        traffic=dot.EXHIBIT.traffic,
    ),
    Exercise(
        name="softmax",
        formula=softmax.EXHIBIT.formula,
        reference=softmax.reference,
        cases=[
            *(cases := rows_cases(softmax.sample))[:-3],
            case(
                "numbers of some hundreds",
                partial(scaled_rows, 100.0),
                (20, 50),
                "The softmax is computed without the row's maximum: exp of 89 or more is infinite in float32. Subtract "
                "the maximum before the exponential.",
                special=True,
            ),
            *cases[-3:],
        ],
        tolerances={torch.float32: 4e-6, torch.float16: 2e-3},
        hints=(
            "One program has one row, in one block. What should lanes beyond the row be, so that neither the maximum "
            "nor the sum notices them?",
            'Load with `other=float("-inf")`: exp(−∞) = 0.',
            "`above = tl.exp(value - tl.max(value, 0))`, and the row is `above / tl.sum(above, 0)`.",
        ),
        solution=[("gallery/kernels/softmax.py", ["row_kernel", "softmax"])],
        solve=softmax.softmax,
        mistakes={
            "Lanes beyond the row are counted in the sum: load them as −∞, whose exponential is 0.": counted_lanes,
            "The softmax is taken along columns instead of rows.": lambda x: torch.softmax(x, 0),
            "The division by the row's sum is missing.": lambda x: torch.exp(x - x.amax(-1, keepdim=True)),
        },
        sweep=lambda dtype, device: softmax.sample((16384, 1024), dtype, device),
        traffic=softmax.EXHIBIT.traffic,
    ),
    Exercise(
        name="layer_norm",
        formula=layer_norm.EXHIBIT.formula,
        reference=layer_norm.reference,
        cases=[
            *(cases := rows_cases(layer_norm.sample))[:-3],
            case(
                "a standard deviation of 0.001",
                partial(shifted_rows, 0.0, 1e-3),
                (20, 50),
                "ε is missing, or it is not added under the root: 1 / √(σ² + ε).",
                special=True,
            ),
            case(
                "a mean of 100",
                partial(shifted_rows, 100.0, 1.0),
                (20, 50),
                "The variance cancels where the mean is large: sum (x − μ)² instead of Σx² − nμ².",
                special=True,
            ),
            *cases[-3:],
        ],
        tolerances={torch.float32: 2e-5, torch.float16: 2e-3},
        hints=(
            "One program has one row: first its mean, then the mean of the squares of what is off the mean, then the "
            "answer.",
            "Lanes beyond the row are 0 when you sum x, but x − μ is −μ there: set them to 0 again with `tl.where`.",
            "`r = 1 / tl.sqrt(tl.sum(off * off, 0) / width + eps)`, and `off * r * w + b` is the row.",
        ),
        solution=[("gallery/kernels/layer_norm.py", ["layer_norm_kernel", "layer_norm_with_statistics"])],
        solve=layer_norm.layer_norm,
        mistakes={
            "Lanes beyond the row are counted in the variance: x − μ is −μ there and not 0.": lanes_variance,
            "The variance is divided by n − 1 instead of n.": lambda x, weight, bias, eps: normalised(
                x, x.var(-1, keepdim=True) + eps, weight, bias
            ),
            "The answer is scaled but not shifted: the bias is missing.": lambda x, weight, bias, eps: (
                layer_norm.reference(x, weight, 0 * bias, eps)
            ),
            "The answer is not scaled by the weight.": lambda x, weight, bias, eps: layer_norm.reference(
                x, torch.ones_like(weight), bias, eps
            ),
            "The division is by σ² + ε instead of its root.": lambda x, weight, bias, eps: normalised(
                x, (x.var(-1, correction=0, keepdim=True) + eps) ** 2, weight, bias
            ),
        },
        sweep=lambda dtype, device: layer_norm.sample((16384, 1024), dtype, device),
        traffic=layer_norm.EXHIBIT.traffic,
    ),
]
