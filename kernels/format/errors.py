"""What can be wrong between a plan, its weights and the device that is to run it."""


class PlanError(ValueError):
    """A plan, its weights or its device do not fit together; the message names the op and what it needs."""
