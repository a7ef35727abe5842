"""Which function lowers which estimator.

A lowering reads a fitted estimator and adds the operations of its `predict` or `transform` to a plan:

    from triton_regressors import lowers

    @lowers(MyRegressor)
    def lower_my_regressor(estimator, x, builder):
        return builder.affine(x, estimator.weights_, estimator.bias_)

`x` is the value that the estimator would be given and `builder` a `triton_regressors.exporter.builder.Builder`. A
regressor with further outputs returns a dict of values, such as `{"y": mean, "std": std}`. Whatever a lowering says,
the export measures the plan against the estimator's own answers before anything is written.

What an export is measured against is registered beside the lowering too, with `answers`, where it is something else
than `predict`: for an estimator that hands its rows to another one, what that one answers.

A subclass of a registered class is lowered as that class if it computes as it does: it may have attributes and methods
of its own, and override what `UNRELATED` says, and nothing else.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from triton_regressors.exporter.errors import ExportError

if TYPE_CHECKING:
    from triton_regressors.exporter.builder import Builder, Value

Lowering = Callable[[Any, "Value", "Builder"], "Value | dict[str, Value]"]
Inverse = Callable[[Any, "Value", "Builder"], "Value"]
Answering = Callable[[Any, Any, Sequence[str]], dict[str, Any]]
_AnyLowering = TypeVar("_AnyLowering", bound=Callable[..., Any])

UNRELATED = re.compile(
    r"_?(fit|partial_fit)\w*|score|get_params|set_params|set_output|set_\w+_request|get_metadata_routing|"
    r"get_feature_names_out|_get_param_names|_repr_\w+|_validate_params|_more_tags|_get_tags|"
    r"__(init|new|init_subclass|class_getitem|del|dict|weakref|repr|str|eq|hash|annotate|annotate_func|"
    r"sklearn_tags|sklearn_clone|sklearn_is_fitted|getstate|setstate|reduce|reduce_ex|copy|deepcopy)__"
)
"""Methods that change nothing of what a fitted estimator computes: those that fit, score, set, show and copy it."""

_LOWERINGS: dict[type, Lowering] = {}
_TRANSFORMS: dict[type, Lowering] = {}
_INVERSES: dict[type, Inverse] = {}
_ANSWERS: dict[type, Answering] = {}
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


def answers(*classes: type) -> Callable[[_AnyLowering], _AnyLowering]:
    """Register a function as what these estimators answer: `answer(estimator, table, outputs)`, by output.

    The table is as `predict` takes it, with numbers in float64; an answer is `[rows]` or `[rows, width]`.
    """
    return _register(_ANSWERS, classes)


def refuses(reason: str, *classes: type) -> None:
    """Say in one clause why these classes cannot have a lowering."""
    _REFUSALS.update(dict.fromkeys(classes, reason))


def find_lowering(estimator: Any, subject: str) -> Lowering:
    """Return the lowering of an estimator; `subject` is how an error names it."""
    lowering: Lowering = _find(_LOWERINGS, estimator, subject)
    return lowering


def find_transform(transformer: Any, subject: str) -> Lowering:
    """Return the lowering of a transformer's `transform`: one of its own, or else that of the estimator."""
    _load_lowerings()
    base = _base(_TRANSFORMS, transformer)
    if base is None or _overridden(transformer, base) is not None:
        return find_lowering(transformer, subject)
    _refuse_shadowed(transformer, subject)
    return _TRANSFORMS[base]


def find_inverse(transformer: Any, subject: str) -> Inverse:
    """Return the lowering of a transformer's inverse; `subject` is how an error names it."""
    inverse: Inverse = _find(_INVERSES, transformer, subject)
    return inverse


def find_answers(estimator: Any) -> Answering | None:
    """Return what gives the estimator's own answers in place of its `predict`, or None."""
    _load_lowerings()
    base = _base(_ANSWERS, estimator)
    return None if base is None else _ANSWERS[base]


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
            "lowers, lowers_transform, lowers_inverse and answers take estimator classes, as in @lowers(Ridge, Lasso)."
        )

    def register(function: _AnyLowering) -> _AnyLowering:
        table.update(dict.fromkeys(classes, function))
        return function

    return register


def _find(table: dict[type, Any], estimator: Any, subject: str) -> Any:
    _load_lowerings()
    base, refused = _base(table, estimator), _base(_REFUSALS, estimator)
    overridden = None if base is None else _overridden(estimator, base)
    if base is not None and overridden is None:
        _refuse_shadowed(estimator, subject)
        return table[base]
    if refused is not None and _overridden(estimator, refused) is None and table is _LOWERINGS:
        raise ExportError(f"Cannot export {subject}: {_REFUSALS[refused]}.")
    if isinstance(estimator, type):
        raise ExportError(f"Cannot export the class {estimator.__name__}: export takes a fitted instance of it.")
    what = "its inverse_transform" if table is _INVERSES else "it"
    if base is not None:
        what += f" (it is no {base.__name__}, as it overrides {overridden})"
    raise ExportError(
        f"Cannot export {subject}: no lowering is registered for {what}. Supported: "
        f"{', '.join(sorted(cls.__name__ for cls in table))}; others can be registered with "
        f"triton_regressors.{'lowers_inverse' if table is _INVERSES else 'lowers'}."
    )


def _base(table: dict[type, Any], estimator: Any) -> type | None:
    """Return the estimator's class, or the first of its bases, that is in a table."""
    return next((cls for cls in type(estimator).__mro__ if cls in table), None)


def _overridden(estimator: Any, base: type) -> str | None:
    """Return what a class before `base` overrides of it that it may compute with, or None."""
    classes = type(estimator).__mro__
    for cls in classes[: classes.index(base)]:
        for name, value in vars(cls).items():
            inherited = _inherited(base, name)
            if not UNRELATED.fullmatch(name) and (_computes(inherited) or (inherited is not None and _computes(value))):
                return name
    return None


def _refuse_shadowed(estimator: Any, subject: str) -> None:
    """Raise `ExportError` where an attribute of the instance stands in for a method of its class."""
    for name in getattr(estimator, "__dict__", {}):
        method = _inherited(type(estimator), name)
        if _computes(method) and not hasattr(type(method), "__set__") and not UNRELATED.fullmatch(name):
            raise ExportError(
                f"Cannot export {subject}: its attribute {name} stands in for the method of its class; delete it, or "
                "make it a method of a class that is registered with triton_regressors.lowers."
            )


def _inherited(cls: type, name: str) -> Any:
    """Return what a class has under a name, without asking a descriptor for it."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _computes(value: Any) -> bool:
    """Whether a class attribute is a method, a property or the like."""
    kept = isinstance(value, functools.cached_property)  # what it computed lies in the instance, under its own name
    return (callable(value) or hasattr(type(value), "__get__")) and not kept


@functools.cache
def _load_lowerings() -> None:
    """Import every module of lowerings/, which registers what is in it."""
    package = importlib.import_module("triton_regressors.exporter.lowerings")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
