"""Messages about an estimator without a lowering: two sentences on what it is, and what its user can do."""

from __future__ import annotations

import inspect
from typing import Any

from sklearn.utils import get_tags

KINDS = {
    "classifier": ("a classifier", "a probability"),
    "clusterer": ("a clusterer", "the distance to a centre"),
    "density_estimator": ("a density estimator", "a log-likelihood"),
    "outlier_detector": ("an outlier detector", "its score"),
}
"""scikit-learn's kinds of estimators other than regressors: each one's name, and a number that could be served."""

KNOWN = ("sklearn", "xgboost", "lightgbm", "catboost")
"""The libraries whose classes a message names without their module."""

INVERTIBLE = "StandardScaler, PowerTransformer or QuantileTransformer"
"""The transformers of targets that are named as examples."""


def can_be_traced(estimator: Any, method: str) -> bool:
    """Return whether an estimator's method is Python code of a library that is not known, or of the user."""
    own = getattr(type(estimator), method, None)
    libraries = {(getattr(each, "__module__", None) or "").partition(".")[0] for each in (own, type(estimator))}
    return inspect.isfunction(own) and libraries.isdisjoint(KNOWN) and _kind(estimator) not in KINDS


def no_lowering(estimator: Any) -> str:
    """Return the message for an estimator whose class has no lowering: what it is, and what to do."""
    name, tags, kind = type(estimator).__name__, _tags(estimator), _kind(estimator)
    if kind in KINDS:
        what, number = KINDS[kind]
        return (
            f"it is {what}, and only regressors are exported. Fit a regressor, or register a number to serve, such "
            f"as {number}, with @triton_regressors.lowers({name}) and @triton_regressors.answers({name})."
        )
    read = None if tags is None or tags.input_tags.two_d_array else tags.input_tags
    if read is not None and (read.string or read.dict):
        what = "text, and an entry reads strings only as whole categories" if read.string else "dictionaries"
        return (
            f"it reads {what}. Transform rows before they are sent: export the steps behind it, as in pipeline[1:], "
            "and send what pipeline[:1] makes of the rows."
        )
    if not hasattr(estimator, "predict") and not hasattr(estimator, "transform"):
        return "it neither predicts nor transforms new rows. Give a regressor, or a Pipeline that ends in one."
    whose = _whose(estimator)
    return f"no lowering is registered for it{f' ({whose})' if whose else ''}. {_way_out(estimator)}"


def no_inverse(transformer: Any) -> str:
    """Return the message for a transformer of targets whose `inverse_transform` has no lowering."""
    return (
        f"no lowering is registered for its inverse_transform. Transform targets by one that has it, such as "
        f"{INVERTIBLE}, or write one, a function under @triton_regressors.lowers_inverse({type(transformer).__name__})."
    )


def overriding(estimator: Any, base: type, name: str, inverse: bool) -> str:
    """Return the message for an estimator whose class overrides `name`, so that it is not lowered as its base."""
    what = "its inverse_transform" if inverse else "it"
    whose = _whose(estimator)
    return (
        f"no lowering is registered for {what} (it is not treated as a {base.__name__}, because it overrides "
        f"{name}{f'; {whose}' if whose else ''}). "
        f"{_write(type(estimator).__name__, 'lowers_inverse' if inverse else 'lowers')}"
    )


def _whose(estimator: Any) -> str:
    """Return an estimator's class with its module, or nothing if its name says enough."""
    module = type(estimator).__module__
    return "" if module.partition(".")[0] in KNOWN else f"its class is {module}.{type(estimator).__qualname__}"


def _way_out(estimator: Any) -> str:
    """Return the sentences that say what to do with a class that has no lowering."""
    name = type(estimator).__name__
    if not hasattr(estimator, "transform") or hasattr(estimator, "predict"):
        return _write(name)
    return (
        "Keep the step in front of the client: export the steps behind it, pipeline[k:], and send "
        "pipeline[:k].transform(rows) (docs/own_code.md), or write a lowering under "
        f"@triton_regressors.lowers({name})."
    )


def defined_again(name: str) -> str:
    """Return the message for an instance of a class that was defined again, if the newer definition has a lowering."""
    return (
        f"its class was defined before the {name} that has a lowering, as when a notebook's cell ran twice. Fit it "
        f"again, with the present {name}."
    )


def _write(name: str, decorator: str = "lowers") -> str:
    """Return the sentence that says how a class gets a lowering."""
    return (
        f"Write one, a function of (estimator, x, builder) under @triton_regressors.{decorator}({name}); on the "
        "command line, --import my_module loads the module that holds it."
    )


def _kind(estimator: Any) -> str | None:
    """Return scikit-learn's kind of an estimator, such as "regressor", if it says one."""
    kind = getattr(_tags(estimator), "estimator_type", None) or getattr(estimator, "_estimator_type", None)
    return "classifier" if kind is None and hasattr(estimator, "predict_proba") else kind


def _tags(estimator: Any) -> Any | None:
    """Return scikit-learn's tags of an estimator, or None if it has none."""
    try:
        return get_tags(estimator)
    except Exception:  # an estimator that is not a BaseEstimator, or has such parts, can raise almost anything
        return None
