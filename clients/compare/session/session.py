"""A model under comparison: its configuration is overridden on the server, and restored in every case."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.compare.batching import BatchingConfiguration
from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.session.signals import deferred
from triton_regressors.clients.errors import InferenceError, ServerFault

FLOOR_SOURCE = Path(__file__).with_name("floor_model.py")


class Controls(Protocol):
    """The methods of `triton_regressors.clients.infer.Client` that are needed here."""

    def config(self, model: str) -> model_config_pb2.ModelConfig:
        """Return the configuration as the server uses it."""

    def load(
        self,
        model: str,
        *,
        config: model_config_pb2.ModelConfig | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Load or reload."""

    def unload(self, model: str) -> None:
        """Unload."""

    def statistics(self, model: str) -> dict[str, Any]:
        """Return the statistics extension's answer."""


def floor_name(model: str) -> str:
    """Return the name of the do-nothing model beside `model` while a comparison runs."""
    return f"compare_floor_of_{model}"


def floor_config(config: model_config_pb2.ModelConfig) -> model_config_pb2.ModelConfig:
    """Return the do-nothing model's configuration: the same tensors and batching, as many instances, on the CPU."""
    floor = model_config_pb2.ModelConfig(
        name=floor_name(config.name), backend="python", max_batch_size=config.max_batch_size
    )
    floor.input.extend(config.input)
    floor.output.extend(config.output)
    if config.HasField("dynamic_batching"):
        floor.dynamic_batching.CopyFrom(config.dynamic_batching)
    instances = sum(group.count * max(1, len(group.gpus)) for group in config.instance_group)
    floor.instance_group.add(kind=model_config_pb2.ModelInstanceGroup.KIND_CPU, count=max(1, instances))
    return floor


class BatchingOverride:
    """Context manager that applies batching configurations to a loaded model without touching its files.

    On leaving, the do-nothing model is unloaded and the configuration is the one found on entering.
    """

    def __init__(self, client: Controls, model: str, where: str, floor: bool) -> None:
        self._client = client
        self._model = model
        self._where = where
        self._floor = floor
        self._floor_loaded = False
        self._changed = False
        self.original = client.config(model)

    def __enter__(self) -> BatchingOverride:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with deferred():
                self.restore()
        except InferenceError as failure:
            if error is None:
                raise ComparisonError(
                    f"Model {self._model!r} may still have a compared configuration; restoring it failed: {failure}"
                ) from failure

    def use(self, configuration: BatchingConfiguration) -> None:
        """Load the model, and the do-nothing model, with this configuration; return when both are ready."""
        config = configuration.apply(self.original)
        self._changed = True
        try:
            self._client.load(self._model, config=config)
        except InferenceError as error:
            if "explicit model load" in str(error):
                self._changed = False
                raise ComparisonError(
                    f"The server at {self._where} does not let models be loaded with another configuration; start it "
                    f"with --model-control-mode=explicit --load-model={self._model}."
                ) from error
            raise
        self._verify(configuration)
        if self._floor:
            self._load_floor()

    def _load_floor(self) -> None:
        floor = floor_config(self._client.config(self._model))
        self._floor_loaded = True
        try:
            self._client.load(floor.name, config=floor, files={"1/model.py": FLOOR_SOURCE.read_bytes()})
        except ServerFault as error:
            raise ComparisonError(
                "The do-nothing model cannot be loaded; it needs the server's Python backend with torch, or leave it "
                f"out with --no-floor: {error}"
            ) from error

    def _verify(self, configuration: BatchingConfiguration) -> None:
        loaded = self._client.config(self._model)
        if loaded.HasField("dynamic_batching") != configuration.dynamic_batching:
            state = "off" if configuration.dynamic_batching else "on"
            raise ComparisonError(
                f"Model {self._model!r} was loaded with dynamic batching {state}, not as {configuration.label!r} asks: "
                "its backend completes the configuration by itself."
            )

    def restore(self) -> None:
        """Put everything back; safe to call again.

        A plain load alone is not enough: a server whose files did not change keeps an override. Then the original
        configuration is loaded as an override in turn, without a gap in service, and a later change of the files is
        still picked up by a plain load.
        """
        if self._floor_loaded:
            self._client.unload(floor_name(self._model))
            self._floor_loaded = False
        if self._changed:
            self._client.load(self._model)
            if self._client.config(self._model) != self.original:
                self._client.load(self._model, config=self.original)
            self._changed = False
