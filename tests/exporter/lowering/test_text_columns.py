"""Models of columns of strings: the tensors they ask for, and what is refused. Their answers: see test_cases.py."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from tests.documents import golden_of
from tests.exporter.catalogue.cases import CASES
from tests.exporter.catalogue.cases_text import CITIES, JOBS, beside
from tests.exporter.catalogue.compiled import compiled, matrix
from triton_regressors import export
from triton_regressors.__main__ import main
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.errors import ExportError
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.model_config import from_pbtxt

STRINGS = [name for name, case in CASES.items() if case.strings and not case.dates]


def tensors(X: pd.DataFrame, inputs: Inputs, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return what a client sends: the numbers, and the strings as bytes, missing ones by a spelling of theirs."""
    found = {"X": X[[names[i] for i in inputs.numeric]].to_numpy(inputs.dtype)} if inputs.numeric else {}
    for group in inputs.text:
        found[group.name] = np.empty((len(X), len(group.columns)), dtype=object)
        for place, (column, known) in enumerate(zip(group.columns, group.categories, strict=True)):
            missing = next(spelling for spelling in ("", *group.missing) if spelling not in known)
            found[group.name][:, place] = X[names[column]].astype(object).fillna(missing).map(str.encode)
    return found


@pytest.mark.parametrize("name", STRINGS)
def test_tensors_are_the_matrix_that_was_verified(name: str) -> None:
    _, X = CASES[name].fitted()
    compilation = compiled(CASES[name])
    sent = tensors(X, compilation.inputs, compilation.columns)
    np.testing.assert_array_equal(compilation.inputs.encode(sent), matrix(CASES[name]))


@pytest.mark.parametrize(
    ("name", "columns", "closed"),
    [
        ("one-hot", {"X": (1, 4), "cat": (0, 3)}, [0, 3]),
        ("one-hot-ignore", {"X": (1, 4), "cat": (0, 3)}, []),
        ("alone", {"cat": (0, 3)}, [0, 3]),
        ("two-groups", {"X": (1, 4), "city": (0,), "job": (3,)}, [3]),
    ],
)
def test_tensors(name: str, columns: dict[str, tuple[int, ...]], closed: list[int]) -> None:
    inputs = compile_estimator(CASES[f"strings-{name}"].fitted()[0]).inputs
    assert inputs.columns() == columns
    assert inputs.closed == closed


@pytest.mark.parametrize(
    ("name", "missing"),
    [("one-hot", False), ("one-hot-missing", True), ("one-hot-none", True), ("imputed", True), ("target", True)],
)
def test_where_a_string_may_be_missing(name: str, missing: bool) -> None:
    assert (0 in compile_estimator(CASES[f"strings-{name}"].fitted()[0]).nan_columns) == missing


def test_unknown_strings_are_what_the_encoder_makes_of_them() -> None:
    model, X = CASES["strings-one-hot-infrequent"].fitted()
    unknown = X.head(8).assign(city="Atlantis")
    compilation = compile_estimator(model)
    matrix = compilation.inputs.encode(tensors(unknown, compilation.inputs, list(unknown.columns)))
    found = Runner(compilation.plan, engine="torch").predict(matrix)["y"]
    np.testing.assert_allclose(found[:, 0], model.predict(unknown), rtol=1e-6)


def test_a_string_that_only_another_encoder_knows_makes_no_answer() -> None:
    X = pd.DataFrame({"size": ["s", "m", "l", "s", "m", "l"] * 4})
    few = OrdinalEncoder(categories=[["s", "m"]])
    both = ColumnTransformer([("few", few, ["size"]), ("all", OrdinalEncoder(), ["size"])])
    known = X[X["size"] != "l"]
    both.fit(known)
    both.named_transformers_["all"].fit(X)
    forest = RandomForestRegressor(3, random_state=0).fit(both.transform(known), np.arange(len(known)))
    compilation = compile_estimator(make_pipeline(both, forest), sample=known)
    asked = compilation.inputs.encode({"few": np.array([[b"s"], [b"l"]], dtype=object)})
    answers = Runner(compilation.plan, engine="torch").predict(asked)["y"]
    np.testing.assert_array_equal(np.isnan(answers[:, 0]), [False, True])  # where scikit-learn raises an error


