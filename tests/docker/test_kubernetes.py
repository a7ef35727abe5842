"""The contents of the manifests, read without a cluster. Against published schemas: test_kubernetes_schemas.py."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from triton_regressors.deploy.manifests import IMAGE

DOCKER = Path(__file__).resolve().parents[2] / "docker"
KUBERNETES = DOCKER / "kubernetes"


def read(path: str) -> Any:
    return yaml.safe_load((KUBERNETES / path).read_text())


POD = read("plain/base/deployment.yaml")["spec"]["template"]["spec"]
RUNTIME = read("kserve/base/runtime.yaml")["spec"]
PREDICTOR = read("kserve/base/inferenceservice.yaml")["spec"]["predictor"]
(SERVER,) = POD["containers"]
SCALED = read("plain/overlays/autoscaled/scaling.yaml")["spec"]
KSERVE_SCALED = read("kserve/overlays/autoscaled/scaling.yaml")["spec"]["predictor"]
KSERVE_LABEL = "serving.kserve.io/inferenceservice"


def test_kserves_pod_is_the_other_one_but_for_the_models_which_it_mounts_itself() -> None:
    (container,) = RUNTIME["containers"]
    assert container["name"] == "kserve-container"  # the one that KServe looks for
    mounts = [mount for mount in SERVER["volumeMounts"] if mount["name"] != "models"]
    assert container == {**SERVER, "name": "kserve-container", "volumeMounts": mounts}
    assert RUNTIME["volumes"] == [volume for volume in POD["volumes"] if volume["name"] != "models"]
    assert RUNTIME["volumes"][0]["name"] == "shm"  # the patch of ../entry goes by its place
    rest = {name: value for name, value in POD.items() if name not in ("containers", "volumes")}
    found = json.loads(json.dumps({name: PREDICTOR[name] for name in rest}).replace(KSERVE_LABEL, "app"))
    assert found == rest


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
    assert SERVER["args"] == [*own, "--grpc-max-connection-age=10000", "--exit-timeout-secs=30"]


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
    repository = SERVER["args"][1].partition("=")[2]  # as the entries' processes name it in /proc
    for question in ("ready", "live"):
        asked = SERVER["readinessProbe" if question == "ready" else "livenessProbe"]
        _, script, *arguments = asked["exec"]["command"]
        assert arguments == [f"http://127.0.0.1:{ports['http']}", repository, question]
        assert re.search(rf"COPY docker/probe\.py docker/warm\.py {Path(script).parent}/\n", dockerfile())
        assert (
            f'"{question}": {asked["timeoutSeconds"] - (20 if question == "live" else 10):.1f}'
            in (DOCKER / "probe.py").read_text()
        )  # the script prints the fault before it is ended
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


def test_a_pod_that_is_deleted_answers_until_clients_have_left_and_requests_are_done() -> None:
    options = dict(word.lstrip("-").partition("=")[::2] for word in SERVER["args"][1:])
    command, seconds = SERVER["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    assert int(seconds) > 1.1 * int(options["grpc-max-connection-age"]) / 1000 + 5  # gRPC spreads an age by 10 %
    assert POD["terminationGracePeriodSeconds"] > int(seconds) + int(options["exit-timeout-secs"])


def test_a_rollout_waits_longer_than_a_start_may_take() -> None:
    """It has time under KServe too, which leaves a Deployment's progressDeadlineSeconds at 600."""
    startup = SERVER["startupProbe"]
    longest_s = startup["periodSeconds"] * startup["failureThreshold"]
    assert longest_s < 600 < read("plain/base/deployment.yaml")["spec"]["progressDeadlineSeconds"]


@pytest.mark.parametrize(("kind", "label"), [("plain", "app"), ("kserve", KSERVE_LABEL)])
def test_replicas_are_spread_kept_and_known(kind: str, label: str) -> None:
    pod = POD if kind == "plain" else PREDICTOR
    selector = {"matchLabels": {label: "house-prices"}}
    spread = {each["topologyKey"]: each for each in pod["topologySpreadConstraints"]}
    assert set(spread) == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
    assert all(each["labelSelector"] == selector for each in spread.values())
    assert read(f"{kind}/base/poddisruptionbudget.yaml")["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": selector,
    }
    account = read(f"{kind}/base/serviceaccount.yaml")
    assert account["metadata"]["name"] == pod["serviceAccountName"]
    assert account["automountServiceAccountToken"] is pod["automountServiceAccountToken"] is False
    listed = read(f"{kind}/base/kustomization.yaml")["resources"]
    assert sorted(listed) == sorted(
        path.name for path in (KUBERNETES / kind / "base").iterdir() if path.name != "kustomization.yaml"
    )


def test_the_documented_rollout_through_kserve_changes_what_its_controller_keeps() -> None:
    """KServe writes annotations under spec.predictor into the pod, and deletes others' additions to the Deployment."""
    text = (KUBERNETES / "README.md").read_text()
    (patch,) = re.findall(r"kubectl patch inferenceservice \S+ --type merge \\?\s*-p '(.*)'", text)
    (name,) = json.loads(patch)["spec"]["predictor"]["annotations"]
    (written,) = (
        yaml.safe_load(each["patch"])
        for each in read("kserve/entry/kustomization.yaml")["patches"]
        if each["target"]["kind"] == "InferenceService"
    )
    assert name in written["spec"]["predictor"]["annotations"]
    assert not re.search(r"rollout restart deployment/\S*-predictor", text)


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
        labels = f'{{job="{job}",model="house_prices"}}'
        queries = [
            f"sum(rate(nv_inference_request_success{labels}[1m]))",
            f"sum(rate(nv_inference_queue_duration_us{labels}[30s]))/1e6",
        ]
        asked = (
            [each["metadata"] for each in SCALED["triggers"]]
            if kind == "plain"
            else [each["external"]["metric"] for each in KSERVE_SCALED["autoScaling"]["metrics"]]
        )
        assert [each["query"] for each in asked] == queries
    for trigger, metric in zip(SCALED["triggers"], KSERVE_SCALED["autoScaling"]["metrics"], strict=True):
        external = metric["external"]
        assert external["target"] == {"type": "Value", "value": trigger["metadata"]["threshold"]}
        assert external["metric"]["serverAddress"] == trigger["metadata"]["serverAddress"]
        assert trigger["metadata"]["ignoreNullValues"] == "false"
    behavior = SCALED["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior == KSERVE_SCALED["autoScaling"]["behavior"]
