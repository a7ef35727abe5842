"""PyTorch's networks: each layer and operation, the mode of the network, its file, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.exporter.data import unit_scale
from tests.exporter.networks import Residual, answers_of, perceptron
from triton_regressors import ExportError, load_estimator
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.engine.runner import Runner

X = unit_scale()[0][:64] * 3


class Forward(nn.Module):
    """Layers applied by a function `forward` of the network and the rows."""

    def __init__(self, forward: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 1)
        self.norm = nn.BatchNorm1d(8)
        self.factor, self.terms = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.linspace(-1, 1, 8))
        self.square = nn.Parameter(torch.randn(8, 8))
        self.calls = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.calls(self, x)


def settled(network: nn.Module) -> nn.Module:
    """Return the network in evaluation mode, after batches that its norms have counted."""
    with torch.no_grad():
        network.train()(torch.tensor(X, dtype=torch.float32))
    return network.eval()


def applied(net: Any, x: torch.Tensor) -> Any:
    h = functional.gelu(net.second(functional.leaky_relu(net.first(x), 0.2)))
    return net.last(functional.dropout(h, 0.5, net.training))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    **{
        f"layer-{name}": lambda layer=layer: perceptron(layer)
        for name, layer in {
            "relu": nn.ReLU(),
            "leaky": nn.LeakyReLU(0.3),
            "tanh": nn.Tanh(),
            "sigmoid": nn.Sigmoid(),
            "elu": nn.ELU(0.7),
            "selu": nn.SELU(),
            "gelu": nn.GELU(),
            "gelu-tanh": nn.GELU("tanh"),
            "silu": nn.SiLU(),
            "softplus": nn.Softplus(),
            "softplus-low": nn.Softplus(2.0, 1.0),
            "norm-after": nn.Sequential(nn.ReLU(), nn.BatchNorm1d(8)),
            "norm-plain": nn.Sequential(nn.BatchNorm1d(8, affine=False), nn.Tanh()),
            "layer-norm": nn.Sequential(nn.LayerNorm(8), nn.Tanh()),
            "layer-norm-plain": nn.Sequential(nn.LayerNorm(8, elementwise_affine=False), nn.ReLU()),
            "layer-norm-no-bias": nn.Sequential(nn.LayerNorm(8, bias=False), nn.ReLU()),
        }.items()
    },
    "linear": lambda: nn.Sequential(nn.Linear(5, 2, bias=False)),
    "linear-alone": lambda: nn.Linear(5, 1),
    "flat": lambda: nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)),
    "residual": Residual,
    "functions": lambda: Forward(applied),
    "methods": lambda: Forward(lambda net, x: net.last(net.first(x).tanh().clamp(-0.5, 0.5).abs())),
    "arithmetic": lambda: Forward(lambda net, x: (2 - net.last(net.first(x) * net.terms + 1)) / 3 * net.factor - 0.5),
    "products": lambda: Forward(lambda net, x: net.last(net.first(x) * torch.sigmoid(net.second(net.first(x))))),
    "differences": lambda: Forward(lambda net, x: net.last(net.first(x) - net.second(net.first(x)))),
    "matrices": lambda: Forward(lambda net, x: net.last(torch.matmul(net.first(x), net.square) @ net.square)),
    "beside": lambda: Forward(lambda net, x: net.last(torch.cat([net.first(x)[:, :3], x], dim=1))),
    "twice": lambda: Forward(lambda net, x: net.last(net.first(torch.cat([x[:, :2], x[:, [0, 3, 4]]], -1)))),
    "shapes": lambda: Forward(lambda net, x: net.last(net.first(x).view(x.size(0), -1)).view(-1)),
    "one-column": lambda: Forward(lambda net, x: net.last(net.first(x)).squeeze(1).exp().unsqueeze(1) * x[:, 1:2]),
    "column-flat": lambda: Forward(lambda net, x: net.last(net.first(x)).flatten() + x[:, 0]),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_networks_answer_as_pytorch_does(name: str, dtype: torch.dtype, engine: str) -> None:
    torch.manual_seed(1)
    network = settled(NETWORKS[name]()).to(dtype)
    compilation = compile_estimator(network, sample=X)
    found = Runner(compilation.plan, engine=engine, max_rows=len(X)).predict(compilation.sample.X)["y"]
    expected = answers_of(network, X)["y"].reshape(len(X), -1)
    assert np.abs(found - expected).max() <= 5e-6 * expected.std()


def test_the_first_layer_says_how_many_columns_there_are() -> None:
    assert compile_estimator(perceptron(nn.ReLU())).inputs.numeric == (0, 1, 2, 3, 4)
    assert compile_estimator(nn.Sequential(nn.Tanh(), nn.BatchNorm1d(5), nn.Linear(5, 1)).eval()).report.drawn
    assert compile_estimator(Residual().eval()).report.drawn
    with pytest.raises(ExportError, match="does not say how many features it was fitted on; give a sample"):
        compile_estimator(NETWORKS["twice"]().eval())


def test_a_table_may_name_the_columns() -> None:
    table = pd.DataFrame(X, columns=list("abcde"))
    compilation = compile_estimator(perceptron(nn.ReLU()), sample=table, columns=list("abcde"))
    assert compilation.columns == ("a", "b", "c", "d", "e")


def test_the_mode_only_matters_to_layers_that_it_changes() -> None:
    network = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 1))
    with pytest.raises(ExportError) as raised:
        compile_estimator(network, sample=X)
    assert str(raised.value) == (
        "Cannot export Sequential: its layer 1, a BatchNorm1d, is in training mode, where its answers depend on chance "
        "or on the batch; call .eval()."
    )
    assert network.training
    assert compile_estimator(network.eval(), sample=X).report.within
    assert compile_estimator(perceptron(nn.ReLU()).train(), sample=X).report.within


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_files_of_torch_save_are_pickles(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"net{suffix}"
    torch.save(Residual(), path)
    with pytest.raises(ExportError, match=r"is a pickle of PyTorch.* say --trust-pickle"):
        load_estimator(path)
    network = load_estimator(path, trust_pickle=True)
    assert not network.training
    assert compile_estimator(network, sample=X).report.within
    torch.save(network.state_dict(), path)
    with pytest.raises(ExportError, match="holds a OrderedDict and no network, as a state_dict does not say"):
        load_estimator(path, trust_pickle=True)


def hooked() -> nn.Module:
    network = perceptron(nn.ReLU())
    network[0].register_forward_hook(lambda layer, given, found: found + 1)
    return network


class Looks(nn.Sequential):
    """A network whose forward looks at the rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x if x.sum() > 0 else -x)


