"""The Triton server's configuration of an entry, through its own protobuf."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from triton_regressors.exporter.errors import ExportError
from triton_regressors.kernels.inputs import MAX_STRING_BYTES, Inputs
from triton_regressors.kernels.run import ENGINES
from triton_regressors.kernels.staging import MAX_NUMBERS

FULL_BATCH = "a full batch"
"""Name of the warm-up that follows max_batch_size."""

DATA_TYPES = {
    "FP32": model_config_pb2.TYPE_FP32,
    "FP64": model_config_pb2.TYPE_FP64,
    "INT64": model_config_pb2.TYPE_INT64,
    "BYTES": model_config_pb2.TYPE_STRING,
}
INSTANCE_KINDS = {"auto": "KIND_AUTO", "gpu": "KIND_GPU", "cpu": "KIND_CPU"}
DEFAULT_MAX_BATCH_SIZE = 4096
STAGED_NUMBERS = 2**24

WHOLE_NUMBERS = {
    "max_batch_size": (1, 2**31 - 1),
    "max_queue_delay_us": (0, 2**64 - 1),
    "instances": (1, 2**31 - 1),
    "versions": (1, 2**32 - 1),
}
"""The least and the most that the protobuf's fields hold."""


@dataclass(frozen=True)
class ServingOptions:
    """How the Triton server is to run an entry; None leaves the default, or what an existing entry has.

    `max_batch_size`: rows in one execution, at least 1 (default 4,096, fewer where rows are very wide); rows × features
    at most 2²⁸.
    `dynamic_batching`: whether requests are gathered into batches (default yes).
    `max_queue_delay_us`: how long a request may wait for others, in microseconds (default 0).
    `preferred_batch_sizes`: batch sizes the server should try to make (default none).
    `instances`, `instance_kind`: how many copies run side by side (default 1), on "auto", "gpu" or "cpu".
    `engine`: "auto", "triton", "torch" or "interpret".
    `versions`: how many of the newest versions are served (default 1).
    """

    max_batch_size: int | None = None
    dynamic_batching: bool | None = None
    max_queue_delay_us: int | None = None
    preferred_batch_sizes: tuple[int, ...] | None = None
    instances: int | None = None
    instance_kind: str | None = None
    engine: str | None = None
    versions: int | None = None

    def __post_init__(self) -> None:
        for name, (least, most) in WHOLE_NUMBERS.items():
            value = getattr(self, name)
            if value is not None and not _whole(value, least, most):
                limit = f" and at most {most}" if _whole(value, least) else ""
                raise ExportError(f"{name} must be a whole number of at least {least}{limit}, not {value!r}.")
        for name, accepted in (("instance_kind", tuple(INSTANCE_KINDS)), ("engine", ENGINES)):
            value = getattr(self, name)
            if value is not None and value not in accepted:
                raise ExportError(f"{name} must be one of {', '.join(accepted)}, not {value!r}.")
        sizes = () if self.preferred_batch_sizes is None else self.preferred_batch_sizes
        if not isinstance(sizes, tuple | list) or not all(_whole(size, 1) for size in sizes):
            shown = list(sizes) if isinstance(sizes, tuple) else sizes
            raise ExportError(f"preferred_batch_sizes must be whole numbers of at least 1, not {shown!r}.")
        if self.dynamic_batching is False and (self.max_queue_delay_us or sizes):
            raise ExportError("max_queue_delay_us and preferred_batch_sizes need dynamic_batching.")

    def given(self) -> bool:
        """Whether any option was given."""
        return any(getattr(self, field.name) is not None for field in fields(self))


