"""The rate that one server answers within a latency limit, from a comparison's report.

The report gives requests per second at the highest load within the limit, and their mean time in the queue. By Little's
law the product of both is the mean number of waiting requests. A server's metrics give this number as the rate of
`nv_inference_queue_duration_us` over a million.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.compare.batching import BatchingConfiguration
from triton_regressors.clients.compare.errors import ComparisonError


@dataclass(frozen=True)
class Capacity:
    """The result of a comparison for one server at its latency limit, and how that was measured.

    waiting: requests that wait on average; None: no time in the queue was measured. reached: whether a measured load
    breaks the limit; if not, the server may answer more than is known. stable: whether the measurement became stable.
    """

    requests_per_s: float
    waiting: float | None
    p99_limit_ms: float
    p99_ms: float
    load: str
    measured_on: str
    reached: bool
    stable: bool

    def text(self) -> str:
        """Return it as a sentence."""
        waiting = "" if self.waiting is None else f", {self.waiting:.3g} of them waiting at a time"
        return (
            f"{self.requests_per_s:,.0f} requests/s at p99 {self.p99_ms:.3g} ms (limit {self.p99_limit_ms:g} ms)"
            f"{waiting}, with {self.load} on {self.measured_on}" + ("" if self.stable else " (not stable)")
        )


def read_processors(report: Path) -> str | None:
    """Return the processors that a comparison's report names ("CPU", "GPU 0"), or None if it names none."""
    try:
        found = json.loads(_file(report).read_text(encoding="utf-8"))["environment"]["runs_on"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) and found else None


def read_capacity(
    report: Path, name: str, config: model_config_pb2.ModelConfig, p99_ms: float | None = None
) -> Capacity:
    """Read the capacity from `comparison.json`, for the batching configuration that the model has.

    report: the file, or the directory that `compare` wrote. name: the model's. p99_ms: None: the comparison's limit.
    The chosen load has the most requests per second among the loads without errors within the limit.

    Raises ComparisonError, with advice, if the report cannot be read, is of another model or of other batching
    configurations, has no limit, or has no load within it.
    """
    file = _file(report)
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        model, points, limit = document["model"], document["points"], document["p99_limit_ms"]
        environment = document["environment"]
    except OSError as error:
        raise ComparisonError(f"The comparison {file} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise ComparisonError(f"{file} is not a comparison.json of `triton-regressors compare`.") from None
    if model != name:
        raise ComparisonError(f"{file} compares {model!r}, not {name!r}.")
    limit = limit if p99_ms is None else p99_ms
    if limit is None or not limit > 0:
        raise ComparisonError(f"{file} has no latency limit; give --p99-ms, a number of milliseconds above 0.")
    alike = [point for point in points if _is_of(point["configuration"], config)]
    if not alike:
        raise ComparisonError(
            f"{file} has no measurement of the batching configuration in config.pbtxt of {name!r}: "
            f"`triton-regressors compare {name} --p99-ms {limit:g} --apply` measures it, and writes the recommended "
            "configuration there."
        )
    sound = [point for point in alike if not point["model"]["errors"] and point["model"]["requests"]]
    within = [point for point in sound if point["model"]["latency"]["p99_ms"] <= limit]
    if not within:
        raise ComparisonError(
            f"{file} has no load without errors at which {name!r}, with its present config.pbtxt, keeps p99 within "
            f"{limit:g} ms; allow a higher p99 with --p99-ms, or compare again with --apply."
        )
    point = max(within, key=lambda point: float(point["model"]["requests_per_s"]))
    figures = point["model"]
    queue_ms = figures["server"]["queue_ms"]
    return Capacity(
        requests_per_s=figures["requests_per_s"],
        waiting=figures["requests_per_s"] * queue_ms / 1e3 if queue_ms else None,
        p99_limit_ms=limit,
        p99_ms=figures["latency"]["p99_ms"],
        load=_load(point["load"]),
        measured_on=environment.get("runs_on") or "a server that did not say what it runs on",
        reached=any(point["model"]["latency"]["p99_ms"] > limit for point in sound),
        stable=figures["stable"],
    )


def _file(report: Path) -> Path:
    return report / "comparison.json" if report.is_dir() else report


def _is_of(configuration: Mapping[str, Any], config: model_config_pb2.ModelConfig) -> bool:
    """Return whether a model has this batching configuration."""
    return bool(BatchingConfiguration(**configuration).apply(config) == config)


def _load(load: Mapping[str, Any]) -> str:
    if load["rate"] is not None:
        return f"{load['rate']:,.0f} requests/s offered"
    return f"{load['concurrency']} client{'s' * (load['concurrency'] != 1)}"
