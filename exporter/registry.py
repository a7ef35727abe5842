"""Which function lowers which estimator.

A lowering reads a fitted estimator and adds the operations of its `predict` or `transform` to a plan:

    from triton_regressors.exporter import lowers

    @lowers(MyRegressor)
    def lower_my_regressor(estimator, x, builder):
        return builder.affine(x, estimator.weights_, estimator.bias_)

`x` is the value that the estimator would be given and `builder` a `triton_regressors.exporter.builder.Builder`. A
regressor with further outputs returns a dict of values, such as `{"y": mean, "std": std}`. Whatever a lowering says,
the export measures the plan against the estimator's own answers before anything is written.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from triton_regressors.exporter.errors import ExportError

if TYPE_CHECKING:
    from triton_regressors.exporter.builder import Builder, Value

Lowering = Callable[[Any, "Value", "Builder"], "Value | dict[str, Value]"]
Inverse = Callable[[Any, "Value", "Builder"], "Value"]
_AnyLowering = TypeVar("_AnyLowering", bound=Callable[..., Any])

_LOWERINGS: dict[type, Lowering] = {}
_TRANSFORMS: dict[type, Lowering] = {}
_INVERSES: dict[type, Inverse] = {}
_REFUSALS: dict[type, str] = {}


def lowers(*classes: type) -> Callable[[_AnyLowering], _AnyLowering]:
    """Register a function as the lowering of these estimator classes; the last registration of a class holds."""
    return _register(_LOWERINGS, classes)


def lowers_transform(*classes: type) -> Callable[[_AnyLowering], _AnyLowering]:
    """Register a function as the lowering of `transform` of these classes, whose `predict` is something else."""
    return _register(_TRANSFORMS, classes)


def lowers_inverse(*classes: type) -> Callable[[_AnyLowering], _AnyLowering]:
    """Register a function as the lowering of these transformers' `inverse_transform`, for targets."""
    return _register(_INVERSES, classes)


def refuses(reason: str, *classes: type) -> None:
    """Say in one clause why these classes cannot have a lowering."""
    _REFUSALS.update(dict.fromkeys(classes, reason))


def find_lowering(estimator: Any, subject: str) -> Lowering:
    """Return the lowering of an estimator; `subject` is how an error names it."""
    lowering: Lowering = _find(_LOWERINGS, estimator, subject, ("predict", "transform", "decision_function"))
    return lowering


def find_transform(transformer: Any, subject: str) -> Lowering:
    """Return the lowering of a transformer's `transform`: one of its own, or else that of the estimator."""
    _load_lowerings()
    return _look_up(_TRANSFORMS, transformer, ("transform",)) or find_lowering(transformer, subject)


def find_inverse(transformer: Any, subject: str) -> Inverse:
    """Return the lowering of a transformer's inverse; `subject` is how an error names it."""
    inverse: Inverse = _find(_INVERSES, transformer, subject, ("inverse_transform",))
    return inverse


def lowerings() -> dict[type, Lowering]:
    """Return every class whose `predict` or `transform` has a lowering, and that, by the class's name."""
    _load_lowerings()
    return dict(sorted({**_TRANSFORMS, **_LOWERINGS}.items(), key=lambda item: item[0].__name__))


def refusals() -> dict[type, str]:
    """Return every class that is known to have no lowering, and why."""
    _load_lowerings()
    return dict(_REFUSALS)


def _register(table: dict[type, Any], classes: tuple[type, ...]) -> Callable[[_AnyLowering], _AnyLowering]:
    if not classes or not all(isinstance(cls, type) for cls in classes):
        raise TypeError(
            "lowers, lowers_transform and lowers_inverse take estimator classes, as in @lowers(Ridge, Lasso)."
        )

    def register(function: _AnyLowering) -> _AnyLowering:
        table.update(dict.fromkeys(classes, function))
        return function

    return register


def _find(table: dict[type, Any], estimator: Any, subject: str, methods: tuple[str, ...]) -> Any:
    _load_lowerings()
    found = _look_up(table, estimator, methods)
    if found is not None:
        return found
    reason = _look_up(_REFUSALS, estimator, methods)
    if reason is not None and table is _LOWERINGS:
        raise ExportError(f"Cannot export {subject}: {reason}.")
    if isinstance(estimator, type):
        raise ExportError(f"Cannot export the class {estimator.__name__}: export takes a fitted instance of it.")
    what = "its inverse_transform" if table is _INVERSES else "it"
    raise ExportError(
        f"Cannot export {subject}: no lowering is registered for {what}. Supported: "
        f"{', '.join(sorted(cls.__name__ for cls in table))}; others can be registered with "
        f"triton_regressors.exporter.{'lowers_inverse' if table is _INVERSES else 'lowers'}."
    )


def _look_up(table: dict[type, Any], estimator: Any, methods: tuple[str, ...]) -> Any:
    """Look the class up, then its bases; a class that overrides what its base computes is not that base."""
    for cls in type(estimator).__mro__:
        if cls in table:
            return table[cls]
        if any(method in vars(cls) for method in methods):
            break
    return None


@functools.cache
def _load_lowerings() -> None:
    """Import every module of lowerings/, which registers what is in it."""
    package = importlib.import_module("triton_regressors.exporter.lowerings")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