def test_a_sample_may_be_in_another_order_and_have_more_columns() -> None:
    model, X = CASES["strings-one-hot"].fitted()
    shuffled = X.assign(more=1.0)[["income", "more", "job", "id", "age", "city"]]
    compilations = [compile_estimator(model, sample=sample) for sample in (X, shuffled, X.to_numpy(object))]
    for compilation in compilations[1:]:
        np.testing.assert_array_equal(compilation.sample.X, compilations[0].sample.X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X.drop(columns="job"), "The sample lacks column 'job'; it has no other column in its place."),
        (lambda X: X.assign(age="old"), "The sample's column 'age' must be numbers: it holds 'old' in row 0."),
        (lambda X: X.to_numpy(object)[:, :3], "The sample has shape (96, 3); it must be two-dimensional, [rows, 5]."),
    ],
)
def test_samples_that_do_not_fit(change: Any, message: str) -> None:
    model, X = CASES["strings-one-hot"].fitted()
    with pytest.raises(ExportError) as error:
        compile_estimator(model, sample=change(X))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([b"a", b"b"], "column 0 has categories of type bytes; supported: numbers, or strings"),
        (["a", 1.5], "column 0 holds 1.5, of type float, beside strings; supported: strings, or numbers"),
    ],
)
def test_refused_categories(values: list[Any], reason: str) -> None:
    encoder = OneHotEncoder().fit(np.array([["a"], ["b"]], dtype=object))
    encoder.categories_ = [np.array(values, dtype=object)]
    model = make_pipeline(encoder, Ridge().fit(np.eye(2), [0, 1]))
    with pytest.raises(ExportError) as error:
        compile_estimator(model)
    assert str(error.value) == f"Cannot export OneHotEncoder (step 'onehotencoder'): {reason}."


def test_entries(tmp_path: Path) -> None:
    model, X = CASES["strings-one-hot"].fitted()
    entry = export(model, tmp_path, name="houses", sample=X).entry
    config = from_pbtxt((entry.directory / "config.pbtxt").read_bytes())
    assert [(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in config.input] == [
        ("X", config.input[0].data_type, [2]),
        ("cat", config.input[1].data_type, [2]),
    ]
    assert config.parameters["columns"].string_value == '{"X": ["age", "income"], "cat": ["city", "job"]}'
    (text,) = read_document(entry.version_directory).inputs.text
    assert [set(categories) for categories in text.categories] == [set(CITIES), set(JOBS)]


def test_a_sample_of_the_command_line_keeps_strings_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    X = pd.DataFrame({"zip": ["01234", "NA", "00000", "9"] * 5, "age": np.arange(20.0)})
    model = make_pipeline(make_column_transformer((OneHotEncoder(), ["zip"]), remainder="passthrough"), Ridge())
    skops.io.dump(model.fit(X, X["age"] + X.index % 4), tmp_path / "zips.skops")
    X.to_csv(tmp_path / "rows.csv", index=False)
    monkeypatch.chdir(tmp_path)
    arguments = ["export", "zips.skops", "--sample", "rows.csv", "--missing-string", "?", "--missing-string", ""]
    monkeypatch.setattr("sys.argv", ["triton-regressors", *arguments])
    with pytest.raises(SystemExit) as exited:
        main()
    assert not exited.value.code, exited.value.code
    assert "20 rows from the given" in capsys.readouterr().out
    version = Path("model_repository/zips/1")
    assert set(golden_of(version).X[:, 0]) == {0, 1, 2, 3}
    (text,) = read_document(version).inputs.text
    assert text.missing == ("?",)


def test_spellings_of_a_missing_value_are_in_the_plan_and_the_users_own_choice(tmp_path: Path) -> None:
    model, _ = CASES["strings-one-hot-missing"].fitted()

    def spellings(**options: Any) -> tuple[str, ...]:
        version = export(model, tmp_path, name="houses", **options).entry.version_directory
        (text,) = read_document(version).inputs.text
        return text.missing

    assert spellings() == ("None", "nan", "NaN", "<NA>", "NaT")
    assert spellings(missing_strings=["n/a"]) == ("n/a",)
    assert spellings(missing_strings=()) == ()


def test_a_sample_that_spells_a_missing_value_is_refused_by_name() -> None:
    model, X = CASES["strings-one-hot-ignore"].fitted()
    sample = X.head(20).astype({"city": object})
    sample.loc[3, "city"] = "nan"
    with pytest.raises(ExportError) as error:
        compile_estimator(model, sample=sample)
    assert str(error.value).startswith("The sample's column 'city' holds the string 'nan', which is not a category")
    compilation = compile_estimator(model, sample=sample, missing_strings=())
    np.testing.assert_allclose(compilation.sample.expected["y"][:, 0], model.predict(sample), rtol=1e-12)


def test_a_new_version_keeps_the_columns(tmp_path: Path) -> None:
    model, X = CASES["strings-one-hot"].fitted()
    assert export(model, tmp_path, name="houses").entry.version == 1
    assert export(model, tmp_path, name="houses").entry.version == 2
    renamed = X.rename(columns={"job": "work"})
    other = make_pipeline(beside(OneHotEncoder(), columns=["city", "work"]), Ridge()).fit(renamed, renamed["age"])
    with pytest.raises(ExportError, match="a new version must keep the interface"):
        export(other, tmp_path, name="houses")


def test_numbers_of_another_type_are_numbers() -> None:
    X = np.array([[1, "a"], [2, "b"], [1, "b"], [3, "a"]], dtype=object)
    model = make_pipeline(OneHotEncoder(), Ridge()).fit(X, [1.0, 2.0, 3.0, 5.0])
    inputs = compile_estimator(model, sample=X).inputs
    assert inputs.columns() == {"X": (0,), "onehotencoder": (1,)}
