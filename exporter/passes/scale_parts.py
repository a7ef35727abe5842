"""Moves the scales of a Concatenate's parts behind it.

An example: both scales of `[scale(x), scale(g(x))]` become one scale of `[x, g(x)]`, which the next step may absorb.
"""

from __future__ import annotations

import numpy as np

from triton_regressors.exporter.passes.rewriting import Scope
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.polynomial import Polynomial
from triton_regressors.kernels.ops.linear.polynomial_affine import PolynomialAffine
from triton_regressors.kernels.ops.linear.quadratic import Quadratic
from triton_regressors.kernels.ops.points.function import PointFunction
from triton_regressors.kernels.plan.plan import Step


def scale_afterwards(step: Step, scope: Scope) -> list[Step] | None:
    """Scale after a Concatenate if all its parts are scaled alike, or if all its readers can absorb the scale."""
    if not isinstance(step.operation, Concatenate):
        return None
    scales = [scope.operation(name) for name in step.inputs]
    scaled = [isinstance(scale, Scale) and not scale.single for scale in scales]
    readers = scope.readers(step.output)
    absorbed = readers and all(
        isinstance(op, Affine | Polynomial | PolynomialAffine | Quadratic | PointFunction) for op in readers
    )
    forms = {scale.form for scale, yes in zip(scales, scaled, strict=True) if isinstance(scale, Scale) and yes}
    alike = all(scaled) and len(forms) == 1
    if not (alike or (any(scaled) and absorbed)):
        return None
    names = tuple(scope.inputs(n)[0] if yes else n for n, yes in zip(step.inputs, scaled, strict=True))
    none = [Scale(np.zeros(scope.widths[name]), np.ones(scope.widths[name])) for name in names]
    both = [
        scale if isinstance(scale, Scale) and yes else one for scale, one, yes in zip(scales, none, scaled, strict=True)
    ]
    shift, factor, last = (np.concatenate([getattr(s, name) for s in both]) for name in ("shift", "factor", "last"))
    whole = Scale(shift, factor, forms.pop(), last) if alike else Scale(shift, factor)
    inner = scope.step(step.operation, names, step.output)
    return [inner, Step(whole, (inner.output,), step.output)]
