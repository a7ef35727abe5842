"""Dynamic batching configurations: what `compare` puts side by side, and how one is applied to a ModelConfig."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.compare.errors import ComparisonError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class BatchingConfiguration:
    """One setting of the batching fields of a model configuration.

    label: how tables and plots call it.
    dynamic_batching: whether the server may put several requests into one execution.
    max_queue_delay_us: how long, in microseconds, the server may hold a request back to fill a batch.
    preferred_batch_sizes: batch sizes in rows that the server sends off at once; empty: the largest possible.
    instances: model instances in each instance group (on a GPU group: per GPU); None keeps the model's own count.
    """

    label: str
    dynamic_batching: bool = True
    max_queue_delay_us: int = 0
    preferred_batch_sizes: tuple[int, ...] = ()
    instances: int | None = None

    def __post_init__(self) -> None:
        if not self.label.strip():
            raise ComparisonError("A batching configuration needs a label that is not empty.")
        if self.max_queue_delay_us < 0:
            raise self._error(
                "max_queue_delay_us", self.max_queue_delay_us, "a whole number of microseconds, 0 or more"
            )
        if any(size < 1 for size in self.preferred_batch_sizes):
            raise self._error("preferred_batch_sizes", list(self.preferred_batch_sizes), "whole numbers of 1 or more")
        if self.instances is not None and self.instances < 1:
            raise self._error("instances", self.instances, "a whole number of 1 or more")
        if not self.dynamic_batching and (self.max_queue_delay_us or self.preferred_batch_sizes):
            raise ComparisonError(
                f"Batching configuration {self.label!r} turns dynamic_batching off, so max_queue_delay_us and "
                "preferred_batch_sizes must be left out."
            )

    def _error(self, key: str, value: object, accepted: str) -> ComparisonError:
        return ComparisonError(f"Batching configuration {self.label!r}: {key} is {value}; accepted: {accepted}.")

    def describe(self) -> str:
        """The configuration in words, for people who read the report without the label's context."""
        if not self.dynamic_batching:
            parts = ["no dynamic batching"]
        else:
            parts = ["dynamic batching"]
            if self.max_queue_delay_us:
                parts.append(f"queue delay up to {self.max_queue_delay_us:,} µs")
            if self.preferred_batch_sizes:
                parts.append("preferred batch sizes " + ", ".join(map(str, self.preferred_batch_sizes)))
        if self.instances is not None:
            parts.append(f"{self.instances} instance" + ("s" if self.instances > 1 else ""))
        return ", ".join(parts)

    def apply(self, config: model_config_pb2.ModelConfig) -> model_config_pb2.ModelConfig:
        """Return a copy of `config` with these batching fields; every other field is kept.

        Raises ComparisonError where the model cannot be batched this way: no batch dimension, a sequence or
        ensemble scheduler, or a preferred batch size above the model's max_batch_size.
        """
        if config.max_batch_size < 1:
            raise ComparisonError(
                f"Model {config.name!r} has max_batch_size {config.max_batch_size}; comparing batching configurations "
                "needs 1 or more."
            )
        scheduler = config.WhichOneof("scheduling_choice")
        if scheduler not in (None, "dynamic_batching"):
            raise ComparisonError(f"Model {config.name!r} uses {scheduler}; only dynamic_batching can be compared.")
        too_large = [size for size in self.preferred_batch_sizes if size > config.max_batch_size]
        if too_large:
            raise self._error(
                "preferred_batch_sizes", too_large, f"up to max_batch_size, {config.max_batch_size} for {config.name!r}"
            )
        result = model_config_pb2.ModelConfig()
        result.CopyFrom(config)
        if self.dynamic_batching:
            result.dynamic_batching.SetInParent()
            result.dynamic_batching.max_queue_delay_microseconds = self.max_queue_delay_us
            del result.dynamic_batching.preferred_batch_size[:]
            result.dynamic_batching.preferred_batch_size.extend(self.preferred_batch_sizes)
        else:
            result.ClearField("dynamic_batching")
        if self.instances is not None:
            if not result.instance_group:
                result.instance_group.add()
            for group in result.instance_group:
                group.count = self.instances
        return result


