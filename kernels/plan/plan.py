"""The plan of an entry: a short program over matrices of rows.

A plan is a list of steps in single-assignment order. Each step applies one operation (a file of `ops/`) to values made
before it and makes one new value. Every value is a matrix `[rows, width]`. The plan's own input is the value `X` of
width `n_features`, float32 or float64 as `dtype` says. The values between steps are float64, and outputs are rounded to
float32 once, at the end. A long plan is thus as exact as a short one, and a decision taken on the way is scikit-learn's
own. A plan does not depend on devices, batches or servers: `engine/runner.py` binds it to those.

On disk a plan is two things: JSON for its structure, and a safetensors file for its arrays, named `<step>.<field>`.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from ..entry import Document, read_document, read_weights
from ..format.errors import PlanError
from ..ops.kinds import MODULES

PROTOCOL, FLEET_PROTOCOL = 3, 4
"""Numbers of the written form of one model's plan, and of a fleet's, whose rows end in the number of a model.

A reader accepts its own numbers alone: entries carry their own reader.
"""

INPUT = "X"
"""Name of the plan's input value."""

DTYPES = ("float32", "float64")
"""The dtypes of the input."""

FEW = 5
"""The most operations of a plan, or inputs of a step, that its `repr` names."""

Parameters = Mapping[str, torch.Tensor]


