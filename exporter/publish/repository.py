"""Writes entries into a model repository, so that a server never sees half of one.

A version is written beside the repository, out of the server's sight, and moved into place by one rename. A new entry
comes with its config.pbtxt in the same rename, and an existing entry's config.pbtxt is replaced by one rename. If
nothing can be written beside the repository on its own file system (a volume mounted there, say), the version is
written into a hidden directory in it; a server that polls at that moment logs that the directory is not a model, and
goes on.

Exports to one name may run at once: each takes the next free number. An export that was killed leaves behind a hidden
directory that no living process has locked; the next export removes it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2

from triton_regressors.contribution_game import Game
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.publish.config import ServingOptions, for_next_version, make_config, most_rows
from triton_regressors.exporter.publish.modules import modules_of
from triton_regressors.kernels.entry import Document, Entry, Golden, version_number, versions, write_version
from triton_regressors.kernels.format.columns_digest import COLUMNS
from triton_regressors.kernels.format.inputs import NUMBERS, Inputs
from triton_regressors.kernels.format.member_table import MemberTable
from triton_regressors.kernels.format.row_profile import RowProfile
from triton_regressors.kernels.plan.plan import Plan
from triton_regressors.model_config import edit_pbtxt, from_pbtxt, sent_inputs, to_pbtxt

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LONGEST_NAME = 255
STAGING = ".triton-regressors-"
TAKEN = (errno.EEXIST, errno.ENOTEMPTY)
"""The errors of renaming a directory to the name of another."""


def check_name(name: str) -> None:
    """Raise `ExportError` unless a model can have this name."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ExportError(f"The name {name!r} cannot be a model's: use letters, digits, '.', '_' and '-'.")
    if len(name) > LONGEST_NAME:
        raise ExportError(f"The name {name[:20]}... has {len(name)} characters; at most {LONGEST_NAME} are possible.")


def check_target(
    repository: Path, name: str, inputs: Inputs, outputs: Mapping[str, int], feature_names: Sequence[str] = ()
) -> None:
    """Raise `ExportError` unless this model can become the next version of `name` in the repository."""
    check_name(name)
    directory = repository / name
    try:
        if repository.exists() and not repository.is_dir():
            raise ExportError(f"The repository {repository} is not a directory.")
        if not directory.exists():
            return
    except OSError as error:  # a path that is too long, or that may not be looked at
        raise ExportError(f"Cannot look into the repository {repository}: {error}.") from None
    if not (directory / "config.pbtxt").is_file():
        raise ExportError(f"{directory} exists and is not an entry (it has no config.pbtxt); choose another name.")
    config, mine = _read_config(directory), make_config(name, inputs, outputs, ServingOptions(), feature_names)
    named = all("columns" in either.parameters for either in (config, mine))
    (given, answered), (new_given, new_answered) = _interface(config, named), _interface(mine, named)
    if given != new_given:
        raise ExportError(
            f"The entry '{name}' exists with {given} and {answered}, and this model has {new_given} and "
            f"{new_answered}; a new version must keep the interface, so choose another name."
        )
    if answered != new_answered:
        raise ExportError(
            f"The entry '{name}' exists with {answered}, and this model has {new_answered}; a new version must keep "
            "the interface, because all versions share the outputs in config.pbtxt. Choose another name, export with "
            f"the options of the versions before, or delete {directory} first."
        )


def check_version(directory: Path, version: int | None) -> None:
    """Raise `ExportError` if a version number is invalid, or an entry in this directory has it already."""
    if version is None:
        return
    if type(version) is not int or version < 1 or version_number(str(version)) is None:
        raise ExportError(f"version must be a whole number from 1 to 2⁶³ − 1, not {version!r}.")
    if os.path.lexists(directory / str(version)):
        raise ExportError(f"{directory} has version {version}; remove that version first, or choose another name.")


def input_type(repository: Path, name: str) -> str | None:
    """Return the type of numbers of the entry of this name, "fp32" or "fp64", or None if there is no such entry."""
    directory = repository / name
    if not os.path.isfile(directory / "config.pbtxt"):  # False, rather than an error, for a path that is too long
        return None
    types = {tensor.name: tensor.data_type for tensor in _read_config(directory).input}
    return {model_config_pb2.TYPE_FP32: "fp32", model_config_pb2.TYPE_FP64: "fp64"}.get(types.get(NUMBERS, 0))


def columns_taken(repository: Path, name: str) -> tuple[str, ...]:
    """Return the names of the columns of numbers that the entry of this name takes; none if there is no such entry.

    Entries of former releases take columns that the model drops; their next versions take these columns too.
    """
    directory = repository / name
    if not os.path.isfile(directory / "config.pbtxt"):
        return ()
    told = _read_config(directory).parameters
    try:
        return tuple(json.loads(told[COLUMNS].string_value).get(NUMBERS, ())) if COLUMNS in told else ()
    except (ValueError, AttributeError):
        return ()


