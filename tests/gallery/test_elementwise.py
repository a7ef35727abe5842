"""Map, zip, map in two dimensions, broadcast and the copies, on any shape, strides and type."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gallery.kernels.broadcast import broadcast
from gallery.kernels.copy import WAYS as COPIES
from gallery.kernels.copy import copy_by_descriptors
from gallery.kernels.map import map_
from gallery.kernels.map_2d import map_2d
from gallery.kernels.zip import zip_
from tests.gallery.drawing import DEVICE, TYPES, assert_near, matrices, tensors

FEW = settings(max_examples=25)


@FEW
@given(tensors(), st.floats(-4, 4, width=32))
def test_map(x: torch.Tensor, c: float) -> None:
    y = map_(x, c)
    assert y.is_contiguous()
    assert_near(y, x.double() + c)


@FEW
@given(tensors(), st.data())
def test_zip(x: torch.Tensor, data: st.DataObject) -> None:
    y = data.draw(tensors(shape=tuple(x.shape), dtype=x.dtype))
    assert_near(zip_(x, y), x.double() + y.double())


@FEW
@given(matrices(), st.floats(-4, 4, width=32))
def test_map_in_two_dimensions_reads_any_strides_where_they_are(x: torch.Tensor, c: float) -> None:
    y = map_2d(x, c)
    assert y.is_contiguous()
    assert_near(y, x.double() + c)


@FEW
@given(st.integers(0, 70), st.integers(0, 300), st.sampled_from(TYPES), st.booleans())
def test_broadcast(rows: int, columns: int, dtype: torch.dtype, apart: bool) -> None:
    a, b = (torch.randn(2 * n, device=DEVICE).to(dtype)[:: 2 if apart else 1][:n] for n in (rows, columns))
    z = broadcast(a[:, None], b[None, :])
    assert_near(z, a.double()[:, None] + b.double()[None, :])


@pytest.mark.parametrize("way", COPIES)
@FEW
@given(x=matrices())
def test_copies_are_the_same_bits(way: str, x: torch.Tensor) -> None:
    y = COPIES[way](x)
    assert y.is_contiguous()
    assert y.data_ptr() != x.data_ptr() or not x.numel()
    assert torch.equal(y, x)


@pytest.mark.parametrize(("columns", "described"), [(32, True), (33, False)])
def test_what_no_descriptor_can_describe_is_copied_by_pointers(
    columns: int, described: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = []
    for name in ("descriptor_kernel", "pointer_kernel"):
        kernel = getattr(__import__("gallery.kernels.copy", fromlist=["copy"]), name)
        run = kernel.run
        monkeypatch.setattr(kernel, "run", lambda *a, n=name, r=run, **k: (launched.append(n), r(*a, **k)))
    x = torch.randn(3, columns, device=DEVICE)
    assert torch.equal(copy_by_descriptors(x), x)
    assert launched == ["descriptor_kernel" if described else "pointer_kernel"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: map_(torch.zeros(3, dtype=torch.int32), 1.0), "'x' is int32; accepted are float32, float16, bfloat16"),
        (lambda: map_(torch.zeros(3, dtype=torch.float64), 1.0), "'x' is float64"),
        (lambda: zip_(torch.zeros(3), torch.zeros(4)), r"'y' has shape \[4\]; \[3\] is needed"),
        (lambda: zip_(torch.zeros(3), torch.zeros(3).half()), "'y' is torch.float16 on .*: they must be alike"),
        (lambda: map_2d(torch.zeros(3), 1.0), r"'x' has shape \[3\]; \[any, any\] is needed"),
        (lambda: broadcast(torch.zeros(3), torch.zeros(1, 3)), r"'a' has shape \[3\]; \[any, 1\] is needed"),
        (lambda: broadcast(torch.zeros(3, 1), torch.zeros(3, 1)), r"'b' has shape \[3, 1\]; \[1, any\] is needed"),
        *(
            (lambda way=way: way(torch.zeros(3)), r"'x' has shape \[3\]; \[any, any\] is needed")
            for way in COPIES.values()
        ),
    ],
)
def test_refusals(call: object, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        call()  # type: ignore[operator]
