"""Versions, and their files as they were exported."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.linear_model import Ridge

from triton_regressors import export
from triton_regressors.kernels.entry import check_proof, read_document, sealed, version_number, versions
from triton_regressors.kernels.errors import PlanError


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X = np.random.default_rng(0).standard_normal((30, 3))
    return export(Ridge().fit(X, X[:, 0]), tmp_path_factory.mktemp("models")).entry.version_directory


@pytest.fixture
def version(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "1"))


def refusal(version: Path) -> str:
    with pytest.raises(PlanError) as raised:
        read_document(version)
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(".")
    return str(raised.value)


def flip(path: Path, byte: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


def test_an_entry_as_it_was_exported_is_whole(version: Path) -> None:
    document = read_document(version)
    assert set(document["files"]) == {
        path.relative_to(version).as_posix()
        for path in version.rglob("*")
        if path.is_file() and path.name != "plan.json" and "__pycache__" not in path.parts
    }
    assert {"model.py", "weights.safetensors", "golden.safetensors", "kernels/run.py"} <= set(document["files"])


@pytest.mark.parametrize(
    "name", ["model.py", "weights.safetensors", "golden.safetensors", "kernels/entry.py", "kernels/ops/affine.py"]
)
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_flipped_bit_is_noticed_and_its_file_named(version: Path, name: str, place: str) -> None:
    flip(version / name, 0 if place == "first" else -1)
    assert refusal(version) == f"{version / name} is not as it was exported: its SHA-256 is not the one in plan.json."


def test_the_lowest_bit_of_a_weight_is_noticed(version: Path) -> None:
    tensors = load_file(version / "weights.safetensors")
    tensors["0.weight"].view(np.int64)[0, 0] ^= 1
    save_file(tensors, version / "weights.safetensors")
    assert "weights.safetensors is not as it was exported" in refusal(version)


def test_every_flipped_bit_of_plan_json_is_noticed(version: Path) -> None:
    path = version / "plan.json"
    content = path.read_bytes()
    for byte in range(0, len(content), 7):
        flip(path, byte, byte % 8)
        assert str(path) in refusal(version)
        path.write_bytes(content)
    read_document(version)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (
        lambda version: (version / "golden.safetensors").unlink(),
        "golden.safetensors is missing: the version",
    ),
    "folder": (
        lambda version: ((version / "model.py").unlink(), (version / "model.py").mkdir()),
        "model.py is missing: the version was exported with it.",
    ),
    "stray": (lambda version: (version / "kernels/ops/evil.py").touch(), "evil.py is no part of the version as it was"),
    "cut": (lambda version: (version / "plan.json").write_bytes(b"{"), "Cannot read the plan"),
    "deep": (lambda version: (version / "plan.json").write_text("[" * 100_000), "Cannot read the plan"),
    "list": (lambda version: (version / "plan.json").write_text("[1, 2]"), "plan.json: it is not a JSON object."),
    "none": (lambda version: (version / "plan.json").unlink(), "plan.json: [Errno 2] No such file or directory"),
    "old": (lambda version: (version / "plan.json").write_text("{}"), "plan.json has no digests of itself and of the"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_sentence_that_names_the_file(version: Path, damage: str) -> None:
    DAMAGE[damage][0](version)
    assert DAMAGE[damage][1] in refusal(version)


def test_what_python_and_file_systems_leave_behind_is_no_damage(version: Path) -> None:
    for name in (
        "__pycache__/model.cpython-311.pyc",
        "kernels/ops/__pycache__/x.pyc",
        ".nfs0001",
        ".snapshot/model.py",
    ):
        (version / name).parent.mkdir(exist_ok=True)
        (version / name).touch()
    read_document(version)


def test_sealing_again_gives_the_same_bytes(version: Path) -> None:
    content = (version / "plan.json").read_bytes()
    assert sealed(version, json.loads(content)) == content


@pytest.mark.parametrize("rows_and_tolerance", [(0, 1e-5), (3, 0), (3, 1), (3, 1e300), (3, float("nan")), (3, "1e-5")])
def test_golden_rows_that_prove_nothing(tmp_path: Path, rows_and_tolerance: tuple[int, object]) -> None:
    check_proof(tmp_path, 1, 1e-5)
    with pytest.raises(PlanError, match=r"golden\.safetensors has no rows|plan\.json has the tolerance"):
        check_proof(tmp_path, *rows_and_tolerance)


@pytest.mark.parametrize(
    ("name", "number"),
    [("1", 1), ("10", 10), (str(2**63 - 1), 2**63 - 1)]
    + [(name, None) for name in ("0", "01", "²", "١", "1a", "-1", "+1", "1\n", "", " 1", "1_0", str(2**63), "9" * 20)],
)
def test_what_a_version_is_called(name: str, number: int | None) -> None:
    assert version_number(name) == number


def test_the_versions_of_an_entry(tmp_path: Path) -> None:
    assert versions(tmp_path / "absent") == []
    for name in ("2", "10", "²", "9" * 20, "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "3").touch()
    (tmp_path / "2" / "plan.json").touch()
    assert versions(tmp_path) == [2, 10]
    assert versions(tmp_path, "plan.json") == [2]
