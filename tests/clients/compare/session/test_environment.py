"""Tests of a report's environment, for a model whose configuration a server completed."""

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.compare.session.environment import processors


@pytest.mark.parametrize(
    ("groups", "kinds", "gpus"),
    [
        ("instance_group { kind: KIND_CPU count: 2 }", ["CPU"], []),
        ("instance_group { kind: KIND_GPU count: 1 gpus: [1, 0] }", ["GPU"], [0, 1]),
        (
            "instance_group { kind: KIND_GPU gpus: 0 } instance_group [{ kind: KIND_CPU }, { kind: KIND_CPU }]",
            ["CPU", "GPU"],
            [0],
        ),
        ("instance_group { kind: KIND_MODEL }", ["a choice of the model's"], []),
        ("instance_group { kind: KIND_AUTO }", ["a choice of the server's"], []),
        ("", ["a choice of the server's"], []),
    ],
)
def test_processors(groups: str, kinds: list[str], gpus: list[int]) -> None:
    assert processors(text_format.Parse(groups, model_config_pb2.ModelConfig())) == (kinds, gpus)