def publish(
    repository: Path,
    name: str,
    plan: Plan,
    golden: Golden,
    document: Document,
    options: ServingOptions,
    version: int | None = None,
    profile: RowProfile | None = None,
    members: MemberTable | None = None,
) -> Entry:
    """Write the plan, which `document` holds too, as the next version of an entry, or as `version`, and return it.

    A new entry gets a config.pbtxt of its own. An existing entry keeps its config.pbtxt, apart from the given options
    and the parameters that describe the new version's columns to clients.
    """
    interface = document.inputs, plan.output_widths(), document.provenance.feature_names
    told: dict[str, Any] = {"answers_column": bool(document.answers_column), "game": Game.of(document)}
    with staged(repository) as staging:
        written = staging / "entry"
        first = version or 1
        modules = modules_of(plan, document)
        write_version(written / str(first), document, plan.to_tensors(), golden, modules, profile, members)
        while True:
            try:
                if (repository / name).exists():
                    check_target(repository, name, *interface)
                    mine = make_config(name, *interface[:2], ServingOptions(), interface[2], **told)
                    return _add_version(written / str(first), repository / name, options, mine, version)
                config = make_config(name, *interface[:2], options, interface[2], **told, most_rows=most_rows(plan))
                (written / "config.pbtxt").write_text(to_pbtxt(config), encoding="utf-8")
                written.rename(repository / name)
                return Entry(repository / name, first)
            except OSError as error:
                if error.errno not in TAKEN:  # otherwise another export was first
                    raise


@contextmanager
def staged(repository: Path) -> Iterator[Path]:
    """Make the repository if it does not exist, and yield a directory to write in that a rename moves into it.

    Anything left in the directory when the block ends, even by a signal, is removed.
    """
    with _taken_back_on_signals(), _made(repository), _staging(repository) as staging:
        yield staging


def _add_version(written: Path, directory: Path, options: ServingOptions, mine: Any, version: int | None) -> Entry:
    """Move the version's directory `written` into an entry as its next version, or as `version`.

    The entry's config.pbtxt gets the given options, and the parameters in `mine`, the version's own configuration, that
    describe its columns to clients.
    """
    check_version(directory, version)
    newest = max(versions(directory), default=0)
    if version is None and version_number(str(newest + 1)) is None:
        raise ExportError(f"{directory} has version {newest}, which is the largest; choose another name.")
    entry = Entry(directory, version or newest + 1)
    path = directory / "config.pbtxt"
    content = path.read_bytes()
    try:
        edited = edit_pbtxt(content, for_next_version(options.apply(from_pbtxt(content)), mine))
    except ValueError as error:
        raise ExportError(f"Cannot change {path}: {str(error).rstrip('.')}.") from None
    config = written.with_name("config.pbtxt")
    config.write_text(edited.decode(), encoding="utf-8")
    shutil.copymode(path, config)
    written.rename(entry.version_directory)
    if edited != content:
        try:
            os.replace(config, path)
        except BaseException:
            entry.version_directory.rename(written)
            raise
    return entry


@contextmanager
def _taken_back_on_signals() -> Iterator[None]:
    """On SIGTERM or SIGHUP leave the block as by an exception, so that it cleans up, then end by the signal.

    Signals that the program handles or ignores are left alone, and all signals if the export runs in another thread.
    """
    received: list[int] = []

    def leave(number: int, frame: Any) -> None:
        received.append(number)
        for each in handled:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    main = threading.current_thread() is threading.main_thread()
    handled = [each for each in (signal.SIGTERM, signal.SIGHUP) if main and signal.getsignal(each) is signal.SIG_DFL]
    for each in handled:
        signal.signal(each, leave)
    try:
        yield
    finally:
        for each in handled:
            signal.signal(each, signal.SIG_DFL)
        if received:
            os.kill(os.getpid(), received[0])


@contextmanager
def _made(directory: Path) -> Iterator[None]:
    """Make a directory and its parents for the block, and remove the ones made here if the block fails."""
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
    """Yield an empty directory on the repository's file system, beside the repository if possible.

    It is locked while this process lives. Directories that are no longer locked are removed first.
    """
    beside = repository.resolve().parent
    same = os.access(beside, os.W_OK) and beside.stat().st_dev == repository.stat().st_dev
    for stale in [*beside.glob(STAGING + "*"), *repository.glob(STAGING + "*")]:
        with suppress(OSError):
            lock = _open(stale)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(stale, ignore_errors=True)
            finally:
                os.close(lock)
    staging, lock = _make_locked(beside if same else repository)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        os.close(lock)


def _make_locked(parent: Path) -> tuple[Path, int]:
    """Make a directory and lock it; return it and the file descriptor that holds the lock while this process lives."""
    while True:
        staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=parent))
        with suppress(FileNotFoundError):
            lock = _open(staging)
            with suppress(OSError):  # without locks on this file system, no export can take this one for stale either
                fcntl.flock(lock, fcntl.LOCK_EX)
            if staging.exists():  # otherwise another export had locked it first, and took it for stale
                return staging, lock
            os.close(lock)


def _open(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _read_config(directory: Path) -> Any:
    """Return the `ModelConfig` of the entry in a directory."""
    path = directory / "config.pbtxt"
    try:
        return from_pbtxt(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ExportError(f"Cannot read {path}: {str(error).rstrip('.')}.") from None


def _interface(config: Any, named: bool) -> tuple[str, str]:
    """Return the inputs and the outputs that clients of a model depend on, in words, with column names if `named`.

    The tensors that a fleet's requests may have in place of others are not among them: no client must send them.
    """
    inputs = ", ".join(
        f"{tensor.name} {model_config_pb2.DataType.Name(tensor.data_type).removeprefix('TYPE_')} {list(tensor.dims)}"
        for tensor in sent_inputs(config)
    )
    outputs = ", ".join(f"{tensor.name} {list(tensor.dims)}" for tensor in config.output)
    columns = config.parameters[COLUMNS].string_value if named else ""
    return f"input {inputs} {columns}".rstrip(), f"output {outputs}"
