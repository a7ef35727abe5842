"""The libraries that predict, each in a process of its own.

Every numerical library keeps a pool of threads that wait by spinning. In one process, on few cores, one library's
waiting threads take the cores that another's working threads need: a call of microseconds was seen to take 10 ms. Each
library therefore gets a process of its own, as its users run it, and the processes take turns. Times are taken inside.
While one works the others are stopped, since waiting threads spin for milliseconds after a call: beside them, on 16
cores, a batch was seen to take 30 ms that takes less than one alone.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any
from unittest import mock

import numpy as np
import torch
from sklearn import config_context

from benchmarks.checking import WrongAnswerError, demand, error_of_arrays
from benchmarks.models import DTYPES, Model, model
from benchmarks.timing import Contender, time_block
from triton_regressors.kernels.engine.input_check import Allowed
from triton_regressors.kernels.engine.runner import Runner

OURS_LIMIT = 1e-5
PEERS_LIMIT = 1e-2
ANCHOR_ROWS = 1024
SCIKIT_LEARN = "scikit-learn"
ONNXRUNTIME = "onnxruntime"
ENGINES = ("torch", "triton")
THREADS_APART = {"OMP_PROC_BIND": "true", "GOMP_SPINCOUNT": "10000"}
"""Settings that keep each of torch's threads on a core of its own and let it spin for half a millisecond, not for 16.
When a stopped process goes on, two threads can share a core: then each call takes as long as one spins for the other.

The first OpenMP that a process loads binds its main thread to one core, and one that is loaded later sees this core
alone. Modules that such a process loads therefore import torch before scikit-learn.
"""

FP64 = {engine: f"{engine} FP64" for engine in ENGINES}
"""The engines once more, with numbers in FP64; everything else is given float32 rows."""


class UnavailableError(Exception):
    """A library is not installed, or cannot take this model."""


class Library:
    """One library in its process: it loads a model, prepares inputs of a batch size and times blocks of calls."""

    limit = PEERS_LIMIT
    ours = False
    dtype = "float32"

    def load(self, name: str, max_rows: int) -> None:
        """Make this library's predictor of the model, or raise `UnavailableError`."""
        self.model = model(name)
        self.set_up(self.model, max_rows)

    def prepare(self, rows: int, count: int) -> dict[str, float]:
        """Make the inputs and contenders of a batch size; return the errors of those that answer rightly.

        Raises `WrongAnswerError` if one of ours answers wrongly; a peer's way to predict that does is left out.
        """
        self.inputs = [self.model.rows(rows, seed=100 + i).astype(self.dtype) for i in range(count)]
        self.contenders = {found.name: found for found in self.contend(self.inputs)}
        # Rows whose truth stands on both sides are added, so that errors are in units of the model's usual spread.
        anchor = self.model.estimator.predict(self.model.rows(ANCHOR_ROWS, seed=99))
        errors = dict.fromkeys(self.contenders, 0.0)
        for i, x in enumerate(self.inputs):
            truth = self.model.estimator.predict(x.astype(np.float64))
            for name in list(errors):
                contender = self.contenders[name]
                with contender.context():
                    answers = answers_of(contender.call(i)).reshape(truth.shape)
                both = np.concatenate([answers, anchor]), np.concatenate([truth, anchor])
                try:
                    errors[name] = max(errors[name], demand(name, error_of_arrays(*both), self.limit))
                except WrongAnswerError as error:
                    if self.ours:
                        raise
                    print(f"  {rows:6,} rows: without {error}", flush=True)
                    del errors[name]
        return {name: float(f"{error:.2g}") for name, error in errors.items()}

    def block(self, name: str, duration_s: float) -> list[float]:
        """Time one block of calls; return their times in microseconds."""
        return time_block(self.contenders[name], len(self.inputs), duration_s)

    def set_up(self, model: Model, max_rows: int) -> None:
        """Make the predictor."""

    def contend(self, inputs: Sequence[np.ndarray]) -> list[Contender]:
        """Return this library's ways to predict these inputs."""
        raise NotImplementedError


