"""MLflow's model registry: models are fetched from it to be exported, and entries are written back to it.

MLflow is optional and is imported when it is used; the extra `mlflow` brings its client.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_regressors.errors import RegistryError
from triton_regressors.extras import require
from triton_regressors.kernels.entry import PLAN, Source, find_entry, read_document
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.format.records import to_json
from triton_regressors.mlflow.mlmodel import MLmodel, read_mlmodel

URIS = "models:/NAME/VERSION, models:/NAME@ALIAS, models:/ID and runs:/RUN/PATH"
MODELS_AT_ONCE = 1000
"""The most models that MLflow is asked for at a time."""
_VERSION = re.compile(r"models:/([^/@]+)/([1-9][0-9]*)")
_ALIAS = re.compile(r"models:/([^/@]+)@([^/@]+)")
_LOGGED = re.compile(r"models:/(m-[0-9a-f]+)")
_RUN = re.compile(r"runs:/([^/]+)/(.+)")


@dataclass(frozen=True)
class Fetched:
    """A downloaded model, its name, its version in the registry if it has one, and its source."""

    model: MLmodel
    name: str
    version: int | None
    source: Source


def is_model_uri(text: str) -> bool:
    """Return whether a text is the address of a model in MLflow rather than a path."""
    return text.startswith(("models:/", "runs:/"))


def fetch(uri: str, folder: Path, tracking_uri: str | None = None) -> Fetched:
    """Download a model's files into a folder and describe them; nothing of them is loaded.

    Args:
        uri: one of `URIS`; an alias is resolved now.
        folder: an empty directory.
        tracking_uri: MLflow's address, for this process from now on; None: that in MLFLOW_TRACKING_URI.

    Raises:
        MissingExtra: MLflow is not installed.
        RegistryError: the address has another form, MLflow does not have the model, or its kind cannot be read.
    """
    client = _client(tracking_uri, f"Reading {uri}", "--tracking-uri")
    import mlflow.artifacts

    if tracking_uri is not None:  # that server gives the address of a registered model's files
        mlflow.set_tracking_uri(tracking_uri)
    with _in_one_sentence(f"Cannot read {uri}"):
        exact, name, version, run = _resolved(client, uri)
        path = Path(mlflow.artifacts.download_artifacts(artifact_uri=exact, dst_path=str(folder)))
        model = read_mlmodel(path)
        return Fetched(model, name, version, Source(exact, _sha256(model.file), run or model.run))


def registered_models(pattern: str, tracking_uri: str | None = None) -> dict[str, str]:
    """Return the address of each registered model whose name fits a pattern, by the part of its name that * stands for.

    Args:
        pattern: a name with one *, such as demand-*: the newest version of each; or demand-*@champion: the version that
            has this alias.
        tracking_uri: MLflow's address; None: that in MLFLOW_TRACKING_URI.

    Raises:
        MissingExtra: MLflow is not installed.
        RegistryError: the pattern has another form, or no model of MLflow fits it.
    """
    what = f"Reading {pattern}"
    name, _, alias = pattern.partition("@")
    before, star, after = name.partition("*")
    if not star or "*" in after:
        raise RegistryError(f"{what}: the models' name must have one *, such as demand-* or demand-*@ALIAS.")
    client = _client(tracking_uri, what, "--tracking-uri")
    found, token = dict[str, str](), None
    with _in_one_sentence(f"Cannot read {pattern}"):
        while token != "":
            page = client.search_registered_models(max_results=MODELS_AT_ONCE, order_by=["name ASC"], page_token=token)
            for each in (model.name for model in page):
                if len(each) > len(before + after) and each.startswith(before) and each.endswith(after):
                    found[each[len(before) : len(each) - len(after)]] = _newest(client, each, alias)
            token = page.token or ""
        if not found:
            raise RegistryError("no registered model has such a name.")
    return found


def _newest(client: Any, name: str, alias: str) -> str:
    """Return the address of a registered model's version with an alias; without one, of its newest version."""
    if alias:
        return f"models:/{name}/{client.get_model_version_by_alias(name, alias).version}"
    quoted = name.replace("'", "\\'")
    versions = client.search_model_versions(f"name='{quoted}'", max_results=1, order_by=["version_number DESC"])
    if not versions:
        raise RegistryError(f"the model {name} has no version.")
    return f"models:/{name}/{versions[0].version}"


