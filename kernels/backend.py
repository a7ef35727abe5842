"""The Python-backend model of every entry, which its `model.py` names.

All requests of a batch become one run of the plan: their rows are gathered into one buffer and the answers are cut from
another. A request that cannot be answered gets an error of its own, and the other requests of the batch get answers.

This module imports most modules of its folder only when the model loads. Their files are checked first, and the Triton
language reads TRITON_INTERPRET, which the configuration decides, when it is imported. The imports at the top of this
module must not import the Triton language.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton_python_backend_utils

from .entry import read_document, read_golden
from .format.columns_digest import COLUMNS_DIGEST, columns_digest
from .serving.tensors import NUMBERS, check_strings, numbers_in, numbers_in_place, strings_in, tensor_out, tensors_in

if TYPE_CHECKING:
    from .engine.gather import Part
    from .engine.input_check import Allowed
    from .engine.kernel_executor import Answers
    from .engine.runner import Runner
    from .format.inputs import Inputs
    from .serving.backend_types import ErrorCode, Request, Response, ServerTensor, Utils
    from .serving.fleet_requests import FleetRequests
    from .serving.observer import Unobserved

pb_utils: Utils = triton_python_backend_utils

DATATYPES = {f"TYPE_{name}": name for name in ("FP32", "FP64", "INT32", "INT64")} | {"TYPE_STRING": "BYTES"}
"""The type names of requests by the type names of a configuration."""

LARGE_BYTES = 2**20
"""From this size on the model asks whether a request was cancelled. The question goes to the server and back, which
takes longer than answering a small request. The server itself drops requests that are cancelled in the queue."""

NO_PARAMETERS = "{}"

NONE: frozenset[int] = frozenset()

WORKING = "triton_regressors_working"
"""The name of the memory in which an instance notes when its current batch began; docker/probe.py reads it."""


class TritonPythonModel:
    """One instance of an entry on one device."""

    inputs: Inputs
    max_string_bytes: int
    datatypes: dict[str, str]
    numbers: Callable[[ServerTensor], Part]
    array: Callable[[ServerTensor], np.ndarray]
    on_cpu: Callable[[Part], np.ndarray]
    read: Callable[[list[Request]], list[Part]]
    large_rows: int
    feature_names: tuple[str, ...]
    fleet: FleetRequests | None
    columns_digest: str
    outputs: tuple[str, ...]
    allowed: Allowed
    runner: Runner
    answers: Answers
    observer: Unobserved
    working: memoryview

    def initialize(self, args: dict[str, str]) -> None:
        """Check the files, load the plan, bind it to the instance's device, prove it on the golden rows, warm it up."""
        config = json.loads(args["model_config"])
        parameters = {name: value.get("string_value", "") for name, value in config.get("parameters", {}).items()}
        engine = parameters.get("engine", "auto")
        if engine == "interpret":
            os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels below are imported
        version = Path(__file__).parents[1]
        document = read_document(version)  # before the modules that it checks are imported
        from .engine.gather import on_cpu
        from .engine.input_check import Allowed
        from .engine.runner import Runner
        from .engine.staging import MAX_NUMBERS
        from .format.inputs import MAX_STRING_BYTES, ONLY_CPU_INPUTS
        from .format.parity import measure
        from .format.row_profile import read_profile
        from .plan.plan import load_plan
        from .serving.metrics import Subject
        from .serving.observer import DEFAULT_MODE, MODES, start

        on_gpu = args["model_instance_kind"] == "GPU"
        device = f"cuda:{args['model_instance_device_id']}" if on_gpu else "cpu"
        if on_gpu:
            torch.cuda.set_device(device)
        torch.set_num_threads(1)  # the server runs instances side by side, and needs cores itself; threads would fight
        max_rows = int(config["max_batch_size"])
        if max_rows < 1:
            raise ValueError("max_batch_size must be at least 1: the first dimension of X is rows.")

        np.seterr(over="ignore", invalid="ignore")  # the search for NaN would log warnings
        plan = load_plan(version, document)
        if max_rows * plan.n_features > MAX_NUMBERS:
            raise ValueError(
                f"max_batch_size {max_rows} × {plan.n_features} features are {max_rows * plan.n_features:,} numbers; "
                f"at most {MAX_NUMBERS:,} can be staged: set max_batch_size to {MAX_NUMBERS // plan.n_features} or "
                "less."
            )
        observe = parameters.get("observe", DEFAULT_MODE)
        if observe not in MODES:
            raise ValueError(f"config.pbtxt's parameter observe must be one of {', '.join(MODES)}, not {observe!r}.")
        self.inputs = document.inputs
        self.max_string_bytes = _whole_number(parameters, "max_string_bytes", MAX_STRING_BYTES)
        if self.inputs.text:
            check_strings()
        if self.inputs.made is not None:
            self.inputs.made.functions  # noqa: B018  # raises an error if a step is not known
        configured = {
            tensor["name"]: (DATATYPES.get(tensor["data_type"]), [int(dim) for dim in tensor["dims"]])
            for tensor in config["input"]
        }
        self.datatypes = self.inputs.datatypes()
        for name, columns in self.inputs.columns().items():
            if configured.get(name) != (self.datatypes[name], [len(columns)]):
                raise ValueError(
                    f"config.pbtxt must give {name} the type {self.datatypes[name]} and the dims [{len(columns)}], the "
                    "features of the plan."
                )
        _check_outputs(config["output"], plan.output_widths())
        self.on_cpu, self.numbers, self.array = on_cpu, numbers_in, numbers_in
        if parameters.get(ONLY_CPU_INPUTS) == "no":
            self.numbers, self.array = numbers_in_place, lambda tensor: on_cpu(numbers_in_place(tensor))
        self.read = self._numbers if self.inputs.plain_matrix else self._matrices
        self.large_rows = max(LARGE_BYTES // (np.dtype(plan.dtype).itemsize * plan.n_features), 1)
        self.feature_names = document.provenance.feature_names
        self.columns_digest = columns_digest(parameters)
        self.outputs = tuple(plan.outputs)
        self.allowed = Allowed(plan.n_features, document.nan_columns, self.inputs.closed)
        self.fleet = counts = None
        if document.fleet is not None:  # others do not carry the modules
            from .format.member_table import read_members
            from .serving.fleet_requests import FleetRequests

            members, limit = read_members(version, plan.n_features), self.max_string_bytes
            self.fleet = FleetRequests(self.inputs, members, self.array, configured, limit)
            self.read = self.fleet.reader(self.numbers, self._matrices)
            self.allowed = self.fleet.allowed(document.nan_columns)
            counts = self.fleet.counts([(each.estimator, each.members) for each in document.fleet.classes])
        gathered = self.allowed if self.inputs.plain_matrix else None
        self.runner = Runner(plan, engine=engine, device=device, max_rows=max_rows, gathered=gathered)
        golden, tolerance = read_golden(version, document), document.parity.tolerance
        rows = golden.X if self.fleet is None else self.fleet.own(golden.X)
        for name, answer in self.runner.predict(rows, self.outputs).items():
            parity = measure(answer, golden.outputs[name], golden.units[name])
            if not parity.within(tolerance):
                raise ValueError(
                    f"On this device output '{name}' of the golden rows is {parity.max_error:.1e} standard deviations "
                    f"from the estimator's own prediction; the entry allows {tolerance:.0e}."
                )
        self.runner.warm_up([(name,) for name in self.outputs] + ([self.outputs] if len(self.outputs) > 1 else []))
        subject = Subject(
            config["name"],
            version.name,
            self.inputs,
            self.feature_names,
            document.nan_columns,
            plan.output_widths(),
            read_profile(version),
        )
        self.observer = start(subject, observe, pb_utils, self.runner.executor.staged, _warm_ups(config), counts)
        self.working = _working()

    def execute(self, requests: list[Request]) -> list[Response]:
        """Answer each request of the batch, in order.

        The server has checked X's type and width against config.pbtxt. The common case, in which every request can be
        answered, takes a few operations a request, and work that does not need the answers is done while the device
        computes them. `_refuse` looks at requests one by one.
        """
        self.working[0] = time.monotonic_ns()
        rows: list[int] = []
        try:
            parts = self.read(requests)
            rows = [len(part) for part in parts]
            total = sum(rows)
            cancelled = self._cancelled(requests, rows) if max(rows) >= self.large_rows else NONE
            if min(rows) > 0 and not cancelled:
                responses = self._launch(requests, parts, rows)
                self.observer.look(parts, total)
                misled = any(map(self._misled, requests))
                if self.runner.executor.allowed(total, self.allowed.holds) and not misled:
                    self.observer.keep(total, self.answers)
                    return responses
            return self._refuse(requests, parts, cancelled)
        except Exception as error:
            self.observer.refuse("failed", sum(rows) or len(requests))
            message = f"The model failed on this batch: {type(error).__name__}: {error}"
            return [_error(message, pb_utils.TritonError.INTERNAL) for _ in requests]
        finally:
            self.working[0] = 0

    def finalize(self) -> None:
        """Hand over the last counts and release the device's memory."""
        self.observer.close()
        vars(self).clear()

    def _launch(self, requests: list[Request], parts: list[Part], rows: list[int]) -> list[Response]:
        """Start the plan once for the rows of all requests; return responses that hold the answers once it is done.

        The responses' tensors share the runner's memory. The server reads them when `execute` returns, before the
        next batch.
        """
        outputs = self.outputs
        if len(outputs) > 1:
            wanted = [request.requested_output_names() for request in requests]
            asked = {name for names in wanted for name in names}
            outputs = tuple(name for name in outputs if name in asked)
        self.answers = self.runner.executor.launch(parts, sum(rows), outputs)
        if len(outputs) == 1:
            (name,) = outputs
            pieces = _cut(self.answers, name, rows)
            return [pb_utils.InferenceResponse([tensor_out(name, piece)]) for piece in pieces]
        cut = {name: _cut(self.answers, name, rows) for name in outputs}
        return [
            pb_utils.InferenceResponse([tensor_out(name, cut[name][index]) for name in names])
            for index, names in enumerate(wanted)
        ]

    def _numbers(self, requests: list[Request]) -> list[Part]:
        """Return the plan's matrix for each request."""
        return [self.numbers(request.inputs()[0]) for request in requests]

    def _matrices(self, requests: list[Request]) -> list[Part]:
        """Return the plan's matrix for each request of a model that reads other tensors than X."""
        from .serving.other_tensors import matrices

        sent = list(map(tensors_in, requests))
        each = [self.datatypes if self.fleet is None else self.fleet.given(tensors) for tensors in sent]
        names = each[0]
        if any(other is not names for other in each):
            return [
                self._encoded({name: self._reads(datatype)(tensors[name]) for name, datatype in given.items()})
                for tensors, given in zip(sent, each, strict=True)
            ]
        read = {name: list(map(self._reads(names[name]), [tensors[name] for tensors in sent])) for name in names}
        return matrices(read, self._encoded)

    def _encoded(self, tensors: dict[str, np.ndarray]) -> np.ndarray:
        """Return the plan's matrix for tensors."""
        if self.fleet is None:
            return self.inputs.encode(tensors, self.max_string_bytes)
        return self.fleet.encode(tensors)

    def _reads(self, datatype: str) -> Callable[[ServerTensor], np.ndarray]:
        """Return what reads tensors of numbers or strings."""
        return strings_in if datatype == "BYTES" else self.array

    def _cancelled(self, requests: list[Request], rows: list[int]) -> frozenset[int]:
        """Return which of the large requests were cancelled."""
        large = [index for index, count in enumerate(rows) if count >= self.large_rows]
        return frozenset(index for index in large if requests[index].is_cancelled())

    def _refuse(self, requests: list[Request], parts: list[Part], cancelled: frozenset[int]) -> list[Response]:
        """Answer the requests that can be answered, and give each of the others its own error."""
        if self.fleet is not None:
            parts = self._matrices(requests)
        arrays = map(self.on_cpu, parts)
        refusals = [
            self._why_not(*each, index in cancelled) for index, each in enumerate(zip(requests, arrays, strict=True))
        ]
        good = [index for index, refusal in enumerate(refusals) if refusal is None]
        answers: list[Response] = []
        if good:
            taken = [parts[index] for index in good]
            rows = [len(part) for part in taken]
            answers = self._launch([requests[index] for index in good], taken, rows)
            self.runner.executor.wait()
            self.observer.look(taken, sum(rows))
            self.observer.keep(sum(rows), self.answers)
        in_order = iter(answers)
        for request, part, refusal in zip(requests, parts, refusals, strict=True):
            if refusal is not None:
                self.observer.refuse(refusal[0], len(part), request)
        return [next(in_order) if refusal is None else refusal[1] for refusal in refusals]

    def _misled(self, request: Request) -> bool:
        """Return whether the request's tensors were made for other columns than this model's."""
        parameters = request.parameters()
        if parameters == NO_PARAMETERS:
            return False
        return bool(json.loads(parameters).get(COLUMNS_DIGEST, self.columns_digest) != self.columns_digest)

    def _why_not(self, request: Request, part: np.ndarray, cancelled: bool) -> tuple[str, Response] | None:
        """Return the reason and the error for a request that cannot be answered, or None."""
        if self._misled(request):
            message = f"{COLUMNS_DIGEST} is not this model's: the request was made for other columns."
            return "wrong_columns", _error(message)
        if not len(part):
            return "empty", _error(f"{next(iter(self.inputs.columns()))} has no rows.")
        if cancelled:
            return "cancelled", _error("The request was cancelled.", pb_utils.TritonError.CANCELLED)
        wrong = self.allowed.first_wrong(part)
        if wrong is None:
            return None
        reason, message = self._not_allowed(request, part, *wrong)
        return reason, _error(message)

    def _not_allowed(self, request: Request, part: np.ndarray, row: int, column: int) -> tuple[str, str]:
        """Return the reason for a refusal, and a message that locates the request's first value that is not allowed."""
        tensor, place = self.inputs.place(column)
        member = ""
        if self.fleet is not None:
            found = self.fleet.member(part[row, -1])
            if found is None:
                return "unknown_category", self.fleet.unknown(request, row)
            member = f" {found}"
        name = f" ('{self.feature_names[self.inputs.source(column)]}')" if self.feature_names else ""
        where, number = f"row {row}, column {place}{name}", part[row, column]
        if tensor == NUMBERS:
            whose = f" (its model{member} takes no {number} there)" if member else ""
            tensor = NUMBERS if self.fleet is None else self.fleet.of_numbers(request)
            return "not_finite", f"{tensor} must be finite: {where} is {number}{whose}."
        from .serving.other_tensors import why_refused

        def given(tensor: str, place: int) -> object:
            return self._reads(self.datatypes[tensor])(tensors_in(request)[tensor])[row, place]

        return why_refused(self.inputs, column, number, where, given, self.max_string_bytes, member)


def _working() -> memoryview:
    """Return one int64: when the current batch began, in nanoseconds of the monotonic clock; 0 between batches.

    It lies in memory that processes of the same user see in /proc/PID/fd and that ends with this process. If the
    system provides no such memory, only this process sees the number.
    """
    try:
        with os.fdopen(os.memfd_create(WORKING), "r+b") as file:
            file.truncate(8)
            return memoryview(mmap.mmap(file.fileno(), 8)).cast("q")  # the mapping keeps the memory open
    except OSError:
        return memoryview(bytearray(8)).cast("q")


def _check_outputs(configured: list[dict[str, Any]], widths: dict[str, int]) -> None:
    """Raise `ValueError` unless the outputs in config.pbtxt are the plan's; some may be left out."""
    for tensor in configured:
        name, kind, dims = tensor["name"], tensor["data_type"], [int(dim) for dim in tensor["dims"]]
        if name not in widths:
            raise ValueError(f"config.pbtxt names the output {name!r}; the plan has {', '.join(widths)}.")
        if dims != [widths[name]] or kind != "TYPE_FP32":
            raise ValueError(f"config.pbtxt must give the output {name} TYPE_FP32 and the dims [{widths[name]}].")


def _warm_ups(config: dict[str, Any]) -> list[int]:
    """Return the row counts of the batches that the server sends before the model is ready."""
    found = []
    for sample in config.get("model_warmup", []):
        rows = int(sample.get("batch_size", 0))
        found += [rows] * max(int(sample.get("count", 1)), 1) if rows else []
    return found


def _whole_number(parameters: dict[str, str], name: str, default: int) -> int:
    """Return a parameter of the configuration that is a number of at least 1."""
    text = parameters.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError(f"config.pbtxt's parameter {name} must be a whole number of at least 1, not {text!r}.")
    return int(text)


def _cut(answers: Answers, name: str, rows: list[int]) -> list[torch.Tensor]:
    """Return the tensors of each request over the rows of a batch's answer."""
    ends = list(itertools.accumulate(rows))
    return list(map(answers.pieces[name], [0, *ends], ends))


def _error(message: str, code: ErrorCode | None = None) -> Response:
    """Return a response that carries an error, INVALID_ARG unless another code is given."""
    code = pb_utils.TritonError.INVALID_ARG if code is None else code
    return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(message, code))
