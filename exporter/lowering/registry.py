"""The registry of the functions that lower estimators.

A lowering reads a fitted estimator and adds the operations of its `predict` or `transform` to a plan:

    from triton_regressors import lowers

    @lowers(MyRegressor)
    def lower_my_regressor(estimator, x, builder):
        return builder.affine(x, estimator.weights_, estimator.bias_)

`x` is the value that the estimator reads and `builder` a `triton_regressors.exporter.lowering.builder.Builder`. A
regressor with further outputs returns a dict of values, such as `{"y": mean, "std": std}`. A setting without a lowering
is refused: `raise builder.refuse(estimator, reason)` names the step and ends the sentence. The export measures every
plan against the estimator's own answers before anything is written, so a wrong lowering is refused.

A class of a library that may not be installed is registered by its qualified name, which imports nothing:

    @lowers("xgboost.sklearn.XGBRegressor")

and every class of a library as `@lowers("cuml.*")`.

An export is measured against `predict`, and `std` against `predict(X, return_std=True)`, unless a function with other
answers is registered beside the lowering, with `answers`. It answers every output that it is asked for. An estimator
that hands its rows to another one registers that one's answers, for example.

A subclass of a registered class is lowered as that class if it computes the same. It may have attributes and methods of
its own. It may override only methods that match `UNRELATED` and methods that the lowering does not cover, such as a
feature scaler's `inverse_transform`, or that it reads itself: the `forward` of a network.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering.unsupported import (
    can_be_traced,
    defined_again,
    no_inverse,
    no_lowering,
    overriding,
)

if TYPE_CHECKING:
    from triton_regressors.exporter.lowering.builder import Builder, Value

Lowering = Callable[[Any, "Value", "Builder"], "Value | dict[str, Value]"]
Inverse = Callable[[Any, "Value", "Builder"], "Value"]
Answering = Callable[[Any, Any, Sequence[str]], dict[str, Any]]
Naming = Callable[[Any], "list[str] | None"]
Counting = Callable[[Any], "int | None"]
_AnyLowering = TypeVar("_AnyLowering", bound=Callable[..., Any])

UNRELATED = re.compile(
    r"_?(fit|partial_fit)\w*|score|extra_repr|get_params|set_params|set_output|set_\w+_request|get_metadata_routing|"
    r"get_feature_names_out|_get_param_names|_repr_\w+|_\w*doc_link\w*|_validate_params|_more_tags|_get_tags|"
    r"feature_importances_|staged_predict|"
    r"__(init|new|init_subclass|subclasshook|class_getitem|del|setattr|delattr|dict|dir|weakref|sizeof|"
    r"repr|str|format|eq|ne|lt|le|gt|ge|hash|annotate|annotate_func|"
    r"sklearn_tags|sklearn_clone|sklearn_is_fitted|getstate|setstate|reduce|reduce_ex|copy|deepcopy)__"
)
"""Methods without effect on a fitted estimator's answers: those that fit, score, set, show and copy it."""


class _Table(dict[type | str, Any]):
    """The functions registered for classes, or for their qualified names.

    A subclass may override the methods `apart`, which these functions do not cover.
    """

    def __init__(self, *apart: str) -> None:
        super().__init__()
        self.apart = apart

    def base(self, estimator: Any) -> type | None:
        """Return the first class with a registered function among the estimator's class and its bases."""
        return next((cls for cls in type(estimator).__mro__ if any(name in self for name in _names_of(cls))), None)

    def of(self, cls: type) -> Any:
        """Return the function registered for a class; the class itself takes precedence over its name."""
        return next(self[name] for name in _names_of(cls) if name in self)


@functools.lru_cache(maxsize=1024)
def _names_of(cls: type) -> tuple[type | str, ...]:
    """Return what a class may be registered as: itself, its qualified name, or every class of its library."""
    return cls, qualified_name(cls), f"{cls.__module__.partition('.')[0]}.*"


_LOWERINGS = _Table("inverse_transform", "forward")
_TRANSFORMS = _Table("predict", "inverse_transform")
_INVERSES = _Table("predict", "transform")
_ANSWERS = _Table("inverse_transform", "forward")
_NAMES = _Table()
_COUNTS = _Table()
_REFUSALS = _Table()