class Operation(ABC):
    """One operation on matrices of rows.

    A subclass is a frozen dataclass in the module of `ops/` that has its name in snake case. Its fields are the whole
    operation: arrays are weights, everything else is JSON. `check` and `output_width` say what it takes and makes.
    `reference` is its mathematics, `launch` starts its Triton-language kernel, and `compute_on_cpu` is its plain torch
    for a CPU. `parameters` and `plain_parameters` are the tables that these read.

    An operation equals only itself: its dataclass has `eq=False`, because `==` on arrays does not return one bool.
    """

    PRECISIONS: ClassVar[tuple[str, ...]] = ("float64",)
    """The precisions of this kind's kernels, from the most exact to the cheapest, which an export tries first.

    If there are several, `precision` is a field.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__repr__ = Operation.__repr__  # type: ignore[method-assign]  # that of a dataclass holds its arrays

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the fields, without what was computed from them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def __repr__(self) -> str:
        parameters = sum(array.size for _, array in self.arrays())
        return f"{type(self).__name__}({self.describe()}{', ' * bool(self.describe())}{parameters:,} parameters)"

    @classmethod
    def kind(cls) -> str:
        """Return the operation's name in a plan, which is also the name of its module in `ops/`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def kinds(self) -> set[str]:
        """Return the names of the operations that this one needs, its own among them."""
        return {self.kind()}

    @abstractmethod
    def check(self, *widths: int) -> None:
        """Raise `PlanError` unless the fields fit together and fit inputs of these widths."""

    @abstractmethod
    def output_width(self, *widths: int) -> int:
        """Return the width of the output for inputs of these widths, which `check` accepts."""

    def checked_width(self, *widths: int) -> int:
        """Return `output_width` of widths that `check` accepts; an operation is checked once for the same widths."""
        if self.__dict__.get("_checked") != widths:
            self.check(*widths)
            self.__dict__["_checked"] = widths  # as `functools.cached_property` writes to a frozen object
        return self.output_width(*widths)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the arrays that `launch` reads; by default the array fields as they are."""
        return dict(self.arrays())

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the arrays that plain torch reads; by default those that `launch` reads."""
        return self.parameters()

    @abstractmethod
    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        """Compute the operation's mathematics in float64 torch, from float32 or float64 inputs on a CPU.

        It is written to be read. It is the oracle of the kernel and of `compute_on_cpu`. The answer is float64, or has
        the input's own dtype if elements are only moved.
        """

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        """Compute what the torch engine serves, in one thread; by default the reference.

        An operation has its own code here if that is faster, or if a row's bits would otherwise depend on its batch: a
        library orders sums by the shape of a matrix, and a vectorised loop computes its remainder in another way.
        """
        return self.reference(parameters, *inputs)

    @abstractmethod
    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        """Launch the kernel on the first `rows` rows of contiguous inputs, writing those rows of `output`.

        Each of them is float32 or float64; the kernel computes in float64 and rounds if the output is float32.
        """

    def precisions(self) -> tuple[str, ...]:
        """Return those of `PRECISIONS` that this operation has, the most exact first."""
        return self.PRECISIONS

    def check_precision(self) -> None:
        """Raise `PlanError` unless the field `precision` is one that this operation has."""
        precision = getattr(self, "precision", self.PRECISIONS[0])
        if precision not in self.precisions():
            raise PlanError(f"{self.kind()}: precision must be one of {self.precisions()}, not '{precision}'.")

    def in_precision(self, precision: str) -> Operation:
        """Return the operation that computes at another of its precisions."""
        return dataclasses.replace(self, precision=precision)  # type: ignore[type-var]

    def on_device(self, device: torch.device) -> Operation:
        """Return the operation to run on a device: itself, or a more exact precision if that is as fast."""
        return self

    def in_steps(self) -> tuple[Operation, ...]:
        """Return the operations whose kernels compute this one: itself, or several, each on the previous output."""
        return (self,)

    def join(self, step: Step, steps: Sequence[Step], readers: Mapping[str, int]) -> Joined | None:
        """Return a step of this operation and others joined for plain torch; None if joining gains nothing.

        Args:
            step: the step.
            steps: the steps of a plan that are still made one by one, in order; `step` is one of them.
            readers: how many steps and outputs of the plan read each value.
        """
        return None

    def emulate(self, *inputs: np.ndarray) -> np.ndarray:
        """Compute on any machine the kernel's answer at this precision, float64; used if there are several.

        The order of the sums may differ from the kernel's.
        """
        raise NotImplementedError

    def launches(self, inputs: int) -> int:
        """Return how many kernels `launch` starts for that many inputs."""
        return 1

    def passes_on_not_finite(self) -> bool:
        """Return whether each number of an output's row is infinite or NaN if a number of the input's row is."""
        return False

    def reads_input_once(self) -> bool:
        """Return whether the kernel reads every input element once, so that it may as well read it from host memory."""
        return False

    def writes_rows_whole(self) -> bool:
        """Return whether a program writes neighbouring numbers of an output's row, which the bus carries together."""
        return False

    def keeps_dtype(self) -> bool:
        """Return whether the output has the dtype of its first input, and not float64, as elements are only moved."""
        return False

    def gains_by_order(self) -> bool:
        """Return whether a GPU reads less from memory if rows of one member of a fleet come one after the other."""
        return False

    def hides_nan(self) -> bool:
        """Return whether NaN in an input may leave no trace in the output."""
        return False

    def describe(self) -> str:
        """Return a few words that tell this operation from another of its kind."""
        return ""

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the name and value of each array field."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                yield field.name, value

    def attributes(self) -> dict[str, Any]:
        """Return the fields that are not arrays."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if not isinstance(value, np.ndarray)}


@dataclass(frozen=True, repr=False)
class Step:
    """An operation, the values it reads and the value it makes; steps with the same operation and names are equal."""

    operation: Operation
    inputs: tuple[str, ...]
    output: str

    def __repr__(self) -> str:
        return f"Step({self.output} = {self.operation!r} of {_few(self.inputs)})"

    def launches(self) -> int:
        """Return how many kernels the step launches."""
        first, *others = self.operation.in_steps()
        return first.launches(len(self.inputs)) + sum(operation.launches(1) for operation in others)

    def on_device(self, device: torch.device) -> tuple[Step, ...]:
        """Return the steps by which kernels compute this one on a device; the last makes its value."""
        *before, last = self.operation.on_device(device).in_steps()
        if not before and last is self.operation:
            return (self,)
        steps, inputs = [], self.inputs
        for number, operation in enumerate(before):
            steps.append(Step(operation, inputs, f"{self.output}/{number}"))
            inputs = (steps[-1].output,)
        return (*steps, Step(last, inputs, self.output))


class Joined(Protocol):
    """Steps of a plan that plain torch computes together."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps."""

    def run(self, parameters: Mapping[str, Parameters], values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the values that the steps make and others read.

        Args:
            parameters: the tensors that each step's plain torch reads, by the value that the step makes.
            values: the values that were made before.
        """


@dataclass(frozen=True, repr=False)
class Plan:
    """A checked program: `n_features` input columns, steps, and the value behind each named output (`y`, `std`).

    `dtype` is that of the input. Operations may rely on it: parameters made for float32 rows, such as thresholds
    rounded down to float32, decide differently for float64 rows. Plans are equal if they have equal steps and the same
    outputs, features and dtype. A plan read from disk has operations of its own and equals no other plan.
    """

    n_features: int
    steps: tuple[Step, ...]
    outputs: Mapping[str, str]
    dtype: str = "float32"
    _widths: dict[str, int] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise PlanError(f"A plan's dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}.")
        if self.n_features < 1:
            raise PlanError(f"A plan needs at least 1 feature, not {self.n_features}.")
        widths = {INPUT: self.n_features}
        for step in self.steps:
            missing = [name for name in step.inputs if name not in widths]
            if missing:
                raise PlanError(f"Step '{step.output}' reads '{missing[0]}', which no step before it makes.")
            if step.output in widths:
                raise PlanError(f"Value '{step.output}' is made twice.")
            widths[step.output] = step.operation.checked_width(*(widths[name] for name in step.inputs))
        for name, value in self.outputs.items():
            if value not in widths:
                raise PlanError(f"Output '{name}' names the value '{value}', which no step makes.")
        if not self.outputs:
            raise PlanError("A plan needs at least one output.")
        object.__setattr__(self, "_widths", widths)

    def __repr__(self) -> str:
        steps = _few([step.operation.kind() for step in self.steps])
        outputs = ", ".join(f"{name} [rows, {width}]" for name, width in self.output_widths().items())
        ends = f"{INPUT} {self.dtype} [rows, {self.n_features}] → {outputs}"
        return f"Plan({ends}: {steps}; {self.parameter_count():,} parameters)"

    def with_steps(self, steps: Iterable[Step]) -> Plan:
        """Return the plan with other steps and everything else as it is."""
        return dataclasses.replace(self, steps=tuple(steps))

    def on_device(self, device: torch.device) -> Plan:
        """Return the plan that kernels compute on a device."""
        found = [each for step in self.steps for each in step.on_device(device)]
        changed = len(found) > len(self.steps) or any(a is not b for a, b in zip(found, self.steps, strict=True))
        return self.with_steps(found) if changed else self

    def readers(self) -> Counter[str]:
        """Return how many steps and outputs read each value."""
        return Counter([*(name for step in self.steps for name in step.inputs), *self.outputs.values()])

    def widths(self) -> dict[str, int]:
        """Return the width of every value."""
        return dict(self._widths)

    def output_widths(self) -> dict[str, int]:
        """Return the width of each named output."""
        return {name: self._widths[value] for name, value in self.outputs.items()}

    def steps_for(self, outputs: Sequence[str]) -> tuple[Step, ...]:
        """Return the steps that the named outputs need, in order."""
        unknown = [name for name in outputs if name not in self.outputs]
        if unknown:
            raise PlanError(f"There is no output '{unknown[0]}'; the outputs are {', '.join(self.outputs)}.")
        needed = {self.outputs[name] for name in outputs}
        kept: list[Step] = []
        for step in reversed(self.steps):
            if step.output in needed:
                needed.update(step.inputs)
                kept.append(step)
        return tuple(reversed(kept))

    def parameter_count(self) -> int:
        """Return how many numbers the plan's arrays hold."""
        return sum(array.size for step in self.steps for _, array in step.operation.arrays())

    def parameter_bytes(self) -> int:
        """Return how many bytes the plan's arrays hold."""
        return sum(array.nbytes for step in self.steps for _, array in step.operation.arrays())

    def to_json(self) -> dict[str, Any]:
        """Return the plan's structure, without its arrays."""
        return {
            "protocol": PROTOCOL,
            "n_features": self.n_features,
            "dtype": self.dtype,
            "steps": [
                {
                    "op": step.operation.kind(),
                    "inputs": list(step.inputs),
                    "output": step.output,
                    "attributes": step.operation.attributes(),
                }
                for step in self.steps
            ],
            "outputs": dict(self.outputs),
        }

    def to_tensors(self) -> dict[str, np.ndarray]:
        """Return the plan's arrays by their names in the safetensors file."""
        return {
            f"{index}.{name}": np.ascontiguousarray(array)
            for index, step in enumerate(self.steps)
            for name, array in step.operation.arrays()
        }

    @staticmethod
    def from_json(document: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Plan:
        """Rebuild a plan from its structure and its arrays; raise `PlanError` if they do not fit together."""
        protocol = document.get("protocol")
        if protocol not in (PROTOCOL, FLEET_PROTOCOL):
            read = f"{PROTOCOL} and {FLEET_PROTOCOL}"
            raise PlanError(f"The plan is written in protocol {protocol}; these kernels read protocols {read}.")
        try:
            arrays: list[dict[str, np.ndarray]] = [{} for _ in document["steps"]]
            for key, array in tensors.items():
                index, _, name = key.partition(".")
                arrays[int(index)][name] = array
            steps = tuple(
                Step(
                    operation_class(step["op"])(**_tuples(step["attributes"]), **fields),
                    tuple(step["inputs"]),
                    step["output"],
                )
                for step, fields in zip(document["steps"], arrays, strict=True)
            )
            return Plan(document["n_features"], steps, dict(document["outputs"]), document["dtype"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, PlanError):
                raise
            raise PlanError(f"The plan and its weights do not fit together: {error}.") from error


def operation_class(kind: str) -> type[Operation]:
    """Return the operation of that name: `affine` is the class `Affine` of `ops/linear/affine.py`."""
    try:
        module = importlib.import_module(f"..ops.{MODULES[kind]}", __package__)
    except (KeyError, ImportError) as error:
        raise PlanError(f"There is no operation '{kind}' among these kernels ({error}).") from error
    operation: type[Operation] = getattr(module, "".join(part.capitalize() for part in kind.split("_")))
    return operation


def load_plan(version: Path, document: Document | None = None) -> Plan:
    """Read the plan in a version's directory; `document` is the result of `read_document` for it, if already read."""
    document = read_document(version) if document is None else document
    return Plan.from_json(document.plan, read_weights(version))


def _few(names: Sequence[str]) -> str:
    """Return the names as text, or only the first few if there are many."""
    return ", ".join([*names[:FEW], *([f"and {len(names) - FEW:,} more"] if len(names) > FEW else [])])


def _tuples(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Turn JSON's lists, also those in lists, back into the tuples that frozen dataclasses hold."""

    def held(value: Any) -> Any:
        return tuple(held(each) for each in value) if isinstance(value, list) else value

    return {name: held(value) for name, value in attributes.items()}
