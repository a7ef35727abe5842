"""An entry on disk: its versions, the files of one, and what they hold.

    <entry>/<version>/
      model.py                names the model of `kernels/backend.py` where the Python backend looks for it
      plan.json               a `Document`: the plan and facts about it
      weights.safetensors     the plan's arrays
      golden.safetensors      a `Golden`: a few rows with the estimator's own predictions
      profile.safetensors     a `RowProfile` of the rows that the export was given, if it was
      members.safetensors     a `MemberTable`, if the entry is a fleet of many models
      kernels/                the modules of this folder that the plan needs, as they were at the export

`plan.json` has two more keys. "files" holds the SHA-256 of every other file of its version, by path. "digest" is the
SHA-256 of `plan.json` itself without the 64 digits of this digest. See `format/digests.py`.

Only this module knows these names and keys, except for the plan's own, which `kernels/plan/plan.py` defines. It does
not use torch. In an entry it runs before the files are checked, and imports most of the others afterwards.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save, save_file

from .format.digests import check_digests, file_digests
from .format.errors import PlanError

if TYPE_CHECKING:
    from .format.fleet import Fleet
    from .format.inputs import Inputs
    from .format.member_table import MemberTable
    from .format.parity import Parity
    from .format.row_profile import RowProfile

MODEL, PLAN, WEIGHTS, GOLDEN = "model.py", "plan.json", "weights.safetensors", "golden.safetensors"
KERNELS = Path(__file__).parent
LARGEST_VERSION = 2**63 - 1

ABSOLUTE, SCALED, QUANTILES = "absolute residuals", "residuals in units of std", "conformalised quantiles"
"""The methods of a prediction interval."""

MODEL_CODE = b'''"""The model of this entry, where the Triton server's Python backend looks for it."""
from .kernels.backend import TritonPythonModel
'''

_VERSION = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_OF_FLEETS = ("numbered", "default", "whole_ids", "id_columns")
_INPUTS = ("dtype", "numeric", "integers", "categorical", "float32", "text", "made", *_OF_FLEETS)
"""The keys of "inputs", which is null if the tensor of numbers, FP32, is the plan's matrix.

"float32" is absent if no column of the rows behind the entry was float32, "made" if none is made of strings, and those
of fleets if the entry is none."""


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
        """The directory of the version's files."""
        return self.directory / str(self.version)

    @property
    def exported(self) -> bool:
        """Return whether this project exported the version: any other model of the server has no plan."""
        return (self.version_directory / PLAN).is_file()


@dataclass(frozen=True)
class Source:
    """The origin of a fetched estimator: its address, its file's SHA-256, and the run that trained it if known."""

    uri: str
    sha256: str
    run: str | None = None


@dataclass(frozen=True)
class Provenance:
    """The origin of a plan: the estimator's `repr`, its class with its module, its columns' names if it has them.

    `source` is None if the estimator was not fetched.
    """

    estimator: str
    class_: str
    feature_names: tuple[str, ...]
    scikit_learn: str
    triton_regressors: str
    source: Source | None = None


@dataclass(frozen=True)
class OutputParity:
    """The distance of an output from the estimator's own at export, see `Parity`, in `unit`, one for each column.

    The numbers are for the rows as they were given. `rounded` is for the rows as the inputs' types hold them, if they
    differ.
    """

    unit: tuple[float, ...]
    max_error: float
    max_ulp: float
    excess: float
    rounded: Parity | None = None


@dataclass(frozen=True)
class Float32Rows:
    """The findings of an export whose sample has float32 columns.

    If `answered`, the entry answers as the estimator's `predict` does to the float32 rows, and otherwise as it does to
    the same rows in float64. For `moved` of the sample's `rows` rows these two differ, by up to `max_error` standard
    deviations. `sums` are the transformers that sum in float32 before a decision, such as a tree's threshold, in an
    order that depends on the processor.
    """

    answered: bool
    rows: int
    moved: int
    max_error: float
    sums: tuple[str, ...]


@dataclass(frozen=True)
class ParityReport:
    """The measurement at export: the number and the source of its rows, the engine, and each output's parity.

    `tolerance` is in standard deviations of the predictions, more than 0 and less than 1. `types` are those of the
    input tensors as the server calls them, and `why` is the reason for them. `precision` says what kernels may lose by
    computing in less than float64, and what was chosen; it is None in older entries. `ties` says how neighbours at
    equal distance changed the answers; it is None if they changed none. `float32` is None if the entry answers the
    estimator's float32 and no sum in float32 comes before a decision.
    """

    tolerance: float
    engine: str
    rows: int
    rows_from: str
    types: Mapping[str, str]
    why: str
    outputs: Mapping[str, OutputParity]
    precision: str | None = None
    ties: str | None = None
    float32: Float32Rows | None = None


@dataclass(frozen=True)
class IntervalReport:
    """The calibration of the prediction interval from `lower` to `upper`; tuples have a number for each target.

    The interval is `y ± quantile` with the method `ABSOLUTE` and `y ± quantile · std` with `SCALED`. With `QUANTILES`
    it is two quantiles of one model or of two, moved outwards by `quantile`. `quantile` is the
    ⌈(rows + 1) · level⌉-th smallest score of the calibration rows, and `mean_width` is the mean over these rows.
    `coverage` is the share of the last `held_out_rows` calibration rows whose target lies in the served interval that
    the earlier rows give; it is None, with 0 rows, if the earlier rows are too few for the level.

    With `QUANTILES`, `ends` are the two quantiles if `y` holds them, or else the models' `repr`. `crossed` counts the
    rows whose upper end lies below the lower end, and `y_outside` the rows whose `y` lies outside the interval; both
    are None if `y` holds the quantiles.
    """

    method: str
    level: float
    rows: int
    quantile: tuple[float, ...]
    mean_width: tuple[float, ...]
    held_out_rows: int = 0
    coverage: tuple[float, ...] | None = None
    ends: tuple[str, ...] | None = None
    crossed: int | None = None
    y_outside: int | None = None


@dataclass(frozen=True)
class ContributionsReport:
    """The game of the output `contributions`: "path", or "background" with so many rows.

    `links` make the answer of the contributions' sum. `additivity` and `definition` are the largest differences of the
    first `explained` rows' contributions, before they are rounded to float32, from the margin and from Shapley's
    definition, in standard deviations; None: not compared. A row takes `evaluations` answers of the model, for
    coalitions of `players` columns: all of them, or those of `permutations` orders if this is not 0.
    """

    game: str
    rows: int
    links: tuple[str, ...]
    explained: int
    additivity: float
    definition: float | None = None
    players: int = 0
    permutations: int = 0
    evaluations: int = 0


@dataclass(frozen=True)
class StepSummary:
    """A step of a plan as `describe --passes` shows it."""

    output: str
    op: str
    inputs: tuple[str, ...]
    what: str
    parameters: int
    bytes: int
    launches: int


@dataclass(frozen=True)
class Stage:
    """A plan as it was lowered, or after one pass."""

    stage: str
    steps: tuple[StepSummary, ...]


@dataclass(frozen=True)
class Document:
    """The content of `plan.json`.

    `plan` is the plan's own JSON, whose keys stand beside the others. The columns `nan_columns` of the plan's matrix
    may hold NaN. `interval` and `contributions` are None without these outputs. `answers_column` is True if the
    estimator's `predict` answers its one target as `[rows, 1]`, and None if it answers `[rows]` or has several targets.
    `boolean_columns` held booleans in the sample, or in training if an encoder says so; None if no column did. `fleet`
    is None for a single model. For a fleet, the numbers of `parity` are the largest of all members, and `nan_columns`
    are the columns in which some member takes NaN.
    """

    plan: Mapping[str, Any]
    provenance: Provenance
    inputs: Inputs
    nan_columns: tuple[int, ...]
    parity: ParityReport
    stages: tuple[Stage, ...]
    interval: IntervalReport | None = None
    contributions: ContributionsReport | None = None
    answers_column: bool | None = None
    boolean_columns: tuple[int, ...] | None = None
    fleet: Fleet | None = None


@dataclass(frozen=True)
class Golden:
    """Rows to try an entry on, and the estimator's predictions for them.

    `X` is `[rows, n_features]`, the plan's matrix, which has numbers in place of strings. The predictions for each
    output are float64 `[rows, width]`. `units` are the units of their errors: for each output a number for each column
    of a single model, or `[rows, width]` of a fleet, by each row's member.
    """

    X: np.ndarray
    outputs: Mapping[str, np.ndarray]
    units: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def version_number(name: str) -> int | None:
    """Return the version whose directory has this name, or None.

    The Triton server accepts numbers from 0 to 2⁶³ − 1 without leading zeros as versions.
    """
    number = int(name) if _VERSION.fullmatch(name) else LARGEST_VERSION + 1
    return number if number <= LARGEST_VERSION else None


def versions(entry: Path) -> list[int]:
    """Return the versions in an entry's directory, the newest last."""
    if not entry.is_dir():
        return []
    found = [(version_number(path.name), path) for path in entry.iterdir()]
    return sorted(number for number, path in found if number is not None and path.is_dir())


def find_entry(directory: Path, version: int | str | None = None) -> Entry:
    """Return the entry in a directory, its newest version unless one is named; raise `PlanError` if it is not there."""
    found = versions(directory)
    if not found:
        raise PlanError(f"{directory} is not an entry: it has no version directory such as 1/.")
    if version is None:
        return Entry(directory, found[-1])
    if str(version) not in map(str, found):
        raise PlanError(f"{directory} has no version {version}; it has {', '.join(map(str, found))}.")
    return Entry(directory, int(version))


def write_version(
    version: Path,
    document: Document,
    weights: Mapping[str, np.ndarray],
    golden: Golden,
    modules: Iterable[Path],
    profile: RowProfile | None = None,
    members: MemberTable | None = None,
) -> None:
    """Write the files of a version into a new directory, `plan.json` last: it has the digests of the others.

    Args:
        version: the directory.
        document: what `plan.json` holds.
        weights: the plan's arrays.
        golden: the golden rows.
        modules: the files of this folder that the version carries, by their paths below it.
        profile: the profile of the export's rows, if there is one.
        members: of a fleet.
    """
    version.mkdir(parents=True)
    write_golden(version, golden)
    if profile is not None:
        profile.write(version)
    if members is not None:
        members.write(version)
    (version / MODEL).write_bytes(MODEL_CODE)
    for module in modules:
        target = version / KERNELS.name / module
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(KERNELS / module, target)
    try:
        save_file(dict(weights), version / WEIGHTS)  # from the arrays as they lie in memory: `save` makes two copies
    except Exception as error:  # of safetensors' own type, see `read_weights`
        raise OSError(str(error)) from error
    write_document(version, document)
    shutil.copymode(version / PLAN, version / WEIGHTS)  # only its owner may read it, and the server may be another user


def write_golden(version: Path, golden: Golden) -> None:
    """Write the golden rows into a version's directory."""
    arrays = {"X": golden.X, **golden.outputs}
    (version / GOLDEN).write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def write_document(version: Path, document: Document) -> None:
    """Write `plan.json`, with the digests of all files that are in the version's directory by then."""
    from .format.inputs import Inputs
    from .format.records import to_json

    whole = to_json(document)
    plan, tensors = whole.pop("plan"), whole["inputs"]
    plain = document.inputs == Inputs.plain(document.inputs.n_features)
    whole["inputs"] = None if plain else {name: tensors[name] for name in _INPUTS if name in tensors}
    (version / PLAN).write_bytes(sealed(version, {**plan, **whole}))


def read_document(version: Path, *, check_files: bool = True) -> Document:
    """Return the content of a version's `plan.json`; raise `PlanError` unless it and every file are as exported.

    Without `check_files` no other file is read, and only `plan.json` is checked.
    """
    path = version / PLAN
    try:
        written = path.read_bytes()
        whole = json.loads(written)
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"Cannot read the plan {path}: {error}.") from error
    if not isinstance(whole, dict):
        raise PlanError(f"Cannot read the plan {path}: it is not a JSON object.")
    digest, files = whole.pop("digest", None), whole.pop("files", None)
    if not isinstance(digest, str) or not isinstance(files, dict):
        raise PlanError(
            f"The plan {path} has no digests of itself and of the other files: it is damaged, or of an older release; "
            "export the model again."
        )
    if hashlib.sha256(written.replace(digest.encode(errors="replace"), b"", 1)).hexdigest() != digest:
        raise PlanError(f"{path} is not as it was exported: its SHA-256 is not the one it states.")
    if check_files:
        check_digests(version, files, PLAN)
    return _document(path, whole)


def read_weights(version: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a version's plan."""
    try:
        return load_file(version / WEIGHTS)
    except Exception as error:  # safetensors raises a type of its own, which it does not export everywhere
        raise PlanError(f"Cannot read the weights {version / WEIGHTS}: {error}.") from error


def read_golden(version: Path, document: Document) -> Golden:
    """Return a version's golden rows: one at least, with the answers of each output that was measured."""
    path = version / GOLDEN
    try:
        arrays = load_file(path)
    except Exception as error:  # see `read_weights`
        raise PlanError(f"Cannot read the golden rows {path}: {error}.") from error
    lacking = [name for name in ("X", *document.parity.outputs) if name not in arrays]
    if lacking:
        raise PlanError(f"{path} is incomplete: {lacking[0]!r} is missing.")
    if not len(arrays["X"]):
        raise PlanError(f"{path} has no rows; at least 1 is needed.")
    units: Mapping[str, Any] = {name: each.unit for name, each in document.parity.outputs.items()}
    if document.fleet is not None:
        from .format.member_table import read_members

        units = read_members(version, document.inputs.n_features).units_of(arrays["X"][:, -1])
    return Golden(arrays["X"], {name: arrays[name] for name in document.parity.outputs}, units)


def sealed(version: Path, whole: Mapping[str, Any]) -> bytes:
    """Return the bytes of a `plan.json` that holds these keys and the digests of all files in its directory."""
    whole = {**whole, "files": file_digests(version, PLAN), "digest": ""}
    written = json.dumps(whole, indent=1, allow_nan=False).encode() + b"\n"
    head, empty, tail = written.rpartition(b'"digest": ""')
    return head + empty[:-1] + hashlib.sha256(written).hexdigest().encode() + b'"' + tail


def _document(path: Path, whole: dict[str, Any]) -> Document:
    """Return the document in a `plan.json` whose digests were removed."""
    from .format.inputs import Inputs
    from .format.parity import Parity
    from .format.records import from_json, to_json

    found = {field.name: whole.pop(field.name) for field in dataclasses.fields(Document) if field.name in whole}
    n_features, inputs = whole.get("n_features"), found.get("inputs")
    try:
        if type(n_features) is not int:
            raise ValueError("n_features must be int")
        if inputs is None:
            inputs = to_json(Inputs.plain(n_features))
        tensors = {**inputs, "n_features": n_features} if isinstance(inputs, dict) else inputs
        found |= {"plan": whole, "inputs": tensors}
        names: dict[str, Any] = dict.fromkeys(("MadeTexts", "Fleet", "IdColumns"), Any)
        names |= {"Inputs": Inputs, "Parity": Parity}
        if isinstance(tensors, dict) and tensors.get("made") is not None:  # otherwise the entry lacks the module
            from .format.text_steps import MadeTexts

            names["MadeTexts"] = MadeTexts
        if found.get("fleet") is not None:  # likewise
            from .format.fleet import Fleet
            from .format.id_columns import IdColumns

            names |= {"Fleet": Fleet, "IdColumns": IdColumns}
        document = from_json(Document, found, names=names)
    except (TypeError, ValueError) as error:  # the digest fits, but no export wrote this
        raise PlanError(f"{path} does not hold what an export writes ({error}).") from error
    tolerance = document.parity.tolerance
    if not 0 < tolerance < 1:
        raise PlanError(f"{path} has the tolerance {tolerance!r}; it must lie between 0 and 1 standard deviations.")
    return document
