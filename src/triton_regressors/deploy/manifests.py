"""The files of `triton-regressors deploy`: the manifests of docker/, with an entry's own names and numbers in them.

docker/kubernetes/ and docker/compose.yaml are the templates: they hold an example's values, and each value is replaced
in place. A template without the value, because somebody changed one of the two, is an error.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_regressors.errors import TritonRegressorsError

DOCKER = Path(__file__).with_name("docker")
IMAGE = "triton-regressors-server:26.09"
RULES = ("alerts.yaml", "drift.yaml")
"""The rules for Prometheus: files of Compose's Prometheus, and in a cluster the groups of a PrometheusRule."""
COMPOSED = ("compose.yaml", "prometheus.yaml", *RULES)
"""The files of a deployment by Compose, besides Grafana's folder."""
NOTE = "# These are an example's values; `triton-regressors deploy` writes this file from what it measures.\n"
MIB = 2**20
STEP_MIB = 256
HEADROOM = 1.5
"""The factor from measured memory to a container's limit: for requests in flight and for the probes."""
INSTANCE_SHARED_MIB = 128
"""Shared memory of an instance: 64 MB at most for the rows of its largest batch, as exported, and as much again."""
GPU_PROCESS_MIB = 800
"""Memory of a process that uses a GPU, apart from its weights, if not measured on a GPU: docker/README.md."""
_METRIC = re.compile(r"(?<!record: )(?<![\w:])((?:\w+:)?(?:nv|triton_regressors)_\w+(?::\w+)?)(\{?)")
"""A metric of the server, of entries or of a rule in the queries of `RULES`, and the brace that may follow."""
LEAST_WAITING = 0.01
"""Least threshold of the queue, in waiting requests: below it, random variation would add replicas."""
THRESHOLDS = ("requests/s of a replica", "waiting at a replica")
"""Names of the numbers by which replicas are added and removed."""
GPU_RESOURCE = "nvidia.com/gpu"
"""Kubernetes' name of a whole GPU. Nodes that share or divide theirs have others."""
DEFAULT_MOST = 4
"""Most replicas of an autoscaled deployment, unless another number is given."""
_QUEUE = "# The queue.\n"
"""The line of scaling.yaml at which the second trigger begins; it extends to the end of the file."""


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
class Scaling:
    """The limits on the number of replicas, and the load of each replica.

    requests_per_s: requests per second of one replica. waiting: the mean number of requests waiting at one replica,
    above which more replicas are added at once; None: the queue does not count.
    """

    least: int
    most: int
    prometheus: str
    requests_per_s: float
    waiting: float | None


@dataclass(frozen=True)
class Access:
    """A pod's service account (None: an account of its own) and its pull secret for the image's registry."""

    service_account: str | None = None
    pull_secret: str | None = None


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


def service_name(entry: str) -> str:
    """Return the default name of an entry's Kubernetes objects."""
    return entry.lower().replace("_", "-").replace(".", "-")


def check_names(entry: str, service: str, namespace: str, prometheus: str, access: Access, gpu_resource: str) -> None:
    """Raise TritonRegressorsError unless KServe, Kubernetes and the queries take these names and this address."""
    for option, name in (("--service-account", access.service_account), ("--pull-secret", access.pull_secret)):
        if name is not None and not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name):
            raise TritonRegressorsError(
                f"{option} is {name!r}; accepted: lowercase letters, digits, '-' and '.', as Kubernetes names its "
                "objects."
            )
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?", gpu_resource, re.ASCII):
        raise TritonRegressorsError(
            f"--gpu-resource is {gpu_resource!r}; accepted: the name under which a node offers its GPUs, such as "
            f"{GPU_RESOURCE}, nvidia.com/gpu.shared or nvidia.com/mig-1g.10gb."
        )
    if not re.fullmatch(r"[\w.-]+", entry, re.ASCII):
        raise TritonRegressorsError(
            f"The entry {entry!r} cannot be deployed: its name must consist of letters, digits, '_', '.' and '-'."
        )
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", service) or len(service) > 40:
        raise TritonRegressorsError(
            f"The service cannot be called {service!r}: KServe takes at most 40 lowercase letters, digits and "
            "hyphens, a letter first; give another name with --service."
        )
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", namespace) or len(namespace) > 63:
        raise TritonRegressorsError(
            f"The namespace cannot be called {namespace!r}: Kubernetes takes lowercase letters, digits and hyphens."
        )
    if not re.fullmatch(r"https?://[^\s\"'#{}]+", prometheus):
        raise TritonRegressorsError(
            f"--prometheus is {prometheus!r}; accepted: a URL, such as http://prometheus-operated.monitoring.svc:9090."
        )


