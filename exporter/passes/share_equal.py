"""Computes equal steps once: readers of one that an earlier step equals read that step's value."""

from __future__ import annotations

from triton_regressors.kernels.plan.plan import Operation, Plan, Step


def share_equal_steps(plan: Plan) -> Plan:
    """Return the plan without the steps that have the operation and the inputs of an earlier one."""
    known: dict[tuple[object, ...], list[Step]] = {}
    renamed: dict[str, str] = {}
    steps = []
    for step in plan.steps:
        step = Step(step.operation, tuple(renamed.get(name, name) for name in step.inputs), step.output)
        alike = known.setdefault((step.operation.kind(), step.inputs, repr(step.operation.attributes())), [])
        same = next((other for other in alike if _have_equal_arrays(step.operation, other.operation)), None)
        if same is None:
            alike.append(step)
            steps.append(step)
        else:
            renamed[step.output] = same.output
    if not renamed:
        return plan
    outputs = {name: renamed.get(value, value) for name, value in plan.outputs.items()}
    return Plan(plan.n_features, tuple(steps), outputs, plan.dtype)


def _have_equal_arrays(one: Operation, other: Operation) -> bool:
    """Return whether two operations of one kind have the same arrays, bit for bit."""
    ours, theirs = dict(one.arrays()), dict(other.arrays())
    return ours.keys() == theirs.keys() and all(
        array.dtype == theirs[name].dtype
        and array.shape == theirs[name].shape
        and array.tobytes() == theirs[name].tobytes()
        for name, array in ours.items()
    )
