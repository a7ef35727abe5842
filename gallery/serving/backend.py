"""The Python-backend model of a served exhibit, which its entry's `model.py` names.

A request is one call of the exhibit's function: its tensors and its parameters are the arguments. If the function
refuses them, only that request gets the error, in the function's own words. If the exhibit joins requests, those of a
batch that fit together become one launch.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import triton_python_backend_utils
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from gallery.check import error, outputs
from gallery.serving.services import DATATYPES, SERVICES, Service

if TYPE_CHECKING:
    from gallery.exhibit import Exhibit
    from triton_regressors.kernels.serving.backend_types import ErrorCode, Request, Response, ServerTensor, Utils

pb_utils: Utils = triton_python_backend_utils

Arguments = dict[str, Any]
NO_PARAMETERS = "{}"


class TritonPythonModel:
    """One exhibit on one device."""

    service: Service
    device: torch.device
    function: Callable[..., Any]
    names: tuple[str, ...]

    def initialize(self, args: dict[str, str]) -> None:
        """Import the exhibit for the instance's device, and check it on this device against its reference."""
        config = json.loads(args["model_config"])
        name = config["parameters"]["exhibit"]["string_value"]
        on_gpu = args["model_instance_kind"] == "GPU"
        if not on_gpu:
            os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported
        torch.set_num_threads(1)  # the server runs instances side by side, and needs cores itself
        self.device = torch.device(f"cuda:{args['model_instance_device_id']}" if on_gpu else "cpu")
        if on_gpu:
            torch.cuda.set_device(self.device)
        self.service = SERVICES[name]
        exhibit: Exhibit = importlib.import_module(f"gallery.kernels.{name}").EXHIBIT
        self.function = next(iter(exhibit.ways.values()))
        self.names = tuple(inspect.signature(exhibit.reference).parameters)
        _prove(exhibit, DATATYPES[self.service.datatype], self.device)
        how = f"compiled for {torch.cuda.get_device_name()}" if on_gpu else "run by the Triton language's interpreter"
        pb_utils.Logger.log_info(f"{name} is checked against its reference, {how}.")

    def execute(self, requests: list[Request]) -> list[Response]:
        """Answer each request, in order."""
        responses: dict[int, Response] = {}
        groups: dict[Any, list[tuple[int, Arguments]]] = {}
        for place, request in enumerate(requests):
            try:
                arguments = self._arguments(request)
            except Exception as failure:
                responses[place] = _refusal(failure)
            else:
                groups.setdefault(self._fits(arguments) if self.service.joins else place, []).append((place, arguments))
        for group in groups.values():
            places = [place for place, _ in group]
            responses |= zip(places, self._answer([arguments for _, arguments in group]), strict=True)
        return [responses[place] for place in range(len(requests))]

    def _arguments(self, request: Request) -> Arguments:
        """Return a request's arguments by name, with tensors in the server's memory."""
        parameters = request.parameters()
        given = {} if parameters == NO_PARAMETERS else json.loads(parameters)
        scalars = {name: self.service.scalar(name, value) for name, value in given.items()}
        tensors = {name: _tensor_in(request, name) for name in self.service.inputs}
        return {**self.service.scalars, **scalars, **tensors}

    def _fits(self, arguments: Arguments) -> tuple[Any, ...]:
        """Return a key that arguments share if one launch can answer them."""
        return tuple(
            (name, tuple(value.shape[1:]) if isinstance(value, torch.Tensor) else value)
            for name, value in sorted(arguments.items())
        )

    def _answer(self, group: Sequence[Arguments]) -> list[Response]:
        """Answer requests by one launch; if it fails, answer each by its own launch, so that each fails separately."""
        try:
            if len(group) == 1:
                return [self._response(self._call(group[0]))]
            rows = [len(arguments[next(iter(self.service.inputs))]) for arguments in group]
            joined = {name: torch.cat([arguments[name] for arguments in group]) for name in self.service.inputs}
            cut = [answer.split(rows) for answer in self._call({**group[0], **joined})]
            return [self._response(answers) for answers in zip(*cut, strict=True)]
        except Exception as failure:
            if len(group) == 1:
                return [_refusal(failure)]
            return [response for arguments in group for response in self._answer([arguments])]

    def _call(self, arguments: Arguments) -> tuple[torch.Tensor, ...]:
        """Return the function's answers, in the CPU's memory."""
        in_order = (arguments[name] for name in self.names)
        found = self.function(*(each.to(self.device) if isinstance(each, torch.Tensor) else each for each in in_order))
        return tuple((answer if answer.dim() else answer.reshape(1)).cpu() for answer in outputs(found))

    def _response(self, answers: Sequence[torch.Tensor]) -> Response:
        named = zip(self.service.outputs, answers, strict=True)
        return pb_utils.InferenceResponse([_tensor_out(name, answer) for name, answer in named])


def _prove(exhibit: Exhibit, dtype: torch.dtype, device: torch.device) -> None:
    """Raise `ValueError` unless the exhibit's answer on this device equals its reference's.

    A GPU checks the largest of the samples, so that the kernel is compiled before the first request; the slow
    interpreter checks the smallest.
    """
    samples = [exhibit.sample(size, dtype, device) for size in exhibit.sizes]
    choose = max if device.type == "cuda" else min
    arguments = choose((each for each in samples if _elements(each)), key=_elements)
    found = error(exhibit, next(iter(exhibit.ways)), arguments)
    if not found <= exhibit.tolerances[dtype]:
        raise ValueError(
            f"On this device the gallery's {exhibit.name} differs from its reference by {found:.1e} of the largest "
            f"answer; {exhibit.tolerances[dtype]:.0e} is allowed."
        )


def _elements(arguments: Sequence[Any]) -> int:
    return sum(each.numel() for each in arguments if isinstance(each, torch.Tensor))


def _tensor_in(request: Request, name: str) -> torch.Tensor:
    """Return a request's tensor over the server's memory: by DLPack, as `kernels/backend.py` says why."""
    tensor: torch.Tensor = from_dlpack(pb_utils.get_input_tensor_by_name(request, name).to_dlpack())
    return tensor


def _tensor_out(name: str, values: torch.Tensor) -> ServerTensor:
    shape = values.shape
    # The server insists on the strides of rows even where a length of 0 or 1 leaves no others to be seen.
    strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    return pb_utils.Tensor.from_dlpack(name, to_dlpack(values.contiguous().as_strided(shape, strides)))


def _refusal(failure: Exception) -> Response:
    """Return the error for a request that was wrong, or on which the kernel failed."""
    if isinstance(failure, (TypeError, ValueError)):
        return _error(str(failure), pb_utils.TritonError.INVALID_ARG)
    return _error(f"The kernel failed: {type(failure).__name__}: {failure}", pb_utils.TritonError.INTERNAL)


def _error(message: str, code: ErrorCode) -> Response:
    return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(message, code))
