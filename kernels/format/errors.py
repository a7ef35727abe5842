"""The error for a plan, weights and a device that do not fit together."""


class PlanError(ValueError):
    """A plan, its weights or its device do not fit together; the message names the op and what it needs."""
