"""Writes entries into a model repository, so that a server never sees half of one.

A version is written beside the repository, where no server looks, and moved into place by one rename; a new entry comes
with its config.pbtxt in the same rename, and an existing entry's config.pbtxt is replaced by one rename. Where nothing
can be written beside the repository on its own file system (a volume mounted there, say), the version is written into a
hidden directory in it; a server that polls at that moment logs that the directory is no model, and goes on.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save
from tritonclient.grpc import model_config_pb2

from triton_regressors.exporter.config import ServingOptions, apply_options, from_pbtxt, make_config, to_pbtxt
from triton_regressors.exporter.errors import ExportError
from triton_regressors.kernels import plan as plan_module
from triton_regressors.kernels.inputs import Inputs
from triton_regressors.kernels.plan import Plan, save_plan

KERNELS = Path(plan_module.__file__).parent
MODEL = Path(__file__).parent / "entry" / "model.py"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Entry:
    """A version of an entry in a model repository."""

    directory: Path
    version: int

    @property
    def name(self) -> str:
        """The model's name on the server."""
        return self.directory.name

    @property
    def version_directory(self) -> Path:
        """Where the version's files are."""
        return self.directory / str(self.version)


def find_entry(directory: Path, version: int | None = None) -> Entry:
    """Return the entry in a directory, its newest version unless one is named, or raise `ExportError`."""
    found = _versions(directory)
    if not found or not (directory / "config.pbtxt").is_file():
        raise ExportError(f"{directory} is not an entry: it needs a config.pbtxt and a version directory such as 1/.")
    if version is not None and version not in found:
        raise ExportError(f"{directory} has no version {version}; it has {', '.join(map(str, found))}.")
    return Entry(directory, found[-1] if version is None else version)


def check_name(name: str) -> None:
    """Raise `ExportError` unless a model can have this name."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ExportError(f"The name {name!r} cannot be a model's: use letters, digits, '.', '_' and '-'.")


def check_target(
    repository: Path, name: str, inputs: Inputs, outputs: Mapping[str, int], feature_names: Sequence[str] = ()
) -> None:
    """Raise `ExportError` unless this model can become the next version of `name` in the repository."""
    check_name(name)
    if repository.exists() and not repository.is_dir():
        raise ExportError(f"The repository {repository} is not a directory.")
    directory = repository / name
    if not directory.exists():
        return
    if not (directory / "config.pbtxt").is_file():
        raise ExportError(f"{directory} exists and is not an entry (it has no config.pbtxt); choose another name.")
    config, mine = _read_config(directory), make_config(name, inputs, outputs, ServingOptions(), feature_names)
    named = all("columns" in either.parameters for either in (config, mine))
    existing, new = _interface(config, named), _interface(mine, named)
    if existing != new:
        raise ExportError(
            f"The entry '{name}' exists with {existing}, and this model has {new}; a new version must keep the "
            "interface, so choose another name."
        )


def takes_fp64(repository: Path, name: str) -> bool:
    """Whether an entry of this name exists whose numbers are FP64."""
    directory = repository / name
    if not (directory / "config.pbtxt").is_file():
        return False
    return any(tensor.data_type == model_config_pb2.TYPE_FP64 for tensor in _read_config(directory).input)


def publish(
    repository: Path,
    name: str,
    plan: Plan,
    golden: Mapping[str, np.ndarray],
    document: Mapping[str, Any],
    options: ServingOptions,
) -> Entry:
    """Write the plan as the next version of an entry and return it.

    `golden` holds `X` and the expected outputs, `document` what `plan.json` holds besides the plan. A new entry gets a
    config.pbtxt of its own; an existing one keeps its config.pbtxt but for the options that are given.
    """
    directory = repository / name
    new = not directory.exists()
    if new:
        inputs = Inputs.from_json(plan.n_features, document["inputs"])
        config = make_config(name, inputs, plan.output_widths(), options, document["provenance"]["feature_names"])
    else:
        config = apply_options(_read_config(directory), options)
    with _made(repository), _staging(repository) as staging:
        if new:
            _write_version(staging / name / "1", plan, golden, document)
            (staging / name / "config.pbtxt").write_text(to_pbtxt(config), encoding="utf-8")
            (staging / name).rename(directory)
            return Entry(directory, 1)
        entry = Entry(directory, max(_versions(directory), default=0) + 1)
        _write_version(staging / "version", plan, golden, document)
        (staging / "config.pbtxt").write_text(to_pbtxt(config), encoding="utf-8")
        (staging / "version").rename(entry.version_directory)
        if options.given():
            try:
                os.replace(staging / "config.pbtxt", directory / "config.pbtxt")
            except OSError:
                entry.version_directory.rename(staging / "version")
                raise
        return entry


@contextmanager
def _made(directory: Path) -> Iterator[None]:
    """Make a directory and its parents for the block, and take back those that were not there if the block fails."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # somebody else may use them by now
            for path in missing:
                path.rmdir()
        raise


@contextmanager
def _staging(repository: Path) -> Iterator[Path]:
    """Yield an empty directory on the repository's file system, beside the repository where that can be."""
    beside = repository.resolve().parent
    same = os.access(beside, os.W_OK) and beside.stat().st_dev == repository.stat().st_dev
    staging = Path(tempfile.mkdtemp(prefix=".triton-regressors-", dir=beside if same else repository))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write_version(directory: Path, plan: Plan, golden: Mapping[str, np.ndarray], document: Mapping[str, Any]) -> None:
    directory.mkdir(parents=True)
    save_plan(directory, plan, document)
    tensors = save({name: np.ascontiguousarray(array) for name, array in golden.items()})
    (directory / "golden.safetensors").write_bytes(tensors)
    shutil.copyfile(MODEL, directory / "model.py")
    for source in sorted(KERNELS.rglob("*.py")):
        target = directory / "kernels" / source.relative_to(KERNELS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _read_config(directory: Path) -> Any:
    """Return the `ModelConfig` of the entry in a directory."""
    return from_pbtxt((directory / "config.pbtxt").read_bytes())


def _versions(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal() and path.is_dir())


def _interface(config: Any, named: bool) -> str:
    """Return what clients of a model depend on, in words, with the columns' names if they count."""
    inputs = ", ".join(
        f"{tensor.name} {model_config_pb2.DataType.Name(tensor.data_type).removeprefix('TYPE_')} {list(tensor.dims)}"
        for tensor in config.input
    )
    outputs = ", ".join(f"{tensor.name} {list(tensor.dims)}" for tensor in config.output)
    columns = config.parameters["columns"].string_value if named else ""
    return f"input {inputs} {columns}".rstrip() + f" and output {outputs}"
