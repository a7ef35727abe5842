"""A comparison for the tests of the report."""

import pytest

from tests.clients.compare.points import figures, point
from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.load.generator import Load


@pytest.fixture
def comparison() -> Comparison:
    labels = ("none", "delay 500 µs, 2 instances", "<script>alert(1)</script>")
    found = [
        point(label, figures(rate, rate / 100), load, figures(rate * 1.25, rate / 200))
        for label in labels
        for load, rate in (
            (Load("grpc", 1, concurrency=1), 400.0),
            (Load("grpc", 1, concurrency=32), 12345.0),
            (Load("http", 1000, concurrency=32), 123.0),
        )
    ]
    return Comparison("model", found, planned=9, environment={"measured_at": "2020-01-01T00:00:00"}, p99_ms=100)
