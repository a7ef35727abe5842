"""Fixtures of this folder's tests: the manifests as `deploy` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_regressors.deploy.manifests import Scaling, manifests, resources_of
from triton_regressors.deploy.output_directory import write


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `plain` and `kserve` are written for the entry demand_2, as demand-2 in the namespace team."""
    folder = tmp_path_factory.mktemp("written")
    for kind in ("plain", "kserve"):
        files = manifests(
            kind,
            entry="demand_2",
            service="demand-2",
            namespace="team",
            image="reg.example:5000/server:26.09",
            storage="pvc://models/prod",
            gpu=True,
            resources=resources_of(900 * 2**20, instances=2),
            scaling=Scaling(1, 7, "http://prometheus-operated.monitoring.svc:9090", requests_per_s=630, waiting=0.83),
            numbers=[],
        )
        write(files, folder / kind, overwrite=False)
    return folder
