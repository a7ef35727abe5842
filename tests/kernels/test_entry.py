"""Versions, and their files unchanged since the export."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.linear_model import Ridge

from triton_regressors import export
from triton_regressors.kernels import entry
from triton_regressors.kernels.entry import (
    GOLDEN,
    PLAN,
    WEIGHTS,
    Document,
    Entry,
    Golden,
    OutputParity,
    ParityReport,
    Provenance,
    Stage,
    StepSummary,
    find_entry,
    read_document,
    read_golden,
    sealed,
    version_number,
    versions,
    write_document,
    write_golden,
)
from triton_regressors.kernels.format.digests import file_digests
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.format.inputs import Inputs, IntegerInput, TextInput
from triton_regressors.kernels.format.parity import Parity


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
    """Flip it in place: a rewritten file is brought to the disk when it is closed."""
    with path.open("r+b") as file:
        place = file.seek(byte, os.SEEK_SET if byte >= 0 else os.SEEK_END)
        (old,) = file.read(1)
        file.seek(place)
        file.write(bytes([old ^ 1 << bit]))


def test_an_entrys_model_is_the_kernels_own(version: Path) -> None:
    _, line = (version / "model.py").read_text().splitlines()
    assert line == "from .kernels.backend import TritonPythonModel"


def test_an_entry_as_it_was_exported_is_whole(version: Path) -> None:
    read_document(version)
    files = set(file_digests(version, PLAN))
    assert set(json.loads((version / "plan.json").read_text())["files"]) == files
    assert files == {
        path.relative_to(version).as_posix()
        for path in version.rglob("*")
        if path.is_file() and path.name != "plan.json" and "__pycache__" not in path.parts
    }
    assert {"model.py", "weights.safetensors", "golden.safetensors"} <= files
    assert {"kernels/engine/runner.py", "kernels/backend.py"} <= files


@pytest.mark.parametrize(
    "name",
    ["model.py", "weights.safetensors", "golden.safetensors", "kernels/entry.py", "kernels/ops/linear/affine.py"],
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
    for byte in range(0, path.stat().st_size, 7):
        flip(path, byte, byte % 8)
        assert str(path) in refusal(version)
        flip(path, byte, byte % 8)
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
    "stray": (lambda version: (version / "kernels/ops/evil.py").touch(), "evil.py is not part of the exported version"),
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


PLAN_JSON = """{
 "protocol": 3,
 "n_features": 3,
 "provenance": {
  "estimator": "Ridge()",
  "class": "sklearn.linear_model._ridge.Ridge",
  "feature_names": [
   "a",
   "b",
   "c"
  ],
  "scikit_learn": "1.9",
  "triton_regressors": "0.1"
 },
 "inputs": null,
 "nan_columns": [
  2
 ],
 "parity": {
  "tolerance": 1e-05,
  "engine": "torch",
  "rows": 7,
  "rows_from": "the given sample",
  "types": {
   "X": "FP32"
  },
  "why": "FP32: because",
  "outputs": {
   "y": {
    "unit": [
     1.5
    ],
    "max_error": 1e-08,
    "max_ulp": 0.5,
    "excess": 0.0
   },
   "std": {
    "unit": [
     2.0
    ],
    "max_error": 0.25,
    "max_ulp": 0.5,
    "excess": 0.0,
    "rounded": {
     "max_error": 0.0,
     "max_ulp": 0.0,
     "excess": 0.0
    }
   }
  }
 },
 "stages": [
  {
   "stage": "lowered",
   "steps": [
    {
     "output": "v0",
     "op": "affine",
     "inputs": [
      "X"
     ],
     "what": "3 → 1",
     "parameters": 4,
     "bytes": 32,
     "launches": 1
    }
   ]
  }
 ],
"""
DOCUMENT = Document(
    plan={"protocol": 3, "n_features": 3},
    provenance=Provenance("Ridge()", "sklearn.linear_model._ridge.Ridge", ("a", "b", "c"), "1.9", "0.1"),
    inputs=Inputs.plain(3),
    nan_columns=(2,),
    parity=ParityReport(
        tolerance=1e-5,
        engine="torch",
        rows=7,
        rows_from="the given sample",
        types={"X": "FP32"},
        why="FP32: because",
        outputs={
            "y": OutputParity((1.5,), max_error=1e-8, max_ulp=0.5, excess=0.0),
            "std": OutputParity((2.0,), max_error=0.25, max_ulp=0.5, excess=0.0, rounded=Parity(0.0, 0.0, 0.0)),
        },
    ),
    stages=(Stage("lowered", (StepSummary("v0", "affine", ("X",), "3 → 1", 4, 32, 1),)),),
)
NAMES = TextInput("cat", (0, 3), (("Paris", "Zürich"), ("", "cook")), (True, False), ("None", "nan"))


def test_a_document_as_it_is_written(tmp_path: Path) -> None:
    write_document(tmp_path, DOCUMENT)
    written = (tmp_path / "plan.json").read_text()
    assert written.startswith(PLAN_JSON.replace("→", r"\u2192"))
    assert list(json.loads(written))[-2:] == ["files", "digest"]
    assert read_document(tmp_path) == DOCUMENT


@pytest.mark.parametrize(
    "inputs",
    [
        Inputs.plain(3, "float64"),
        Inputs(5, (1, 4), (NAMES,)),
        Inputs(1, (), (TextInput("a", (0,), (("b",),), (True,)),)),
        Inputs(3, (1,), (), "float32", IntegerInput((0, 2), ((2**62, 2**62 + 1), ()), (True, False)), (0,)),
    ],
    ids=["float64", "strings", "strings-alone", "integers"],
)
def test_a_document_keeps_the_inputs(tmp_path: Path, inputs: Inputs) -> None:
    document = replace(DOCUMENT, plan={"n_features": inputs.n_features}, inputs=inputs)
    write_document(tmp_path, document)
    assert list(json.loads((tmp_path / "plan.json").read_text())["inputs"]) == [
        *("dtype", "numeric", "integers", "categorical", "text")
    ]
    assert read_document(tmp_path) == document


def without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda whole: whole.pop(key)


NO_DOCUMENT: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "nothing": (lambda whole: whole.clear(), "n_features must be int"),
    **{key: (without(key), f"it lacks {key!r}") for key in ("provenance", "nan_columns", "parity", "stages")},
    "no_width": (without("n_features"), "n_features must be int"),
    "width": (lambda whole: whole.update(n_features="3"), "n_features must be int"),
    "inputs": (lambda whole: whole.update(inputs={}), "inputs lacks 'numeric'"),
    "list": (lambda whole: whole.update(inputs=[]), "inputs must be an object"),
    "object": (lambda whole: whole.update(stages={}), "stages must be a list"),
    "number": (lambda whole: whole["parity"].update(rows="7"), "parity.rows must be int"),
    "bool": (lambda whole: whole["parity"].update(rows=True), "parity.rows must be int"),
    "names": (lambda whole: whole["provenance"].update(feature_names="abc"), "provenance.feature_names must be a list"),
    "element": (lambda whole: whole["nan_columns"].append(None), "nan_columns[1] must be int"),
    "mapping": (lambda whole: whole["parity"].update(outputs=[]), "parity.outputs must be an object"),
    "output": (lambda whole: whole["parity"]["outputs"].update({"a\nb": {}}), r"parity.outputs['a\nb'] lacks 'unit'"),
    "string": (lambda whole: whole["parity"].update(tolerance="1e-5"), "parity.tolerance must be float"),
}


@pytest.mark.parametrize("damage", NO_DOCUMENT)
def test_what_is_no_document_though_its_digest_fits(tmp_path: Path, damage: str) -> None:
    write_document(tmp_path, DOCUMENT)
    whole = json.loads((tmp_path / "plan.json").read_text())
    NO_DOCUMENT[damage][0](whole)
    (tmp_path / "plan.json").write_bytes(sealed(tmp_path, whole))
    assert refusal(tmp_path) == f"{tmp_path / PLAN} does not hold what an export writes ({NO_DOCUMENT[damage][1]})."


@pytest.mark.parametrize("tolerance", [0, 1, 1e300, -1e-5])
def test_a_tolerance_that_proves_nothing(tmp_path: Path, tolerance: float) -> None:
    write_document(tmp_path, replace(DOCUMENT, parity=replace(DOCUMENT.parity, tolerance=tolerance)))
    says = f"has the tolerance {float(tolerance)!r}; it must lie between 0 and 1 standard deviations."
    assert refusal(tmp_path) == f"{tmp_path / PLAN} {says}"


def test_golden_rows(tmp_path: Path) -> None:
    X, answers = np.eye(3, dtype=np.float32), {name: np.ones((3, 1)) for name in ("y", "std")}
    write_golden(tmp_path, Golden(X, answers))
    read = read_golden(tmp_path, DOCUMENT)
    assert (read.X.dtype, read.X.tolist()) == (np.float32, X.tolist())
    assert {name: array.tolist() for name, array in read.outputs.items()} == {
        name: array.tolist() for name, array in answers.items()
    }


@pytest.mark.parametrize(
    ("golden", "says"),
    [
        (Golden(np.eye(3)[:0], {"y": np.ones((0, 1)), "std": np.ones((0, 1))}), "has no rows; at least 1 is needed."),
        (Golden(np.eye(3), {"y": np.ones((3, 1))}), "is incomplete: 'std' is missing."),
    ],
)
def test_golden_rows_that_prove_nothing(tmp_path: Path, golden: Golden, says: str) -> None:
    write_golden(tmp_path, golden)
    with pytest.raises(PlanError) as raised:
        read_golden(tmp_path, DOCUMENT)
    assert str(raised.value) == f"{tmp_path / GOLDEN} {says}"


@pytest.mark.parametrize("content", [None, b"junk"], ids=["absent", "junk"])
def test_golden_rows_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / GOLDEN).write_bytes(content)
    with pytest.raises(PlanError, match=rf"^Cannot read the golden rows {tmp_path / GOLDEN}: "):
        read_golden(tmp_path, DOCUMENT)


def test_the_document_alone_may_be_read(version: Path) -> None:
    document = read_document(version)
    (version / WEIGHTS).unlink()
    assert "weights.safetensors is missing" in refusal(version)
    assert read_document(version, check_files=False) == document
    flip(version / PLAN, 30)
    with pytest.raises(PlanError):
        read_document(version, check_files=False)


@pytest.mark.parametrize(
    ("name", "number"),
    [("0", 0), ("1", 1), ("10", 10), (str(2**63 - 1), 2**63 - 1)]
    + [(name, None) for name in ("00", "01", "²", "١", "1a", "-1", "+1", "1\n", "", " 1", "1_0", str(2**63), "9" * 20)],
)
def test_what_a_version_is_called(name: str, number: int | None) -> None:
    assert version_number(name) == number


def test_the_versions_of_an_entry(tmp_path: Path) -> None:
    assert versions(tmp_path / "absent") == []
    with pytest.raises(PlanError, match=rf"^{tmp_path} is not an entry: it has no version directory such as 1/\.$"):
        find_entry(tmp_path)
    for name in ("2", "10", "²", "9" * 20, "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "30").touch()
    assert versions(tmp_path) == [2, 10]
    assert find_entry(tmp_path) == Entry(tmp_path, 10)
    assert find_entry(tmp_path, 2) == find_entry(tmp_path, "2") == Entry(tmp_path, 2)
    for absent in (3, 30, "02", "notes"):
        with pytest.raises(PlanError, match=rf"^{tmp_path} has no version {absent}; it has 2, 10\.$"):
            find_entry(tmp_path, absent)
    assert not find_entry(tmp_path).exported
    (tmp_path / "10" / PLAN).touch()
    assert find_entry(tmp_path).exported


IMPORTED = "import sys, types; sys.modules['triton_python_backend_utils'] = types.ModuleType('utils'); import {0}; {1}"


@pytest.mark.parametrize(
    ("module", "absent"),
    [("entry", ("torch", "triton", "triton_regressors.kernels.format.inputs")), ("backend", ("triton",))],
)
def test_what_is_not_imported_too_early(module: str, absent: tuple[str, ...]) -> None:
    """Clients read entries without torch; TRITON_INTERPRET is set and files are checked before all else."""
    check = f"sys.exit(str(sys.modules.keys() & set({absent!r}) or ''))"
    program = IMPORTED.format(f"triton_regressors.kernels.{module}", check)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.strip() == ""


def test_one_module_knows_the_names_of_an_entrys_files() -> None:
    """Everything else takes `kernels/entry.py`'s records."""
    root = Path(entry.__file__).parents[1]
    files = r"golden\.safetensors|weights\.safetensors|[\"'/]plan\.json"
    names = re.compile(rf"{files}|\"(?:provenance|nan_columns|max_ulp)\"")
    folders = ("exporter", "clients", "kernels", "docker", "docs", "benchmarks")
    sources = [path for folder in folders for path in (root / folder).rglob("*.py")]
    assert len(sources) > 100
    knowing = {str(path.relative_to(root)) for path in sources if names.search(path.read_text(encoding="utf-8"))}
    assert knowing == {"kernels/entry.py"}
