"""A server with the models of `models.py`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conftest import CONFIG, WriteModel
from tests.clients.contributions.models import CODE, config
from tests.servers import triton_server
from triton_regressors.clients.server.triton_server import TritonServer


@pytest.fixture(scope="package")
def explained(tmp_path_factory: pytest.TempPathFactory, write_model: WriteModel) -> Path:
    """A repository with `houses` and `two`, and with `sums`, which has no contributions."""
    repository = tmp_path_factory.mktemp("repository")
    for name in ("houses", "two"):
        write_model(repository, name, code=CODE, config=config(name))
    write_model(repository, "sums", config=CONFIG.format(name="sums", instances=1))
    return repository


@pytest.fixture(scope="package")
def server(explained: Path) -> Iterator[TritonServer]:
    with triton_server([explained]) as running:
        yield running
