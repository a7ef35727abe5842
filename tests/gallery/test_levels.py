"""The same answers at every level that this machine has: operations, a block of a transformer and three models."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from torch.utils._python_dispatch import TorchDispatchMode

from gallery.errors import GalleryError
from gallery.levels import attention, extension, layer_norm, linear, messages, page, plots, polynomial, text
from gallery.levels.measure import measure
from gallery.levels.parts import COMPILE, CUDA, EAGER, IN_TRITON_LANGUAGE, LEVELS, SCRIPT, TRITON, missing
from gallery.levels.show import levels
from gallery.levels.subjects import OF_BFLOAT16, OF_FLOAT32, SUBJECTS, Subject, error

ON_CPU = (EAGER, SCRIPT, TRITON)  # torch.compile takes a CPU longer than all tests; the command compares it
OF_LEVELS = [pytest.param(level, marks=() if level in ON_CPU else pytest.mark.gpu) for level in LEVELS]
OPERATIONS = (layer_norm, linear, attention, messages, polynomial)


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on sizes so small, several threads would wait for each other
    torch.manual_seed(7)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


def draw_layer_norm(width: int, dtype: torch.dtype) -> list:
    x, weight, bias = torch.randn(3, 7, width) * 2 + 5, torch.randn(width), torch.randn(width)
    return [x.to(dtype), weight.to(dtype), bias.to(dtype), width % 2 == 0]


def draw_linear(rows: int, inputs: int, outputs: int, follows: str, dtype: torch.dtype) -> list:
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs) * inputs**-0.5
    residual = torch.randn(rows, outputs).to(dtype) if "residual" in follows else None
    return [x.to(dtype), weight.to(dtype), torch.randn(outputs).to(dtype), residual, "gelu" in follows]


def draw_attention(tokens: int, size: int, causal: bool, dtype: torch.dtype) -> list:
    return [*torch.randn(2, tokens, 3, 2, size).to(dtype).permute(2, 0, 3, 1, 4).unbind(0), causal]


def draw_messages(nodes: int, edges: int, width: int, dtype: torch.dtype) -> list:
    sources, destinations = torch.randint(0, nodes, (2, edges)).unbind(0)
    offsets, sources = messages.by_destination(sources, destinations, nodes)
    return [torch.randn(nodes, width).to(dtype), offsets, sources, messages.mean_weights(offsets, dtype)]


def draw_polynomial(rows: int, features: int, dtype: torch.dtype) -> list:
    form = torch.randn(features * (features + 3) // 2)
    return [
        torch.randn(rows, features) + 3,
        torch.full((features,), 3.0),
        torch.rand(features) + 1,
        form,
        torch.ones(1),
    ]


CASES = [
    *((layer_norm, draw_layer_norm, (width,)) for width in (1, 33, 40, 256)),
    *(
        (linear, draw_linear, size)
        for size in ((1, 3, 5, ""), (9, 24, 16, "gelu"), (70, 72, 136, "residual"), (17, 64, 72, "gelu, residual"))
    ),
    *((attention, draw_attention, size) for size in ((1, 64, True), (70, 64, True), (33, 64, False), (9, 128, True))),
    *((messages, draw_messages, size) for size in ((1, 0, 8), (6, 40, 5), (30, 60, 136))),
    *((polynomial, draw_polynomial, size) for size in ((1, 1), (70, 5), (40, 17), (3, 64))),
]
OF_OPERATIONS = [
    pytest.param(operation, drawn, size, id=f"{operation.__name__.rpartition('.')[2]} {size}")
    for operation, drawn, size in CASES
]


@pytest.mark.parametrize(("operation", "drawn", "size"), OF_OPERATIONS)
def test_operations_of_any_size(operation, drawn, size, device: torch.device) -> None:
    dtype = torch.bfloat16 if device.type == "cuda" and operation is not polynomial else torch.float32
    given = [each.to(device) if isinstance(each, torch.Tensor) else each for each in drawn(*size, dtype)]
    exact = [each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each for each in given]
    truth = operation.reference(*exact)
    ways = [operation.in_triton_language]
    multiples = operation is not linear or size[1] % 8 == size[2] % 8 == 0
    if not missing(CUDA) and multiples:
        ways.append(operation.in_cuda)
    for way in ways:
        found = way(*given)
        assert found.dtype == dtype
        if operation is messages and not size[1]:
            assert not found.any()
        else:
            assert error(found, truth) <= (OF_FLOAT32 if dtype == torch.float32 else OF_BFLOAT16)


@pytest.mark.parametrize("follows", ["gelu", "residual"])
def test_linear_by_descriptors_makes_several_tiles_in_a_program(follows: str, device: torch.device) -> None:
    given = draw_linear(300, 72, 264, follows, torch.bfloat16)
    found = linear.in_triton_language(*(each.to(device) if isinstance(each, torch.Tensor) else each for each in given))
    exact = [each.double() if isinstance(each, torch.Tensor) else each for each in given]
    assert error(found.cpu(), linear.reference(*exact)) <= OF_BFLOAT16


def test_attention_in_bfloat16(device: torch.device) -> None:
    q, k, v, causal = draw_attention(140, 64, True, torch.bfloat16)
    found = attention.in_triton_language(q.to(device), k.to(device), v.to(device), causal)
    assert error(found.cpu(), attention.reference(q.double(), k.double(), v.double(), causal)) <= OF_BFLOAT16


@pytest.mark.parametrize("level", OF_LEVELS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_answer_is_the_same_at_every_level(name: str, level: str, device: torch.device) -> None:
    if missing(level):
        pytest.skip(missing(level))
    subject = SUBJECTS[name]
    arguments = subject.arguments(subject.small, device)
    found = subject.at(level, subject.small, device)(*arguments)
    assert error(found, subject.truth(subject.small, arguments)) <= subject.tolerance_on(device)


@pytest.mark.parametrize("level", OF_LEVELS)
def test_the_language_model_continues_its_text_at_every_level(level: str, device: torch.device) -> None:
    if missing(level):
        pytest.skip(missing(level))
    subject = SUBJECTS["language_model"]
    model = subject.at(level, subject.small, device)
    count = 2 if (level, device.type) == (TRITON, "cpu") else len(text.TEXT) - 12
    assert text.continued(model, text.TEXT[:12], count, device) == text.TEXT[: 12 + count]


def test_scripted_models_are_scripted() -> None:
    for name in SUBJECTS:
        made = SUBJECTS[name].at(SCRIPT, SUBJECTS[name].small, torch.device("cpu"))
        assert isinstance(made, torch.jit.ScriptFunction | torch.jit.ScriptModule)


@pytest.mark.parametrize(("operation", "drawn", "size"), OF_OPERATIONS[1::4])
def test_torch_accepts_the_operators(operation, drawn, size, device: torch.device) -> None:
    given = [each.to(device) if isinstance(each, torch.Tensor) else each for each in drawn(*size, torch.float32)]
    registered = operation.in_triton_language.registered
    torch.library.opcheck(registered, given, test_utils=("test_schema", "test_faketensor"))


class Dispatched(TorchDispatchMode):
    """Keeps the names of the gallery's operators that torch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if function.namespace == "gallery":
            self.names.append(function.name())
        return function(*arguments, **(named or {}))


