"""The numbers of a deployment and their sources: the device, a replica's resources, the autoscaler's thresholds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_regressors.clients.compare.figures.threshold import read_capacity, read_processors
from triton_regressors.clients.server.entries import read_config
from triton_regressors.deploy.server_memory import ServingMemory
from triton_regressors.errors import TritonRegressorsError

MIB = 2**20
STEP_MIB = 256
HEADROOM = 1.5
"""The factor from measured memory to a container's limit: for requests in flight and for the probes."""
INSTANCE_SHARED_MIB = 128
"""Shared memory of an instance: 64 MB at most for the rows of its largest batch, as exported, and as much again."""
GPU_PROCESS_MIB = 800
"""Memory of a process that uses a GPU, apart from its weights, if not measured on a GPU: docker/README.md."""
SHARE = 0.8
"""The load of one replica as a share of the throughput measured at the latency limit.

A further replica takes time to be ready, and the autoscaler lets the load exceed its threshold by 10 %.
"""
LEAST_WAITING = 0.01
"""Least threshold of the queue, in waiting requests: below it, random variation would add replicas."""
DEFAULT_MOST = 4
"""Most replicas of an autoscaled deployment, unless another number is given."""


@dataclass(frozen=True)
class Number:
    """A number of a deployment in its written form, and its source in words."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Resources:
    """A replica's requested resources: whole CPUs, MiB of memory, and the part of it that may be shared memory."""

    cpu: int
    cpu_limit: int
    memory_mib: int
    memory_limit_mib: int
    shared_mib: int


@dataclass(frozen=True)
class Thresholds:
    """The load of one replica above which the autoscaler adds replicas.

    waiting: the mean number of requests waiting at one replica, above which replicas are added at once; None: the queue
    does not count. source: where `requests_per_s` comes from, in words.
    """

    requests_per_s: float
    waiting: float | None
    source: str

    def numbers(self) -> list[Number]:
        """Return the thresholds with their sources."""
        found = [Number("requests/s of a replica", threshold(self.requests_per_s), self.source)]
        if self.waiting is not None:
            found.append(Number("waiting at a replica", threshold(self.waiting), "the same share, at the same load"))
        return found


@dataclass(frozen=True)
class Scaling:
    """The limits on the number of replicas, the address of Prometheus, and the thresholds."""

    least: int
    most: int
    prometheus: str
    thresholds: Thresholds


def read_configs(repository: Path, name: str) -> dict[str, Any]:
    """Return the configuration of every model in the repository, which must hold the named one."""
    if not repository.is_dir():
        raise TritonRegressorsError(f"There is no model repository {repository}; give --repository.")
    found = {path.parent.name: read_config(path.parent) for path in sorted(repository.glob("*/config.pbtxt"))}
    if found.get(name) is None:
        known = ", ".join(found) or "none"
        raise TritonRegressorsError(f"{repository} has no entry {name!r} with a config.pbtxt to read; it has {known}.")
    return {each: config for each, config in found.items() if config is not None}


def choose_device(configs: Mapping[str, Any], device: str | None, report: Path) -> tuple[bool, str]:
    """Return whether replicas have a GPU, and the source of this decision; `device` is "cpu", "gpu" or None."""
    fixed = [name for name, config in configs.items() if needs_gpu(config)]
    if device == "cpu" and fixed:
        raise TritonRegressorsError(f"--device cpu: config.pbtxt of {fixed[0]!r} has instances on a GPU (KIND_GPU).")
    if not any(map(uses_gpu, configs.values())):
        if device == "gpu":
            raise TritonRegressorsError("--device gpu: every config.pbtxt has all instances on the CPU (KIND_CPU).")
        return False, "every config.pbtxt has its instances there"
    measured = read_processors(report)
    if device is not None:
        other = measured is not None and measured.startswith("CPU" if device == "gpu" else "GPU")
        again = f"; {report} was measured on {measured}, so compare again" if other else ""
        return device == "gpu", f"as given by --device{again}"
    if fixed:
        return True, f"config.pbtxt of {fixed[0]} has its instances there"
    if measured is not None and measured.startswith(("CPU", "GPU")):
        return "GPU" in measured, f"as compared on {measured}"
    return True, "assumed, because config.pbtxt allows both; --device cpu chooses the other"


