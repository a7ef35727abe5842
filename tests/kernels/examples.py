"""The number of examples that hypothesis draws for a test of kernels, the same in every run."""

from hypothesis import HealthCheck, settings


def examples(count: int) -> settings:
    """Return the settings of a test that draws a number of examples; its fixtures are the same for each."""
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