@pytest.mark.parametrize(("operation", "drawn", "size"), OF_OPERATIONS[1::4])
def test_a_call_without_gradients_skips_torchs_dispatcher(operation, drawn, size, device: torch.device) -> None:
    given = [each.to(device) if isinstance(each, torch.Tensor) else each for each in drawn(*size, torch.float32)]
    with torch.enable_grad(), Dispatched() as with_gradients:
        expected = operation.in_triton_language(*given)
    with Dispatched() as without:
        found = operation.in_triton_language(*given)
    assert with_gradients.names == [f"gallery::level_{operation.__name__.rpartition('.')[2]}"]
    assert without.names == []
    assert torch.equal(found, expected)


def test_a_compiled_graph_has_the_operator(device: torch.device) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def kept(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    given = [each.to(device) for each in draw_layer_norm(8, torch.float32)[:3]]
    compiled = torch.compile(lambda *given: layer_norm.in_triton_language(*given), backend=kept, fullgraph=True)
    assert torch.equal(compiled(*given), layer_norm.in_triton_language(*given))
    (graph,) = graphs
    assert "gallery.level_layer_norm" in graph.code


def test_messages_are_sums_over_the_edges_into_a_node(device: torch.device) -> None:
    edges = [(0, 2), (1, 2), (2, 0), (0, 2)]
    sources, destinations = torch.tensor(edges).unbind(1)
    offsets, by_node = messages.by_destination(sources, destinations, 4)
    assert offsets.tolist() == [0, 1, 1, 4, 4]
    assert by_node.tolist() == [2, 0, 1, 0]
    x = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    weights = messages.mean_weights(offsets, torch.float32)
    given = [each.to(device) for each in (x, offsets, by_node, weights)]
    assert IN_TRITON_LANGUAGE.messages(*given).flatten().tolist() == pytest.approx([100, 0, 4, 0])


def test_the_polynomial_is_the_pipeline_of_scikit_learn(device: torch.device) -> None:
    rng = np.random.default_rng(7)
    X = rng.normal(3, 2, (80, 6))
    pipeline = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), Ridge())
    pipeline.fit(X, X[:, 0] * X[:, 1] + X[:, 2] ** 2 + rng.normal(size=80))
    scaler, _, ridge = (step for _, step in pipeline.steps)
    parameters = (X, scaler.mean_, scaler.scale_, ridge.coef_, np.atleast_1d(ridge.intercept_))
    found = polynomial.in_triton_language(*(torch.tensor(each).float().to(device) for each in parameters))
    assert error(found.cpu(), torch.tensor(pipeline.predict(X))) <= OF_FLOAT32


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: linear.in_triton_language(torch.ones(2, 3), torch.ones(4, 5), torch.ones(4)), "'x' has shape"),
        (lambda: linear.in_cuda(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4)), "'x' is float32"),
        (lambda: layer_norm.in_triton_language(torch.ones(2, 3), torch.ones(4), torch.ones(3)), "'weight' has shape"),
        (lambda: attention.in_triton_language(*(torch.ones(1, 1, 2, 7) for _ in range(3))), "Heads of 7"),
        (lambda: polynomial.in_triton_language(*draw_polynomial(2, 65, torch.float32)), "65 features"),
        (lambda: messages.in_cuda(*draw_messages(2, 3, 4, torch.float64)), "'x' is float64"),
    ],
)
def test_what_is_not_computed_is_refused(call, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        call()


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the level is there")
def test_cuda_says_why_it_is_left_out() -> None:
    with pytest.raises(RuntimeError, match="no CUDA GPU"):
        extension.library()


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the command measures")
def test_the_command_compares_levels_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    levels(["graph_network"], None, quick=False)
    printed = capsys.readouterr().out
    assert "CUDA C++ is left out: there is no CUDA GPU." in printed
    assert "graph_network" in printed
    with pytest.raises(GalleryError, match=r"There is no blok; subjects are layer_norm_gelu"):
        levels(["blok"], None, quick=False)


@pytest.mark.gpu
def test_a_subject_is_measured_at_every_level() -> None:
    subject = SUBJECTS["messages"]
    found = measure(replace(subject, large=subject.small), rounds=1)
    assert {EAGER, SCRIPT, COMPILE, TRITON} <= set(found["levels"])
    assert found["levels"][TRITON]["launches"] == 1
    assert found["levels"][EAGER]["launches"] > 1
    assert all(figures["median_us"] > 0 for figures in found["levels"].values())


def figures_of(subject: Subject) -> dict:
    """Return figures as `measure` gives them; each level is faster than the one before."""
    work, moved = subject.work(subject.large), subject.numbers(subject.large) * subject.dtype.itemsize
    levels = {
        name: {
            **{
                "median_us": 1000.0 / (place + 1),
                "host_us": 2000.0 / (place + 1),
                "share": 0.25,
                "launches": 5 - place,
            },
            **{"peak_mb": 3.5, "compile_s": 2.0 * bool(place), "error": 1e-3},
        }
        for place, name in enumerate((*LEVELS, *subject.others))
    }
    return {
        **{"subject": subject.name, "size": list(subject.large), "dtype": str(subject.dtype).removeprefix("torch.")},
        **{"operations": work, "bytes": moved, "bound": "bytes", "rates": {"operations": 8e14, "bytes": 4e12}},
        "levels": levels,
    }


def test_the_page_and_the_plots_are_made_of_the_results_alone(tmp_path: Path) -> None:
    environment = {"device": "NVIDIA H200", "cores": 16, "versions": {}}
    subjects = [figures_of(subject) for subject in SUBJECTS.values()]
    document = {"environment": environment, "settings": {"quick": False}, "subjects": subjects}
    made = page.page(document, "nvidia-h200")
    assert "| CUDA C++ | 200 | 25.0% | 400 | 1 | 3.5 | 2.0 | 1,250 | 1e-03 |" in made
    assert "0.50 to 0.50 times the device time of torch eager" in made
    assert "as a graph" not in made
    for subject in subjects:
        for figures in subject["levels"].values():
            figures["graph_us"] = None if figures["launches"] == 1 else 123.0
    with_graphs = page.page(document, "nvidia-h200")
    assert "| CUDA C++ | 200 | 25.0% | 400 | – | 1 | 3.5 | 2.0 | 1,250 | 1e-03 |" in with_graphs
    assert "| TorchScript | 500 | 25.0% | 1,000 | 123 | 4 | 3.5 |" in with_graphs
    assert "replays it as one CUDA graph" in with_graphs
    results = tmp_path / "results.json"
    results.write_text(json.dumps(document), encoding="utf-8")
    plots.draw(results, tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {"levels.png", "levels_roofline.png"}
