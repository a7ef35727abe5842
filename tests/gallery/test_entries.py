"""The entries of exhibits: their contents, their writing, and their model, in this process."""

from __future__ import annotations

import ast
import importlib
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gallery.errors import GalleryError
from gallery.serving import entries
from gallery.serving.entries import write
from gallery.serving.services import SERVICES
from triton_regressors.kernels.format.digests import file_digests


class FakeError(str):
    """The answer to a refused request: its sentence."""

    INVALID_ARG = INTERNAL = None

    def __new__(cls, message: str, code: None) -> FakeError:
        return str.__new__(cls, message)


class FakeTensor:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def to_dlpack(self) -> Any:
        return torch.utils.dlpack.to_dlpack(self.tensor)

    @classmethod
    def from_dlpack(cls, name: str, capsule: Any) -> FakeTensor:
        return cls(torch.utils.dlpack.from_dlpack(capsule))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The backend's model class in this process: joined requests cannot be seen through a server."""
    utils = types.ModuleType("triton_python_backend_utils")
    utils.Tensor, utils.TritonError = FakeTensor, FakeError
    utils.InferenceResponse = lambda output_tensors, error=None: error or output_tensors[0].tensor
    utils.get_input_tensor_by_name = lambda request, name: FakeTensor(request.x)
    utils.Logger = types.SimpleNamespace(log_info=lambda message: None)
    monkeypatch.setitem(sys.modules, utils.__name__, utils)
    monkeypatch.delitem(sys.modules, "gallery.serving.backend", raising=False)
    threads = torch.get_num_threads()
    yield importlib.import_module("gallery.serving.backend").TritonPythonModel
    torch.set_num_threads(threads)
    del sys.modules["gallery.serving.backend"]


def test_rows_of_one_length_are_one_launch(in_process: Any) -> None:
    model = in_process()
    cuda = torch.cuda.is_available()
    config = {"parameters": {"exhibit": {"string_value": "softmax"}}}
    kind = "GPU" if cuda else "CPU"
    model.initialize({"model_config": json.dumps(config), "model_instance_kind": kind, "model_instance_device_id": "0"})
    calls, softmax = [], model.function
    model.function = lambda rows: (calls.append(len(rows)), softmax(rows))[1]
    given = [torch.randn(shape) for shape in ((2, 5), (3, 4), (1, 5), (4, 5))]
    requests = [types.SimpleNamespace(x=each, parameters=lambda: "{}") for each in given]
    requests.insert(1, types.SimpleNamespace(x=given[0], parameters=lambda: '{"axis": 0}'))
    refused = model.execute(requests)
    assert "There is no parameter 'axis'" in refused.pop(1)
    assert sorted(calls) == [3, 7]
    for rows, answer in zip(given, refused, strict=True):
        torch.testing.assert_close(answer, torch.softmax(rows, -1))

    def fails(rows: torch.Tensor) -> torch.Tensor:
        if bool((rows == 7).any()):
            raise RuntimeError("seven")
        return softmax(rows)

    model.function = fails
    given[2][0, 0] = 7
    answers = model.execute([each for each in requests if each.parameters() == "{}"])
    assert answers.pop(2) == "The kernel failed: RuntimeError: seven"
    for rows, answer in zip([given[0], given[1], given[3]], answers, strict=True):
        torch.testing.assert_close(answer, torch.softmax(rows, -1))


def imported(node: ast.AST) -> Iterator[str]:
    """Yield the modules that code imports when it runs, without those for its types."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield str(node.module)
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def test_an_entry_imports_nothing_that_it_does_not_bring(tmp_path: Path) -> None:
    write(tmp_path, SERVICES)
    there = {"torch", "triton", "numpy", "triton_python_backend_utils", *sys.stdlib_module_names}
    for name in SERVICES:
        version = tmp_path / name / "1"
        kernel = f"gallery/kernels/{name}.py"
        assert (version / kernel).read_bytes() == (entries.GALLERY.parent / kernel).read_bytes()
        for file in version.rglob("*.py"):
            for module in imported(ast.parse(file.read_bytes())):
                path = version / Path(*module.split("."))
                brought = path.with_suffix(".py").is_file() or path.is_dir()
                assert brought if module.startswith("gallery") else module.partition(".")[0] in there, (file, module)


def test_what_is_written_again_is_the_same_version_until_it_differs(tmp_path: Path) -> None:
    for version in (1, 1):
        (entry,) = write(tmp_path, ["map"])
        assert (entry.name, entry.version) == ("map", version)
    carried = entry.version_directory / "gallery/kernels/map.py"
    carried.write_text(carried.read_text() + "# older\n")
    digests = file_digests(entry.version_directory, entries.DIGESTS)
    (entry.version_directory / entries.DIGESTS).write_text(json.dumps(digests))
    (entry,) = write(tmp_path, ["map"])
    assert entry.version == 2
    assert write(tmp_path, ["map"]) == [entry]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map"]


def test_an_entry_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "zip").mkdir(parents=True)
    with pytest.raises(GalleryError, match=r"zip exists and is not the gallery's entry of zip; choose another"):
        write(tmp_path / "models", ["zip"])
    with pytest.raises(GalleryError, match=r"The gallery serves no exhibit sip; it serves map, zip"):
        write(tmp_path / "other", ["map", "sip"])
    monkeypatch.setattr(entries, "file_digests", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(tmp_path / "other", ["map"])
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["models", "models/zip"]