OURS = "triton_regressors.exporter.estimators."
"""The prefix of the modules that register this package's own lowerings."""


Registrations = Sequence[dict[type | str, Any]]


def own_registrations() -> Registrations:
    """Return the functions that others than this package registered; another process does not have them."""
    return [
        {cls: found for cls, found in table.items() if not getattr(found, "__module__", OURS).startswith(OURS)}
        for table in (_LOWERINGS, _TRANSFORMS, _INVERSES, _ANSWERS)
    ]


def register_own(registrations: Registrations) -> None:
    """Register what `own_registrations` returned in another process."""
    for table, found in zip((_LOWERINGS, _TRANSFORMS, _INVERSES, _ANSWERS), registrations, strict=True):
        table.update(found)


@dataclass(frozen=True)
class OwnCode:
    """The lowering of a class without a registered one: its method is traced.

    `why` is the reason why no registered lowering fits.
    """

    method: str
    why: str

    def __call__(self, estimator: Any, x: Value, builder: Builder) -> Value:
        """Return what the method makes of `x`."""
        assert _TRACERS
        found: Value = _TRACERS[0](estimator, x, builder, self.method, self.why)
        return found


_TRACERS: list[Callable[..., Any]] = []


def traces_own_code(function: _AnyLowering) -> _AnyLowering:
    """Register the function that traces a method of a class: `trace(estimator, x, builder, method, why)`."""
    _TRACERS[:] = [function]
    return function


def hands_on(transformer: Any) -> bool:
    """Return whether a transformer's lowering knows itself whether its output is a DataFrame."""
    base = _TRANSFORMS.base(transformer) or _LOWERINGS.base(transformer)
    return base is None or qualified_name(base).startswith(NAMING)


NAMING = (
    "sklearn.pipeline.Pipeline",
    "sklearn.preprocessing._function_transformer.FunctionTransformer",
    "feature_engine.pipeline.",
    "skrub.",
)
"""The beginnings of the names of transformers whose output is whatever a step or a function of the user's returns, and
of skrub's, which always return a DataFrame."""


def lowers(*classes: type | str) -> Callable[[_AnyLowering], _AnyLowering]:
    """Register a function as the lowering of these estimator classes.

    It adds the operations of their `predict` or `transform` to a plan and returns the resulting value:

        @triton_regressors.lowers(MyRegressor)
        def lower_my_regressor(estimator, x, builder):
            return builder.affine(x, estimator.weights_, estimator.bias_)

    A class that need not be installed can be named, as in `@lowers("my_library.models.MyRegressor")`. A user's
    registration of a class takes precedence over this package's, and a newer one over an older one.
    """
    return _register(_LOWERINGS, classes)


def lowers_transform(*classes: type | str) -> Callable[[_AnyLowering], _AnyLowering]:
    """Register a function as the lowering of `transform` of these classes, whose `predict` is something else."""
    return _register(_TRANSFORMS, classes)


def lowers_inverse(*classes: type | str) -> Callable[[_AnyLowering], _AnyLowering]:
    """Register a function as the lowering of these transformers' `inverse_transform`, for targets."""
    return _register(_INVERSES, classes)


def answers(*classes: type | str) -> Callable[[_AnyLowering], _AnyLowering]:
    """Register a function that gives the answers of these estimators: `answer(estimator, table, outputs)`, by output.

    The table is as `predict` takes it, with numbers in float64; an answer is `[rows]` or `[rows, width]`.
    """
    return _register(_ANSWERS, classes)


def names_columns(*classes: type | str) -> Callable[[_AnyLowering], _AnyLowering]:
    """Register a function that returns the names of the columns that these estimators were fitted on, None without.

    It is needed for classes without scikit-learn's `feature_names_in_`, or where that is something else.
    """
    return _register(_NAMES, classes)


def counts_columns(*classes: type | str) -> Callable[[_AnyLowering], _AnyLowering]:
    """Register a function that returns how many columns these estimators take, or None if only a sample tells.

    It is needed for classes without scikit-learn's `n_features_in_`, or where that is something else.
    """
    return _register(_COUNTS, classes)


def refuses(reason: str, instead: str, *classes: type | str) -> None:
    """Say in one clause why these classes cannot have a lowering, and in one sentence what to do instead."""
    _REFUSALS.update(dict.fromkeys(classes, (reason, instead)))


