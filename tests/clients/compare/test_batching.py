import os
import stat
from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.compare.batching import (
    BatchingConfiguration,
    default_configurations,
    distinct,
    read_configurations,
    replace_file,
    write_batching,
)
from triton_regressors.clients.compare.errors import ComparisonError

CONFIG = """\
# written by the exporter

name: "m"
backend: "python"
max_batch_size: 64
input { name: "X" data_type: TYPE_FP32 dims: 3 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
instance_group { kind: KIND_GPU count: 1 gpus: [0, 1] }
dynamic_batching { preferred_batch_size: 16 preserve_ordering: true default_queue_policy { max_queue_size: 9 } }
parameters { key: "engine" value { string_value: "auto" } }
model_warmup { name: "one" batch_size: 1 inputs { key: "X" value { data_type: TYPE_FP32 dims: 3 zero_data: true } } }
version_policy { latest { num_versions: 2 } }
"""


def parsed(text: str = CONFIG) -> model_config_pb2.ModelConfig:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


configurations = st.builds(
    BatchingConfiguration,
    label=st.just("x"),
    max_queue_delay_us=st.integers(0, 10**7),
    preferred_batch_sizes=st.lists(st.integers(1, 64), max_size=4).map(tuple),
    instances=st.none() | st.integers(1, 8),
) | st.builds(
    BatchingConfiguration, label=st.just("x"), dynamic_batching=st.just(False), instances=st.none() | st.integers(1, 8)
)


@given(configurations)
def test_apply_sets_the_batching_fields_and_nothing_else(configuration: BatchingConfiguration) -> None:
    original = parsed()
    applied = configuration.apply(original)
    assert original == parsed(), "the argument is not changed"
    assert applied.HasField("dynamic_batching") == configuration.dynamic_batching
    if configuration.dynamic_batching:
        assert applied.dynamic_batching.max_queue_delay_microseconds == configuration.max_queue_delay_us
        assert tuple(applied.dynamic_batching.preferred_batch_size) == configuration.preferred_batch_sizes
        assert applied.dynamic_batching.preserve_ordering
        assert applied.dynamic_batching.default_queue_policy.max_queue_size == 9
    assert applied.instance_group[0].count == (configuration.instances or 1)
    assert list(applied.instance_group[0].gpus) == [0, 1]
    for config in (original, applied):
        config.ClearField("dynamic_batching")
        config.ClearField("instance_group")
    assert applied == original


def test_apply_adds_an_instance_group_where_there_is_none() -> None:
    config = parsed()
    config.ClearField("instance_group")
    assert [group.count for group in BatchingConfiguration("x", instances=3).apply(config).instance_group] == [3]
    assert not BatchingConfiguration("x").apply(config).instance_group


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("max_batch_size: 0", "max_batch_size 0"),
        ("sequence_batching {}", "uses sequence_batching"),
        ("max_batch_size: 4", r"'x': preferred_batch_sizes holds 8, which is more than max_batch_size 4\.$"),
    ],
)
def test_apply_refuses_what_the_model_cannot_do(change: str, message: str) -> None:
    config = text_format.Merge(change, parsed())
    with pytest.raises(ComparisonError, match=message):
        BatchingConfiguration("x", preferred_batch_sizes=(8,)).apply(config)


@pytest.mark.parametrize("max_batch_size", [1, 4, 8, 64])
def test_default_set_spans_the_choices_and_fits_the_model(max_batch_size: int) -> None:
    found = distinct(default_configurations(max_batch_size))
    config = parsed()
    config.max_batch_size = max_batch_size
    for configuration in found:
        configuration.apply(config)
    assert {c.dynamic_batching for c in found} == {True, False}
    assert {c.instances for c in found} == {1, 2}
    assert len({c.max_queue_delay_us for c in found}) >= 3
    assert any(c.preferred_batch_sizes for c in found)


def write(path: Path, text: str) -> Path:
    file = path / "set.toml"
    file.write_text(text)
    return file


