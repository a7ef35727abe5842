"""Computes the layers of a neural network in one launch: see `kernels/ops/networks/dense_layers.py`.

This pass runs after every fusion: linear maps before and after the network are part of its layers by then.
"""

from __future__ import annotations

import numpy as np

from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.networks.dense_layers import ACTIVATIONS, DenseLayers
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

MAX_WIDTH = 256
"""The most features and units of layers that are fused; wider layers keep a GPU busy one by one."""

MAX_TARGETS = 32
"""The most units of the last layer, which is summed target by target."""


def fuse_dense_layers(plan: Plan, X: np.ndarray) -> Plan:
    """Fuse each chain of Affine steps with one activation function into one step, if nothing else reads them.

    `X`, `[rows, n_features]`, shows which features lie far from zero.
    """
    makers = {step.output: step for step in plan.steps}
    readers: dict[str, int] = {}
    for name in (*plan.outputs.values(), *(name for step in plan.steps for name in step.inputs)):
        readers[name] = readers.get(name, 0) + 1
    steps: list[Step] = []
    fused: set[str] = set()
    for step in reversed(plan.steps):
        if step.output in fused:
            continue
        chain = _chain(step, makers, readers)
        if len(chain) > 1:
            fused.update(part.output for part in chain[:-1])
            step = Step(_dense_layers(chain, X), chain[0].inputs, step.output)
        steps.append(step)
    return plan.with_steps(reversed(steps)) if fused else plan


def _chain(last: Step, makers: dict[str, Step], readers: dict[str, int]) -> list[Step]:
    """Return the longest chain of layers that ends in a step."""
    chain = [last]
    if not _fits(last) or last.operation.weight.shape[1] > MAX_TARGETS:  # type: ignore[attr-defined]
        return chain
    while True:
        before = makers.get(chain[0].inputs[0])
        if before is None or readers[before.output] > 1 or not _fits(before):
            return chain
        function = before.operation.function  # type: ignore[attr-defined]
        if function not in ACTIVATIONS or (len(chain) > 1 and function != chain[0].operation.function):  # type: ignore[attr-defined]
            return chain
        chain.insert(0, before)


def _fits(step: Step) -> bool:
    """Return whether a step is a layer of at most `MAX_WIDTH` features."""
    return isinstance(step.operation, Affine) and len(step.operation.weight) <= MAX_WIDTH


def _dense_layers(chain: list[Step], X: np.ndarray) -> DenseLayers:
    """Return the chain as one operation, which shifts the features that lie far from zero."""
    layers = [step.operation for step in chain if isinstance(step.operation, Affine)]
    features = len(layers[0].weight)
    shift = np.zeros(features)
    if chain[0].inputs == (INPUT,):
        known = np.nan_to_num(X.astype(np.float64))
        mean = known.mean(axis=0)
        shift = np.where(np.abs(mean) > known.std(axis=0), mean, 0.0).astype(np.float32).astype(np.float64)
    return DenseLayers(
        np.concatenate([layer.weight.ravel() for layer in layers]),
        np.concatenate([layer.intercept for layer in layers]),
        shift,
        (features, *(layer.weight.shape[1] for layer in layers)),
        layers[0].function,
        layers[-1].function,
    )
