"""The command `deploy NAME`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from triton_regressors.commands.connection import entry_names
from triton_regressors.commands.lazy_imports import loading
from triton_regressors.defaults import DEFAULT_REPOSITORY
from triton_regressors.errors import TritonRegressorsError
from triton_regressors.extras import require

if TYPE_CHECKING:
    from triton_regressors.deploy.manifests import Number, Resources, Scaling

_WHERE, _SIZE, _SCALING = "Where it runs", "How large a replica is", "Scaling"
SHARE = 0.8
"""The load of one replica as a share of the throughput measured at the latency limit.

A further replica takes time to be ready, and the autoscaler lets the load exceed its threshold by 10 %.
"""


class Platform(str, Enum):
    """The values of `--for`."""

    kserve = "kserve"
    kubernetes = "kubernetes"
    compose = "compose"


class Device(str, Enum):
    """The values of `--device`."""

    cpu = "cpu"
    gpu = "gpu"


def deploy(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The entry.", autocompletion=entry_names)],
    platform: Annotated[
        Platform, typer.Option("--for", metavar="WHAT", help="kserve, kubernetes or compose.", rich_help_panel=_WHERE)
    ],
    repository: Annotated[
        Path, typer.Option(metavar="DIR", help="Its model repository on this machine, whose entries are all served.")
    ] = DEFAULT_REPOSITORY,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Directory of the files; default: ./deploy-NAME."),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Write into a directory that is not empty. Files of an earlier run that this run does not write are "
            "removed.",
        ),
    ] = False,
    image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="The server's image, built from docker/Dockerfile.", rich_help_panel=_WHERE),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Where the cluster finds the repository's root: pvc://CLAIM[/FOLDER]; for KServe any URI that it "
            "supports.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="The namespace in the cluster.", rich_help_panel=_WHERE)
    ] = "default",
    service: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the service in the cluster; default: the entry's name.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    service_account: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="An existing service account; default: a new one without permissions.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    pull_secret: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The secret for the image's registry.", rich_help_panel=_WHERE),
    ] = None,
    device: Annotated[
        Device | None,
        typer.Option(
            metavar="cpu|gpu",
            help="Device that replicas compute on; default: the one that `compare` measured.",
            rich_help_panel=_SIZE,
        ),
    ] = None,
    gpu_resource: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The cluster's resource name of a GPU, or of a share of one; default: nvidia.com/gpu.",
            rich_help_panel=_SIZE,
        ),
    ] = None,
    memory_mib: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="MIB",
            help="Memory of the server with all its models; by default a server is started here and measured.",
            rich_help_panel=_SIZE,
        ),
    ] = None,
    comparison: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The report of `compare`; default: ./comparison-NAME.", rich_help_panel=_SCALING
        ),
    ] = None,
    p99_ms: Annotated[
        float | None,
        typer.Option(
            metavar="MS", help="The limit of the p99 latency; default: the comparison's.", rich_help_panel=_SCALING
        ),
    ] = None,
    requests_per_s: Annotated[
        float | None,
        typer.Option(
            metavar="R",
            help="Requests per second for one replica, instead of a comparison.",
            rich_help_panel=_SCALING,
        ),
    ] = None,
    min_replicas: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Smallest number of replicas; default: 1.", rich_help_panel=_SCALING),
    ] = None,
    max_replicas: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Largest number of replicas; default: 4.", rich_help_panel=_SCALING),
    ] = None,
    prometheus: Annotated[
        str, typer.Option(metavar="URL", help="URL of Prometheus, which KEDA queries.", rich_help_panel=_SCALING)
    ] = "http://prometheus-operated.monitoring.svc:9090",
) -> None:
    """Write the files that deploy a repository for an entry, for KServe, Kubernetes or Docker Compose.

    Memory is measured by a Triton server that is started here on the repository, instances are those of config.pbtxt,
    and the autoscaler's thresholds are what `compare` measured at its latency limit. Without a comparison there is one
    replica. Each number is printed with its source, and the files repeat both.

    Examples:
        triton-regressors deploy demand --for compose --output deploy
        triton-regressors deploy demand --for kserve --image r/s:1 --storage s3://b/m
        triton-regressors deploy demand --for kubernetes --image s:1 --storage pvc://m
    """
    with loading():
        from triton_regressors import deployment
        from triton_regressors.clients.server.entries import read_config
        from triton_regressors.deploy.output_directory import write
    directory = output or Path(f"deploy-{name}")
    configs = _configs(repository, name, read_config)
    if platform is not Platform.compose:
        for option, value in (("--image", image), ("--storage", storage)):
            if value is None:
                raise TritonRegressorsError(f"--for {platform.value} needs {option}; see `deploy --help`.")
    report = comparison or Path(f"comparison-{name}")
    gpu, why = _device(configs, device, report)
    where = deployment.Number("device", "GPU" if gpu else "CPU", why)
    numbers: list[Number] = []
    scaling = None
    if platform is Platform.compose:
        if gpu_resource is not None:
            raise TritonRegressorsError("--gpu-resource is Kubernetes' name of a GPU; leave it out with --for compose.")
    else:
        called = service or deployment.service_name(name)
        access = deployment.Access(service_account, pull_secret)
        resource = gpu_resource or deployment.GPU_RESOURCE
        deployment.check_names(name, called, namespace, prometheus, access, resource)
        least, most = min_replicas or 1, max_replicas or deployment.DEFAULT_MOST
        if least > most:
            raise TritonRegressorsError(f"--min-replicas {least} is more than --max-replicas {most}.")
        asked = [comparison, p99_ms, min_replicas, max_replicas] != [None] * 4
        scale = functools.partial(deployment.Scaling, least, most, prometheus)
        scaling = _scaling(name, configs[name], report, p99_ms, requests_per_s, gpu, asked, numbers, scale)
    resources = _resources(configs, repository, memory_mib, gpu, numbers)
    if platform is Platform.compose:
        files = deployment.compose_files(
            repository=repository,
            image=image or deployment.IMAGE,
            gpu=gpu,
            resources=resources,
            numbers=[each for each in numbers if each.name != "cpu"],
        )
    else:
        files = deployment.manifests(
            "kserve" if platform is Platform.kserve else "plain",
            entry=name,
            service=called,
            namespace=namespace,
            image=str(image),
            storage=str(storage),
            gpu=gpu,
            resources=resources,
            scaling=scaling,
            numbers=numbers,
            gpu_resource=resource,
            access=access,
        )
    removed, changed = write(files, directory, overwrite)
    console = Console()
    for name in removed:
        console.print(
            Text(f"Removed {directory / name}: an earlier run wrote it, and this run does not."), soft_wrap=True
        )
    for name in changed:
        told = f"Kept {directory / name}: an earlier run wrote it, this run does not, and it has changed since."
        console.print(Text(told, "yellow"), soft_wrap=True)
    _report(platform, directory, [where, *numbers], scaling, gpu, str(storage))


def _configs(repository: Path, name: str, read_config: Any) -> dict[str, Any]:
    """Return the configuration of every model in the repository, which must hold the named one."""
    if not repository.is_dir():
        raise TritonRegressorsError(f"There is no model repository {repository}; give --repository.")
    found = {path.parent.name: read_config(path.parent) for path in sorted(repository.glob("*/config.pbtxt"))}
    if found.get(name) is None:
        known = ", ".join(found) or "none"
        raise TritonRegressorsError(f"{repository} has no entry {name!r} with a config.pbtxt to read; it has {known}.")
    return {each: config for each, config in found.items() if config is not None}


def _device(configs: dict[str, Any], device: Device | None, report: Path) -> tuple[bool, str]:
    """Return whether replicas have a GPU, and the source of this decision."""
    with loading():
        from triton_regressors.clients.compare.figures.threshold import read_processors
        from triton_regressors.deploy.manifests import needs_gpu, uses_gpu
    fixed = [name for name, config in configs.items() if needs_gpu(config)]
    if device is Device.cpu and fixed:
        raise TritonRegressorsError(f"--device cpu: config.pbtxt of {fixed[0]!r} has instances on a GPU (KIND_GPU).")
    if not any(map(uses_gpu, configs.values())):
        if device is Device.gpu:
            raise TritonRegressorsError("--device gpu: every config.pbtxt has all instances on the CPU (KIND_CPU).")
        return False, "every config.pbtxt has its instances there"
    measured = read_processors(report)
    if device is not None:
        other = measured is not None and measured.startswith("CPU" if device is Device.gpu else "GPU")
        again = f"; {report} was measured on {measured}, so compare again" if other else ""
        return device is Device.gpu, f"as given by --device{again}"
    if fixed:
        return True, f"config.pbtxt of {fixed[0]} has its instances there"
    if measured is not None and measured.startswith(("CPU", "GPU")):
        return "GPU" in measured, f"as compared on {measured}"
    return True, "assumed, because config.pbtxt allows both; --device cpu chooses the other"


def _scaling(
    name: str,
    config: Any,
    report: Path,
    p99_ms: float | None,
    requests_per_s: float | None,
    gpu: bool,
    asked: bool,
    numbers: list[Number],
    scale: Callable[[float, float | None], Scaling],
) -> Scaling | None:
    """Return the result of `scale` for the thresholds, and add these to the numbers.

    Without a comparison the result is None, or an error if scaling was asked for.
    """
    with loading():
        from triton_regressors import deployment
        from triton_regressors.clients.compare.figures.threshold import read_capacity
    of_rate, of_queue = deployment.THRESHOLDS
    if requests_per_s is not None:
        if not 0 < requests_per_s < float("inf"):
            raise TritonRegressorsError(f"--requests-per-s is {requests_per_s}; accepted: a number above 0.")
        rate, waiting, source = requests_per_s, None, "as given by --requests-per-s"
    elif report.exists():
        found = read_capacity(report, name, config, p99_ms)
        rate, waiting = SHARE * found.requests_per_s, found.waiting and SHARE * found.waiting
        source = f"{SHARE:.0%} of what was measured: {found.text()}"
        if gpu and found.measured_on == "CPU":
            source += "; replicas use a GPU, so compare again on one"
        if not found.reached:
            source += (
                "; every measured load kept the limit, so a comparison with more --concurrency may find a higher rate"
            )
    elif asked:
        raise TritonRegressorsError(
            f"The autoscaler's thresholds come from a comparison, and there is no {report}. Make it with "
            f"`triton-regressors compare {name} --p99-ms MS --apply`, or give --requests-per-s."
        )
    else:
        return None
    if waiting is not None and waiting < deployment.LEAST_WAITING:
        waiting = None  # random variation would add replicas
    numbers.append(deployment.Number(of_rate, deployment.threshold(rate), source))
    if waiting is not None:
        numbers.append(deployment.Number(of_queue, deployment.threshold(waiting), "the same share, at the same load"))
    return scale(rate, waiting)


def _resources(
    configs: dict[str, Any], repository: Path, memory_mib: int | None, gpu: bool, numbers: list[Number]
) -> Resources:
    """Return a replica's resources, and add their sources to the numbers."""
    with loading():
        from triton_regressors import deployment
        from triton_regressors.deploy import server_memory
    instances = sum(map(deployment.instances_of, configs.values()))
    several = f"{instances} instance{'s' * (instances != 1)} in config.pbtxt of {', '.join(configs)}"
    if memory_mib is not None:
        used = memory_mib * deployment.MIB
        source = "as given by --memory-mib"
    else:
        require("serve", "The Triton server whose memory is measured (--memory-mib gives it instead)")
        with Console(stderr=True).status("measuring the memory of a Triton server with the repository"):
            found = server_memory.measure(repository)
        assumed = gpu and not found.gpu
        used = found.total(deployment.GPU_PROCESS_MIB * deployment.MIB if assumed else 0)
        source = (
            f"measured here: {found.total() / deployment.MIB:,.0f} MiB of a Triton server with "
            f"{len(found.instances)} process{'es' * (len(found.instances) != 1)} of models"
        )
        if assumed:
            source += f", on a CPU; assumed: {deployment.GPU_PROCESS_MIB} MiB for each on a GPU"
    resources = deployment.resources_of(used, instances)
    numbers += [
        deployment.Number("memory request", f"{resources.memory_mib} MiB", source),
        deployment.Number(
            "memory limit",
            f"{resources.memory_limit_mib} MiB",
            f"{deployment.HEADROOM} times the measured memory, and {deployment.INSTANCE_SHARED_MIB} MiB of shared "
            "memory for each instance",
        ),
        deployment.Number(
            "shared memory",
            f"{resources.shared_mib} MiB",
            f"assumed: {deployment.INSTANCE_SHARED_MIB} MiB for each of {several}, 1024 at least",
        ),
        deployment.Number(
            "cpu",
            f"{resources.cpu}, at most {resources.cpu_limit}",
            f"assumed: one for each of {several} and one for the server",
        ),
    ]
    return resources