def manifests(
    kind: str,
    *,
    entry: str,
    service: str,
    namespace: str,
    image: str,
    storage: str,
    gpu: bool,
    resources: Resources,
    scaling: Scaling | None,
    numbers: Sequence[Number],
    gpu_resource: str = GPU_RESOURCE,
    access: Access = Access(),
) -> dict[str, str]:
    """Return the files of docker/kubernetes/`kind` ("plain" or "kserve") for an entry, by their paths.

    entry: its name in the repository. service: the name of Kubernetes' objects. storage: the repository's root, as
    KServe's storageUri; for "plain" it must be pvc://CLAIM[/FOLDER]. gpu: whether scaled replicas have one. scaling:
    None: one replica, and no overlay that scales by requests. numbers: notes at the top of the files that hold them.
    gpu_resource: Kubernetes' name of a replica's GPU, or share of a GPU.

    Raises:
        TritonRegressorsError: an invalid storage or image, or a template without a value to replace.
    """
    folder = DOCKER / "kubernetes" / kind
    texts = {str(path.relative_to(folder)): path.read_text("utf-8") for path in sorted(folder.rglob("*.yaml"))}
    texts["kernels.Dockerfile"] = (DOCKER / "kubernetes" / "kernels.Dockerfile").read_text("utf-8")
    names = {"house-prices": service, "house_prices": entry}
    texts = {path: _replaced(text, names) for path, text in texts.items()}
    of_entry, of_gpu = "entry/kustomization.yaml", "gpu/kustomization.yaml"
    shared = "sizeLimit: " if kind == "plain" else "value: "
    texts[of_entry] = put(
        texts[of_entry],
        {
            NOTE: _notes(each for each in numbers if each.name not in THRESHOLDS),
            "namespace: default\n": f"namespace: {namespace}\n",
            'newName: triton-regressors-server, newTag: "26.09"': _image(image),
            '{cpu: "2", memory: 2048Mi}': f'{{cpu: "{resources.cpu}", memory: {resources.memory_mib}Mi}}',
            '{cpu: "4", memory: 3072Mi}': f'{{cpu: "{resources.cpu_limit}", memory: {resources.memory_limit_mib}Mi}}',
            f"{shared}1024Mi": f"{shared}{resources.shared_mib}Mi",
            **_storage(kind, storage),
        },
    )
    texts[of_gpu] = put(texts[of_gpu], {"nvidia.com~1gpu": gpu_resource.replace("/", "~1")})
    _grant(texts, "base/deployment.yaml" if kind == "plain" else "base/inferenceservice.yaml", service, access)
    autoscaled = [path for path in texts if path.startswith("overlays/autoscaled/")]
    if scaling is None:
        for path in autoscaled:
            del texts[path]
    else:
        _scale(texts, kind, namespace, scaling, [each for each in numbers if each.name in THRESHOLDS])
        if not gpu:
            of_scaled = "overlays/autoscaled/kustomization.yaml"
            texts[of_scaled] = put(texts[of_scaled], {"[../../entry, ../../gpu]": "[../../entry]"})
    of_rules = "base/rules.yaml"
    texts[of_rules] = put(texts[of_rules], {"  groups: []\n": f"  groups:\n{_rules(service, namespace)}"})
    return texts


def _scale(texts: dict[str, str], kind: str, namespace: str, scaling: Scaling, numbers: Sequence[Number]) -> None:
    """Write the numbers of replicas and the thresholds into scaling.yaml, without the queue's if there is none."""
    path = "overlays/autoscaled/scaling.yaml"
    least, most = ("minReplicaCount: ", "maxReplicaCount: ") if kind == "plain" else ("minReplicas: ", "maxReplicas: ")
    values = {
        NOTE: _notes(numbers),
        "http://prometheus-operated.monitoring.svc:9090": scaling.prometheus,
        'job="default/': f'job="{namespace}/',
        ': "500"': f': "{threshold(scaling.requests_per_s)}"',
        f"{least}1": f"{least}{scaling.least}",
        f"{most}4": f"{most}{scaling.most}",
    }
    text = texts[path]
    if scaling.waiting is None:
        text = text[: text.index(_QUEUE)].rstrip() + "\n"
    else:
        values[': "1"'] = f': "{threshold(scaling.waiting)}"'
    texts[path] = put(text, values)


def _grant(texts: dict[str, str], path: str, service: str, access: Access) -> None:
    """Write the service account and the secret for the image's registry into the pod of a file."""
    found = re.search(rf"( *)serviceAccountName: {service}\n", texts[path])
    if found is None:
        raise TritonRegressorsError("A template of this installation has no 'serviceAccountName' to replace.")
    account = f"{found[1]}serviceAccountName: {access.service_account or service}\n"
    if access.pull_secret is not None:
        account += f"{found[1]}imagePullSecrets: [{{name: {access.pull_secret}}}]\n"
    texts[path] = put(texts[path], {found[0]: account})
    if access.service_account is not None:
        of_base = "base/kustomization.yaml"
        texts[of_base] = put(texts[of_base], {"  - serviceaccount.yaml\n": ""})
        del texts["base/serviceaccount.yaml"]


