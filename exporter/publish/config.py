"""The Triton server's configuration of a new entry, and the options that change an existing one's."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tritonclient.grpc import model_config_pb2

from triton_regressors.batching import INT32, Batching
from triton_regressors.contribution_game import PARAMETER, Game
from triton_regressors.exporter.errors import ExportError
from triton_regressors.kernels.engine.runner import ENGINES
from triton_regressors.kernels.engine.staging import MAX_NUMBERS
from triton_regressors.kernels.format.columns_digest import ANSWERS_COLUMN, CATEGORIES, CHECKS_COLUMNS, COLUMNS, DATES
from triton_regressors.kernels.format.inputs import INTEGERS, MAX_STRING_BYTES, ONLY_CPU_INPUTS, Inputs
from triton_regressors.kernels.format.member_tensors import joined, tensors_in_place
from triton_regressors.kernels.ops.games.coalitions import evaluations
from triton_regressors.kernels.ops.games.launch import BATCH_EVALUATIONS
from triton_regressors.kernels.plan.plan import Plan
from triton_regressors.kernels.serving.observer import DEFAULT_MODE, MODES
from triton_regressors.model_config import sent_inputs

FULL_BATCH = "a full batch"
"""Name of the warm-up that follows max_batch_size."""

DATA_TYPES = {
    "FP32": model_config_pb2.TYPE_FP32,
    "FP64": model_config_pb2.TYPE_FP64,
    "INT32": model_config_pb2.TYPE_INT32,
    "INT64": model_config_pb2.TYPE_INT64,
    "BYTES": model_config_pb2.TYPE_STRING,
}
INSTANCE_KINDS = {"auto": "KIND_AUTO", "gpu": "KIND_GPU", "cpu": "KIND_CPU"}
DEFAULT_MAX_BATCH_SIZE = 4096

STAGED_NUMBERS = 2**24


@dataclass(frozen=True, kw_only=True)
class ServingOptions(Batching):
    """The Triton server's options for an entry, as in `export`; None leaves the default, or the entry's own setting.

    If an existing entry has several instance groups, on different GPUs say, `instances` and `instance_kind` are set
    in each of them: two groups with instances=3 are three copies on each group's GPUs. A group keeps the GPUs that it
    lists, except under "cpu", where the server accepts no such list: each group then runs its count of copies on the
    CPU.
    """

    max_batch_size: int | None = None
    instance_kind: str | None = None
    gpu_inputs: bool | None = None
    engine: str | None = None
    observe: str | None = None
    versions: int | None = None

    whole_numbers = MappingProxyType(
        {**Batching.whole_numbers, "max_batch_size": (1, INT32), "versions": (1, 2**32 - 1)}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.gpu_inputs, bool | None):
            raise self.refusal(f"gpu_inputs must be true or false, not {self.gpu_inputs!r}.")
        for name, accepted in (("instance_kind", tuple(INSTANCE_KINDS)), ("engine", ENGINES), ("observe", MODES)):
            value = getattr(self, name)
            if value is not None and value not in accepted:
                raise self.refusal(f"{name} must be one of {', '.join(accepted)}, not {value!r}.")

    def refusal(self, reason: str) -> ExportError:
        """Return the `ExportError` that says why an option is refused."""
        return ExportError(reason)

    def apply(self, config: Any) -> Any:
        """Return a copy of a `ModelConfig` with the given options in it and everything else as it was."""
        changed = copy.deepcopy(config)
        if self.max_batch_size is not None:
            changed.max_batch_size = self.max_batch_size
            for sample in changed.model_warmup:
                full = sample.name == FULL_BATCH
                sample.batch_size = self.max_batch_size if full else min(sample.batch_size, self.max_batch_size)
        changed = super().apply(changed)
        if self.instance_kind is not None:
            for group in changed.instance_group or [changed.instance_group.add(count=1)]:
                group.kind = model_config_pb2.ModelInstanceGroup.Kind.Value(INSTANCE_KINDS[self.instance_kind])
                if self.instance_kind == "cpu":
                    group.ClearField("gpus")
        if self.gpu_inputs is not None:
            changed.parameters[ONLY_CPU_INPUTS].string_value = "no" if self.gpu_inputs else "yes"
        if self.engine is not None:
            changed.parameters["engine"].string_value = self.engine
        if self.observe is not None:
            changed.parameters["observe"].string_value = self.observe
        if self.versions is not None:
            changed.version_policy.latest.num_versions = self.versions
        features = sum(sum(tensor.dims) for tensor in sent_inputs(changed))
        numbers = changed.max_batch_size * features
        if numbers > MAX_NUMBERS:
            raise self.refusal(
                f"max_batch_size {changed.max_batch_size} × {features} features are {numbers:,} numbers in a batch; at "
                f"most {MAX_NUMBERS:,} are accepted, which is a max_batch_size of {max(MAX_NUMBERS // features, 1)}."
            )
        return changed


def most_rows(plan: Plan) -> int:
    """Return how many rows a batch of a new entry has at most by default."""
    return min(DEFAULT_MAX_BATCH_SIZE, max(BATCH_EVALUATIONS // max(evaluations(plan), 1), 1))


def make_config(
    name: str,
    inputs: Inputs,
    outputs: Mapping[str, int],
    options: ServingOptions,
    feature_names: Sequence[str] = (),
    *,
    answers_column: bool = False,
    game: Game | None = None,
    most_rows: int = DEFAULT_MAX_BATCH_SIZE,
) -> Any:
    """Return a new entry's `ModelConfig`; `outputs` maps each output to its width.

    A batch has at most `most_rows` rows, and fewer if they are very wide, unless `options` say more.

    Three parameters tell clients of the columns, as JSON objects keyed by tensor name. `columns` has their names, if
    they have some. `categories` has the places of columns whose numbers are categories and must not be rounded, without
    those that are float32 in the sample. `dates` has the columns of dates, if there are any. A fourth,
    `checks_columns`, says that a request may name the columns that it was made for. A fifth, `answers_column`, says
    that `predict` answers one target as `[rows, 1]`. A sixth, `contributions`, holds the
    `game` of the output of that name.
    """
    config = model_config_pb2.ModelConfig(name=name, backend="python")
    datatypes, tensors = inputs.datatypes(), inputs.columns()
    for tensor, columns in tensors.items():
        optional = tensor in inputs.ids or bool(joined(inputs))
        config.input.add(name=tensor, data_type=DATA_TYPES[datatypes[tensor]], dims=[len(columns)], optional=optional)
    for tensor, (datatype, width) in tensors_in_place(inputs).items():
        config.input.add(name=tensor, data_type=DATA_TYPES[datatype], dims=[width], optional=True)
    for output, width in outputs.items():
        config.output.add(name=output, data_type=model_config_pb2.TYPE_FP32, dims=[width])
    config.max_batch_size = min(most_rows, max(STAGED_NUMBERS // inputs.n_features, 1))
    config.dynamic_batching.SetInParent()
    config.instance_group.add(count=1, kind=model_config_pb2.ModelInstanceGroup.KIND_AUTO)
    config.version_policy.latest.num_versions = 1
    config.parameters["engine"].string_value = "auto"
    config.parameters["observe"].string_value = DEFAULT_MODE
    if "BYTES" in datatypes.values():
        config.parameters["max_string_bytes"].string_value = str(MAX_STRING_BYTES)
    elif not inputs.closed:
        _add_warm_up(config)  # the server would send empty strings and zeros, which a model may refuse
    if feature_names:
        named = {
            tensor: [tensor] if tensor in inputs.ids else [feature_names[i] for i in columns]
            for tensor, columns in tensors.items()
        }
        config.parameters[COLUMNS].string_value = json.dumps(named, ensure_ascii=False)
    kept = set(inputs.categorical) - set(inputs.float32 or ())
    categories = {
        tensor: [place for place, column in enumerate(columns) if column in kept] for tensor, columns in tensors.items()
    }
    if any(categories.values()):
        found = {tensor: places for tensor, places in categories.items() if places}
        config.parameters[CATEGORIES].string_value = json.dumps(found)
    if inputs.dates:
        places = [
            {"column": place, "unit": "ns", "zone": date.zone} for place, date in inputs.integers.date_places().items()
        ]
        config.parameters[DATES].string_value = json.dumps({INTEGERS: places})
    config.parameters[CHECKS_COLUMNS].string_value = "true"
    if answers_column:
        config.parameters[ANSWERS_COLUMN].string_value = "true"
    if game is not None:
        config.parameters[PARAMETER].string_value = game.parameter()
    return options.apply(config)


def for_next_version(config: Any, mine: Any) -> Any:
    """Return a copy of an entry's `ModelConfig` that describes its next version to clients; `mine` is that version's.

    The dates, the shape of answers and the game of contributions are the new version's. Names are added if the entry
    had none. The places of categories are the new version's. If older versions are served beside it, their places are
    added, since a column that holds categories in any served version must not be rounded.
    """
    changed = copy.deepcopy(config)
    if COLUMNS in mine.parameters:
        changed.parameters[COLUMNS].string_value = mine.parameters[COLUMNS].string_value
    for parameter in (DATES, ANSWERS_COLUMN, PARAMETER):
        if parameter in mine.parameters:
            changed.parameters[parameter].string_value = mine.parameters[parameter].string_value
        else:
            changed.parameters.pop(parameter, None)
    policy = config.version_policy
    alone = policy.WhichOneof("policy_choice") in (None, "latest") and policy.latest.num_versions <= 1
    served = [mine] if alone else [mine, config]
    if alone:
        changed.parameters[CHECKS_COLUMNS].string_value = "true"
    places: dict[str, set[int]] = {}
    for each in served:
        if CATEGORIES in each.parameters:
            for tensor, found in json.loads(each.parameters[CATEGORIES].string_value).items():
                places.setdefault(tensor, set()).update(found)
    if places:
        found = {tensor: sorted(places[tensor]) for tensor in sorted(places)}
        changed.parameters[CATEGORIES].string_value = json.dumps(found)
    else:
        changed.parameters.pop(CATEGORIES, None)
    return changed


def _add_warm_up(config: Any) -> None:
    """Have the server run one row and a full batch through each instance before it is ready."""
    for name, rows in (("one row", 1), (FULL_BATCH, config.max_batch_size)):
        sample = config.model_warmup.add(name=name, batch_size=rows)
        for given in config.input:
            tensor = sample.inputs[given.name]
            tensor.data_type = given.data_type
            tensor.dims.extend(given.dims)
            tensor.zero_data = True