def _report(
    platform: Platform, directory: Path, numbers: list[Number], scaling: Scaling | None, gpu: bool, storage: str
) -> None:
    """Print the written directory, the source of each number, and the next commands."""
    from triton_regressors.deploy.manifests import Number

    console = Console(highlight=False)
    console.print(Text(f"Wrote {directory}."), soft_wrap=True)
    if scaling is not None:
        given = "by --min-replicas and --max-replicas"
        numbers = [
            *numbers,
            Number("replicas", f"{scaling.least} to {scaling.most}", given),
            Number("Prometheus", scaling.prometheus, "by --prometheus; not queried from here"),
        ]
    elif platform is not Platform.compose:
        why = "there is no comparison to scale by; run `compare`, or give --requests-per-s"
        numbers = [*numbers, Number("replicas", "1", why)]
    for number in numbers:
        console.print(Text.assemble((f"  {number.name} ", "bold"), f"{number.value}: {number.source}"), soft_wrap=True)
    console.print("Next:", style="bold")
    if platform is Platform.compose:
        steps = [
            "export TRITON_ADMIN_KEY=$(openssl rand -hex 32) GRAFANA_ADMIN_PASSWORD=$(openssl rand -hex 16)",
            f"cd {directory} && docker compose up --detach --wait",
        ]
    else:
        one = f"{directory}/overlays/{'gpu' if gpu else 'cpu'}"
        steps = [
            f"copy the repository to {storage}",
            f"kubectl apply -k {one}   # one replica",
        ]
        if scaling is not None:
            scaled = f"{directory}/overlays/autoscaled"
            steps.append(f"kubectl apply -k {scaled}   # scaled by KEDA and Prometheus")
            if storage.startswith("pvc:"):
                console.print(
                    Text(f"  the volume of {storage} must let several nodes read it (ReadOnlyMany or ReadWriteMany)"),
                    soft_wrap=True,
                )
    for step in steps:
        console.print(Text(f"  {step}"), soft_wrap=True)
