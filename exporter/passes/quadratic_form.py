"""Computes a polynomial of degree 2 as a quadratic form, which the matrix units do, and one of degree 1 as affine."""

from __future__ import annotations

import numpy as np

from triton_regressors.exporter.lowering.products import product
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.polynomial_affine import PolynomialAffine
from triton_regressors.kernels.ops.linear.quadratic import Quadratic
from triton_regressors.kernels.plan.plan import Plan, Step


def use_quadratic_form(plan: Plan) -> Plan:
    """A polynomial of degree 2 is a quadratic form, which the matrix units compute, and one of degree 1 is affine."""
    steps = tuple(
        Step(_form(step.operation), step.inputs, step.output)
        if isinstance(step.operation, PolynomialAffine) and step.operation.indices.shape[1] <= 2
        else step
        for step in plan.steps
    )
    return plan if steps == plan.steps else plan.with_steps(steps)


def _form(op: PolynomialAffine) -> Affine | Quadratic:
    features, targets = len(op.shift), op.weight.shape[1]
    indices = np.full((len(op.indices), 2), features)
    indices[:, : op.indices.shape[1]] = op.indices
    indices.sort(axis=1)
    first, second = indices.T
    form = np.zeros((targets, features + 1, features + 1))
    for target in range(targets):
        np.add.at(form[target], (first, second), op.weight[:, target])
    if op.indices.shape[1] == 1:
        weight = (form[:, :features, features] * op.factor).T
        intercept = op.intercept + form[:, features, features] - product(op.shift, weight)
        return Affine(np.ascontiguousarray(weight), intercept, op.function)
    return Quadratic(
        op.shift,
        op.factor,
        np.ascontiguousarray(form[:, :features, :features]),
        np.ascontiguousarray(form[:, :features, features]),
        op.intercept + form[:, features, features],
        op.function,
    )
