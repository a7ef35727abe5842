"""The sizes of a replica, and the names and templates of a deployment."""

from __future__ import annotations

from triton_regressors.deploy.manifests import DOCKER, service_name
from triton_regressors.deploy.sizing import resources_of


def test_names_and_sizes() -> None:
    assert service_name("House_prices.v2") == "house-prices-v2"
    found = resources_of(300 * 2**20, 12)
    assert (found.cpu, found.memory_mib, found.memory_limit_mib, found.shared_mib) == (13, 512, 2048, 1536)
    assert (DOCKER / "kubernetes/plain/base").is_dir()
