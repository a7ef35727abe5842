"""Matrix products and convolution: any shape, strides and type, their gradients, and their refusals."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.library import opcheck

from gallery.implicit import channels_last, plane
from gallery.kernels import convolution as convolutions
from gallery.kernels import matmul as products
from gallery.kernels import matmul_relu as layers
from gallery.kernels.convolution import convolution
from gallery.kernels.matmul import matmul
from gallery.kernels.matmul_relu import masked, matmul_relu

DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
LENGTHS = st.one_of(st.integers(0, 40), st.sampled_from([8, 16, 64, 72, 136]))
few = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


def random(*shape: int, dtype: torch.dtype, device: torch.device, lies: str = "rows") -> torch.Tensor:
    """Return a matrix that lies in memory by rows, by columns, as every second column, or as one row repeated."""
    rows, columns = shape
    if lies == "columns":
        return torch.randn(columns, rows, device=device).to(dtype).T
    if lies == "apart":
        return torch.randn(rows, 2 * columns, device=device).to(dtype)[:, ::2]
    if lies == "repeated":
        return torch.randn(1, columns, device=device).to(dtype).expand(rows, columns)
    return torch.randn(rows, columns, device=device).to(dtype)


def close(found: torch.Tensor, truth: torch.Tensor, tolerance: float) -> None:
    assert found.shape == truth.shape
    if truth.numel():
        assert torch.isfinite(found).all()
        assert (found.double() - truth).abs().max() <= tolerance * truth.abs().max().clamp(min=1e-30)


def gradients(function: Callable[..., torch.Tensor], *arguments: Any, double: bool = False) -> list[torch.Tensor]:
    """Return the gradients of a weighted sum of the answer by each tensor."""
    tensors = [a.double() if double else a for a in arguments if isinstance(a, torch.Tensor)]
    tensors = [a.detach().clone(memory_format=torch.preserve_format).requires_grad_() for a in tensors]
    answer = function(*tensors, *(a for a in arguments if not isinstance(a, torch.Tensor)))
    weights = torch.cos(torch.arange(answer.numel(), device=answer.device)).reshape(answer.shape)
    (answer * weights.to(answer.dtype)).sum().backward()
    return [a.grad for a in tensors if a.grad is not None]


@few
@given(
    M=LENGTHS, N=LENGTHS, K=LENGTHS, dtype=DTYPES,
    way=st.sampled_from(list(products.WAYS)),
    lie=st.tuples(*[st.sampled_from(["rows", "columns", "apart", "repeated"])] * 2),
)  # fmt: skip
def test_products_of_any_matrices(M, N, K, dtype, way, lie, device) -> None:
    torch.manual_seed(1)
    a = random(M, K, dtype=dtype, device=device, lies=lie[0])
    b = random(K, N, dtype=dtype, device=device, lies=lie[1])
    close(matmul(a, b, way), a.double() @ b.double(), products.EXHIBIT.tolerances[dtype])


@few
@given(M=LENGTHS, N=LENGTHS, K=LENGTHS, dtype=DTYPES, way=st.sampled_from(list(layers.WAYS)))
def test_layers_of_any_matrices(M, N, K, dtype, way, device) -> None:
    torch.manual_seed(2)
    a, b = random(M, K, dtype=dtype, device=device), random(K, N, dtype=dtype, device=device, lies="columns")
    bias = random(2, N, dtype=dtype, device=device, lies="columns")[1]
    truth = layers.reference(a.double(), b.double(), bias.double())
    close(matmul_relu(a, b, bias, way), truth, layers.EXHIBIT.tolerances[dtype])


@few
@given(
    size=st.tuples(st.integers(1, 3), st.sampled_from([1, 3, 8, 16]), st.integers(1, 9), st.integers(1, 9)),
    F=st.sampled_from([1, 4, 9]), kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 2)), dilation=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    more=st.integers(0, 1), dtype=DTYPES, way=st.sampled_from(convolutions.WAYS), biased=st.booleans(),
    last=st.booleans(),
)  # fmt: skip
def test_convolutions_of_any_size(size, F, kernel, stride, dilation, more, dtype, way, biased, last, device) -> None:
    torch.manual_seed(3)
    padding = [more + far * (length - 1) for far, length in zip(dilation, kernel, strict=True)]
    x, w = torch.randn(size, device=device).to(dtype), torch.randn(F, size[1], *kernel, device=device).to(dtype)
    bias = torch.randn(F, device=device).to(dtype) if biased else None
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    arguments = (list(stride), padding, list(dilation))
    truth = torch.conv2d(x.double(), w.double(), None if bias is None else bias.double(), *arguments)
    close(convolution(x, w, bias, *arguments, way), truth, convolutions.EXHIBIT.tolerances[dtype])


CASES = [
    pytest.param(module, way, size, id=f"{module.EXHIBIT.name}-{way}-{size}")
    for module, sizes in (
        (products, [(5, 7, 3), (24, 16, 40)]),
        (layers, [(5, 7, 3), (24, 16, 40)]),
        (convolutions, [(2, 3, 7, 6, 4, 3, 2, 1, 1), (2, 8, 6, 9, 16, 3, 1, 1, 2), (1, 8, 5, 5, 8, 2, 3, 2, 1)]),
    )
    for way in module.WAYS
    for size in sizes
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("module", "way", "size"), CASES)
def test_gradients_are_the_reference_s(module, way, size, dtype, device) -> None:
    torch.manual_seed(4)
    arguments = module.EXHIBIT.sample(size, dtype, device)
    found = gradients(module.EXHIBIT.ways[way], *arguments)
    truth = gradients(module.reference, *arguments, double=True)
    assert len(found) == len(truth) > 0
    for ours, theirs in zip(found, truth, strict=True):
        close(ours, theirs, 3 * module.EXHIBIT.tolerances[dtype])


@pytest.mark.filterwarnings("ignore:Input .* is not a double precision:UserWarning")
def test_gradients_are_the_differences(device) -> None:
    """Everything is linear in each argument, also ReLU away from zero, so steps may be large enough for float32."""
    torch.manual_seed(5)
    check = {"eps": 0.05, "atol": 1e-3, "rtol": 1e-3}
    a, b = (torch.randn(*shape, device=device).clamp(-1, 1).requires_grad_() for shape in ((4, 3), (3, 8)))
    bias = torch.tensor([9.0, -9.0] * 4, device=device, requires_grad=True)
    x, w = torch.randn(1, 2, 4, 3, device=device, requires_grad=True), torch.randn(2, 2, 2, 2, device=device)
    pairs = ([2, 1], [1, 1], [1, 2])
    assert gradcheck(lambda *of: matmul(*of), (a, b), **check)
    assert gradcheck(lambda *of: matmul_relu(*of), (a, b, bias), **check)
    assert gradcheck(lambda *of: convolution(*of, *pairs), (x, w.requires_grad_(), bias[:2].detach()), **check)


def test_products_have_gradients_of_gradients(device) -> None:
    a, b = (torch.randn(*shape, device=device, requires_grad=True) for shape in ((4, 3), (3, 8)))
    (slope,) = torch.autograd.grad(matmul(a, b).square().sum(), a, create_graph=True)
    (slope**2).sum().backward()
    exact, other = (each.detach().double().requires_grad_() for each in (a, b))
    (slope,) = torch.autograd.grad((exact @ other).square().sum(), exact, create_graph=True)
    (slope**2).sum().backward()
    close(b.grad, other.grad, 1e-5)


@pytest.mark.parametrize("way", products.WAYS)
def test_torch_accepts_the_operators(way: str, device) -> None:
    def random(*shape: int) -> torch.Tensor:
        dtype = torch.float16 if way == "descriptors" else torch.float32
        return torch.randn(shape, device=device).to(dtype).requires_grad_()

    a, b, bias = random(8, 8), random(8, 16), random(16)
    opcheck(matmul, (a, b, way))
    if way in layers.WAYS:
        opcheck(matmul_relu, (a, b, bias, way))
        pairs = ([1, 1], [1, 1], [1, 1])
        opcheck(convolution, (random(2, 8, 5, 4), random(8, 8, 3, 3), random(8), *pairs, way))
    else:
        opcheck(masked, (random(5, 7).detach(), random(5, 7).detach()))
        opcheck(convolution, (random(1, 2, 3, 3), random(1, 2, 3, 3), None, [2, 2], [0, 0], [1, 1]))


def test_torch_compiles_around_them(device) -> None:
    a, b, bias = (torch.randn(*shape, device=device) for shape in ((8, 4), (4, 12), (12,)))
    compiled = torch.compile(lambda *of: matmul_relu(*of) * 2, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(a, b, bias), layers.reference(a, b, bias) * 2)


def test_nan_goes_through_relu(device) -> None:
    a, b = torch.ones(3, 2, device=device), torch.ones(2, 4, device=device)
    a[1, 1] = float("nan")
    assert matmul_relu(a, b, torch.zeros(4, device=device)).isnan().sum(1).tolist() == [0, 4, 0]


def test_an_infinite_weight_stays_with_its_channel(device) -> None:
    """A box reaches beyond the last channel, into the next tap: 0 · ∞ must not arise there."""
    x = channels_last(torch.ones((), dtype=torch.float16, device=device), 1, 8, 4, 4).fill_(1.0)
    w = torch.ones(8, 8, 2, 2, dtype=torch.float16, device=device)
    w[0, 3, 1, 0] = float("inf")
    y = convolution(x, w, None, [1, 1], [1, 1], [1, 1])
    truth = torch.conv2d(x.double(), w.double(), None, 1, 1)
    assert torch.equal(y.isnan(), truth.isnan())
    assert torch.equal(y.isinf(), truth.isinf())


def test_the_same_arguments_give_the_same_bits(device) -> None:
    x, w = torch.randn(2, 8, 12, 12, device=device).half(), torch.randn(8, 8, 3, 3, device=device).half()
    once, again = (gradients(convolution, x, w, None, [1, 1], [1, 1], [1, 1]) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(once, again, strict=True))


@triton.jit
def grouped_kernel(out, M, N):
    row, column = products.grouped(tl.program_id(0), M, N, 64, 32, 8)
    tl.store(out + 2 * tl.program_id(0), row)
    tl.store(out + 2 * tl.program_id(0) + 1, column)


def test_tiles_are_each_met_once_and_neighbours_share_columns(device) -> None:
    for M, N in ((1, 1), (640, 96), (64 * 19, 32 * 3)):
        tiles = triton.cdiv(M, 64) * triton.cdiv(N, 32)
        out = torch.empty(tiles, 2, dtype=torch.int32, device=device)
        grouped_kernel[(tiles,)](out, M, N)
        met = [tuple(place) for place in out.tolist()]
        assert sorted(met) == [(m, n) for m in range(0, M, 64) for n in range(0, N, 32)]
        assert len({m for m, _ in met[:8]}) == min(8, triton.cdiv(M, 64))


def test_boxes_waste_the_fewest_pixels() -> None:
    assert plane(56, 56) == (8, 8)
    assert plane(1, 640) == (1, 64)
    assert plane(4, 100) == (4, 16)


def test_refusals_name_the_argument(device) -> None:
    a, b = torch.zeros(3, 2, device=device), torch.zeros(2, 4, device=device)
    x, w = torch.zeros(1, 2, 3, 3, device=device), torch.zeros(4, 2, 3, 3, device=device)
    ones, none = [1, 1], [0, 0]
    for work, error, sentence in (
        (lambda: matmul(a, a), ValueError, r"'b' has shape \[3, 2\]; \[2, any\] is needed"),
        (lambda: matmul(a[0], b), ValueError, "'a' has shape"),
        (lambda: matmul(a.int(), b.int()), TypeError, "'a' is int32; accepted are float32"),
        (lambda: matmul(a, b.half()), ValueError, "must be alike"),
        (lambda: matmul(a, b, "magic"), ValueError, "'way' is 'magic'; the ways are descriptors, pointers, block"),
        (lambda: matmul_relu(a, b, b[0, :2]), ValueError, r"'bias' has shape \[2\]; \[4\] is needed"),
        (lambda: matmul_relu(a, b, b[0], "block pointers"), ValueError, "the ways are descriptors, pointers"),
        (lambda: convolution(x, w[:, :1], None, ones, none, ones), ValueError, "'weight' has shape"),
        (lambda: convolution(x, w, None, [1, 0], none, ones), ValueError, r"'stride' is \[1, 0\]; two numbers of"),
        (lambda: convolution(x, w, None, ones, [0], ones), ValueError, "'padding' is"),
        (lambda: convolution(x, w, None, ones, none, [2, 1]), ValueError, "'weight' has shape .* does not fit"),
    ):  # fmt: skip
        with pytest.raises(error, match=sentence):
            work()