def test_toml(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        [[configuration]]
        label = "off"
        dynamic_batching = false
        [[configuration]]
        label = "full"
        max_queue_delay_us = 200
        preferred_batch_sizes = [8, 32]
        instances = 2
        """,
    )
    assert read_configurations(file) == (
        BatchingConfiguration("off", dynamic_batching=False),
        BatchingConfiguration("full", max_queue_delay_us=200, preferred_batch_sizes=(8, 32), instances=2),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[[configuration]]\nlabel = "a"\ndelay = 1',
            r"configuration 1: unknown key 'delay'; accepted: dynamic_batching, .*, label\.$",
        ),
        ("[[configurations]]\nlabel = 'a'", r"unknown key 'configurations'; accepted: 'configuration'"),
        ("", r"no \[\[configuration\]\] table"),
        ("[[configuration]]\ninstances = 1", "'label' is missing"),
        ("[[configuration]]\nlabel = ' '", "label that is not empty"),
        (
            "[[configuration]]\nlabel = 'a'\ninstances = 1.5",
            r"'a': instances must be a whole number of at least 1, not 1\.5\.$",
        ),
        (
            "[[configuration]]\nlabel = 'a'\ninstances = 0",
            r"'a': instances must be a whole number of at least 1, not 0\.$",
        ),
        (
            "[[configuration]]\nlabel = 'a'\nmax_queue_delay_us = -1",
            "max_queue_delay_us must be a whole number of at least 0, not -1",
        ),
        (
            f"[[configuration]]\nlabel = 'a'\nmax_queue_delay_us = {2**64}",
            "at least 0 and at most 18446744073709551615",
        ),
        ("[[configuration]]\nlabel = 5", "label that is not empty"),
        (
            "[[configuration]]\nlabel = 'a'\nmax_queue_delay_us = true",
            "max_queue_delay_us must be a whole number of at least 0, not True",
        ),
        (
            "[[configuration]]\nlabel = 'a'\npreferred_batch_sizes = 8",
            "preferred_batch_sizes must be whole numbers of at least 1, not 8",
        ),
        (
            "[[configuration]]\nlabel = 'a'\ndynamic_batching = 'yes'",
            r"dynamic_batching must be true or false, not 'yes'\.$",
        ),
        (
            "[[configuration]]\nlabel = 'a'\ndynamic_batching = false\nmax_queue_delay_us = 5",
            "max_queue_delay_us and preferred_batch_sizes need dynamic",
        ),
        (
            "[[configuration]]\nlabel = 'a'\n[[configuration]]\nlabel = 'a'",
            "Two batching configurations are called",
        ),
        ("[[configuration", "is not valid TOML"),
    ],
)
def test_toml_errors_name_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ComparisonError, match=message):
        read_configurations(write(tmp_path, text))


@pytest.mark.parametrize("second", ["lable = 'b'", "label = 'b'\ninstances = 0", "label = 'a'"])
def test_toml_errors_name_the_line_of_the_table(tmp_path: Path, second: str) -> None:
    text = f"[[configuration]]\nlabel = 'a'\n\n[[ configuration ]]\n{second}\n"
    with pytest.raises(ComparisonError, match=r"set\.toml, line 4, configuration 2: "):
        read_configurations(write(tmp_path, text))
    with pytest.raises(ComparisonError, match=r"set\.toml, configuration 2: "):
        read_configurations(write(tmp_path, 'configuration = [{label = "a"}, {label = "a"}]'))


def test_toml_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ComparisonError, match=r"Cannot read the configurations in .*nowhere\.toml"):
        read_configurations(tmp_path / "nowhere.toml")


def test_write_batching_keeps_every_other_field_and_the_file_mode(tmp_path: Path) -> None:
    file = tmp_path / "config.pbtxt"
    file.write_text(CONFIG)
    file.chmod(0o640)
    configuration = BatchingConfiguration("x", max_queue_delay_us=300, preferred_batch_sizes=(8,), instances=2)
    write_batching(file, configuration)
    assert parsed(file.read_text()) == configuration.apply(parsed())
    assert file.read_text().startswith("# written by the exporter\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["config.pbtxt"]


def test_write_batching_keeps_comments_and_layout_and_sets_every_instance_group(tmp_path: Path) -> None:
    file = tmp_path / "config.pbtxt"
    text = CONFIG.replace(
        "instance_group { kind: KIND_GPU count: 1 gpus: [0, 1] }",
        "instance_group [\n  { kind: KIND_GPU count: 1 gpus: 0 },  # the fast one\n  { kind: KIND_CPU count: 4 }\n]",
    ).replace("dynamic_batching {", "dynamic_batching {  # as measured in May\n ")
    file.write_bytes(text.replace("\n", "\r\n").encode())
    write_batching(file, BatchingConfiguration("x", max_queue_delay_us=300, preferred_batch_sizes=(8,), instances=2))
    expected = (
        text.replace("count: 1 gpus: 0", "count: 2 gpus: 0")
        .replace("count: 4", "count: 2")
        .replace("preferred_batch_size: 16", "preferred_batch_size: 8")
        .replace("max_queue_size: 9 } }", "max_queue_size: 9 }\n  max_queue_delay_microseconds: 300 }")
    )
    assert file.read_bytes().replace(b"\r\n", b"\n").decode() == expected
    write_batching(file, BatchingConfiguration("x", dynamic_batching=False))
    assert file.read_text().count("dynamic_batching") == 0
    assert "# the fast one" in file.read_text()
    assert "as measured in May" not in file.read_text(), "it stood in the braces that are gone"


def test_write_batching_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.pbtxt"
    file.write_text(CONFIG)

    def refuse(source: str, target: Path) -> None:
        assert parsed(Path(source).read_text()).dynamic_batching.max_queue_delay_microseconds == 300, "already complete"
        assert file.read_text() == CONFIG, "not yet replaced"
        raise OSError("disk on fire")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ComparisonError, match=r"Cannot write .*config.pbtxt: disk on fire"):
        write_batching(file, BatchingConfiguration("x", max_queue_delay_us=300))
    assert file.read_text() == CONFIG
    assert os.listdir(tmp_path) == ["config.pbtxt"]


def test_replace_file_swaps_the_file_instead_of_writing_into_it(tmp_path: Path) -> None:
    file = tmp_path / "config.pbtxt"
    file.write_text("old")
    with file.open() as reader:
        replace_file(file, b"new")
        assert reader.read() == "old", "a reader that has it open sees the old file whole"
    assert file.read_text() == "new"


@pytest.mark.parametrize(("content", "message"), [(None, "There is no"), ("max_batch_size: many", "Cannot read")])
def test_write_batching_into_what_is_no_config(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "config.pbtxt"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ComparisonError, match=message):
        write_batching(file, BatchingConfiguration("x"))
