"""`deploy`: what it writes is what kustomize and Compose read, with the numbers that it says, and what it refuses."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

from tests.clients.compare.figures.test_threshold import queued
from tests.servers import triton_server
from triton_regressors import export
from triton_regressors.__main__ import make_app
from triton_regressors.clients.compare.batching import BatchingConfiguration
from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.figures.results import Point
from triton_regressors.clients.compare.load.generator import Load
from triton_regressors.clients.compare.report.report import as_json
from triton_regressors.deploy.manifests import DOCKER, resources_of, service_name
from triton_regressors.deploy.server_memory import Resident, ServingMemory, family, measure, resident
from triton_regressors.errors import TritonRegressorsError

CONFIG = 'name: "{name}" backend: "python" max_batch_size: 8 instance_group [ {{ kind: {kind} count: {count} }} ]'
CLUSTER = ("--image", "reg.example:5000/team/server:26.09", "--storage", "pvc://models/prod", "--requests-per-s", "2.5")
MEMORY = ("--memory-mib", "900")


def repository(folder: Path, kind: str = "KIND_AUTO") -> Path:
    for name, count in (("demand_2", 9), ("other", 1)):
        (folder / "models" / name).mkdir(parents=True)
        (folder / "models" / name / "config.pbtxt").write_text(CONFIG.format(name=name, kind=kind, count=count))
    return folder / "models"


def deploy(folder: Path, *arguments: str, models: Path | None = None) -> Any:
    path = models or repository(folder)
    words = ["deploy", "demand_2", "--repository", str(path), "--output", str(folder / "out"), *arguments]
    return CliRunner().invoke(make_app(), words)


def build(overlay: Path) -> dict[str, Any]:
    """Return kustomize's output for an overlay, by kind."""
    program = shutil.which("kubectl") or shutil.which("kustomize")
    if program is None:
        pytest.skip("neither kubectl nor kustomize is installed")
    words = [program, "kustomize" if program.endswith("kubectl") else "build", str(overlay)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}


def for_kubernetes(folder: Path) -> Any:
    done = deploy(folder, "--for", "kubernetes", *CLUSTER, *MEMORY, "--namespace", "team", "--max-replicas", "7")
    assert done.exit_code == 0, done.exception
    return done


def for_kserve_on_cpus(folder: Path) -> Any:
    storage = ("--storage", "s3://bucket/house_prices", "--service", "demand", "--min-replicas", "2")
    done = deploy(folder, "--for", "kserve", *CLUSTER, *MEMORY, *storage, models=repository(folder, "KIND_CPU"))
    assert done.exit_code == 0, done.exception
    return done


def test_for_kubernetes(tmp_path: Path) -> None:
    done = for_kubernetes(tmp_path)
    for words in ("requests/s of a replica 2.5: as given by --requests-per-s",
                  "memory request 1024 MiB: as given by --memory-mib",
                  "memory limit 2816 MiB: 1.5 times", "cpu 11, at most 22: assumed: one for each of 10 instances",
                  f"kubectl apply -k {tmp_path}/out/overlays/gpu "):  # fmt: skip
        assert words in done.stdout
    text = "".join(path.read_text() for path in (tmp_path / "out").rglob("*.yaml"))
    assert not re.search("house.prices|example's values", text)
    for written in ('{cpu: "11", memory: 1024Mi}', '{cpu: "22", memory: 2816Mi}', ': "2.5"', "maxReplicaCount: 7"):
        assert written in text


def test_for_kubernetes_as_kustomize_builds_it(tmp_path: Path) -> None:
    for_kubernetes(tmp_path)
    found = build(tmp_path / "out/overlays/autoscaled")
    assert {each["metadata"]["namespace"] for each in found.values()} == {"team"}
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    assert server["image"] == pod["initContainers"][0]["image"] == "reg.example:5000/team/server:26.09"
    assert server["resources"] == {
        "requests": {"cpu": "11", "memory": "1024Mi"},
        "limits": {"cpu": "22", "memory": "2816Mi", "nvidia.com/gpu": "1"},
    }
    assert server["readinessProbe"]["exec"]["command"][-1] == "ready"
    (models,) = [mount for mount in server["volumeMounts"] if mount["name"] == "models"]
    assert models == {"name": "models", "mountPath": "/mnt/models", "subPath": "prod", "readOnly": True}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1280Mi"}
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == "models"
    scaled = found["ScaledObject"]["spec"]
    assert (scaled["scaleTargetRef"]["name"], scaled["maxReplicaCount"]) == ("demand-2", 7)
    (trigger,) = scaled["triggers"]  # of the queue nothing is known
    assert trigger["metadata"]["threshold"] == "2.5"
    assert '{job="team/demand-2",model="demand_2"}' in trigger["metadata"]["query"]
    assert found["PodDisruptionBudget"]["spec"]["selector"] == found["Deployment"]["spec"]["selector"]
    for constraint in pod["topologySpreadConstraints"]:
        assert constraint["labelSelector"] == found["Deployment"]["spec"]["selector"]
    assert pod["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"] == "demand-2"
    assert found["ServiceAccount"]["automountServiceAccountToken"] is False
    assert "imagePullSecrets" not in pod


