"""Spares the Triton language's interpreter work that it does anew in every operation of a kernel."""

import functools
import math
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter


def spare_repeated_work() -> None:
    """Have kernels take about a third of the time, and compute what they computed."""
    look_up_number_types_once()
    replace_the_language_once()
    describe_each_shape_once()
    spare_unread_checks()


def look_up_number_types_once() -> None:
    """For every operation the interpreter makes a table of types, to look one up."""
    number_type = functools.cache(interpreter._get_np_dtype)

    def get_np_dtype(of: Any) -> np.dtype[Any]:
        return np.dtype(np.uint64) if isinstance(of.scalar, tl.pointer_type) else number_type(of.scalar)

    interpreter._get_np_dtype = get_np_dtype


def replace_the_language_once() -> None:
    """In every launch, and every call of a function, it looks through the whole language for what it has to replace.

    That is the same wherever a module knows the language by the same names. Here the language stays replaced: nothing
    compiles a kernel in a process that interprets them.
    """
    replace, replaced = interpreter._patch_lang, set()

    def replace_once(function: Any) -> Any:
        names = frozenset(id(value) for value in function.__globals__.values() if value is tl or value is tl.core)
        if names not in replaced:
            replace(function)
            replaced.add(names)
        return interpreter._LangPatchScope()  # the end of a launch puts back what is in it, which is nothing

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(self, "rewritten"):
            interpreter._patch_lang(self.fn)
            self.rewritten = self.rewrite()
        try:
            return self.rewritten(*args, **kwargs)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    interpreter._patch_lang, interpreter.InterpretedFunction.__call__ = replace_once, call


def describe_each_shape_once() -> None:
    """Every result of an operation gets a type and a shape of its own, of many small objects that never change.

    Where operands have the same ones, nothing is to be converted or broadcast.
    """
    describe, check_types = tl.block_type.__init__, TritonSemantic.binary_op_type_checking_impl
    described: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}

    def block_type(self: Any, element_ty: Any, shape: Any) -> None:
        key = element_ty.name, tuple([getattr(size, "value", size) for size in shape])
        if key not in described:
            describe(self, element_ty, shape)
            described[key] = dict(vars(self))
        vars(self).update(described[key])

    @functools.cache
    def lengths(shape: tuple[int, ...]) -> tuple[Any, Any]:
        return tl.tuple([tl.constexpr(size) for size in shape]), tl.constexpr(math.prod(shape))

    def tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = lengths(tuple(type.shape) if type.is_block() else ())

    def check_operands(self: Any, lhs: Any, rhs: Any, *options: Any, **more: Any) -> Any:
        if isinstance(lhs, tl.tensor) and isinstance(rhs, tl.tensor):
            same = lhs.dtype is rhs.dtype and lhs.shape is rhs.shape
            if same and not lhs.dtype.is_ptr() and lhs.dtype.primitive_bitwidth != 16:  # float16 divides as float32
                return lhs, rhs
        return check_types(self, lhs, rhs, *options, **more)

    tl.block_type.__init__, tl.tensor.__init__ = block_type, tensor
    TritonSemantic.binary_op_type_checking_impl = check_operands


def spare_unread_checks() -> None:
    """It computes sums and products of integers again in 64 bits, to ask for what only a debugger would be told."""
    assert not interpreter.interpreter_builder.options.debug
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)
