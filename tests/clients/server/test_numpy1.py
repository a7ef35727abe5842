"""numpy 1 for the server alone: it is fetched once, or an error says why not. test_strings.py serves with it."""

import sys
from pathlib import Path

import numpy as np
import pytest

from triton_regressors.clients.errors import ServerError
from triton_regressors.clients.server.numpy1 import install_numpy1, numpy1_directory
from triton_regressors.clients.server.triton_server import TritonServer

HERE = sys.version_info[:2]
PYTHON = Path(sys.executable)
CONFIG = """
backend: "python"
max_batch_size: 8
input { name: "cat" data_type: TYPE_STRING dims: 2 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
"""


def test_without_a_network_one_sentence_has_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_model: object
) -> None:
    """Before a server starts, whose own words would be 110 lines."""
    if np.lib.NumpyVersion(np.__version__) < "2.0.0" or HERE > (3, 12):
        pytest.skip("nothing is fetched beside numpy 1, or for a Python that it has no wheel for")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    write_model(tmp_path / "repository", "words", config=CONFIG)  # type: ignore[operator]
    server = TritonServer([tmp_path / "repository"])
    with pytest.raises(ServerError) as caught:
        server.start()
    directory = tmp_path / "triton-regressors" / "numpy-1.26.4-cp{}{}".format(*HERE)
    command = (
        "pip install --no-deps --only-binary=:all: --python-version {}.{} numpy==1.26.4 --target ".format(*HERE)
        + f"{directory}"
    )
    assert f"run `{command}`" in str(caught.value)
    assert "No matching distribution found for numpy==1.26.4" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert server.log == ""
    assert list(directory.parent.iterdir()) == []


def test_a_python_without_a_wheel_is_told_what_to_do() -> None:
    with pytest.raises(
        ServerError, match=r"numpy 1 has no wheel for Python 3\.13: give --python .* 3\.10 to 3\.12 .*Docker"
    ):
        install_numpy1(PYTHON, (3, 13))


@pytest.mark.usefixtures("numpy1")
def test_it_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = install_numpy1(PYTHON, HERE)
    assert directory == numpy1_directory(HERE)
    assert (directory / "numpy" / "__init__.py").is_file()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert install_numpy1(PYTHON, HERE) == directory
