"""The sources of the level CUDA C++ without a GPU: compiled for the CPU, where threads take turns; see cuda_on_cpu/.

Features of a GPU alone, copies in the background and products of tensor cores, are equivalent functions there.
"""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from gallery.levels import attention, layer_norm, linear, messages, polynomial
from gallery.levels.extension import SOURCES
from gallery.levels.subjects import OF_BFLOAT16, OF_FLOAT32, error

STAND_INS = Path(__file__).parent / "cuda_on_cpu"
LAUNCH = re.compile(r"(\w+(?:<[\w, ]+>)?)<<<(.*?)>>>\(", re.DOTALL)
SHARED = re.compile(r"extern __shared__ .*? shared\[\];")
TYPES = [torch.bfloat16, torch.float32]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The five functions, from the very sources except for the launch and the shared memory of kernels."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    folder = tmp_path_factory.mktemp("cuda_on_cpu")
    for path in [*SOURCES.glob("*.cu"), *SOURCES.glob("*.cuh"), *SOURCES.glob("*.h"), *STAND_INS.iterdir()]:
        text = LAUNCH.sub(r"cpu::launch(\1, \2, ", path.read_text(encoding="utf-8"))
        text = SHARED.sub("unsigned char* shared = cpu::dynamic_shared;", text)
        (folder / path.name).with_suffix({".cu": ".cpp"}.get(path.suffix, path.suffix)).write_text(text, "utf-8")
    sources = [str(path) for path in folder.glob("*.cpp")]
    command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{folder}", *sources, "-o", f"{folder}/cuda.so"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "cuda.so"))


@pytest.fixture(autouse=True)
def _drawn_alike() -> None:
    torch.manual_seed(7)


def at(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else None)


def exact(*given):
    return [each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each for each in given]


def close(found: torch.Tensor, truth: torch.Tensor) -> bool:
    return error(found, truth) <= (OF_FLOAT32 if found.dtype == torch.float32 else OF_BFLOAT16)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [1, 40, 250, 1000, 4096])
def test_layer_norm(library: ctypes.CDLL, width: int, dtype: torch.dtype) -> None:
    for gelu in (True, False):
        x, weight, bias = (torch.randn(7, width) * 2 + 3).to(dtype), *torch.randn(2, width).to(dtype).unbind(0)
        y = torch.full_like(x, torch.nan)
        bits = dtype == torch.bfloat16
        rows = ctypes.c_long(7)
        library.layer_norm(at(x), at(weight), at(bias), at(y), rows, width, gelu, ctypes.c_float(1e-5), bits)
        assert close(y, layer_norm.reference(*exact(x, weight, bias, gelu)))


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "follows"),
    [(1, 8, 8, ""), (130, 200, 136, "residual"), (70, 72, 136, "gelu"), (300, 72, 264, "gelu, residual")],
)
def test_linear(library: ctypes.CDLL, rows: int, inputs: int, outputs: int, follows: str) -> None:
    x, weight = torch.randn(rows, inputs).bfloat16(), (torch.randn(outputs, inputs) * inputs**-0.5).bfloat16()
    bias, gelu = torch.randn(outputs).bfloat16(), "gelu" in follows
    residual = torch.randn(rows, outputs).bfloat16() if "residual" in follows else None
    y = torch.full((rows, outputs), torch.nan, dtype=torch.bfloat16)
    library.linear(at(x), at(weight), at(bias), at(residual), at(y), rows, outputs, inputs, gelu)
    assert close(y, linear.reference(*exact(x, weight, bias, residual, gelu)))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("tokens", "size"), [(1, 64), (70, 64), (300, 64), (140, 128)])
def test_attention(library: ctypes.CDLL, tokens: int, size: int, causal: bool) -> None:
    q, k, v = torch.randn(1, tokens, 3, 2, size).bfloat16().permute(2, 0, 3, 1, 4).unbind(0)
    y = torch.full((1, tokens, 2, size), torch.nan, dtype=torch.bfloat16)
    strides = ctypes.c_long(q.stride(0)), ctypes.c_long(q.stride(2))
    library.attention(at(q), at(k), at(v), at(y), 1, 2, tokens, size, *strides, causal)
    assert close(y.transpose(1, 2), attention.reference(*exact(q, k, v, causal)))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [5, 64, 100, 128, 300])
def test_messages(library: ctypes.CDLL, width: int, dtype: torch.dtype) -> None:
    offsets, sources = messages.by_destination(*torch.randint(0, 9, (2, 120)).unbind(0), 10)
    x, weights = torch.randn(10, width).to(dtype), messages.mean_weights(offsets, dtype)
    y = torch.full_like(x, torch.nan)
    library.messages(at(x), at(offsets), at(sources), at(weights), at(y), 10, width, dtype == torch.bfloat16)
    assert close(y, messages.reference(*exact(x, offsets, sources, weights)))
    assert not y[9].any()


@pytest.mark.parametrize("features", [1, 16, 17, 32, 40, 64])
def test_polynomial(library: ctypes.CDLL, features: int) -> None:
    x, mean, scale = torch.randn(200, features) + 3, torch.full((features,), 3.0), torch.rand(features) + 1
    coefficients, intercept, y = (
        torch.randn(features * (features + 3) // 2),
        torch.ones(1),
        torch.full((200,), torch.nan),
    )
    given = (x, mean, scale, coefficients, intercept)
    library.polynomial(*map(at, given), at(y), ctypes.c_long(200), features)
    assert close(y, polynomial.reference(*exact(*given)))
