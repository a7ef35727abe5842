"""`import triton_regressors as tr` is enough, and costs nothing until something is used."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import triton_regressors as tr
from triton_regressors import extras
from triton_regressors.exporter.publish.config import ServingOptions


def test_every_name_is_there():
    assert list(tr.__all__) == sorted(tr.__all__)
    assert dir(tr) == tr.__all__
    for name in tr.__all__:
        assert getattr(tr, name) is not None
    with pytest.raises(AttributeError, match="module 'triton_regressors' has no attribute 'exprot'"):
        _ = tr.exprot


def test_type_checkers_are_told_the_same_places():
    tree = ast.parse(Path(tr.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    told = {
        node.module.removeprefix("triton_regressors."): tuple(alias.name for alias in node.names)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert told == tr._PLACES
    eager = {"MissingExtra", "TritonRegressorsError", "__version__"}
    assert {name for names in told.values() for name in names} | eager == set(tr.__all__)


@pytest.mark.parametrize(
    ("used", "not_imported"),
    [
        ("", ("numpy", "tritonclient", "torch", "sklearn", "triton_regressors.clients.infer")),
        ("tr.Client, tr.AsyncClient, tr.verify, tr.TritonServer", ("torch", "sklearn", "skops", "pandas")),
        ("tr.compare, tr.write_report", ("torch", "sklearn", "skops")),
    ],
)
def test_what_is_not_used_is_not_imported(used, not_imported):
    code = f"import sys, triton_regressors as tr; {used or 'tr'}; print(sorted({not_imported} & sys.modules.keys()))"
    code = code.replace(str(not_imported), str(set(not_imported)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_missing_extra_is_an_import_error_that_names_it(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda package: None if package == "sklearn" else object())
    monkeypatch.delitem(vars(tr), "export", raising=False)
    with pytest.raises(
        ImportError, match=r"^triton_regressors\.export needs sklearn, .*\[export\]'` brings it\.$"
    ) as raised:
        _ = tr.export
    assert isinstance(raised.value, tr.MissingExtra)
    assert isinstance(raised.value, tr.TritonRegressorsError)


def test_export_has_every_serving_option_by_name():
    parameters = inspect.signature(tr.export).parameters
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for option in ServingOptions.__dataclass_fields__:
        assert parameters[option].default is None
    for name in list(parameters)[2:]:
        assert re.search(rf"^ +(\w+, )*{name}(, \w+)*: ", tr.export.__doc__, re.MULTILINE), name
