"""The command `deploy NAME`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from triton_regressors.commands.connection import entry_names
from triton_regressors.commands.lazy_imports import loading
from triton_regressors.defaults import DEFAULT_REPOSITORY
from triton_regressors.errors import TritonRegressorsError
from triton_regressors.extras import require

if TYPE_CHECKING:
    from triton_regressors.deploy.server_memory import ServingMemory
    from triton_regressors.deploy.sizing import Number, Scaling

_WHERE, _SIZE, _SCALING = "Where it runs", "How large a replica is", "Scaling"


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
        from triton_regressors.deploy import manifests, server_memory, sizing
        from triton_regressors.deploy.output_directory import write
    directory = output or Path(f"deploy-{name}")
    configs = sizing.read_configs(repository, name)
    if platform is not Platform.compose:
        for option, value in (("--image", image), ("--storage", storage)):
            if value is None:
                raise TritonRegressorsError(f"--for {platform.value} needs {option}; see `deploy --help`.")
    report = comparison or Path(f"comparison-{name}")
    gpu, why = sizing.choose_device(configs, device and device.value, report)
    scaling = None
    if platform is Platform.compose:
        if gpu_resource is not None:
            raise TritonRegressorsError("--gpu-resource is Kubernetes' name of a GPU; leave it out with --for compose.")
    else:
        called = service or manifests.service_name(name)
        access = manifests.Access(service_account, pull_secret)
        resource = gpu_resource or manifests.GPU_RESOURCE
        manifests.check_names(name, called, namespace, prometheus, access, resource)
        least, most = min_replicas or 1, max_replicas or sizing.DEFAULT_MOST
        if least > most:
            raise TritonRegressorsError(f"--min-replicas {least} is more than --max-replicas {most}.")
        thresholds = sizing.find_thresholds(
            name, configs[name], report, p99_ms=p99_ms, requests_per_s=requests_per_s, gpu=gpu
        )
        if thresholds is not None:
            scaling = sizing.Scaling(least, most, prometheus, thresholds)
        elif [comparison, p99_ms, min_replicas, max_replicas] != [None] * 4:
            raise TritonRegressorsError(
                f"The autoscaler's thresholds come from a comparison, and there is no {report}. Make it with "
                f"`triton-regressors compare {name} --p99-ms MS --apply`, or give --requests-per-s."
            )
    memory: int | ServingMemory
    if memory_mib is not None:
        memory = memory_mib
    else:
        require("serve", "The Triton server whose memory is measured (--memory-mib gives it instead)")
        with Console(stderr=True).status("measuring the memory of a Triton server with the repository"):
            memory = server_memory.measure(repository)
    resources, numbers = sizing.find_resources(configs, memory, gpu=gpu)
    if platform is Platform.compose:
        files = manifests.compose_files(
            repository=repository,
            image=image or manifests.IMAGE,
            gpu=gpu,
            resources=resources,
            numbers=[each for each in numbers if each.name != "cpu"],
        )
    else:
        files = manifests.manifests(
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
    thresholds_used = [] if scaling is None else scaling.thresholds.numbers()
    numbers = [sizing.Number("device", "GPU" if gpu else "CPU", why), *thresholds_used, *numbers]
    _report(platform, directory, numbers, scaling, gpu, str(storage))


def _report(
    platform: Platform, directory: Path, numbers: list[Number], scaling: Scaling | None, gpu: bool, storage: str
) -> None:
    """Print the written directory, the source of each number, and the next commands."""
    from triton_regressors.deploy.sizing import Number

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
