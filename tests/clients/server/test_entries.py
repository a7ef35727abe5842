"""Tests of the checks of a repository before a server starts on it."""

import os
from pathlib import Path

import pytest

from triton_regressors.clients.server.entries import plain_paths, reads_strings, select, signature, unfinished


def write_entry(repository: Path, name: str, config: str, *files: str) -> Path:
    for file in files:
        (repository / name / file).parent.mkdir(parents=True, exist_ok=True)
        (repository / name / file).write_text("")
    (repository / name / "config.pbtxt").write_text(f'backend: "python"\n{config}')
    return repository / name


@pytest.mark.parametrize(
    ("config", "files", "reason"),
    [
        ("", ["1/model.py", "10/model.py"], None),
        ("", ["1/model.py", "10/plan.json"], "version 10 has no model.py, as during a copy"),
        ("", ["1/plan.json", "10/model.py"], None),  # the newest alone is served
        ("", ["1/model.py", "007/plan.json", "99999999999999999999/plan.json"], None),  # these the server does not see
        ("", ["0/plan.json", "00/model.py"], "version 0 has no model.py, as during a copy"),
        ("version_policy { latest { num_versions: 2 } }", ["1/plan.json", "10/model.py"], "version 1 has no model.py"),
        ("version_policy { all {} }", ["1/plan.json", "2/model.py", "3/model.py"], "version 1 has no model.py"),
        ("version_policy { specific { versions: 2 } }", ["1/plan.json", "2/model.py", "3/plan.json"], None),
        ('default_model_filename: "other.py"', ["1/model.py"], "version 1 has no other.py"),
        (
            'default_model_filename: "$(x).py"',
            ["1/$(x).py"],
            "the name '$(x).py' holds characters that a shell would interpret",
        ),
        ("", ["notes/model.py"], None),  # no version at all: the server says so
        ("max_batch: {", ["1/plan.json"], None),  # and this
    ],
)
def test_what_a_server_would_hang_on(tmp_path: Path, config: str, files: list[str], reason: str | None) -> None:
    found = unfinished(write_entry(tmp_path, "entry", config, *files))
    assert found == reason if reason is None else (found or "").startswith(reason)


def test_a_selection(tmp_path: Path) -> None:
    write_entry(tmp_path, "numbers", "", "1/model.py")
    words = write_entry(tmp_path, "words", 'input { name: "cat" data_type: TYPE_STRING dims: 1 }', "1/model.py")
    write_entry(tmp_path, "half", "", "1/plan.json")
    write_entry(tmp_path, ".hidden", "", "1/plan.json")
    assert reads_strings(words)
    everything = select([tmp_path], None)
    assert (everything.wanted, set(everything.left_out), everything.strings) == (["numbers", "words"], {"half"}, True)
    assert set(everything.signatures) == {"numbers", "words"}
    one = select([tmp_path], ["numbers", "absent"])
    assert (one.wanted, one.left_out, one.strings) == (["numbers", "absent"], {}, False)
    assert select([tmp_path], []).strings  # what is loaded later may read them
    words.rename(tmp_path.parent / "words-elsewhere")
    (tmp_path / "half" / "1" / "model.py").touch()
    assert select([tmp_path], None).wanted is None


def test_a_signature_is_of_the_files_alone(tmp_path: Path) -> None:
    entry = write_entry(tmp_path, "entry", "", "1/model.py")
    before = signature(entry)
    (entry / "1" / "__pycache__").mkdir()
    (entry / "1" / "__pycache__" / "model.pyc").touch()
    assert signature(entry) == before
    os.utime(entry / "1" / "model.py", ns=(1, 1))
    assert signature(entry) != before


def test_paths_for_a_shell(tmp_path: Path) -> None:
    for name in ("plain", "not plain"):
        (tmp_path / name).mkdir()
    first, second = plain_paths([tmp_path / "plain", tmp_path / "not plain"], tmp_path)
    assert first == tmp_path / "plain"
    assert (second.name, second.resolve()) == ("repository-1", tmp_path / "not plain")
