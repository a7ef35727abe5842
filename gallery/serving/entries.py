"""Writes exhibits as entries of a Triton server's model repository.

    <repository>/softmax/
      config.pbtxt
      1/
        model.py        checks the files, then names the model of `gallery/serving/backend.py`
        digests.json    the SHA-256 of every other file
        kernels/        the modules that check them, from the product's own entries
        gallery/        the exhibit's file and the gallery's modules that it imports

An entry needs torch, triton and numpy and nothing of this repository. It appears by one rename, like the product's
entries; if an entry exists and differs, the next version is written.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2

from gallery.errors import GalleryError
from gallery.serving.names import service_of
from gallery.serving.services import Service
from triton_regressors import kernels
from triton_regressors.exporter.publish.repository import TAKEN, staged
from triton_regressors.kernels.entry import Entry, versions
from triton_regressors.kernels.format.digests import file_digests
from triton_regressors.model_config import from_pbtxt, to_pbtxt

GALLERY = Path(__file__).parents[1]
DIGESTS = "digests.json"
CHECKERS = ("format/digests.py", "format/errors.py")
"""Modules of the product's kernels folder that check an entry."""

MAX_BATCH_SIZE = 4096

EXHIBIT = "exhibit"
"""The parameter of config.pbtxt that names the exhibit."""

MODEL_CODE = '''"""The model of this entry, where the Triton server's Python backend looks for it."""
import json
import sys
from pathlib import Path

from .kernels.format.digests import check_digests

HERE = Path(__file__).parent
check_digests(HERE, json.loads((HERE / "digests.json").read_bytes()), "digests.json")
sys.path.insert(0, str(HERE))

from gallery.serving.backend import TritonPythonModel  # noqa: E402, F401
'''


def write(repository: Path, names: Iterable[str]) -> list[Entry]:
    """Write the entries of exhibits, and return each with its version.

    Raises:
        GalleryError: an exhibit is not served, something else has its entry's name, or nothing can be written there.
    """
    services = {name: service_of(name) for name in names}
    try:
        return [_publish(repository, name, service) for name, service in services.items()]
    except OSError as error:
        raise GalleryError(f"The repository {repository} cannot be written: {error.strerror}.") from error


def make_config(name: str, service: Service) -> Any:
    """Return the `ModelConfig` of an exhibit's entry."""
    config = model_config_pb2.ModelConfig(name=name, backend="python")
    data_type = model_config_pb2.DataType.Value(f"TYPE_{service.datatype}")
    for tensors, dims_by_name in ((config.input, service.inputs), (config.output, service.outputs)):
        for tensor, dims in dims_by_name.items():
            tensors.add(name=tensor, data_type=data_type, dims=dims)
    if service.joins:
        config.max_batch_size = MAX_BATCH_SIZE
        config.dynamic_batching.SetInParent()
    config.instance_group.add(count=1, kind=model_config_pb2.ModelInstanceGroup.KIND_AUTO)
    config.version_policy.latest.num_versions = 1
    config.parameters[EXHIBIT].string_value = name
    return config


def modules(name: str) -> dict[str, Path]:
    """Return the files of the gallery that a module needs, itself among them, by their path from the gallery."""
    found: dict[str, Path] = {}
    waiting = [name]
    while waiting:
        path = Path(*waiting.pop().split(".")[1:]).with_suffix(".py")
        if path.as_posix() not in found and (GALLERY / path).is_file():
            found[path.as_posix()] = GALLERY / path
            waiting += _imported(GALLERY / path)
    return found


def _imported(path: Path) -> Iterable[str]:
    """Yield the modules of the gallery that a file may import, by their full names."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (each for each in names if each.startswith("gallery."))


def _publish(repository: Path, name: str, service: Service) -> Entry:
    directory = repository / name
    with staged(repository) as staging:
        written = staging / "entry"
        _write_version(written / "1", name)
        config = to_pbtxt(make_config(name, service))
        (written / "config.pbtxt").write_text(config, encoding="utf-8")
        while True:
            try:
                if not directory.exists():
                    written.rename(directory)
                    return Entry(directory, 1)
                _check_ours(directory, name)
                newest = max(versions(directory), default=0)
                kept = (directory / str(newest) / DIGESTS, directory / "config.pbtxt")
                if [_content(path) for path in kept] == [_content(written / "1" / DIGESTS), config.encode()]:
                    return Entry(directory, newest)
                (written / "1").rename(directory / str(newest + 1))
                os.replace(written / "config.pbtxt", directory / "config.pbtxt")
                return Entry(directory, newest + 1)
            except OSError as error:
                if error.errno not in TAKEN:  # else somebody else was first
                    raise


def _write_version(version: Path, name: str) -> None:
    carried = {**modules(f"gallery.kernels.{name}"), **modules("gallery.serving.backend")}
    product = Path(kernels.__path__[0])
    files = {f"gallery/{path}": source for path, source in carried.items()}
    files |= {f"kernels/{file}": product / file for file in CHECKERS}
    for path, source in files.items():
        (version / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, version / path)
    for package in {Path(path).parent for path in files if path.startswith("gallery/")}:
        (version / package / "__init__.py").touch()  # else another `gallery` on the server's path would come first
    (version / "model.py").write_text(MODEL_CODE, encoding="utf-8")
    (version / DIGESTS).write_text(json.dumps(file_digests(version, DIGESTS), indent=1) + "\n", encoding="utf-8")


def _check_ours(directory: Path, name: str) -> None:
    try:
        config = from_pbtxt((directory / "config.pbtxt").read_bytes())
        ours = EXHIBIT in config.parameters and config.parameters[EXHIBIT].string_value == name
    except (OSError, ValueError):
        ours = False
    if not ours:
        raise GalleryError(f"{directory} exists and is not the gallery's entry of {name}; choose another repository.")


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
