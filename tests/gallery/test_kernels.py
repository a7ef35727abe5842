"""Every kernel of the gallery against its reference in float64, in every type and size that it takes."""

import itertools
import sys
import warnings
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch.library import CustomOpDef, opcheck
from torch.utils._python_dispatch import TorchDispatchMode
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.errors import InterpreterError

from gallery.catalogue import KERNELS, PATH, exhibits, find
from gallery.check import error, gradient_error, outputs
from gallery.exhibit import Arguments, Exhibit
from gallery.kernels.softmax import ROW_CHOICES
from gallery.sizes import demand_room
from gallery.tuning import Choice, chosen, tuned

EXHIBITS = list(exhibits().values())
WAYS = [
    pytest.param(exhibit, way, dtype, id=f"{exhibit.name}-{way}-{str(dtype).removeprefix('torch.')}")
    for exhibit in EXHIBITS
    for way in exhibit.ways
    for dtype in exhibit.dtypes
]
GRADIENTS = [case for case in WAYS if case.values[0].differentiable]
IN_FLOAT32 = [pytest.param(e, way, id=f"{e.name}-{way}") for e in EXHIBITS for way in e.ways]
TUNED = [
    pytest.param(exhibit, kernel, place, id=f"{exhibit.name}-{name}-{kernel.choices[place].name.replace(' ', '-')}")
    for exhibit in EXHIBITS
    for name, kernel in vars(sys.modules[exhibit.reference.__module__]).items()
    if hasattr(kernel, "choices")
    for place in range(len(kernel.choices))
]
STEP, ALLOWED = 4e-3, {"atol": 1e-3, "rtol": 1e-2}
MOST_ELEMENTS = 600
"""The most elements of arguments whose gradients are compared with differences, two calls for each element."""


def smallest(exhibit: Exhibit, device: torch.device) -> Arguments:
    """Return arguments of the smallest size that is neither empty nor one, asking for gradients."""
    torch.manual_seed(7)
    drawn = [exhibit.sample(size, torch.float32, device) for size in exhibit.sizes]
    found = min((each for each in drawn if elements(each) > 2), key=elements)
    if not exhibit.differentiable:
        return found
    return tuple(each.requires_grad_() if isinstance(each, torch.Tensor) else each for each in found)


def elements(arguments: Arguments) -> int:
    return sum(each.numel() for each in arguments if isinstance(each, torch.Tensor))


@pytest.mark.parametrize(("exhibit", "way", "dtype"), WAYS)
def test_the_answer_is_the_reference_s(exhibit: Exhibit, way: str, dtype: torch.dtype, device: torch.device) -> None:
    for size in exhibit.sizes:
        torch.manual_seed(7)
        arguments = exhibit.sample(size, dtype, device)
        assert error(exhibit, way, arguments) <= exhibit.allowed(way, size, dtype), size


@pytest.mark.parametrize(("exhibit", "way", "dtype"), GRADIENTS)
def test_gradients_are_the_reference_s(exhibit: Exhibit, way: str, dtype: torch.dtype, device: torch.device) -> None:
    for size in exhibit.sizes:
        torch.manual_seed(7)
        arguments = exhibit.sample(size, dtype, device)
        assert gradient_error(exhibit, way, arguments) <= exhibit.tolerances[dtype], size


@pytest.mark.parametrize(("exhibit", "way"), [c for c in IN_FLOAT32 if c.values[0].differentiable])
def test_gradients_are_what_the_answers_change_by(exhibit: Exhibit, way: str, device: torch.device) -> None:
    """Every element is checked: fast mode's one random direction does not notice a gradient 1.5 times too large."""
    arguments = smallest(exhibit, device)
    assert elements(arguments) <= MOST_ELEMENTS, "give the exhibit a smaller size"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*not a double precision floating point.*")
        assert torch.autograd.gradcheck(exhibit.ways[way], arguments, eps=STEP, **ALLOWED)