def takes_own_code(estimator: Any) -> bool:
    """Return whether an estimator's class has no registered lowering, so that its code is traced."""
    _load_lowerings()
    return _TRANSFORMS.base(estimator) is None and _LOWERINGS.base(estimator) is None


def find_lowering(estimator: Any, subject: str) -> Lowering:
    """Return the lowering of an estimator; `subject` is its name in errors."""
    method = "predict" if hasattr(estimator, "predict") else "transform"
    lowering: Lowering = _find(estimator, subject, _LOWERINGS, method=method)
    return lowering


def find_transform(transformer: Any, subject: str) -> Lowering:
    """Return the lowering of a transformer's `transform`: its own, or the lowering of the estimator."""
    lowering: Lowering = _find(transformer, subject, _TRANSFORMS, _LOWERINGS, method="transform")
    return lowering


def find_inverse(transformer: Any, subject: str) -> Inverse:
    """Return the lowering of a transformer's inverse; `subject` is its name in errors."""
    inverse: Inverse = _find(transformer, subject, _INVERSES, method="inverse_transform")
    return inverse


def find_answers(estimator: Any) -> Answering | None:
    """Return the function that gives the estimator's own answers in place of its `predict`, or None.

    A class that overrides a method behind its base's registered answers is asked by its own `predict`.
    """
    _load_lowerings()
    base = _ANSWERS.base(estimator)
    return None if base is None or _overridden(estimator, base, _ANSWERS.apart) is not None else _ANSWERS.of(base)


def find_names(estimator: Any) -> Naming | None:
    """Return the function that names the columns of an estimator's class, or None."""
    _load_lowerings()
    base = _NAMES.base(estimator)
    return None if base is None else _NAMES.of(base)


def find_count(estimator: Any) -> Counting | None:
    """Return the function that counts the columns of an estimator's class, or None."""
    _load_lowerings()
    base = _COUNTS.base(estimator)
    return None if base is None else _COUNTS.of(base)


def lowerings() -> dict[str, Lowering]:
    """Return every lowering of `predict` or `transform` by the qualified name of its class, sorted by class name."""
    _load_lowerings()
    named = {qualified_name(cls): lowering for cls, lowering in {**_TRANSFORMS, **_LOWERINGS}.items()}
    return dict(sorted(named.items(), key=lambda item: item[0].rpartition(".")[2]))


def refusals() -> dict[str, str]:
    """Return the qualified name of every class that is known to have no lowering, and the reason."""
    _load_lowerings()
    return {qualified_name(cls): reason for cls, (reason, _) in _REFUSALS.items()}


def qualified_name(cls: type | str) -> str:
    """Return the module and the name of a class; a string is such a name already."""
    return cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__qualname__}"


def _register(table: _Table, classes: tuple[type | str, ...]) -> Callable[[_AnyLowering], _AnyLowering]:
    if not classes or not all(isinstance(cls, type) or (isinstance(cls, str) and "." in cls) for cls in classes):
        raise TypeError(
            "lowers, lowers_transform, lowers_inverse and answers take estimator classes, as in @lowers(Ridge, Lasso), "
            'or their qualified names, as in @lowers("my_library.models.MyRegressor").'
        )
    # The registering module counts: ours may load after a user's, and a user may register one of our functions.
    ours = sys._getframe(2).f_globals.get("__name__", "").startswith(OURS)

    def register(function: _AnyLowering) -> _AnyLowering:
        for cls in classes:
            table[cls] = table.get(cls, function) if ours else function
        return function

    return register


def _find(estimator: Any, subject: str, *tables: _Table, method: str) -> Any:
    """Return the first table's entry for the estimator's class, or for the base that computes the same.

    A class without an entry whose `method` is written in Python outside the known libraries is traced. Raises
    `ExportError` for any other.
    """
    _load_lowerings()
    check_instance(estimator)
    why = None
    for table in tables:
        base = table.base(estimator)
        if base is None:
            continue
        overridden = _overridden(estimator, base, table.apart)
        if overridden is None:
            _refuse_shadowed(estimator, subject, table.apart)
            return table.of(base)
        why = why or overriding(estimator, base, overridden, table is _INVERSES)
    refused = None if tables[-1] is _INVERSES else _refusal(estimator)
    why = refused or why or _no_lowering(estimator, tables[-1])
    if refused is None and not _was_defined_again(estimator, tables[-1]) and can_be_traced(estimator, method):
        return OwnCode(method, why)
    raise ExportError(f"Cannot export {subject}: {why}")