def _whole(value: Any, least: int, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def make_config(
    name: str,
    inputs: Inputs,
    outputs: Mapping[str, int],
    options: ServingOptions,
    feature_names: Sequence[str] = (),
) -> Any:
    """Return a new entry's `ModelConfig`; `outputs` maps each output to its width.

    Two parameters tell clients of the columns, as JSON objects of each tensor's name: `columns` has their names, where
    they have some, and `categories` the places of those whose numbers are categories, which must not be rounded.
    """
    config = model_config_pb2.ModelConfig(name=name, backend="python")
    datatypes, tensors = inputs.datatypes(), inputs.columns()
    for tensor, columns in tensors.items():
        config.input.add(name=tensor, data_type=DATA_TYPES[datatypes[tensor]], dims=[len(columns)])
    for output, width in outputs.items():
        config.output.add(name=output, data_type=model_config_pb2.TYPE_FP32, dims=[width])
    config.max_batch_size = min(DEFAULT_MAX_BATCH_SIZE, max(STAGED_NUMBERS // inputs.n_features, 1))
    config.dynamic_batching.SetInParent()
    config.instance_group.add(count=1, kind=model_config_pb2.ModelInstanceGroup.KIND_AUTO)
    config.version_policy.latest.num_versions = 1
    config.parameters["engine"].string_value = "auto"
    if inputs.text:
        config.parameters["max_string_bytes"].string_value = str(MAX_STRING_BYTES)
    elif not inputs.closed:
        _add_warm_up(config)  # the server would send empty strings and zeros, which a model may refuse
    if feature_names:
        named = {tensor: [feature_names[i] for i in columns] for tensor, columns in tensors.items()}
        config.parameters["columns"].string_value = json.dumps(named, ensure_ascii=False)
    categories = {
        tensor: [place for place, column in enumerate(columns) if column in inputs.categorical]
        for tensor, columns in tensors.items()
    }
    if any(categories.values()):
        found = {tensor: places for tensor, places in categories.items() if places}
        config.parameters["categories"].string_value = json.dumps(found)
    return apply_options(config, options)


def apply_options(config: Any, options: ServingOptions) -> Any:
    """Return a copy of a `ModelConfig` with the given options in it and everything else as it was."""
    changed = model_config_pb2.ModelConfig()
    changed.CopyFrom(config)
    if options.max_batch_size is not None:
        changed.max_batch_size = options.max_batch_size
        for sample in changed.model_warmup:
            full = sample.name == FULL_BATCH
            sample.batch_size = options.max_batch_size if full else min(sample.batch_size, options.max_batch_size)
    if options.dynamic_batching is False:
        changed.ClearField("dynamic_batching")
    elif options.dynamic_batching:
        changed.dynamic_batching.SetInParent()
    if options.max_queue_delay_us is not None:
        changed.dynamic_batching.max_queue_delay_microseconds = options.max_queue_delay_us
    if options.preferred_batch_sizes is not None:
        del changed.dynamic_batching.preferred_batch_size[:]
        changed.dynamic_batching.preferred_batch_size.extend(options.preferred_batch_sizes)
    if (options.instances is not None or options.instance_kind is not None) and not changed.instance_group:
        changed.instance_group.add(count=1, kind=model_config_pb2.ModelInstanceGroup.KIND_AUTO)
    if options.instances is not None:
        changed.instance_group[0].count = options.instances
    if options.instance_kind is not None:
        kind = getattr(model_config_pb2.ModelInstanceGroup, INSTANCE_KINDS[options.instance_kind])
        changed.instance_group[0].kind = kind
    if options.engine is not None:
        changed.parameters["engine"].string_value = options.engine
    if options.versions is not None:
        changed.version_policy.latest.num_versions = options.versions
    features = sum(sum(tensor.dims) for tensor in changed.input)
    if changed.max_batch_size * features > MAX_NUMBERS:
        raise ExportError(
            f"max_batch_size {changed.max_batch_size} × {features} features are "
            f"{changed.max_batch_size * features:,} numbers in a batch; at most {MAX_NUMBERS:,} are accepted, which is "
            f"a max_batch_size of {max(MAX_NUMBERS // features, 1)}."
        )
    largest = max(changed.dynamic_batching.preferred_batch_size, default=0)
    if largest > changed.max_batch_size:
        raise ExportError(
            f"preferred_batch_sizes holds {largest}, which is more than max_batch_size {changed.max_batch_size}."
        )
    return changed


def to_pbtxt(config: Any) -> str:
    """Return a `ModelConfig` as the text of config.pbtxt."""
    text: str = text_format.MessageToString(config)
    return text


def from_pbtxt(text: str | bytes) -> Any:
    """Return the `ModelConfig` in the text of a config.pbtxt, or raise `ExportError`."""
    try:
        return text_format.Parse(text, model_config_pb2.ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ExportError(f"The config.pbtxt cannot be read: {error}.") from error


def _add_warm_up(config: Any) -> None:
    """Have the server run one row and a full batch through each instance before it is ready."""
    for name, rows in (("one row", 1), (FULL_BATCH, config.max_batch_size)):
        sample = config.model_warmup.add(name=name, batch_size=rows)
        for given in config.input:
            tensor = sample.inputs[given.name]
            tensor.data_type = given.data_type
            tensor.dims.extend(given.dims)
            tensor.zero_data = True