def test_for_kserve_on_cpus(tmp_path: Path) -> None:
    done = for_kserve_on_cpus(tmp_path)
    assert f"kubectl apply -k {tmp_path}/out/overlays/cpu " in done.stdout
    text = "".join(path.read_text() for path in (tmp_path / "out").rglob("*.yaml"))
    for written in ("storageUri: s3://bucket/house_prices", '{cpu: "22", memory: 2816Mi}', "minReplicas: 2"):
        assert written in text


def test_for_kserve_as_kustomize_builds_it(tmp_path: Path) -> None:
    for_kserve_on_cpus(tmp_path)
    found = build(tmp_path / "out/overlays/autoscaled")
    predictor = found["InferenceService"]["spec"]["predictor"]
    assert predictor["model"]["storageUri"] == "s3://bucket/house_prices"
    assert predictor["model"]["runtime"] == found["ServingRuntime"]["metadata"]["name"] == "demand"
    assert predictor["model"]["resources"]["limits"] == {"cpu": "22", "memory": "2816Mi"}
    assert found["ServingRuntime"]["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] == "1280Mi"
    (metric,) = predictor["autoScaling"]["metrics"]
    assert metric["external"]["target"] == {"type": "Value", "value": "2.5"}
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (2, 4)
    assert found["InferenceService"]["metadata"]["annotations"]["serving.kserve.io/autoscalerClass"] == "keda"
    alone = build(tmp_path / "out/overlays/gpu")["InferenceService"]
    assert alone["metadata"]["annotations"]["serving.kserve.io/autoscalerClass"] == "none"


def compared(folder: Path, runs_on: str, queue_ms: float = 2.0) -> Path:
    """A report of a comparison of demand_2, as `repository` has it: 1,000 requests/s within the limit."""
    own = BatchingConfiguration("own", dynamic_batching=False, instances=9)
    points = [
        Point(own, Load("grpc", 1, concurrency=clients), queued(rate, p99, queue_ms), None)
        for clients, rate, p99 in ((1, 400, 1), (8, 1000, 4), (16, 1100, 9))
    ]
    comparison = Comparison("demand_2", points, planned=3, p99_ms=5.0, environment={"runs_on": runs_on})
    (folder / "comparison.json").write_text(as_json(comparison))
    return folder


@pytest.mark.parametrize("platform", ["kubernetes", "kserve"])
@pytest.mark.parametrize(
    ("queue_ms", "waiting"), [(2.0, "1.6"), (0.001, None), (float("nan"), None)], ids=["queue", "tiny", "unknown"]
)
def test_replicas_follow_the_requests_and_the_queue_adds_to_them(
    tmp_path: Path, platform: str, queue_ms: float, waiting: str | None
) -> None:
    report = compared(tmp_path, "CPU", queue_ms)
    done = deploy(tmp_path, "--for", platform, *CLUSTER[:4], *MEMORY, "--comparison", str(report))
    assert done.exit_code == 0, done.exception
    assert "requests/s of a replica 800: 80% of what was measured: 1,000 requests/s at p99 4 ms" in done.stdout
    scaling = yaml.safe_load((tmp_path / "out/overlays/autoscaled/scaling.yaml").read_text())
    if platform == "kubernetes":
        asked = [each["metadata"] for each in scaling["spec"]["triggers"]]
        found = [(each["query"], each["threshold"]) for each in asked]
        behavior = scaling["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    else:
        of = scaling["spec"]["predictor"]["autoScaling"]
        found = [(each["external"]["metric"]["query"], each["external"]["target"]["value"]) for each in of["metrics"]]
        behavior = of["behavior"]
    labels = '{job="default/demand-2",model="demand_2"}'
    of_rate, *of_queue = found
    assert of_rate == (f"sum(rate(nv_inference_request_success{labels}[1m]))", "800")
    assert of_queue == ([(f"sum(rate(nv_inference_queue_duration_us{labels}[30s]))/1e6", waiting)] if waiting else [])
    assert behavior == {"scaleUp": {"stabilizationWindowSeconds": 0}, "scaleDown": {"stabilizationWindowSeconds": 300}}


@pytest.mark.parametrize("platform", ["kubernetes", "kserve"])
def test_without_a_comparison_there_is_one_replica(tmp_path: Path, platform: str) -> None:
    done = deploy(tmp_path, "--for", platform, *CLUSTER[:4], *MEMORY)
    assert done.exit_code == 0, done.exception
    assert "replicas 1: there is no comparison to scale by" in done.stdout
    assert not (tmp_path / "out/overlays/autoscaled").exists()
    assert "autoscaled" not in done.stdout
    build(tmp_path / "out/overlays/gpu")


@pytest.mark.parametrize(
    ("kind", "runs_on", "arguments", "says", "gpu"),
    [
        ("KIND_AUTO", "CPU", (), "device CPU: as compared on CPU", False),
        ("KIND_AUTO", "GPU 0", (), "device GPU: as compared on GPU 0", True),
        (
            "KIND_AUTO",
            "CPU",
            ("--device", "gpu"),
            "as given by --device; .* on CPU, so compare again",
            True,
        ),
        ("KIND_AUTO", "GPU 0", ("--device", "cpu"), "as given by --device; .* on GPU 0, so compare again", False),
        ("KIND_AUTO", None, (), "device GPU: assumed, because config.pbtxt allows both", True),
        ("KIND_GPU", None, (), "device GPU: config.pbtxt of demand_2 has its instances there", True),
        ("KIND_CPU", None, (), "device CPU: every config.pbtxt has its instances there", False),
    ],
)
@pytest.mark.parametrize("platform", ["kubernetes", "kserve", "compose"])
def test_replicas_compute_on_what_was_compared(
    tmp_path: Path, platform: str, kind: str, runs_on: str | None, arguments: tuple[str, ...], says: str, gpu: bool
) -> None:
    if runs_on is not None:
        arguments += ("--comparison", str(compared(tmp_path, runs_on)))
    elif platform != "compose":
        arguments += CLUSTER[4:]
    models = repository(tmp_path, kind)
    done = deploy(tmp_path, "--for", platform, *CLUSTER[:4], *MEMORY, *arguments, models=models)
    assert done.exit_code == 0, done.exception
    assert re.search(says, done.stdout)
    if platform == "compose":
        server = yaml.safe_load((tmp_path / "out/compose.yaml").read_text())["services"]["triton-server"]
        assert ("reservations" in server["deploy"]["resources"]) == gpu
    else:
        assert f"out/overlays/{'gpu' if gpu else 'cpu'} " in done.stdout
        text = (tmp_path / "out/overlays/autoscaled/kustomization.yaml").read_text()
        assert ("../../gpu" in text) == gpu


@pytest.mark.parametrize(
    ("kind", "device", "says"), [("KIND_GPU", "cpu", "'demand_2' has instances on a GPU"), ("KIND_CPU", "gpu", "CPU")]
)
def test_a_device_that_the_entry_does_not_have_is_refused(tmp_path: Path, kind: str, device: str, says: str) -> None:
    done = deploy(tmp_path, "--for", "compose", *MEMORY, "--device", device, models=repository(tmp_path, kind))
    assert isinstance(done.exception, TritonRegressorsError)
    assert str(done.exception).startswith(f"--device {device}: ")
    assert says in str(done.exception)


@pytest.mark.parametrize("platform", ["kubernetes", "kserve"])
@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"])
def test_a_share_of_a_gpu_an_account_and_a_pull_secret_have_the_clusters_names(
    tmp_path: Path, platform: str, name: str
) -> None:
    options = ("--gpu-resource", name, "--service-account", "scorer", "--pull-secret", "registry.key")
    done = deploy(tmp_path, "--for", platform, *CLUSTER, *MEMORY, *options)
    assert done.exit_code == 0, done.exception
    found = build(tmp_path / "out/overlays/gpu")
    assert "ServiceAccount" not in found
    if platform == "kubernetes":
        pod = found["Deployment"]["spec"]["template"]["spec"]
        limits = pod["containers"][0]["resources"]["limits"]
    else:
        pod = found["InferenceService"]["spec"]["predictor"]
        limits = pod["model"]["resources"]["limits"]
    assert [each for each in limits if "nvidia" in each] == [name]
    assert (pod["serviceAccountName"], pod["imagePullSecrets"]) == ("scorer", [{"name": "registry.key"}])


def test_a_volume_for_several_replicas_must_be_readable_from_several_nodes(tmp_path: Path) -> None:
    done = for_kubernetes(tmp_path)
    assert (
        "the volume of pvc://models/prod must let several nodes read it (ReadOnlyMany or ReadWriteMany)" in done.stdout
    )


@pytest.mark.parametrize("kind", ["KIND_AUTO", "KIND_CPU"])
def test_for_compose(tmp_path: Path, kind: str) -> None:
    models = repository(tmp_path, kind)
    done = deploy(tmp_path, "--for", "compose", *MEMORY, "--image", "reg/server:1", models=models)
    assert done.exit_code == 0, done.exception
    values = dict(line.split("=") for line in (tmp_path / "out/.env").read_text().splitlines() if line[0] != "#")
    assert values == {"MODEL_REPOSITORY": f"'{models}'", "MEMORY_LIMIT": "2816m", "SHARED_MEMORY": "1280m"}
    compose = yaml.safe_load((tmp_path / "out/compose.yaml").read_text())
    assert set(compose["services"]) == {"triton-server", "prometheus", "grafana"}
    server = compose["services"]["triton-server"]
    assert (server["image"], "build" in server) == ("reg/server:1", False)
    assert ("reservations" in server["deploy"]["resources"]) == (kind == "KIND_AUTO")
    mounted = [volume for service in ("prometheus", "grafana") for volume in compose["services"][service]["volumes"]]
    for source in (volume.partition(":")[0] for volume in mounted if volume.startswith("./")):
        assert (tmp_path / "out" / source).exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--for", "kserve", "--image", "a:1"), "--for kserve needs --storage"),
        (
            ("--for", "kubernetes", *CLUSTER[:4], "--max-replicas", "7"),
            "there is no .*comparison-demand_2. Make it with `triton-regressors compare demand_2 --p99-ms",
        ),
        (("--for", "kubernetes", *CLUSTER, "--storage", "s3://b/m"), "it must be a volume: pvc://CLAIM"),
        (("--for", "kserve", *CLUSTER, "--storage", "/srv/models"), "accepted: the URI of the repository's root"),
        (("--for", "kserve", *CLUSTER, "--image", "reg:5000/server"), "has no tag"),
        (("--for", "kserve", *CLUSTER, "--requests-per-s", "0"), "--requests-per-s is 0.0; accepted: a number above 0"),
        (("--for", "kserve", *CLUSTER, "--gpu-resource", "gpu"), "--gpu-resource is 'gpu'; accepted: the name"),
        (("--for", "kserve", *CLUSTER, "--pull-secret", "My key"), "--pull-secret is 'My key'; accepted: lowercase"),
        (("--for", "compose", "--gpu-resource", "nvidia.com/gpu"), "leave it out with --for compose"),
        (("--for", "kserve", *CLUSTER, "--service", "2nd"), "The service cannot be called '2nd'"),
        (("--for", "kserve", *CLUSTER, "--namespace", "My team"), "The namespace cannot be called 'My team'"),
        (
            ("--for", "kserve", *CLUSTER, "--prometheus", "prometheus:9090"),
            "--prometheus is 'prometheus:9090'; accepted",
        ),
        (("--for", "kserve", *CLUSTER, "--min-replicas", "9"), "--min-replicas 9 is more than --max-replicas 4"),
        (("--for", "compose", "--repository", "/nowhere"), "There is no model repository /nowhere"),
    ],
)
def test_what_it_cannot_know_it_refuses(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    done = deploy(tmp_path, *MEMORY, *arguments)
    assert isinstance(done.exception, TritonRegressorsError)
    assert re.search(says, str(done.exception))
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    models = repository(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    done = deploy(tmp_path, "--for", "compose", *MEMORY, models=models)
    assert str(done.exception).endswith("is not empty; give another --output, or --overwrite.")
    assert deploy(tmp_path, "--for", "compose", *MEMORY, "--overwrite", models=models).exit_code == 0
    assert (tmp_path / "out/mine").exists()


def test_what_a_former_run_wrote_and_this_one_does_not_is_removed(tmp_path: Path) -> None:
    models, out = repository(tmp_path), tmp_path / "out"
    rates = ("--for", "kubernetes", *CLUSTER, *MEMORY)
    assert deploy(tmp_path, *rates, models=models).exit_code == 0
    scaled = out / "overlays/autoscaled"
    (out / "overlays/mine").mkdir()
    (out / "overlays/mine/kustomization.yaml").write_text("resources: [../gpu]\n")
    assert (scaled / "scaling.yaml").is_file()
    once = ("--for", "kubernetes", *CLUSTER[:4], *MEMORY, "--overwrite", "--service-account", "team")
    done = deploy(tmp_path, *once, models=models)
    assert done.exit_code == 0, done.exception
    assert not scaled.exists()
    assert not (out / "base/serviceaccount.yaml").exists()
    assert (out / "overlays/mine/kustomization.yaml").read_text() == "resources: [../gpu]\n"
    assert f"Removed {scaled / 'scaling.yaml'}: an earlier run wrote it, and this run does not." in done.output
    assert deploy(tmp_path, *rates, "--overwrite", models=models).exit_code == 0
    (scaled / "scaling.yaml").write_text("mine: now\n")
    for _ in range(2):  # it is told each time
        done = deploy(tmp_path, *once, models=models)
        assert "scaling.yaml: an earlier run wrote it, this run does not, and it has changed since." in done.output
        assert [path.name for path in scaled.iterdir()] == ["scaling.yaml"]


@pytest.mark.parametrize("listed", ["[]", "{", '{"../mine": "DIGEST", "base/up/mine": "DIGEST", "mine": 1}'])
def test_a_list_that_is_not_a_former_runs_removes_nothing(tmp_path: Path, listed: str) -> None:
    models, out = repository(tmp_path), tmp_path / "out"
    (out / "base").mkdir(parents=True)
    (out / "base/up").symlink_to(tmp_path)
    for path in (tmp_path / "mine", out / "mine"):
        path.write_text("mine")
    digest = hashlib.sha256(b"mine").hexdigest()
    (out / ".triton-regressors-deploy.json").write_text(listed.replace("DIGEST", digest))
    assert deploy(tmp_path, "--for", "compose", *MEMORY, "--overwrite", models=models).exit_code == 0
    assert (tmp_path / "mine").exists()
    assert (out / "mine").exists()


def test_names_and_sizes() -> None:
    assert service_name("House_prices.v2") == "house-prices-v2"
    found = resources_of(300 * 2**20, 12)
    assert (found.cpu, found.memory_mib, found.memory_limit_mib, found.shared_mib) == (13, 512, 2048, 1536)
    assert (DOCKER / "kubernetes/plain/base").is_dir()


def test_memory_counts_what_is_shared_once() -> None:
    memory = ServingMemory(Resident(100, 50, 7), [Resident(200, 80, 5), Resident(300, 80, 5)], gpu=False)
    assert memory.total() == 100 + 200 + 300 + 80 + 7
    assert memory.total(least=250) == memory.total() + 50


def test_processes_are_found_with_their_children() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        found = family(os.getpid())
        assert found[0] == os.getpid()
        assert child.pid in found
        assert resident(os.getpid()).own > 10 * 2**20 > resident(child.pid).own
    finally:
        child.kill()
        child.wait()
    with pytest.raises(TritonRegressorsError, match=f"The memory of process {child.pid} cannot be read: No such file"):
        resident(child.pid)


@pytest.mark.server
def test_memory_is_that_of_a_server_with_its_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triton_regressors.clients.server.TritonServer", triton_server)  # which it ends at once
    export(Ridge().fit([[0.0], [1.0]], [0.0, 1.0]), tmp_path, name="ridge", max_batch_size=8)
    found = measure(tmp_path)
    assert len(found.instances) == 1
    assert found.instances[0].own > 50 * 2**20, "it has imported torch"
    assert found.total() > found.instances[0].own + found.server.own
