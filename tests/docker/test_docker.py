"""The contents of deployment files, checked without Docker. Their effect on a Triton server: test_docker_server.py."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
DOCKERFILE = re.sub(r"\\\n\s*", "", (DOCKER / "Dockerfile").read_text())  # continued lines joined
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DASHBOARD = json.loads((DOCKER / "grafana/dashboards/triton-regressors.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ALERTS = [rule for group in yaml.safe_load((DOCKER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
STAGES = dict(re.findall(r"(?ms)^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE))
SERVED = {name: service for name, service in SERVICES.items() if name != "gallery"}

GPU_METRICS = {"nv_gpu_utilization", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes", "nv_gpu_power_usage"}


def metric_names(text: str) -> set[str]:
    return set(re.findall(r"\b(?:nv|triton_regressors)_[a-z_]+", text))


def image_tag(image: str) -> str:
    return image.rpartition("/")[2].partition(":")[2]


# The contents of the files


def test_every_yaml_file_parses() -> None:
    for path in [*DOCKER.rglob("*.yaml"), *DOCKER.rglob("*.yml")]:
        assert isinstance(yaml.safe_load(path.read_text()), dict), path
    assert set(SERVICES) == {"triton-server", "prometheus", "grafana", "gallery"}


def test_every_image_is_pinned_by_a_numbered_tag() -> None:
    images = re.findall(r"(?m)^FROM (\S+)", DOCKERFILE) + [service["image"] for service in SERVICES.values()]
    images = [image for image in images if image not in STAGES]
    assert len(images) == 5
    for image in images:
        assert re.match(r"v?\d+\.\d+", image_tag(image)), f"{image}: a tag that begins with a version is accepted"


def test_the_release_is_the_same_everywhere() -> None:
    (base,) = re.findall(r"(?m)^FROM nvcr\.io/nvidia/tritonserver:(\S+)", DOCKERFILE)
    release = base.removesuffix("-py3")
    assert {image_tag(SERVICES[name]["image"]) for name in ("triton-server", "gallery")} == {release}
    assert f"tritonserver:{base}" in (DOCKER / "README.md").read_text()


def test_the_image_installs_the_four_packages_at_the_versions_that_the_tests_run_with() -> None:
    (install,) = re.findall(r"(?m)^RUN .*pip install (.*)$", STAGES["base"])
    assert "pip install" not in STAGES["server"]
    packages = [word.strip('"') for word in install.partition("--constraint /tmp/constraints.txt")[2].split()]
    assert {package.partition("==")[0] for package in packages} == {"torch", "triton", "safetensors", "numpy"}
    pins = dict(re.findall(r"(?m)^([a-z-]+)==([^;\s]+)", (ROOT / "constraints.txt").read_text()))
    for package in packages:
        name, _, version = package.partition("==")
        assert version or name in pins, f"{name} is pinned neither in the Dockerfile nor in constraints.txt"
        assert not (version and name in pins) or version == pins[name], name
    assert "--mount=type=bind,source=constraints.txt,target=/tmp/constraints.txt" in DOCKERFILE
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert rules == [
        "*",
        "!clients/server/private_arguments.py",
        "!constraints.txt",
        "!docker/probe.py",
        "!docker/warm.py",
    ]


def test_nothing_runs_as_root() -> None:
    last = [re.findall(r"(?m)^USER (\S+)", STAGES[stage])[-1] for stage in ("base", "gallery")]
    assert "USER" not in STAGES["server"]
    users = [service["user"] for service in SERVICES.values() if "user" in service]
    assert len(users) == len(SERVICES) - 2
    assert not [name for name in ("triton-server", "gallery") if "user" in SERVICES[name]]
    for uid in (value.partition(":")[0] for value in [*last, *users]):
        assert int(uid) > 0


def test_every_service_has_a_health_check() -> None:
    (check,) = re.findall(r"(?m)^HEALTHCHECK .*$", STAGES["server"])
    (folder,) = re.findall(r"(?m)^COPY docker/probe\.py docker/warm\.py (\S+)$", DOCKERFILE)
    assert check.endswith(f'CMD ["python3", "{folder}probe.py"]')
    assert list(STAGES)[-1] == SERVICES["triton-server"]["build"]["target"] == "server"  # the target of a plain build
    assert all("healthcheck" in service for name, service in SERVED.items() if name != "triton-server")


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_hardened(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == ("unless-stopped" if name in SERVED else "no")
    assert {"memory", "pids"} <= set(service["deploy"]["resources"]["limits"])
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc"} & set(service)


def test_only_inference_and_grafana_are_published_and_on_loopback_by_default() -> None:
    ports = {port for service in SERVICES.values() for port in service.get("ports", [])}
    default = "${BIND_ADDRESS:-127.0.0.1}"
    assert ports == {f"{default}:8000:8000", f"{default}:8001:8001", "127.0.0.1:3000:3000"}
    assert SERVICES["prometheus"]["networks"] == ["monitoring"]
    assert COMPOSE["networks"]["monitoring"] == {"internal": True}
    for name, service in SERVICES.items():  # Docker publishes no port of a container on internal networks alone
        if service.get("ports"):
            assert not all((COMPOSE["networks"][network] or {}).get("internal") for network in service["networks"]), (
                name
            )


def test_the_gpu_the_shared_memory_and_the_kernel_cache_are_given() -> None:
    server = SERVICES["triton-server"]
    (device,) = server["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert server["shm_size"]
    models, cache = server["volumes"]
    assert models["target"] == "/models"
    assert models["read_only"] is True
    (cache_dir,) = re.findall(r"TRITON_CACHE_DIR=(/var\S+)", DOCKERFILE)
    assert cache_dir.startswith(cache.partition(":")[2] + "/")


def test_the_gallery_is_started_by_name_alone_with_the_gpu_and_writes_results_alone() -> None:
    gallery, server = SERVICES["gallery"], SERVICES["triton-server"]
    assert [name for name, service in SERVICES.items() if "profiles" in service] == ["gallery"]
    assert gallery["build"]["target"] in STAGES
    assert gallery["deploy"]["resources"]["reservations"] == server["deploy"]["resources"]["reservations"]
    repository, *written = gallery["volumes"]
    (path,) = re.findall(r"(?m)^WORKDIR (\S+)$", STAGES["gallery"])
    assert (repository["source"], repository["target"], repository["read_only"]) == ("..", path, True)
    for volume in written:
        source, _, target = volume.partition(":")
        assert source == "kernel-cache" or target == f"{path}/{source.removeprefix('../')}"
        assert source in ("kernel-cache", "../build") or (DOCKER / source).is_dir()
    assert COMPOSE["networks"][gallery["networks"][0]] == {"internal": True}
    (python_path,) = re.findall(r"PYTHONPATH=(\S+)", STAGES["gallery"])
    found = [ROOT / Path(folder).relative_to(path) for folder in python_path.split(":")]
    assert (found[0] / "gallery/__main__.py").is_file()
    assert (found[1] / "triton_regressors/commands/help.py").is_file()


def test_keys_come_from_the_environment_and_are_required() -> None:
    text = (DOCKER / "compose.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+):\?", text)) == {"TRITON_ADMIN_KEY", "GRAFANA_ADMIN_PASSWORD"}
    assert not re.search(r"\$\{(TRITON_ADMIN_KEY|GRAFANA_ADMIN_PASSWORD):?-", text)
    assert ".env" in (DOCKER / ".gitignore").read_text().splitlines()


def test_prometheus_and_grafana_are_wired_to_each_other() -> None:
    prometheus = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())
    (job,) = prometheus["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["triton-server:8002"]}]
    assert set(prometheus["rule_files"]) == {"alerts.yaml", "drift.yaml"}
    for file in prometheus["rule_files"]:
        assert f"./{file}:/etc/prometheus/{file}:ro" in SERVICES["prometheus"]["volumes"]
    (source,) = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["current"]["value"] == source["uid"]
    providers = yaml.safe_load((DOCKER / "grafana/provisioning/dashboards/triton-regressors.yaml").read_text())
    (provider,) = providers["providers"]
    folder = provider["options"]["path"]
    assert f"./grafana/dashboards:{folder}:ro" in SERVICES["grafana"]["volumes"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DOCKER / "grafana/dashboards" / Path(home).relative_to(folder)).is_file()


# Alerts and dashboard


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert all(rule["annotations"][part].endswith(".") for part in ("summary", "description"))
    assert rule["expr"].count("(") == rule["expr"].count(")")


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: f"{panel['id']}-{panel['title']}")
def test_panel_has_a_unit_a_description_and_queries(panel: dict[str, Any]) -> None:
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["description"].endswith(".")
    assert panel["datasource"]["uid"] == "${datasource}"
    for target in panel["targets"]:
        assert metric_names(target["expr"])
        assert target["expr"].count("(") == target["expr"].count(")")
        if not re.search("nv_[gc]pu", target["expr"]):
            assert 'model=~"$model"' in target["expr"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_panels_have_their_own_ids_and_places() -> None:
    everything = DASHBOARD["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    for first, second in itertools.combinations([panel["gridPos"] for panel in everything], 2):
        apart_x = first["x"] + first["w"] <= second["x"] or second["x"] + second["w"] <= first["x"]
        apart_y = first["y"] + first["h"] <= second["y"] or second["y"] + second["h"] <= first["y"]
        assert apart_x or apart_y, (first, second)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in everything)


def test_the_dashboard_shows_what_an_operator_needs() -> None:
    shown = metric_names(" ".join(QUERIES))
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    assert {f"nv_inference_{part}_duration_us" for part in parts} <= shown
    counts = ("request_success", "request_failure", "count", "exec_count", "pending_request_count")
    assert {f"nv_inference_{count}" for count in counts} <= shown
    assert shown >= GPU_METRICS
    assert any(re.search(r"nv_inference_count.*\) / .*nv_inference_exec_count", query) for query in QUERIES)
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "model", "version"}