def _resolved(client: Any, uri: str) -> tuple[str, str, int | None, str | None]:
    """Return an address that always means the same model, and the model's name, version and run."""
    if found := _RUN.fullmatch(uri):
        return uri, found[2].rstrip("/").rpartition("/")[2], None, found[1]
    if found := _LOGGED.fullmatch(uri):
        logged = client.get_logged_model(found[1])
        return uri, logged.name, None, logged.source_run_id
    if found := _ALIAS.fullmatch(uri):
        version = client.get_model_version_by_alias(found[1], found[2])
    elif found := _VERSION.fullmatch(uri):
        version = client.get_model_version(found[1], found[2])
    else:
        raise RegistryError(f"models are named {URIS}.")
    return f"models:/{found[1]}/{version.version}", found[1], int(version.version), version.run_id


def _client(tracking_uri: str | None, what: str, option: str) -> Any:
    """Return a client of MLflow; `what` needs it, and `option` says where MLflow is."""
    require("mlflow", what)
    import mlflow

    if tracking_uri is None and not mlflow.is_tracking_uri_set():  # MLflow would create a database here
        raise RegistryError(f"{what} needs the address of MLflow: give {option}, or set MLFLOW_TRACKING_URI.")
    with _in_one_sentence("Cannot ask MLflow"):
        return mlflow.MlflowClient(tracking_uri)


@contextmanager
def _in_one_sentence(what: str) -> Iterator[None]:
    """Raise a `RegistryError` that begins with `what` for each error of MLflow or of the connection to it."""
    try:
        yield
    except RegistryError as error:
        raise RegistryError(f"{what}: {error}") from None
    except Exception as error:  # MLflow's own, and those of whatever store it reads from
        why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise RegistryError(f"{what}: {why}.") from error


def log_entry(
    entry: str | Path, run_id: str | None = None, *, version: int | None = None, tracking_uri: str | None = None
) -> str:
    """Write a version of an entry into a run of MLflow's and return the address of its files there.

    The files lie at `entries/NAME/VERSION`, with the entry's current config.pbtxt and the parity measured at export,
    `parity-VERSION.json`, beside them: `entries` is a model repository that a server can load. The run is tagged
    `triton_regressors.entry` (NAME/VERSION) and `triton_regressors.entry_sha256` (of plan.json, which has the
    SHA-256 of every other file of the version), and, if the estimator came from MLflow, `triton_regressors.source`,
    `.source_sha256` and `.source_run`.

    Args:
        entry: an entry's directory in a model repository.
        run_id: the run; None: the one that trained the estimator, if it came from MLflow.
        version: the entry's version; None: the newest.
        tracking_uri: MLflow's address; None: that of MLFLOW_TRACKING_URI, or of MLflow's own set_tracking_uri.

    Raises:
        MissingExtra: MLflow is not installed.
        RegistryError: there is no such entry or run, a file has changed since the export, or MLflow refuses them.
    """
    try:
        found = find_entry(Path(entry).resolve(), version)
        document = read_document(found.version_directory)
    except (PlanError, OSError) as error:
        raise RegistryError(str(error)) from error
    source = document.provenance.source
    run = run_id or (source.run if source is not None else None)
    if run is None:
        raise RegistryError(f"Give run_id, the run that {entry} belongs to; its estimator did not come from a run.")
    name = f"{found.name}/{found.version}"
    client = _client(tracking_uri, "log_entry", "tracking_uri")
    tags = {"entry": name, "entry_sha256": _sha256(found.version_directory / PLAN)}
    if source is not None:
        of_source = {"source": source.uri, "source_sha256": source.sha256, "source_run": source.run}
        tags |= {key: value for key, value in of_source.items() if value is not None}
    with _in_one_sentence(f"Cannot write {name} into run {run}"):
        client.log_artifacts(run, str(found.version_directory), f"entries/{name}")
        client.log_artifact(run, str(found.directory / "config.pbtxt"), f"entries/{found.name}")
        client.log_dict(run, to_json(document.parity), f"entries/{found.name}/parity-{found.version}.json")
        for key, value in tags.items():
            client.set_tag(run, f"triton_regressors.{key}", value)
    return f"runs:/{run}/entries/{name}"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
