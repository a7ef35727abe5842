"""Spares the Triton language's interpreter work that it does anew in every operation of a kernel."""

import functools
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter


def spare_repeated_work() -> None:
    """Have kernels take about half the time, and compute what they computed.

    For every operation the interpreter makes a table of types, to look one up. And for every call of a function it
    looks through the whole language for what it has to replace there, which it has replaced once the first function of
    that module was called.
    """
    launch, number_type = interpreter.InterpretedFunction.run, functools.cache(interpreter._get_np_dtype)
    replaced: set[int] = set()

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        replaced.clear()  # the end of a launch puts the language back
        return launch(self, *args, **kwargs)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self.fn.__globals__) not in replaced:
            interpreter._patch_lang(self.fn)
            replaced.add(id(self.fn.__globals__))
        try:
            return self.rewrite()(*args, **kwargs)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    def get_np_dtype(of: Any) -> np.dtype[Any]:
        return np.dtype(np.uint64) if isinstance(of.scalar, tl.pointer_type) else number_type(of.scalar)

    interpreter.InterpretedFunction.run, interpreter.InterpretedFunction.__call__ = run, call
    interpreter._get_np_dtype = get_np_dtype
