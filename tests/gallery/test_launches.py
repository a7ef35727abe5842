"""Repeated launches: what is decided once, what is decided anew, and that no tensor is kept."""

import gc
import math
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.compiler import CompiledKernel

from gallery import launches
from gallery.launches import Launch, by_layout
from gallery.levels import attention, layer_norm, linear, messages, polynomial
from gallery.levels.subjects import OF_FLOAT32, error


def test_a_function_is_called_once_for_each_layout() -> None:
    calls: list[Any] = []
    decide = by_layout(lambda *given: calls.append(given) or len(calls))
    whole = torch.zeros(6, 8)
    cases = [
        ("the first", (whole, 3), 1),
        ("other numbers of the same layout", (torch.ones(6, 8), 3), 1),
        ("another argument that is no tensor", (whole, 4), 2),
        ("another shape", (whole[:5], 3), 3),
        ("other strides", (whole[:5].t().contiguous().t(), 3), 4),
        ("another type", (whole.half(), 3), 5),
        ("an address that 16 divides", (whole.view(-1)[4:], 3), 6),
        ("an address that 16 does not divide", (torch.zeros(45)[1:], 3), 7),
        ("another device", (whole.to("meta"), 3), 8),
        ("no tensor", (None, 3), 9),
        ("the first again", (whole, 3), 1),
    ]
    for what, given, answer in cases:
        assert decide(*given) == answer, what


def test_layouts_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "MOST_LAYOUTS", 3)
    calls: list[int] = []
    decide = by_layout(lambda x: calls.append(len(x)) or len(x))
    for length in (1, 2, 3, 1, 2, 3, 4, 3, 4):
        assert decide(torch.zeros(length)) == length
    assert calls == [1, 2, 3, 4, 3]


class FakeCompiled(CompiledKernel):
    """A compiled kernel that notes its launches."""

    run = function = packed_metadata = None

    def __init__(self, noted: list[Any]) -> None:
        self.run, self.function, self.packed_metadata = lambda *given: noted.append(given), "function", "metadata"


class FakeKernel:
    """A tuned kernel whose search is counted; without choices, one that is not tuned."""

    arg_names = ("x", "y", "count", "GELU", "BLOCK")

    def __init__(self, choices: list[triton.Config] | None) -> None:
        self.searched: list[Any] = []
        self.launched: list[Any] = []
        if choices is None:
            self.arg_names = self.arg_names[:-1]
        else:
            self.configs, self.best_config = choices, None

    def __getitem__(self, grid: Any) -> Any:
        def search(*given: Any, **options: Any) -> CompiledKernel:
            self.searched.append((given, options))
            if hasattr(self, "configs"):
                self.best_config = self.configs[-1]
            return FakeCompiled(self.launched)

        return search


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The current device, which a test may change; its stream is named after it."""
    state = SimpleNamespace(device=3)
    active = SimpleNamespace(get_current_device=lambda: state.device, get_current_stream=lambda device: 10 + device)
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=active))
    return state


def test_only_the_first_launch_is_searched_for(current: SimpleNamespace) -> None:
    chosen = triton.Config({"BLOCK": 4})
    kernel = FakeKernel([triton.Config({"BLOCK": 2}), chosen])
    launch = Launch(kernel, lambda meta: (meta["count"] // meta["BLOCK"], 6), 40, True, num_warps=8)
    launch("a", "b")
    kernel.best_config = None
    launch("c", "d")
    assert kernel.searched == [(("a", "b", 40, True), {"num_warps": 8})]
    expected = (10, 6, 1, 13, "function", "metadata", None, None, None, "c", "d", 40, True, 4)
    assert kernel.launched == [expected]
    assert kernel.best_config is chosen
    current.device = 1
    launch("e", "f")
    launch("g", "h")
    assert (len(kernel.searched), kernel.launched[-1][3]) == (2, 11), "another device has another compiled kernel"
    kernel.configs = kernel.configs[:1]
    launch("i", "j")
    launch("k", "l")
    assert (len(kernel.searched), kernel.launched[-1][-1]) == (3, 2), "other choices are searched anew"


@pytest.mark.usefixtures("current")
def test_a_kernel_without_choices_is_launched_again_too() -> None:
    kernel = FakeKernel(None)
    launch = Launch(kernel, (5, 6, 7), 40, False)
    launch("a", "b")
    launch("c", "d")
    assert len(kernel.searched) == 1
    assert kernel.launched == [(5, 6, 7, 13, "function", "metadata", None, None, None, "c", "d", 40, False)]


@pytest.mark.usefixtures("current")
def test_a_hook_before_launches_is_left_to_the_language() -> None:
    kernel = FakeKernel([triton.Config({"BLOCK": 4}, pre_hook=lambda given: None)])
    launch = Launch(kernel, (5,), 40, False)
    launch("a", "b")
    launch("c", "d")
    assert len(kernel.searched) == 2
    assert kernel.launched == []


def drawn(operation: Any, device: torch.device, offset: int = 0) -> list[Any]:
    """Return arguments for an operation with new numbers each time, whose tensors begin at an offset in memory."""

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(offset + math.prod(shape), device=device)[offset:].view(shape)

    if operation is layer_norm:
        return [draw(5, 24), draw(24), draw(24), True]
    if operation is linear:
        return [draw(5, 24), draw(16, 24), draw(16), draw(5, 16), True]
    if operation is attention:
        return [*draw(1, 9, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0), True]
    if operation is messages:
        offsets, sources = messages.by_destination(*torch.randint(0, 6, (2, 20), device=device).unbind(0), 6)
        return [draw(6, 24), offsets, sources, draw(20)]
    return [draw(5, 6), draw(6), draw(6).abs() + 1, draw(27), draw(1)]


def strided(given: list[Any]) -> list[Any]:
    """Return the arguments with every other place of memory unused."""
    return [torch.stack([each, each], -1)[..., 0] if isinstance(each, torch.Tensor) else each for each in given]


OPERATIONS = (layer_norm, linear, attention, messages, polynomial)
named = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda module: module.__name__.rpartition(".")[2])


@named
@torch.inference_mode()
def test_repeated_calls_answer_for_their_own_tensors(operation: Any, device: torch.device) -> None:
    torch.manual_seed(7)
    for offset in (0, 0, 4, 1, 0, 4, 1):
        given = drawn(operation, device, offset)
        for each in (given, strided(given)):
            exact = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in each]
            assert error(operation.in_triton_language(*each), operation.reference(*exact)) <= OF_FLOAT32


@named
@torch.inference_mode()
def test_no_tensor_of_a_call_is_kept(operation: Any, device: torch.device) -> None:
    given = drawn(operation, device)
    of_call = [weakref.ref(each) for each in given if isinstance(each, torch.Tensor)]
    of_call.append(weakref.ref(operation.in_triton_language(*given)))
    del given
    gc.collect()
    assert [each() for each in of_call] == [None] * len(of_call)


@named
@torch.inference_mode()
def test_wrong_arguments_are_refused_every_time(operation: Any, device: torch.device) -> None:
    given = drawn(operation, device)
    operation.in_triton_language(*given)
    given[1] = given[1][..., :-1]
    for _ in range(2):
        with pytest.raises(ValueError, match=r"'\w+' .* is needed"):
            operation.in_triton_language(*given)
