"""What the manifests say, read without a cluster. Against published schemas: test_kubernetes_schemas.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from triton_regressors.deployment import IMAGE

DOCKER = Path(__file__).resolve().parents[2] / "docker"
KUBERNETES = DOCKER / "kubernetes"


def read(path: str) -> Any:
    return yaml.safe_load((KUBERNETES / path).read_text())


POD = read("plain/base/deployment.yaml")["spec"]["template"]["spec"]
RUNTIME = read("kserve/base/runtime.yaml")["spec"]
PREDICTOR = read("kserve/base/inferenceservice.yaml")["spec"]["predictor"]
(SERVER,) = POD["containers"]
SCALED = read("plain/overlays/autoscaled/scaling.yaml")["spec"]["triggers"][0]["metadata"]
(KSERVE_METRIC,) = read("kserve/overlays/autoscaled/scaling.yaml")["spec"]["predictor"]["autoScaling"]["metrics"]


def test_kserves_pod_is_the_other_one_but_for_the_models_which_it_mounts_itself() -> None:
    (container,) = RUNTIME["containers"]
    assert container["name"] == "kserve-container"  # the one that KServe looks for
    mounts = [mount for mount in SERVER["volumeMounts"] if mount["name"] != "models"]
    assert container == {**SERVER, "name": "kserve-container", "volumeMounts": mounts}
    assert RUNTIME["volumes"] == [volume for volume in POD["volumes"] if volume["name"] != "models"]
    assert RUNTIME["volumes"][0]["name"] == "shm"  # the patch of ../entry goes by its place
    rest = {name: value for name, value in POD.items() if name not in ("containers", "volumes")}
    assert {name: PREDICTOR[name] for name in rest} == rest


@pytest.mark.parametrize("container", [SERVER, *POD["initContainers"]], ids=lambda container: container["name"])
def test_container_is_hardened_as_by_compose(container: dict[str, Any]) -> None:
    security = container["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert f"USER {security['runAsUser']}:{security['runAsGroup']}\n" in (DOCKER / "Dockerfile").read_text()


def test_options_are_those_of_the_image_served_from_where_kserve_mounts() -> None:
    (command,) = re.findall(r"(?m)^CMD \[(\"tritonserver.*)\]$", re.sub(r"\\\n\s*", "", dockerfile()).strip())
    own = [word.replace("/models", "/mnt/models") for word in re.findall(r'"([^"]+)"', command)]
    assert SERVER["args"] == own


def dockerfile() -> str:
    return (DOCKER / "Dockerfile").read_text()


def test_ports_probes_and_volumes_fit_each_other_and_the_image() -> None:
    ports = {port["name"]: port["containerPort"] for port in SERVER["ports"]}
    assert list(ports.items()) == [
        ("http", 8000),
        ("grpc", 8001),
        ("metrics", 8002),
    ]  # KServe's Service takes the first
    assert SERVER["startupProbe"]["httpGet"] == {"path": "/v2/health/ready", "port": ports["http"]}
    assert SERVER["readinessProbe"]["httpGet"] == {"path": "/v2/models/house_prices/ready", "port": ports["http"]}
    script = SERVER["livenessProbe"]["exec"]["command"][1]
    assert re.search(rf"COPY docker/probe\.py docker/warm\.py {Path(script).parent}/\n", dockerfile())
    mounted = {mount["mountPath"]: mount["name"] for mount in SERVER["volumeMounts"]}
    assert {"/dev/shm", "/tmp", "/var/cache/kernels", "/mnt/models"} == set(mounted)
    assert set(mounted.values()) == {volume["name"] for volume in POD["volumes"]}
    (kernels,) = POD["initContainers"]
    assert kernels["command"][-2:] == ["/opt/kernels/.", "/var/cache/kernels/"]
    assert "/var/cache/kernels /opt/kernels " in dockerfile()
    assert " /opt/kernels/\n" in (KUBERNETES / "kernels.Dockerfile").read_text()


def test_the_release_is_that_of_compose() -> None:
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    name, _, tag = IMAGE.partition(":")
    assert (
        compose["services"]["triton-server"]["image"] == IMAGE == SERVER["image"] == POD["initContainers"][0]["image"]
    )
    for kind in ("plain", "kserve"):
        assert read(f"{kind}/entry/kustomization.yaml")["images"] == [{"name": name, "newName": name, "newTag": tag}]


def test_metrics_are_read_by_name_and_the_autoscaler_asks_for_what_that_gives() -> None:
    for kind, resource, labels in (
        ("plain", "deployment", read("plain/base/deployment.yaml")["spec"]["template"]["metadata"]["labels"]),
        ("kserve", "inferenceservice", {"serving.kserve.io/inferenceservice": "house-prices"}),
    ):
        monitor = read(f"{kind}/base/podmonitor.yaml")
        assert monitor["spec"]["selector"]["matchLabels"] == labels
        assert [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]] == ["metrics"]
        assert monitor["metadata"]["name"] == read(f"{kind}/base/{resource}.yaml")["metadata"]["name"]
        # The Prometheus Operator calls the job of a PodMonitor NAMESPACE/NAME.
        job = f"{read(f'{kind}/entry/kustomization.yaml')['namespace']}/{monitor['metadata']['name']}"
        query = f'sum(rate(nv_inference_queue_duration_us{{job="{job}",model="house_prices"}}[1m]))/1e6'
        assert query == (SCALED if kind == "plain" else KSERVE_METRIC["external"]["metric"])["query"]
    assert KSERVE_METRIC["external"]["target"] == {"type": "Value", "value": SCALED["threshold"]}
    assert KSERVE_METRIC["external"]["metric"]["serverAddress"] == SCALED["serverAddress"]
