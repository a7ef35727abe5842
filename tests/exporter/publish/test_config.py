"""The options of an export, in a configuration that its user has made their own."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from triton_regressors import export
from triton_regressors.batching import Batching
from triton_regressors.errors import TritonRegressorsError
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.publish.config import ServingOptions, for_next_version, make_config
from triton_regressors.kernels.format.columns_digest import columns_digest
from triton_regressors.kernels.format.inputs import DateColumn, Inputs, IntegerInput
from triton_regressors.model_config import from_pbtxt

MODEL = Ridge().fit(np.eye(4)[:3], np.arange(3.0))
GROUPS = """\
instance_group [
  # the two fast GPUs
  { count: 1  kind: KIND_GPU  gpus: [0, 1]  name: "fast" },
  {
    count: 2  # it has more memory
    kind: KIND_GPU
    gpus: 2
    host_policy: "gpu_2"
  }
]
"""


@pytest.mark.parametrize(
    ("options", "pieces"),
    [
        ({"instances": 3}, [("count: 1 ", "count: 3 "), ("count: 2 ", "count: 3 ")]),
        ({"instance_kind": "gpu"}, []),
        ({"instance_kind": "auto"}, [("  kind: KIND_GPU  gpus", "  gpus"), ("    kind: KIND_GPU\n", "")]),
        (
            {"instance_kind": "cpu"},
            [("KIND_GPU  gpus: [0, 1]", "KIND_CPU"), ("KIND_GPU\n    gpus: 2\n", "KIND_CPU\n")],
        ),
        ({"instances": 1, "engine": "torch"}, [("count: 2 ", "count: 1 "), ('"auto"', '"torch"')]),
    ],
)
def test_an_option_sets_every_instance_group_and_nothing_else(
    tmp_path: Path, options: dict[str, Any], pieces: list[tuple[str, str]]
) -> None:
    config = export(MODEL, tmp_path, name="model").entry.directory / "config.pbtxt"
    generated = config.read_text()
    start, end = generated.index("instance_group {"), generated.index("parameters {")
    mine = f"# ours; ask Anna\n{generated[:start]}{GROUPS}{generated[end:]}# the end\n"
    config.write_text(mine)
    config.chmod(0o640)
    assert export(MODEL, tmp_path, name="model", **options).entry.version == 2
    for old, new in pieces:
        assert mine.count(old) == 1
        mine = mine.replace(old, new)
    assert config.read_text() == mine
    assert stat.S_IMODE(config.stat().st_mode) == 0o640


def test_a_batching_field_takes_no_other_schedulers_place(tmp_path: Path) -> None:
    config = export(MODEL, tmp_path, name="model").entry.directory / "config.pbtxt"
    config.write_text(config.read_text().replace("dynamic_batching {", "sequence_batching {"))
    assert export(MODEL, tmp_path, name="model", instances=2).entry.version == 2
    before = config.read_text()
    with pytest.raises(
        ExportError, match=r"^dynamic_batching cannot be set for 'model', which uses sequence_batching\.$"
    ):
        export(MODEL, tmp_path, name="model", max_queue_delay_us=5)
    assert config.read_text() == before


def test_no_batching_and_no_delay_is_no_batching() -> None:
    options = ServingOptions(dynamic_batching=False, max_queue_delay_us=0, preferred_batch_sizes=())
    assert not options.apply(from_pbtxt("dynamic_batching {}")).HasField("dynamic_batching")


@pytest.mark.parametrize("value", ["no", 1, np.True_])
def test_whether_to_batch_is_true_or_false(value: Any) -> None:
    with pytest.raises(ExportError, match=r"^dynamic_batching must be true or false, not "):
        ServingOptions(dynamic_batching=value)


def test_preferred_sizes_past_the_servers_numbers() -> None:
    options = ServingOptions(preferred_batch_sizes=(2**40,))
    with pytest.raises(ExportError, match=r"^preferred_batch_sizes holds 1099511627776, which is more than "):
        options.apply(from_pbtxt("max_batch_size: 8"))


def test_the_record_alone() -> None:
    assert Batching(preferred_batch_sizes=[8, 16]).preferred_batch_sizes == (8, 16)  # type: ignore[arg-type]
    with pytest.raises(TritonRegressorsError, match=r"^instances must be a whole number of at least 1, not 0\.$"):
        Batching(instances=0)
    config = from_pbtxt("max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 preserve_ordering: true }")
    assert Batching().apply(config) == config
    assert Batching(max_queue_delay_us=9).apply(config) == from_pbtxt(
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 preserve_ordering: true "
        "max_queue_delay_microseconds: 9 }"
    )


def test_clients_are_told_of_the_newest_version_s_dates() -> None:
    def made(zone: str | None, *, dated: bool = True) -> Any:
        dates = (None, DateColumn("s", zone)) if dated else None
        integers = IntegerInput((0, 1), ((), ()), (False, False), dates)
        return make_config("orders", Inputs(2, (), integers=integers), {"y": 1}, ServingOptions())

    plain, naive, zoned = made(None, dated=False), made(None), made("Asia/Tokyo")
    assert "dates" not in plain.parameters
    assert naive.parameters["dates"].string_value == '{"integers": [{"column": 1, "unit": "ns", "zone": null}]}'
    assert for_next_version(naive, zoned).parameters["dates"] == zoned.parameters["dates"]
    assert for_next_version(plain, naive).parameters["dates"] == naive.parameters["dates"]
    assert "dates" not in for_next_version(naive, plain).parameters
    digests = {
        columns_digest({name: value.string_value for name, value in config.parameters.items()})
        for config in (plain, naive, zoned)
    }
    assert len(digests) == 3
    assert (
        columns_digest({"columns": "a", "categories": "b"}) == "3554d2b8a1e34099053865de8576d146"
    )  # as entries without dates have it
