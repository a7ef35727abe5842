"""Dynamic batching configurations that `compare` measures, and their application to a ModelConfig."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2

from triton_regressors.batching import Batching
from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.model_config import edit_pbtxt, from_pbtxt

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TABLE = re.compile(r"\s*\[\[\s*configuration\s*\]\]")


@dataclass(frozen=True)
class BatchingConfiguration(Batching):
    """One setting of the batching fields of a model configuration, with its label in tables and plots.

    Unlike `Batching` it states every field but `instances`, for which None keeps the model's own count.
    """

    label: str
    _: KW_ONLY
    dynamic_batching: bool = True
    max_queue_delay_us: int = 0
    preferred_batch_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.label, str) or not self.label.strip():
            raise ComparisonError("A batching configuration needs a label that is not empty.")
        super().__post_init__()

    def refusal(self, reason: str) -> ComparisonError:
        """Return the `ComparisonError` that says why this configuration is invalid or cannot be applied."""
        return ComparisonError(f"Batching configuration {self.label!r}: {reason}")

    def describe(self) -> str:
        """Return the configuration in words, for readers of the report who lack the label's context."""
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

        Raises ComparisonError if the model cannot be batched this way: no batch dimension, a sequence or
        ensemble scheduler, or a preferred batch size above the model's max_batch_size.
        """
        if config.max_batch_size < 1:
            raise ComparisonError(
                f"Model {config.name!r} has max_batch_size {config.max_batch_size}; comparing batching configurations "
                "needs 1 or more."
            )
        return super().apply(config)


def default_configurations(max_batch_size: int) -> tuple[BatchingConfiguration, ...]:
    """Return eight configurations that span the useful choices for a model with this max_batch_size in rows."""
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


def quick_configurations(max_batch_size: int) -> tuple[BatchingConfiguration, ...]:
    """Return four of the default configurations: no batching, batching, a delay, and a second instance."""
    found = default_configurations(max_batch_size)
    return (found[0], found[1], found[3], found[6])


def read_configurations(path: Path) -> tuple[BatchingConfiguration, ...]:
    """Read configurations from a TOML file.

    Each is a `[[configuration]]` table, with the fields of `BatchingConfiguration` as its keys.

    Raises:
        ComparisonError: a missing file, bad TOML, an unknown key, a value of the wrong kind or a repeated label; the
            message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
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
    lines = [f", line {number}" for number, line in enumerate(text.splitlines(), start=1) if _TABLE.match(line)]
    if len(lines) != len(tables):  # they are written in another of TOML's ways
        lines = [""] * len(tables)
    found: list[BatchingConfiguration] = []
    for number, (table, line) in enumerate(zip(tables, lines, strict=True), start=1):
        place = f"{path}{line}, configuration {number}"
        found.append(_from_table(table, place))
        try:
            distinct(found)
        except ComparisonError as error:
            raise ComparisonError(f"{place}: {error}") from None
    return tuple(found)


def distinct(configurations: Sequence[BatchingConfiguration]) -> tuple[BatchingConfiguration, ...]:
    """Return the configurations as a tuple; raise ComparisonError if there are none or two share a label."""
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

    try:
        return BatchingConfiguration(**table)
    except ComparisonError as error:
        raise ComparisonError(f"{where}: {error}") from None


def write_batching(path: Path, configuration: BatchingConfiguration) -> None:
    """Write the configuration's batching fields into the config.pbtxt at `path`, atomically.

    Everything else in the file is kept, comments too. A reader sees the old file or the new one, never a part.
    Raises ComparisonError for a missing or unreadable file.
    """
    try:
        content = path.read_bytes()
        edited = edit_pbtxt(content, configuration.apply(from_pbtxt(content)))
    except FileNotFoundError:
        raise ComparisonError(f"There is no {path} to write the batching configuration into.") from None
    except (OSError, ValueError) as error:
        raise ComparisonError(f"Cannot read {path}: {str(error).rstrip('.')}.") from error
    try:
        replace_file(path, edited)
    except OSError as error:
        raise ComparisonError(f"Cannot write {path}: {error}.") from error


def replace_file(path: Path, content: bytes) -> None:
    """Replace the file at `path` by one rename of a complete, flushed temporary file beside it; its mode is kept."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