def find_thresholds(
    name: str, config: Any, report: Path, *, p99_ms: float | None, requests_per_s: float | None, gpu: bool
) -> Thresholds | None:
    """Return the thresholds that are given or that a comparison measured; None without either."""
    if requests_per_s is not None:
        if not 0 < requests_per_s < float("inf"):
            raise TritonRegressorsError(f"--requests-per-s is {requests_per_s}; accepted: a number above 0.")
        return Thresholds(requests_per_s, None, "as given by --requests-per-s")
    if not report.exists():
        return None
    found = read_capacity(report, name, config, p99_ms)
    source = f"{SHARE:.0%} of what was measured: {found.text()}"
    if gpu and found.measured_on == "CPU":
        source += "; replicas use a GPU, so compare again on one"
    if not found.reached:
        source += "; every measured load kept the limit, so a comparison with more --concurrency may find a higher rate"
    waiting = SHARE * found.waiting if found.waiting else None
    enough = waiting is not None and waiting >= LEAST_WAITING
    return Thresholds(SHARE * found.requests_per_s, waiting if enough else None, source)


def find_resources(
    configs: Mapping[str, Any], memory: int | ServingMemory, *, gpu: bool
) -> tuple[Resources, list[Number]]:
    """Return a replica's resources, and their sources; `memory` is given in MiB or was measured."""
    instances = sum(map(instances_of, configs.values()))
    several = f"{instances} instance{'s' * (instances != 1)} in config.pbtxt of {', '.join(configs)}"
    if isinstance(memory, int):
        used = memory * MIB
        source = "as given by --memory-mib"
    else:
        assumed = gpu and not memory.gpu
        used = memory.total(GPU_PROCESS_MIB * MIB if assumed else 0)
        source = (
            f"measured here: {memory.total() / MIB:,.0f} MiB of a Triton server with {len(memory.instances)} "
            f"process{'es' * (len(memory.instances) != 1)} of models"
        )
        if assumed:
            source += f", on a CPU; assumed: {GPU_PROCESS_MIB} MiB for each on a GPU"
    found = resources_of(used, instances)
    shared = f"{INSTANCE_SHARED_MIB} MiB"
    cpus = f"assumed: one for each of {several} and one for the server"
    limit = f"{HEADROOM} times the measured memory, and {shared} of shared memory for each instance"
    return found, [
        Number("memory request", f"{found.memory_mib} MiB", source),
        Number("memory limit", f"{found.memory_limit_mib} MiB", limit),
        Number("shared memory", f"{found.shared_mib} MiB", f"assumed: {shared} for each of {several}, 1024 at least"),
        Number("cpu", f"{found.cpu}, at most {found.cpu_limit}", cpus),
    ]


def threshold(number: float) -> str:
    """Return a threshold in its written form: a decimal number of four significant digits."""
    return f"{float(f'{number:.4g}'):f}".rstrip("0").rstrip(".")


def instances_of(config: Any) -> int:
    """Return the number of processes that a `ModelConfig` starts on a machine with at most one GPU."""
    return sum(max(group.count, 1) for group in config.instance_group) or 1


def uses_gpu(config: Any) -> bool:
    """Return whether a `ModelConfig` has its instances on a GPU if there is one."""
    kinds = {group.Kind.Name(group.kind) for group in config.instance_group}
    return kinds != {"KIND_CPU"}


def needs_gpu(config: Any) -> bool:
    """Return whether a `ModelConfig` has instances that start only on a GPU."""
    return any(group.Kind.Name(group.kind) == "KIND_GPU" for group in config.instance_group)


def resources_of(memory_bytes: float, instances: int) -> Resources:
    """Return a replica's resources, from the measured memory of the server and its processes together."""
    shared = _up(max(1024, INSTANCE_SHARED_MIB * instances))
    return Resources(
        cpu=instances + 1,
        cpu_limit=2 * (instances + 1),
        memory_mib=_up(memory_bytes / MIB),
        memory_limit_mib=_up(HEADROOM * memory_bytes / MIB + INSTANCE_SHARED_MIB * instances),
        shared_mib=shared,
    )


def _up(mib: float) -> int:
    return max(math.ceil(mib / STEP_MIB), 1) * STEP_MIB
