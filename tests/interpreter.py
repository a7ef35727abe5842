"""Caches work that the Triton language's interpreter would repeat in every operation of a kernel."""

import functools
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter


def spare_repeated_work() -> None:
    """Make kernels take about an eighth of the time, with unchanged results."""
    call_functions_directly()
    look_up_number_types_once()
    replace_the_language_once()
    describe_each_shape_once()
    convert_operands_as_before()
    spare_unread_checks()


def call_functions_directly() -> None:
    """Each function of the language is wrapped twice, and asks of each argument whether it is a constant."""
    unwrap = tl.core._unwrap_if_constexpr
    never_constant = frozenset([tl.tensor, tl.dtype, tl.block_type, int, float, bool, str, type(None)])

    def unwrap_constant(value: Any) -> Any:
        return value if type(value) in never_constant else unwrap(value)

    def replace_function(owner: Any, name: str, function: Any, builder: Any, scope: Any) -> None:
        function = getattr(function, "__wrapped__", function)

        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = interpreter.interpreter_semantic
            return function(*args, **kwargs)

        scope.set_attr(owner, name, call)

    tl.core._unwrap_if_constexpr, interpreter._patch_attr = unwrap_constant, replace_function


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
    """Every result of an operation gets a type and a shape of its own, of many small objects that never change."""
    describe, with_element = tl.block_type.__init__, tl.block_type.with_element_ty
    described: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}

    def block_type(self: Any, element_ty: Any, shape: Any) -> None:
        key = element_ty.name, tuple([getattr(size, "value", size) for size in shape])
        if key not in described:
            describe(self, element_ty, shape)
            self.lengths = tl.tuple([tl.constexpr(size) for size in self.shape]), tl.constexpr(self.numel)
            self.likewise = {}
            described[key] = dict(vars(self))
        vars(self).update(described[key])

    def with_element_ty(self: Any, element: Any) -> Any:
        if element.name not in self.likewise:
            self.likewise[element.name] = with_element(self, element)
        return self.likewise[element.name]

    def tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = type.lengths

    tl.dtype.lengths = tl.tuple([]), tl.constexpr(1)
    tl.block_type.__init__, tl.block_type.with_element_ty = block_type, with_element_ty
    tl.tensor.__init__ = tensor


def convert_operands_as_before() -> None:
    """Cache the types and shape of converted operands, which depend only on their types and on a number among them.

    NumPy broadcasts operands in the operation itself, so that they need no copy before.
    """
    convert, stretch, expand = (
        TritonSemantic.binary_op_type_checking_impl,
        TritonSemantic.broadcast_impl_value,
        TritonSemantic.expand_dims,
    )
    converted: dict[Any, tuple[Any, Any]] = {}
    stretched: dict[tuple[str, str], tuple[Any, Any]] = {}
    expanded: dict[tuple[str, int], tuple[Any, Any]] = {}

    def known(operand: Any) -> Any:
        return operand.type.name if isinstance(operand, tl.tensor) else (type(operand), operand)

    def example(operand: Any) -> Any:
        if not isinstance(operand, tl.tensor):
            return operand
        shape = tuple(operand.type.shape) if operand.type.is_block() else (1,)
        handle = interpreter.TensorHandle(np.zeros(shape, operand.handle.data.dtype), operand.handle.dtype)
        return tl.tensor(handle, operand.type)

    def as_in(found: Any, operand: Any, semantic: Any) -> Any:
        if not isinstance(operand, tl.tensor):
            return found
        if operand.dtype.name != found.dtype.name:
            operand = semantic.cast(operand, found.dtype)
        return operand if operand.type.name == found.type.name else tl.tensor(operand.handle, found.type)

    def of_one_number(operand: Any) -> Any:
        handle = interpreter.TensorHandle(operand.handle.data.reshape(-1)[:1].copy(), operand.handle.dtype)
        return tl.tensor(handle, operand.type)

    def convert_operands(self: Any, lhs: Any, rhs: Any, *options: Any, **more: Any) -> Any:
        key = known(lhs), known(rhs), options, *more.items()
        if key not in converted:
            left, right = convert(self, example(lhs), example(rhs), *options, **more)
            converted[key] = of_one_number(left), of_one_number(right)
        left, right = converted[key]
        return as_in(left, lhs, self), as_in(right, rhs, self)

    def types_of(self: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
        key = lhs.type.name, rhs.type.name
        if key not in stretched:
            left, right = stretch(self, example(lhs), example(rhs))
            stretched[key] = left.type, right.type
        return stretched[key]

    def stretch_to(type: Any, operand: Any) -> Any:
        if operand.type.name == type.name:
            return operand
        data = np.empty(type.shape.values, operand.handle.data.dtype)
        data[...] = operand.handle.data
        return tl.tensor(interpreter.TensorHandle(data, operand.handle.dtype), type)

    def stretch_operands(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = types_of(self, lhs, rhs)
        return stretch_to(left, lhs), stretch_to(right, rhs)

    def where(self: Any, condition: Any, x: Any, y: Any) -> Any:
        if condition.dtype is not tl.int1:
            return choose(self, condition, x, y)
        x, y = convert_operands(self, x, y, True, True)
        handle = self.builder.create_select(condition.handle, x.handle, y.handle)
        return tl.tensor(handle, types_of(self, condition, x)[1])

    def expand_dims(self: Any, operand: Any, axis: int) -> Any:
        if not operand.type.is_block():
            return expand(self, operand, axis)
        key = operand.type.name, axis
        if key not in expanded:
            expanded[key] = (slice(None),) * axis + (None,), expand(self, example(operand), axis).type
        index, type = expanded[key]
        return tl.tensor(interpreter.TensorHandle(operand.handle.data[index], operand.handle.dtype), type)

    choose, TritonSemantic.where = TritonSemantic.where, where
    TritonSemantic.binary_op_type_checking_impl, TritonSemantic.broadcast_impl_value = (
        convert_operands,
        stretch_operands,
    )
    TritonSemantic.expand_dims = expand_dims


def spare_unread_checks() -> None:
    """It computes sums and products of integers again in 64 bits, to ask for what only a debugger would be told.

    And of each array it asks whether its numbers are as wide as those of its type, whose answer is the types' own.
    """
    fitting: set[tuple[np.dtype[Any], str]] = set()

    def hold(self: Any, data: Any, dtype: Any) -> None:
        self.data, self.dtype, self.attr = data, dtype, {}
        if (data.dtype, dtype.name) not in fitting:
            self.__post_init__()
            fitting.add((data.dtype, dtype.name))

    interpreter.TensorHandle.__init__ = hold
    assert not interpreter.interpreter_builder.options.debug
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)