class Ours(Library):
    """One engine; the CPU's with one thread: `Runner.predict`, and the same with a search for NaN ("checked").

    `input` is the type of numbers, "fp32" or "fp64"; rows are of that type.
    """

    limit = OURS_LIMIT
    ours = True

    def __init__(self, engine: str, input: str = "fp32") -> None:
        self.engine, self.input, self.dtype = engine, input, DTYPES[input]
        self.name = engine if input == "fp32" else FP64[engine]

    def set_up(self, model: Model, max_rows: int) -> None:
        """See `Library`."""
        if self.engine == "triton" and not torch.cuda.is_available():
            raise UnavailableError("torch finds no CUDA GPU")
        if self.engine == "torch":
            torch.set_num_threads(1)  # like an entry on the server
        self.runner = Runner(model.plan(self.input), engine=self.engine, max_rows=max_rows)
        self.allowed = Allowed(model.n_features, ())
        self.runner.warm_up([("y",)])

    def contend(self, inputs: Sequence[np.ndarray]) -> list[Contender]:
        """See `Library`."""
        return [
            Contender(self.name, lambda i: self.runner.predict(inputs[i])),
            Contender(f"{self.name}, checked", lambda i: self._checked(inputs[i])),
        ]

    def _checked(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Search the rows for NaN and infinity as an entry does, then answer them."""
        if not self.allowed.holds(x.reshape(-1)):
            raise ValueError("The rows hold NaN or infinity.")
        return self.runner.predict(x)


class ScikitLearn(Library):
    """The estimator's own `predict`, in the four ways of calling it."""

    def contend(self, inputs: Sequence[np.ndarray]) -> list[Contender]:
        """See `Library`."""

        def way(dtype: str, checked: bool) -> Contender:
            rows = [x.astype(dtype) for x in inputs]
            name = f"{SCIKIT_LEARN}, {dtype}, {'checked' if checked else 'unchecked'}"
            context = functools.partial(config_context, assume_finite=not checked)
            return Contender(name, lambda i: self.model.estimator.predict(rows[i]), context)

        return [way(dtype, checked) for dtype in ("float64", "float32") for checked in (True, False)]


class OnnxRuntime(Library):
    """The estimator converted by skl2onnx, on onnxruntime's CPU provider; neither is a dependency of the project."""

    def set_up(self, model: Model, max_rows: int) -> None:
        """See `Library`."""
        if isinstance(model.onnx, str):
            raise UnavailableError(model.onnx)
        try:
            onnxruntime = importlib.import_module("onnxruntime")
            self.session = onnxruntime.InferenceSession(model.onnx, providers=["CPUExecutionProvider"])
        except Exception as error:  # it is not installed, or raises a type of its own
            raise UnavailableError(f"{type(error).__name__}: {error}".splitlines()[0]) from None

    def contend(self, inputs: Sequence[np.ndarray]) -> list[Contender]:
        """See `Library`."""
        name = self.session.get_inputs()[0].name
        return [Contender(ONNXRUNTIME, lambda i: self.session.run(None, {name: inputs[i]}))]


LIBRARIES: dict[str, Callable[[], Library]] = {
    **{engine: functools.partial(Ours, engine) for engine in ENGINES},
    **{FP64[engine]: functools.partial(Ours, engine, "fp64") for engine in ENGINES},
    SCIKIT_LEARN: ScikitLearn,
    ONNXRUNTIME: OnnxRuntime,
}


class Worker:
    """A library's process, while the context lasts."""

    def __init__(self, library: str, make: Callable[[], Library] | None = None) -> None:
        """`make` makes the library in its process; the default is that of `LIBRARIES`."""
        self.library = library
        self._make = LIBRARIES[library] if make is None else make
        self.able = False

    def __enter__(self) -> Worker:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._make), daemon=True)
        others = self.library in (SCIKIT_LEARN, ONNXRUNTIME)
        with mock.patch.dict(os.environ, {} if others else THREADS_APART):  # it is read when a process loads torch
            self._process.start()
        theirs.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signal(signal.SIGCONT)
        self._pipe.close()  # ends the loop in the process
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()

    def load(self, name: str, max_rows: int) -> str:
        """Have the library load a model; return why it cannot, or nothing."""
        try:
            self.ask("load", name, max_rows)
        except UnavailableError as reason:
            self.able = False
            return str(reason)
        self.able = True
        return ""

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the library in its process; its exceptions are raised here."""
        self.begin(method, *arguments)
        return self.end()

    def begin(self, method: str, *arguments: Any) -> None:
        """Start a call of a library's method in its process, without waiting for it."""
        self._method = method
        self._signal(signal.SIGCONT)
        self._pipe.send((method, arguments))

    def end(self) -> Any:
        """Return the result of the started call, and stop the process; its exceptions are raised here."""
        try:
            answer, error = self._pipe.recv()
        except EOFError:
            raise RuntimeError(f"The process of {self.library} ended while it ran '{self._method}'.") from None
        self._signal(signal.SIGSTOP)
        if error is not None:
            raise error
        return answer

    def _signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it still runs."""
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, number)


def _serve(pipe: Connection, make: Callable[[], Library]) -> None:
    library = make()
    while True:
        try:
            method, arguments = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            pipe.send((getattr(library, method)(*arguments), None))
        except Exception as error:
            pipe.send((None, error))


def answers_of(answer: Any) -> np.ndarray:
    """Return the array in the result of a contender's call."""
    if isinstance(answer, dict):
        return np.asarray(answer["y"])
    return np.asarray(answer[0]) if isinstance(answer, list) else np.asarray(answer)