def compose_files(
    *, repository: Path, image: str, gpu: bool, resources: Resources, numbers: Sequence[Number]
) -> dict[str, str]:
    """Return compose.yaml, the files that it mounts, and `.env` with an entry's own values, by their paths.

    Raises:
        TritonRegressorsError: an invalid image or path, or a template without a value to replace.
    """
    _image(image)
    if set("'\n") & set(str(repository.resolve())):
        raise TritonRegressorsError(f"Compose cannot mount {str(repository.resolve())!r}, which has a quote in it.")
    texts = {name: (DOCKER / name).read_text("utf-8") for name in COMPOSED}
    for path in sorted((DOCKER / "grafana").rglob("*.*")):
        texts[str(path.relative_to(DOCKER))] = path.read_text("utf-8")
    text = texts["compose.yaml"]
    start, end = text.index("\n  # Not part of the deployment: `docker compose run"), text.index("\nnetworks:")
    text = text[:start] + text[end:]  # the gallery needs the checkout
    build = "    build:\n      context: ..\n      dockerfile: docker/Dockerfile\n      target: server\n"
    text = put(text, {build: "", f"image: {IMAGE}": f"image: {image}"})
    texts["compose.yaml"] = text if gpu else put(text, {"        reservations: *gpu\n": ""})
    values = {
        "MODEL_REPOSITORY": f"'{repository.resolve()}'",
        "MEMORY_LIMIT": f"{resources.memory_limit_mib}m",
        "SHARED_MEMORY": f"{resources.shared_mib}m",
    }
    texts[".env"] = _notes(numbers) + "".join(f"{name}={value}\n" for name, value in values.items())
    return texts


def put(text: str, values: Mapping[str, str]) -> str:
    """Return a template with values in place of an example's, each of which must stand in it."""
    for old in values:
        if old not in text:
            raise TritonRegressorsError(f"A template of this installation has no {old.strip()!r} to replace.")
    return _replaced(text, values)


def _replaced(text: str, values: Mapping[str, str]) -> str:
    """Return a text with values replaced in one pass, so that inserted text is not searched again."""
    return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], text)


def _up(mib: float) -> int:
    return max(math.ceil(mib / STEP_MIB), 1) * STEP_MIB


def _notes(numbers: Any) -> str:
    """Return comments with the sources of numbers."""
    lines = [line for each in numbers for line in textwrap.wrap(f"{each.name} {each.value}: {each.source}", 117)]
    return "".join(f"# {line}\n" for line in lines)


def _image(image: str) -> str:
    """Return an image's name and its tag or digest in the form of kustomize."""
    if re.search(r"\s|[{}\",]", image) or not image:
        raise TritonRegressorsError(
            f"{image!r} is not the name of an image; give one such as registry.example/server:26.09."
        )
    name, at, digest = image.partition("@")
    if at:
        return f'newName: "{name}", digest: "{digest}"'
    name, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:
        raise TritonRegressorsError(f"The image {image!r} has no tag; a cluster must know which build it starts.")
    return f'newName: "{name}", newTag: "{tag}"'


def _rules(service: str, namespace: str) -> str:
    """Return the groups of `RULES` for a PrometheusRule, restricted to the metrics of one PodMonitor."""
    job = f'job="{namespace}/{service}"'
    text = "\n".join((DOCKER / name).read_text("utf-8").partition("groups:\n")[2] for name in RULES)
    text = _METRIC.sub(lambda found: f"{found[1]}{{{job}{', ' if found[2] else '}'}", text)
    values = {
        'job="triton-server"': job,
        "Docker starts it again if it has ended. See `docker compose ps` and `docker compose logs triton-server`.": (
            f"No replica answers, or Prometheus does not select the PodMonitor {service}. See `kubectl --namespace "
            f"{namespace} get pods` and their logs."
        ),
        "Unload it and load it, with the key; a load alone changes nothing.": (
            "The liveness probe then has Kubernetes start the container again."
        ),
    }
    return textwrap.indent(put(text, values), "  ")


def _storage(kind: str, storage: str) -> dict[str, str]:
    """Return the replacements that set the place of the model repository."""
    if re.search(r"[\s\"{}]", storage) or not re.match(r"[a-z0-9+]+://[^/]", storage):
        raise TritonRegressorsError(
            f"--storage is {storage!r}; accepted: the URI of the repository's root, such as pvc://models or "
            "s3://bucket/models."
        )
    if kind == "kserve":
        return {"storageUri: pvc://models/\n": f"storageUri: {storage}\n"}
    scheme, _, rest = storage.partition("://")
    claim, _, folder = rest.partition("/")
    if scheme != "pvc":
        raise TritonRegressorsError(
            f"--storage is {storage!r}; without KServe nothing downloads a repository, so it must be a volume: "
            "pvc://CLAIM or pvc://CLAIM/FOLDER."
        )
    found = {"claimName: models}": f"claimName: {claim}}}"}
    if folder.strip("/"):
        found["mountPath: /mnt/models}"] = f"mountPath: /mnt/models, subPath: {folder.strip('/')}}}"
    return found