class Zeros(TorchDispatchMode):
    """Keeps the sizes of the tensors of zeros that torch makes."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        found = function(*arguments, **(named or {}))
        if function is torch.ops.aten.zeros.default:
            self.sizes.append(found.numel())
        return found


@pytest.mark.parametrize(("exhibit", "way"), [c for c in IN_FLOAT32 if c.values[0].differentiable])
def test_no_gradient_of_what_is_only_kept_is_written(exhibit: Exhibit, way: str, device: torch.device) -> None:
    answers = outputs(exhibit.ways[way](*smallest(exhibit, device)))
    with Zeros() as zeros:
        torch.autograd.backward(answers, [torch.ones_like(answer) for answer in answers])
    assert zeros.sizes == []


@pytest.mark.parametrize(("exhibit", "kernel", "place"), TUNED)
def test_every_choice_gives_the_answer(
    exhibit: Exhibit, kernel: Any, place: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last size that launches the kernel is taken, in the first type that the choice does not refuse.

    By itself the interpreter takes the first choice, and a GPU the fastest.
    """
    config = kernel.choices[place].config(kernel.configs[0].pre_hook)
    monkeypatch.setattr(kernel, "configs", [config])
    for size, dtype in itertools.product(reversed(exhibit.sizes), exhibit.dtypes):
        torch.manual_seed(7)
        arguments = exhibit.sample(size, dtype, device)
        try:
            found = max(
                (gradient_error if exhibit.differentiable else error)(exhibit, way, arguments) for way in exhibit.ways
            )
        except CompileTimeAssertionFailure:
            continue
        except InterpreterError as failed:
            if "AssertionError" not in str(failed):
                raise
            continue
        assert found <= exhibit.tolerances[dtype]
        if getattr(kernel, "best_config", None) is config:
            return
    pytest.fail("no size that is checked launches this kernel")


@pytest.mark.parametrize(("exhibit", "way"), IN_FLOAT32)
def test_torch_takes_it_for_an_operator_of_its_own(exhibit: Exhibit, way: str, device: torch.device) -> None:
    """Schema, gradients, shapes without contents, and torch.compile with dynamic shapes are checked."""
    call = exhibit.ways[way]
    if isinstance(call, CustomOpDef):
        opcheck(call, smallest(exhibit, device))
    else:
        torch.compile(call, backend="aot_eager", fullgraph=True)(*smallest(exhibit, device))


def test_all_kernels_lie_on_the_path() -> None:
    assert {path.stem for path in KERNELS.glob("*.py") if "EXHIBIT" in path.read_text("utf-8")} <= set(PATH)
    assert [exhibit.name for exhibit in EXHIBITS] == [name for name in PATH if name in exhibits()]


@pytest.mark.gpu
@pytest.mark.usefixtures("all_choices")
def test_tuning_says_what_it_took_and_why() -> None:
    exhibit = find("softmax")
    (x,) = exhibit.sample((64, 1000), torch.float32, torch.device("cuda"))
    exhibit.ways["softmax"](x)
    assert exhibit.chosen is not None
    assert exhibit.chosen()["row_kernel"] in {f"{choice.name}: {choice.reason}" for choice in ROW_CHOICES}


@triton.jit
def fill_kernel(x, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, 1.0, mask=at < count)


def test_what_was_never_launched_has_nothing_chosen(device: torch.device) -> None:
    launched, other = (
        tuned([Choice("only one", "there is no other", {"BLOCK": 4})], ["count"])(fill_kernel) for _ in "12"
    )
    launched[(1,)](torch.zeros(3, device=device), 3)
    assert chosen(other) == {}
    assert chosen(other, launched) == {"fill_kernel": "only one: there is no other"}


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_room_is_found_for_every_size_that_is_checked(exhibit: Exhibit) -> None:
    for size, dtype in itertools.product(exhibit.sizes, exhibit.dtypes):
        demand_room(exhibit, size, dtype, torch.device("cpu"))
