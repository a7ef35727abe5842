"""Files of boosting libraries: which library wrote one, and what is asked for."""

from pathlib import Path

import pytest

from triton_regressors import MissingExtra, extras
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.files.loading import load_estimator

NEITHER = r"was not written by XGBoost, LightGBM or CatBoost\. Save the model with save_model of its library"
XGBOOST = '{"learner":{"attributes":{}},"version":[3,2,0]}'
LIGHTGBM = "tree\nversion=v4\n"
CATBOOST = '{"ctr_data":{},"features_info":{}}'


@pytest.mark.parametrize("name", ["m.json", "m.ubj", "m.txt", "m.cbm"])
@pytest.mark.parametrize("content", ["", "{}", '{"a": 1}', "tre", "garbage", "[1, 2]", "\0" * 99])
def test_what_no_library_wrote_is_refused(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ExportError, match=NEITHER):
        load_estimator(tmp_path / name)


def test_what_a_file_does_not_hold_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(XGBOOST)
    with pytest.raises(ExportError, match=r"means a missing value\. Give it, as in --missing nan, which is XGB"):
        load_estimator(tmp_path / "m.json")


@pytest.mark.parametrize(("name", "content"), [("m.txt", LIGHTGBM), ("m.json", CATBOOST), ("m.skops", "")])
def test_what_a_file_holds_is_not_to_be_said(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ExportError, match=r"itself records what a missing value is\. Leave out --missing\."):
        load_estimator(tmp_path / name, missing=0.0)


@pytest.mark.parametrize(
    ("name", "content", "library"),
    [
        ("m.json", XGBOOST, "xgboost"),
        ("m.ubj", "{L\0learner", "xgboost"),
        ("m.txt", LIGHTGBM, "lightgbm"),
        ("m.json", CATBOOST, "catboost"),
        ("m.cbm", "CBM1", "catboost"),
    ],
)
def test_the_library_that_wrote_it_has_to_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, library: str
) -> None:
    (tmp_path / name).write_text(content)
    monkeypatch.setattr(extras, "find_spec", lambda package: None if package == library else object())
    brings = r"; `pip install 'triton-regressors\[boosters\]'` brings it\.$"
    with pytest.raises(MissingExtra, match=rf"^Reading .*{name} needs {library}, not installed here{brings}"):
        load_estimator(tmp_path / name, missing=float("nan") if library == "xgboost" else None)