def check_instance(estimator: Any) -> None:
    """Raise `ExportError` if a class is given in place of an estimator."""
    if isinstance(estimator, type):
        raise ExportError(f"Cannot export the class {estimator.__name__}: export takes a fitted instance of it.")


def _refusal(estimator: Any) -> str | None:
    """Return the registered reason why the estimator's class has no lowering, with the alternative, or None."""
    refused = _REFUSALS.base(estimator)
    if refused is None or _overridden(estimator, refused) is not None:
        return None
    reason, instead = _REFUSALS.of(refused)
    return f"{reason}. {instead}"


def _no_lowering(estimator: Any, table: _Table) -> str:
    """Return why an estimator without a base in the table has no lowering, and the remedy."""
    if _was_defined_again(estimator, table):
        return defined_again(type(estimator).__name__)
    if table is _INVERSES:
        return no_inverse(estimator)
    return no_lowering(estimator)


def _was_defined_again(estimator: Any, table: _Table) -> bool:
    """Return whether a class of the same name as an unregistered estimator's is registered."""
    own = type(estimator)
    return own not in table and qualified_name(own) in map(qualified_name, table)


def registered_base(estimator: Any, method: str) -> type | None:
    """Return the first of the estimator's classes whose `method` has a registered lowering, or None."""
    _load_lowerings()
    tables = {"predict": [_LOWERINGS], "transform": [_TRANSFORMS, _LOWERINGS], "inverse_transform": [_INVERSES]}[method]
    return next((base for base in (table.base(estimator) for table in tables) if base is not None), None)


def computes_as(estimator: Any, classes: Sequence[str]) -> bool:
    """Return whether an estimator is of one of these classes, by qualified name, or of one that computes the same."""
    bases = [cls for cls in type(estimator).__mro__ if qualified_name(cls) in classes]
    return bool(bases) and _overridden(estimator, bases[0]) is None


def _overridden(estimator: Any, base: type, apart: Sequence[str] = ()) -> str | None:
    """Return the name of an attribute that the estimator's class overrides and the base may compute with, or None.

    A class outside the base's MRO overrides an attribute that a later class in the estimator's MRO, one of the base's
    own, also has. A mixin listed after the base can do so too, if it shares an ancestor with the base.
    """
    classes = type(estimator).__mro__
    for place, cls in enumerate(classes):
        if cls in base.__mro__:
            continue
        for name, value in vars(cls).items():
            hidden = [vars(other)[name] for other in classes[place:] if other in base.__mro__ and name in vars(other)]
            if not _is_unrelated(name, apart) and hidden and any(map(_computes, [value, *hidden])):
                return name
    return None


def _refuse_shadowed(estimator: Any, subject: str, apart: Sequence[str]) -> None:
    """Raise `ExportError` if an attribute of the instance shadows a method of its class."""
    for name in getattr(estimator, "__dict__", {}):
        method = _inherited(type(estimator), name)
        if _computes(method) and not hasattr(type(method), "__set__") and not _is_unrelated(name, apart):
            raise ExportError(
                f"Cannot export {subject}: its attribute {name} stands in for the method of its class. Delete it, or "
                "make it a method of a class that is registered with @triton_regressors.lowers."
            )


def _is_unrelated(name: str, apart: Sequence[str]) -> bool:
    return name in apart or UNRELATED.fullmatch(name) is not None


def _inherited(cls: type, name: str) -> Any:
    """Return a class's raw attribute of a name, without invoking descriptors."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _computes(value: Any) -> bool:
    """Return whether a class attribute is a method, a property or the like."""
    kept = isinstance(value, functools.cached_property)  # its result lies in the instance, under its own name
    return (callable(value) or hasattr(type(value), "__get__")) and not kept


@functools.cache
def _load_lowerings() -> None:
    """Import every module of estimators/, which registers its lowerings."""
    package = importlib.import_module("triton_regressors.exporter.estimators")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
