"""Networks of PyTorch: the layers that `forward` applies, which torch.fx records.

Recording shows every operation of `forward`, and fails where it depends on the rows' values. Each recorded operation
becomes steps of the plan, or is refused by name. A network answers in the mode it is in, and a layer whose answers
differ in training mode is refused there.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from triton_regressors.exporter.estimators.torch_activations import ACTIVATIONS, Activation
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import answers, counts_columns, lowers
from triton_regressors.exporter.lowering.soundness import one_line
from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.ops.columns.expression import Expression
from triton_regressors.kernels.ops.columns.float32 import Float32

MODULE = "torch.nn.modules.module.Module"


@lowers(MODULE)
def lower_network(network: Any, x: Value, builder: Builder) -> Value:
    """What `forward` makes of the rows, in the type of the network's parameters."""
    return Network(network, network, builder).answer(x)


@answers(MODULE)
def answer_by_network(network: Any, table: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """Return the network's own answer to the rows in the type of its parameters."""
    with torch.no_grad():
        return {"y": network(as_rows(network, table)).cpu().numpy()}


@counts_columns(MODULE)
def count_columns(network: Any) -> int | None:
    """Return how many columns the first layer with weights reads, or None if other operations come first."""
    try:
        graph = record(network)
    except Exception:  # the lowering refuses such a network with the reason
        return None
    waiting = [node for node in graph.nodes if node.op == "placeholder"]
    while waiting:
        for node in waiting.pop(0).users:
            layer = network.get_submodule(node.target) if node.op == "call_module" else None
            for name in ("in_features", "num_features"):
                if hasattr(layer, name):
                    return int(getattr(layer, name))
            if type(layer).__name__ in (*ACTIVATIONS, *IN_EVALUATION, "Flatten", "Identity"):
                waiting.append(node)
    return None


def as_rows(network: Any, table: Any) -> torch.Tensor:
    """Return rows as a tensor of the type and on the device of a network's parameters."""
    like = next(network.parameters(), torch.zeros(0))
    return torch.as_tensor(np.asarray(table)).to(like)


def record(network: Any) -> Any:
    """Return the graph of a network's `forward`."""
    from torch.fx import Tracer

    return Tracer().trace(network)


def in_evaluation(network: Any) -> Any:
    """Return a copy of a network in evaluation mode."""
    return copy.deepcopy(network).eval()


IN_EVALUATION = ("AlphaDropout", "Dropout", "FeatureAlphaDropout")
"""Layers that hand on what they read in evaluation mode."""

OTHERS = ("Linear", "BatchNorm1d", "LayerNorm", "Flatten", "Identity", "Dropout")

FUNCTIONS = {
    **{name.lower(): name for name in ACTIVATIONS},
    "leaky_relu": "LeakyReLU",
    "dropout": "Dropout",
    "alpha_dropout": "AlphaDropout",
    "linear": "Linear",
}
"""The layer that each of torch's functions and methods computes."""

ELEMENTWISE = {name: name for name in ("cos", "exp", "expm1", "log", "log1p", "sin", "sqrt", "square")}
ELEMENTWISE |= {"abs": "absolute", "neg": "negative"}
"""Functions of single elements, with the kernels' names for them."""

ROWS = object()
"""Stands for the number of rows in a shape."""


@dataclass(frozen=True)
class Tensor:
    """A value of the network, `[rows, width]`, or `[rows]` if `flat`."""

    value: Value
    flat: bool = False


class NotLowered(Exception):  # noqa: N818
    """The reason why an operation of a network has no steps, as a clause."""


class Network:
    """A network whose operations become steps; `estimator` is the one that errors name."""

    def __init__(self, network: Any, estimator: Any, builder: Builder) -> None:
        self._network, self._estimator, self._builder = network, estimator, builder
        self._values: dict[Any, Any] = {}

    def answer(self, x: Value) -> Value:
        """Return what the network makes of rows that are rounded to the type of its parameters."""
        if self._builder.misfit is not None:
            raise self._builder.misfit
        try:
            return self._answer(self._rounded(x))
        except NotLowered as refused:
            raise self._builder.refuse(self._estimator, str(refused)) from refused

    def _rounded(self, x: Value) -> Value:
        kinds = {parameter.dtype for parameter in self._network.parameters()}
        if len(kinds) > 1 or not kinds <= {torch.float32, torch.float64}:
            names = " and ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
            raise NotLowered(f"its parameters are {names}; supported: all float32, or all float64")
        if kinds == {torch.float64}:
            return x
        return self._builder.add(Float32(), x).holding(x, range(x.width))

    def _answer(self, x: Value) -> Value:
        network = self._network
        hooked = [name or "itself" for name, part in network.named_modules() if _hooks(part)]
        if hooked:
            raise NotLowered(
                f"its layer {hooked[0]} has a hook that runs in forward. Remove the hooks, and export it again"
            )
        try:
            graph = record(network)
        except Exception as error:  # forward is the user's own
            raise NotLowered(
                f"torch.fx cannot record its forward ({one_line(error)}); supported: a Sequential, or a forward that "
                "applies its layers without looking at the rows' values"
            ) from error
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        if len(inputs) != 1:
            raise NotLowered(f"its forward takes {len(inputs)} arguments; supported: one, the rows")
        self._values[inputs[0]] = Tensor(x)
        for node in graph.nodes:
            if node.op == "output":
                found = self._read(node.args[0])
                if not isinstance(found, Tensor):
                    raise NotLowered("its forward does not return one tensor of the rows' answers")
                return found.value
            if node.op != "placeholder":
                self._values[node] = getattr(self, f"_{node.op}")(node)
        raise NotLowered("its forward returns nothing")

    # Operations as torch.fx records them

    def _get_attr(self, node: Any) -> Any:
        found = self._network
        for name in node.target.split("."):
            found = getattr(found, name)
        return _numbers(found) if isinstance(found, torch.Tensor) else found

    def _call_module(self, node: Any) -> Tensor:
        layer = self._network.get_submodule(node.target)
        kind, (z, *more) = type(layer).__name__, self._read(node.args)
        if more or node.kwargs:
            raise NotLowered(f"its layer {node.target}, a {kind}, gets more than one argument")
        self._check_in_place(node, getattr(layer, "inplace", False))
        if kind in IN_EVALUATION or (kind == "BatchNorm1d" and layer.track_running_stats):
            self._check_mode(f"its layer {node.target}, a {kind}, is", layer.training)
        if kind in ACTIVATIONS:
            parameters = inspect.signature(ACTIVATIONS[kind]).parameters
            return self._activated(z, ACTIVATIONS[kind](**{name: getattr(layer, name) for name in parameters}))
        if kind in IN_EVALUATION or kind == "Identity":
            return _tensor(z)
        if kind == "Linear":
            bias = None if layer.bias is None else _numbers(layer.bias)
            return self._linear(z, _numbers(layer.weight), bias)
        if kind == "BatchNorm1d" and layer.running_mean is not None:
            return self._normalised_by_batch(z, layer)
        if kind == "LayerNorm" and layer.normalized_shape == (_matrix(z).value.width,):
            return self._normalised_by_row(z, layer)
        if kind == "Flatten":
            return self._by_flatten(z, layer.start_dim)
        raise NotLowered(
            f"its layer {node.target} is a {kind}{_settings(layer, kind)}; supported: "
            f"{', '.join(OTHERS)}, {', '.join(ACTIVATIONS)}"
        )

    def _call_function(self, node: Any) -> Any:
        function = node.target
        if inspect.isfunction(function) and not function.__module__.startswith("torch."):
            raise NotLowered(f"its forward calls {function.__qualname__}, which torch.fx does not look into")
        return self._call(node, function.__name__)

    def _call_method(self, node: Any) -> Any:
        return self._call(node, node.target)

    def _call(self, node: Any, name: str) -> Any:
        arguments, options = self._read(node.args), self._read(node.kwargs)
        in_place = name.endswith("_") or name in ("iadd", "isub", "imul", "itruediv") or options.get("inplace")
        self._check_in_place(node, bool(in_place))
        name = name.rstrip("_")
        kind = FUNCTIONS.get(name)
        method = getattr(self, f"_by_{name}", None)
        try:
            if kind in ACTIVATIONS:
                return self._activated(arguments[0], ACTIVATIONS[kind](*arguments[1:], **options))
            if kind in IN_EVALUATION:
                return self._dropped(name, *arguments, **options)
            if kind == "Linear":
                return self._linear(*arguments, **options)
            if name in ELEMENTWISE:
                return self._activated(arguments[0], ELEMENTWISE[name])
            if method is not None:
                return method(*arguments, **options)
        except TypeError as error:
            raise NotLowered(f"its forward calls {name} with arguments that no plan has ({one_line(error)})") from error
        raise NotLowered(f"its forward calls {name}, which no plan computes; write it as a Sequential of layers")

    def _by_add(self, a: Any, b: Any) -> Tensor:
        return self._joined("add", a, b)

    def _by_sub(self, a: Any, b: Any) -> Tensor:
        return self._joined("subtract", a, b)

    def _by_mul(self, a: Any, b: Any) -> Tensor:
        return self._joined("multiply", a, b)

    def _by_truediv(self, a: Any, b: Any) -> Tensor:
        return self._joined("divide", a, b)

    _by_iadd, _by_isub, _by_imul, _by_itruediv, _by_div = _by_add, _by_sub, _by_mul, _by_truediv, _by_truediv

    def _by_matmul(self, a: Any, b: Any) -> Tensor:
        if not isinstance(b, np.ndarray) or b.ndim != 2:
            raise NotLowered("its forward multiplies matrices that are not the rows and a parameter")
        return self._linear(a, b.T, None)

    def _by_cat(self, tensors: Sequence[Any], dim: int = 0) -> Tensor:
        if dim not in (1, -1):
            raise NotLowered("its forward puts rows below each other by cat")
        return Tensor(self._builder.concatenate([_matrix(z).value for z in tensors]))

    def _by_squeeze(self, z: Any, dim: int | None = None) -> Tensor:
        found = _tensor(z)
        if found.flat or found.value.width != 1:
            return found
        if dim not in (1, -1):
            raise NotLowered(f"its forward calls squeeze({'' if dim is None else dim}); supported: squeeze(-1)")
        return Tensor(found.value, flat=True)

    def _by_unsqueeze(self, z: Any, dim: int) -> Tensor:
        if not _tensor(z).flat or dim not in (1, -1):
            raise NotLowered(f"its forward calls unsqueeze({dim}); supported: unsqueeze(-1) of one column")
        return Tensor(z.value)

    def _by_flatten(self, z: Any, start_dim: int = 0) -> Tensor:
        return self._by_view(z, *((ROWS, -1) if start_dim == 1 and not _tensor(z).flat else (-1,)))

    def _by_view(self, z: Any, *shape: Any) -> Tensor:
        value, shape = _tensor(z).value, tuple(shape[0]) if len(shape) == 1 and np.ndim(shape[0]) else shape
        if shape in ((ROWS, -1), (-1, value.width), (ROWS, value.width)):
            return Tensor(value)
        if value.width == 1 and shape in ((-1,), (ROWS,)):
            return Tensor(value, flat=True)
        raise NotLowered("its forward changes the shape of the rows; supported: view(-1) of one column, and flatten(1)")

    _by_reshape = _by_view

    def _by_size(self, z: Any, dim: int | None = None) -> Any:
        shape = self._by_getattr(z, "shape")
        return shape if dim is None else shape[dim]

    def _by_getattr(self, z: Any, name: str) -> Any:
        if name != "shape":
            raise NotLowered(f"its forward reads {name} of a tensor")
        return (ROWS,) if _tensor(z).flat else (ROWS, z.value.width)

    def _by_getitem(self, z: Any, key: Any) -> Any:
        if isinstance(z, tuple):
            return z[key]
        value = _matrix(z).value
        if not isinstance(key, tuple) or len(key) != 2 or key[0] not in (slice(None), ...):
            raise NotLowered("its forward selects rows; supported: columns, as in x[:, :3]")
        chosen = np.arange(value.width)[key[1]]
        return Tensor(self._builder.columns(value, np.atleast_1d(chosen)), flat=chosen.ndim == 0)

    def _by_clamp(self, z: Any, min: float | None = None, max: float | None = None) -> Tensor:
        z = _tensor(z)
        return Tensor(self._builder.elementwise(z.value, "identity", min, max), z.flat)

    def _by_contiguous(self, z: Any) -> Tensor:
        return _tensor(z)

    # What operations become

    def _activated(self, z: Any, activation: Activation) -> Tensor:
        z = _tensor(z)
        if isinstance(activation, str):
            return Tensor(self._builder.elementwise(z.value, activation), z.flat)
        (program, constants), width = activation, z.value.width
        lanes, every = np.array([width], dtype=np.int32), np.arange(width, dtype=np.int32)
        numbers = np.tile(np.array(constants, dtype=np.float64), width)
        return Tensor(self._builder.add(Expression((program,), lanes, every, numbers), z.value), z.flat)

    def _dropped(self, name: str, z: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        self._check_mode(f"its forward calls {name}", training)
        return _tensor(z)

    def _linear(self, z: Any, weight: Any, bias: Any = None) -> Tensor:
        value = _matrix(z).value
        if weight.shape[1] != value.width:
            raise NotLowered(f"a Linear layer reads {weight.shape[1]} columns and would get {value.width}")
        return Tensor(self._builder.affine(value, weight.T, 0.0 if bias is None else bias))

    def _normalised_by_batch(self, z: Any, layer: Any) -> Tensor:
        mean, spread = _numbers(layer.running_mean), np.sqrt(_numbers(layer.running_var) + layer.eps)
        value = _matrix(z).value
        self._builder.profile.note_scale(value.features, mean, spread)
        return self._scaled(value, 1.0 / spread, -mean / spread, layer)

    def _normalised_by_row(self, z: Any, layer: Any) -> Tensor:
        """`(x − mean) / √(variance + eps)` of each row, times `weight`, plus `bias`."""
        builder, value = self._builder, _matrix(z).value
        count = value.width
        centred = builder.affine(value, np.eye(count) - 1.0 / count, 0.0)
        variance = builder.affine(builder.elementwise(centred, "square"), np.full(count, 1.0 / count), layer.eps)
        factor = builder.add(Combine("sum", exponent=-0.5), variance)
        found = builder.add(Combine("product"), centred, factor)
        return self._scaled(found, np.ones(count), np.zeros(count), layer)

    def _scaled(self, value: Value, factor: np.ndarray, term: np.ndarray, layer: Any) -> Tensor:
        """Return `value · factor + term`, and that times the layer's weight plus its bias, if it has them."""
        if layer.weight is not None:
            weight = _numbers(layer.weight)
            factor, term = factor * weight, term * weight
        if getattr(layer, "bias", None) is not None:
            term = term + _numbers(layer.bias)
        if (factor == 1.0).all() and (term == 0.0).all():
            return Tensor(value)
        return Tensor(self._builder.affine(value, np.diag(factor), term))

    def _joined(self, how: str, a: Any, b: Any) -> Tensor:
        """Return the sum, difference, product or quotient of two tensors, or of a tensor and numbers."""
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return self._of_two(how, a, b)
        z, number = (a, b) if isinstance(a, Tensor) else (b, a)
        z = _tensor(z)
        width = z.value.width
        if np.ndim(number) > 1 or np.size(number) not in (1, 1 if z.flat else width):
            raise NotLowered(f"its forward {how}s tensors of other shapes than the rows'")
        numbers = np.broadcast_to(np.asarray(number, dtype=np.float64).ravel(), width)
        if how == "divide" and z is not a:
            raise NotLowered("its forward divides by a tensor of the rows")
        if how in ("multiply", "divide"):
            factor, term = numbers if how == "multiply" else 1.0 / numbers, np.zeros(width)
        else:
            factor = np.full(width, -1.0 if how == "subtract" and z is b else 1.0)
            term = -numbers if how == "subtract" and z is a else numbers
        return Tensor(self._builder.affine(z.value, np.diag(factor), term), z.flat)

    def _of_two(self, how: str, a: Tensor, b: Tensor) -> Tensor:
        if a.flat != b.flat or len({a.value.width, b.value.width} - {1}) > 1:
            raise NotLowered(f"its forward {how}s two tensors of different shapes")
        if how == "divide":
            raise NotLowered("its forward divides by a tensor of the rows")
        if how == "multiply":
            return Tensor(self._builder.add(Combine("product"), a.value, b.value), a.flat)
        factors = (1.0, -1.0 if how == "subtract" else 1.0)
        return Tensor(self._builder.add(Combine("sum", factors=factors), a.value, b.value), a.flat)

    # Checks

    def _read(self, argument: Any) -> Any:
        """Return the value of an argument of a recorded operation."""
        from torch.fx.node import map_arg

        return map_arg(argument, lambda node: self._values[node])

    def _check_mode(self, what: str, training: bool) -> None:
        if training:
            raise NotLowered(
                f"{what} in training mode, where its answers depend on chance or on the batch; call .eval()"
            )

    def _check_in_place(self, node: Any, in_place: bool) -> None:
        if in_place and any(len(each.users) > 1 for each in node.all_input_nodes[:1]):
            raise NotLowered("it changes a tensor in place that something else reads; leave inplace=True out")


def _hooks(part: Any) -> bool:
    return bool(part._forward_hooks or part._forward_pre_hooks)


def _numbers(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as float64."""
    found: np.ndarray = tensor.detach().cpu().double().numpy()
    return found


def _tensor(z: Any) -> Tensor:
    if not isinstance(z, Tensor):
        raise NotLowered("its forward computes with what is no tensor of the rows")
    return z


def _matrix(z: Any) -> Tensor:
    found = _tensor(z)
    if found.flat:
        raise NotLowered("its forward gives a layer one column without its second dimension")
    return found


def _settings(layer: Any, kind: str) -> str:
    """Return the setting because of which a layer of a supported class is refused."""
    if kind == "BatchNorm1d":
        return " without track_running_stats"
    return f" with normalized_shape={layer.normalized_shape}" if kind == "LayerNorm" else ""
