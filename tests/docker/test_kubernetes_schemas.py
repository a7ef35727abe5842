"""The files of `deploy`, built by kustomize, against published schemas of Kubernetes, KServe, KEDA and Prometheus.

The schemas are not part of this repository. $TRITON_REGRESSORS_SCHEMAS names a folder of them: CRDs as their projects
publish them (`*.yaml`), and Kubernetes' own as JSON Schema named KIND-GROUP-VERSION.json beside `_definitions.json`, as
the package kubernetes-validate has them (v*-local-strict). Needs kubectl or kustomize, and the package jsonschema.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = os.environ.get("TRITON_REGRESSORS_SCHEMAS", "")
KUBERNETES = Path(__file__).resolve().parents[2] / "docker" / "kubernetes"
OVERLAYS = sorted(
    str(path.parent.relative_to(KUBERNETES)) for path in KUBERNETES.glob("*/overlays/*/kustomization.yaml")
)
BUILD = next((words for words in (("kubectl", "kustomize"), ("kustomize", "build")) if shutil.which(words[0])), None)

pytestmark = [
    pytest.mark.skipif(not FOLDER, reason="$TRITON_REGRESSORS_SCHEMAS names no folder of published schemas"),
    pytest.mark.skipif(BUILD is None, reason="neither kubectl nor kustomize is installed"),
]


def built(overlay: Path) -> list[dict[str, Any]]:
    """Return the resources that kustomize builds from an overlay."""
    done = subprocess.run([*(BUILD or ()), str(overlay)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return list(yaml.safe_load_all(done.stdout))


def strict(schema: Any) -> Any:
    """A CRD's schema that knows no field but its own, and numbers or text where either is accepted."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(value) for name, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource")
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not open_ended:
        found.setdefault("additionalProperties", False)
    return found


def crd_schemas() -> dict[tuple[str, str], Any]:
    """The schema of each version of each custom resource in the folder."""
    found = {}
    for path in Path(FOLDER).glob("*.yaml"):
        for crd in yaml.load_all(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            for version in crd["spec"]["versions"]:
                schema = copy.copy(version["schema"]["openAPIV3Schema"])
                schema["properties"] = {**schema["properties"], "metadata": {"type": "object"}}
                api = f"{crd['spec']['group']}/{version['name']}"
                found[api, crd["spec"]["names"]["kind"]] = schema
    return found


@pytest.fixture(scope="module")
def schemas() -> dict[tuple[str, str], Any]:
    return crd_schemas()


@functools.cache
def definitions(name: str) -> Any:
    """Return the definitions that Kubernetes' schemas refer to."""
    return json.loads((Path(FOLDER) / name).read_text())


def errors(resource: dict[str, Any], schemas: dict[tuple[str, str], Any]) -> list[str]:
    """Return the errors of a resource by its schema."""
    jsonschema = pytest.importorskip("jsonschema")
    referencing = pytest.importorskip("referencing")
    api, kind = resource["apiVersion"], resource["kind"]
    if (api, kind) in schemas:
        schema = strict(schemas[api, kind])
        registry = referencing.Registry()
    else:
        file = Path(FOLDER) / f"{kind}-{api.replace('/', '-')}.json".lower()
        assert file.is_file(), f"{FOLDER} has no schema of {kind} in {api}"
        schema = json.loads(file.read_text())
        read = referencing.jsonschema.DRAFT7.create_resource
        registry = referencing.Registry(retrieve=lambda uri: read(definitions(Path(uri).name)))
    validator = jsonschema.Draft7Validator(schema, registry=registry)
    return [f"{kind} {'/'.join(map(str, each.path))}: {each.message[:300]}" for each in validator.iter_errors(resource)]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_kustomize_makes_fits_the_schemas(
    overlay: str, written: Path, schemas: dict[tuple[str, str], Any]
) -> None:
    resources = built(written / overlay)
    assert "PrometheusRule" in {resource["kind"] for resource in resources}
    assert [problem for resource in resources for problem in errors(resource, schemas)] == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_misspelt_field_would_be_found(overlay: str, written: Path, schemas: dict[tuple[str, str], Any]) -> None:
    """Errors are put into the spec, and into its containers or rules."""
    for resource in built(written / overlay):
        spec = resource.get("spec", resource)
        rules = [rule for group in spec.get("groups", ()) for rule in group["rules"]]
        for place in (spec, *containers(spec), *rules):
            place["misspelt"] = {}
            assert any("misspelt" in problem for problem in errors(resource, schemas)), resource["kind"]
            del place["misspelt"]


def containers(value: Any) -> Iterator[dict[str, Any]]:
    """Return every container within a resource."""
    if isinstance(value, dict):
        yield from (each for name in ("containers", "initContainers") for each in value.get(name, ()))
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from containers(each)