LAYERS = (
    "supported: Linear, BatchNorm1d, LayerNorm, Flatten, Identity, Dropout, ELU, GELU, LeakyReLU, ReLU, SELU, Sigmoid, "
    "SiLU, Softplus, Tanh."
)
REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "layer": (lambda: nn.Sequential(nn.Linear(5, 2), nn.Softmax(1)), f"Sequential: its layer 1 is a Softmax; {LAYERS}"),
    "nested": (
        lambda: nn.Sequential(nn.Sequential(nn.Linear(5, 2), nn.PReLU())),
        f"Sequential: its layer 0.1 is a PReLU; {LAYERS}",
    ),
    "norm": (
        lambda: nn.Sequential(nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 1)),
        f"Sequential: its layer 0 is a BatchNorm1d without track_running_stats; {LAYERS}",
    ),
    "widths": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.Linear(3, 1)),
        "Sequential: a Linear layer reads 3 columns and would get 4.",
    ),
    "hook": (
        hooked,
        "Sequential: its layer 0 has a hook that runs in forward. Remove the hooks, and export it again.",
    ),
    "looks": (
        lambda: Looks(nn.Linear(5, 1)),
        "Looks: torch.fx cannot record its forward (symbolically traced variables cannot be used as inputs to control "
        "flow); supported: a Sequential, or a forward that applies its layers without looking at the rows' values.",
    ),
    "half": (
        lambda: perceptron(nn.ReLU()).half(),
        "Sequential: its parameters are float16; supported: all float32, or all float64.",
    ),
    "function": (
        lambda: Forward(lambda net, x: net.last(net.first(x).cumsum(1))),
        "Forward: its forward calls cumsum, which no plan computes; write it as a Sequential of layers.",
    ),
    "arguments": (
        lambda: Forward(lambda net, x: net.last(torch.add(net.first(x), 1, alpha=2))),
        "Forward: its forward calls add with arguments that no plan has (TypeError: Network._by_add() got an "
        "unexpected keyword argument 'alpha').",
    ),
    "rows": (
        lambda: Forward(lambda net, x: net.last(net.first(x))[0]),
        "Forward: its forward selects rows; supported: columns, as in x[:, :3].",
    ),
    "shapes": (
        lambda: Forward(lambda net, x: net.last(net.first(x)) + x[:, 0]),
        "Forward: its forward adds two tensors of different shapes.",
    ),
    "in-place": (
        lambda: Forward(lambda net, x: net.last((h := net.first(x)) + functional.relu(h, inplace=True))),
        "Forward: it changes a tensor in place that something else reads; leave inplace=True out.",
    ),
    "tuple": (
        lambda: Forward(lambda net, x: (net.last(net.first(x)), x)),
        "Forward: its forward does not return one tensor of the rows' answers.",
    ),
    "dropout": (
        lambda: Forward(lambda net, x: net.last(functional.dropout(net.first(x)))),
        "Forward: its forward calls dropout in training mode, where its answers depend on chance or on the batch; call "
        ".eval().",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    make, why = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(make().eval(), sample=X)
    assert str(raised.value) == f"Cannot export {why}"