def default_configurations(max_batch_size: int) -> tuple[BatchingConfiguration, ...]:
    """Eight configurations that span the choices worth making for a model that batches up to `max_batch_size` rows."""
    preferred = tuple(size for size in (8, 32) if size <= max_batch_size) or (max_batch_size,)
    return (
        BatchingConfiguration("none", dynamic_batching=False, instances=1),
        BatchingConfiguration("on", instances=1),
        BatchingConfiguration("delay 100 µs", max_queue_delay_us=100, instances=1),
        BatchingConfiguration("delay 500 µs", max_queue_delay_us=500, instances=1),
        BatchingConfiguration("delay 2 ms", max_queue_delay_us=2000, instances=1),
        BatchingConfiguration(
            "prefer " + ", ".join(map(str, preferred)),
            max_queue_delay_us=500,
            preferred_batch_sizes=preferred,
            instances=1,
        ),
        BatchingConfiguration("on, 2 instances", instances=2),
        BatchingConfiguration("delay 500 µs, 2 instances", max_queue_delay_us=500, instances=2),
    )


def read_configurations(path: Path) -> tuple[BatchingConfiguration, ...]:
    """Read configurations from a TOML file with one `[[configuration]]` table each.

        [[configuration]]
        label = "gentle"
        dynamic_batching = true          # default true
        max_queue_delay_us = 200         # default 0
        preferred_batch_sizes = [8, 32]  # default none
        instances = 2                    # default: the model's own

    Raises ComparisonError for a missing file, bad TOML, an unknown key, a value of the wrong kind or a repeated label.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ComparisonError(f"Cannot read the configurations in {path}: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ComparisonError(f"{path} is not valid TOML: {error}.") from error
    for key in document:
        if key != "configuration":
            raise ComparisonError(f"{path}: unknown key {key!r}; accepted: 'configuration' ([[configuration]] tables).")
    tables = document.get("configuration", [])
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ComparisonError(f"{path} holds no [[configuration]] table; at least one is needed.")
    return distinct(
        [_from_table(table, f"{path}, configuration {number}") for number, table in enumerate(tables, start=1)]
    )


def distinct(configurations: Sequence[BatchingConfiguration]) -> tuple[BatchingConfiguration, ...]:
    """The configurations as a tuple, or ComparisonError if there are none or two share a label."""
    labels = [configuration.label for configuration in configurations]
    if not labels:
        raise ComparisonError("There is no batching configuration to compare; give at least one.")
    repeated = sorted({label for label in labels if labels.count(label) > 1})
    if repeated:
        raise ComparisonError(f"Two batching configurations are called {repeated[0]!r}; each needs its own label.")
    return tuple(configurations)


def _from_table(table: Mapping[str, Any], where: str) -> BatchingConfiguration:
    accepted = [field.name for field in fields(BatchingConfiguration)]
    for key in table:
        if key not in accepted:
            raise ComparisonError(f"{where}: unknown key {key!r}; accepted: {', '.join(accepted)}.")
    if "label" not in table:
        raise ComparisonError(f"{where}: the key 'label' is missing.")

    def check(key: str, right: bool, kind: str) -> None:
        if key in table and not right:
            raise ComparisonError(f"{where}: {key} is {table[key]!r}; accepted: {kind}.")

    def whole(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    check("label", isinstance(table["label"], str), "text")
    check("dynamic_batching", isinstance(table.get("dynamic_batching"), bool), "true or false")
    check("max_queue_delay_us", whole(table.get("max_queue_delay_us")), "a whole number of microseconds")
    check("instances", whole(table.get("instances")), "a whole number")
    sizes = table.get("preferred_batch_sizes", [])
    check("preferred_batch_sizes", isinstance(sizes, list) and all(map(whole, sizes)), "a list of whole numbers")
    try:
        return BatchingConfiguration(**{**table, "preferred_batch_sizes": tuple(sizes)})
    except ComparisonError as error:
        raise ComparisonError(f"{where}: {error}") from None


def write_batching(path: Path, configuration: BatchingConfiguration) -> None:
    """Write the configuration's batching fields into the config.pbtxt at `path`, atomically.

    Every other field is kept, and so are the comment lines at the top; comments further down are not part of the
    parsed configuration and are lost. A reader sees the old file or the new one, never a part.
    Raises ComparisonError for a missing or unreadable file.
    """
    try:
        text = path.read_text(encoding="utf-8")
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
    except FileNotFoundError:
        raise ComparisonError(f"There is no {path} to write the batching configuration into.") from None
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise ComparisonError(f"Cannot read {path}: {error}.") from error
    header = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        header.append(line + "\n")
    applied = "".join(header) + text_format.MessageToString(configuration.apply(config), as_utf8=True)
    try:
        replace_text(path, applied)
    except OSError as error:
        raise ComparisonError(f"Cannot write {path}: {error}.") from error


def replace_text(path: Path, text: str) -> None:
    """Replace the file at `path` by one rename of a complete, flushed temporary file beside it; its mode is kept."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
