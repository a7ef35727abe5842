"""The entries of a model repository, read without a Triton server: their files, completeness and string inputs."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonclient.grpc import model_config_pb2

from triton_regressors.kernels.entry import versions
from triton_regressors.model_config import from_pbtxt

Signature = frozenset[tuple[str, int, int]]
"""Path, time of change in ns and bytes of each file of an entry."""


@dataclass(frozen=True)
class Selection:
    """The entries that a server is to load: `wanted` names, or None for all that its repositories hold.

    `left_out` has the reason for each name that the server must not load; `signatures` are the current ones of the
    other entries, and `strings` says whether any of them reads strings.
    """

    wanted: list[str] | None
    left_out: dict[str, str]
    signatures: dict[str, Signature]
    strings: bool


def select(repositories: Iterable[Path], models: Sequence[str] | None) -> Selection:
    """Look at the entries before a server starts on them: the named ones, or all if None."""
    everything = entry_directories(repositories)
    names = list(everything) if models is None else list(models)
    chosen = {name: everything[name] for name in names if name in everything}
    left_out = {name: reason for name, entry in chosen.items() if (reason := unfinished(entry))}
    sound = {name: entry for name, entry in chosen.items() if name not in left_out}
    return Selection(
        None if models is None and not left_out else [name for name in names if name not in left_out],
        left_out,
        {name: signature(entry) for name, entry in sound.items()},
        any(map(reads_strings, (chosen or everything).values())),  # models without a choice may be loaded later
    )


def plain_paths(repositories: Iterable[Path], directory: Path) -> list[Path]:
    """Return the paths at which a server finds the repositories.

    The server starts each model's process with a shell: a path that a shell would interpret gets a link in `directory`.
    """
    paths = [repository.resolve() for repository in repositories]
    for number, path in enumerate(paths):
        if not plain(str(path)):
            paths[number] = directory / f"repository-{number}"
            paths[number].symlink_to(path)
    return paths


def entry_directories(repositories: Iterable[Path]) -> dict[str, Path]:
    """Return name → directory of everything that a Triton server takes for a model, without hidden directories."""
    found: dict[str, Path] = {}
    for repository in repositories:
        for directory in sorted(repository.iterdir()):
            if directory.is_dir() and not directory.name.startswith("."):
                found.setdefault(directory.name, directory)
    return found


def signature(entry: Path) -> Signature:
    """Return the signature that tells a changed entry from an unchanged one. It leaves out Python's caches."""
    found = set()
    for path in entry.rglob("*"):
        if "__pycache__" not in path.parts and path.is_file():
            status = path.stat()
            found.add((str(path.relative_to(entry)), status.st_mtime_ns, status.st_size))
    return frozenset(found)


def unfinished(entry: Path) -> str | None:
    """Return why a Python-backend entry would hang a Triton server that loads it; None if it would not.

    Such an entry lacks a version's model.py, as in the middle of a copy, or its name is not one word to the shell with
    which the server starts its process. The server itself reports any other fault of an entry.
    """
    config = read_config(entry)
    if config is None or config.backend != "python":
        return None
    file = config.default_model_filename or "model.py"
    for name in (entry.name, file):
        if not plain(name):
            return (
                f"the name {name!r} holds characters that a shell would interpret; accepted: ASCII letters, digits "
                "and -_.,:@%+="
            )
    for version in served_versions(entry, config):
        if not (entry / str(version) / file).is_file():
            return f"version {version} has no {file}, as during a copy"
    return None


def reads_strings(entry: Path) -> bool:
    """Return whether an entry of the Python backend has an input of strings."""
    config = read_config(entry)
    return config is not None and any(tensor.data_type == model_config_pb2.TYPE_STRING for tensor in config.input)


def plain(path: str) -> bool:
    """Return whether a path is ASCII and one unchanged word to a shell."""
    return shlex.quote(path) == path


def read_config(entry: Path) -> model_config_pb2.ModelConfig | None:
    """Return an entry's config.pbtxt; None if it is missing or cannot be read."""
    try:
        return from_pbtxt((entry / "config.pbtxt").read_bytes())
    except (OSError, ValueError):
        return None


def served_versions(entry: Path, config: model_config_pb2.ModelConfig) -> list[int]:
    """Return the versions that the configuration's policy chooses; by default the newest."""
    present = versions(entry)
    policy = config.version_policy
    if policy.HasField("all"):
        return present
    if policy.HasField("specific"):
        return [version for version in present if version in policy.specific.versions]
    return present[-(policy.latest.num_versions or 1) :]
