"""The command line says what there is without importing what it works with."""

import subprocess
import sys

import pytest

from triton_regressors import extras
from triton_regressors.__main__ import main
from triton_regressors.errors import MissingExtra

HEAVY = ("torch", "triton", "sklearn", "skops", "joblib", "tritonclient", "grpc", "pandas", "numpy", "matplotlib")
COMMANDS = (
    "export",
    "export-fleet",
    "update-fleet",
    "describe",
    "serve",
    "predict",
    "explain",
    "verify",
    "compare",
    "deploy",
)
CODE = f"""
import sys
from triton_regressors.__main__ import main
sys.argv[0] = "triton-regressors"
try:
    main()
finally:
    print("imported", sorted(set({HEAVY}) & sys.modules.keys()))
"""


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), *((command, "--help") for command in COMMANDS)])
def test_what_only_informs_imports_nothing_heavy(arguments):
    command = [sys.executable, "-c", CODE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported []"


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("export", "m.skops"), "export"),
        (("describe", "m.skops"), "export"),
        (("serve",), "serve"),
        (("compare", "m"), "serve"),
    ],
)
def test_a_command_without_its_extra_says_which_to_install(arguments, extra, monkeypatch, tmp_path):
    """`torch` is missing; what else there is does not matter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(extras, "find_spec", lambda package: None if package == "torch" else object())
    monkeypatch.setattr(sys, "argv", ["triton-regressors", *arguments])
    with pytest.raises(SystemExit) as exited:
        main()
    assert f" needs torch, not installed here; `pip install 'triton-regressors[{extra}]'` brings it." in str(
        exited.value.code
    )


def test_several_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda package: None if package in ("torch", "skops") else object())
    with pytest.raises(MissingExtra, match=r"This needs skops, torch, .* brings them\.$"):
        extras.require("export", "This")
