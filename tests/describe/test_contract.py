"""The contract in words and as HTML, of documents that exports wrote and of such as come up seldom."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from tests.exporter.dated import fitted, orders
from triton_regressors.describe.contract import Contract, contract_of
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.entry import (
    Document,
    Golden,
    OutputParity,
    ParityReport,
    Provenance,
)
from triton_regressors.kernels.format.fleet import Fleet, MemberClass, MemberOrigin
from triton_regressors.kernels.format.inputs import DateColumn, Inputs, IntegerInput, TextInput
from triton_regressors.kernels.format.member_table import MemberTable
from triton_regressors.kernels.format.parity import Parity

HOMES = pd.DataFrame(
    {
        "city": ["Bern", "Oslo", "Paris", "Rome", "Ulm", "Kyiv"] * 10,
        "kind": ["flat", "house"] * 30,
        "area": np.arange(60.0),
        "<b>rooms</b>": np.arange(60.0) % 5,
    }
)


def contract(estimator: Any, X: Any) -> Contract:
    return compile_estimator(estimator, sample=X).contract("homes", 3)


def made(inputs: Inputs, names: Sequence[str] = (), nan: Sequence[int] = (), **changes: Any) -> Contract:
    """Return the contract of a document that nothing was exported for."""
    golden = Golden(np.zeros((3, inputs.n_features)), {"y": np.zeros((3, 1))})
    return contract_of("made", None, document_of(inputs, names, nan, **changes), golden)


def document_of(inputs: Inputs, names: Sequence[str] = (), nan: Sequence[int] = (), **changes: Any) -> Document:
    """Return a document that nothing was exported for."""
    report = ParityReport(1e-5, "torch", 9, "the given sample", inputs.datatypes(), "", {})
    parity = replace(report, **{"outputs": {"y": OutputParity((1.0,), 1e-8, 0.5, 0.0)}, **changes})
    provenance = Provenance("Ridge()", "sklearn.linear_model._ridge.Ridge", tuple(names), "1", "1")
    return Document({}, provenance, inputs, tuple(nan), parity, ())


def homes() -> Contract:
    encoders = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["city"]), (OrdinalEncoder(), ["kind"]), remainder=SimpleImputer()
    )
    return contract(make_pipeline(encoders, Ridge()).fit(HOMES, HOMES["area"]), HOMES)


def test_what_a_model_of_strings_is_asked() -> None:
    text = homes().text(200)
    assert text.startswith(
        """homes (Pipeline), version 3

Inputs
  X               FP32   [rows, 2]
      2 columns: area, <b>rooms</b>.
      A missing number is NaN.
  onehotencoder   BYTES  [rows, 1]
      1 column: city.
      A missing string is "" (None, nan, NaN, <NA>, NaT too, unless it is a category).
      city: "Bern", "Kyiv", "Oslo", "Paris" and 2 more; any other is an unknown one.
  ordinalencoder  BYTES  [rows, 1]
      1 column: kind.
      A missing string is refused: "" (None, nan, NaN, <NA>, NaT too, unless it is a category).
      kind: "flat", "house"; any other is refused.

Outputs
  y               FP32   [rows, 1]  the prediction

Parity with the estimator's own predict
  y: largest error """
    )
    assert " 60 rows from the given sample, torch engine." in text
    assert str(homes()) == homes().text()
    assert repr(homes()) == f"Contract of homes, version 3\n{homes().brief()}"


def test_the_models_of_a_fleet_are_shown_by_class_and_parity() -> None:
    ids = tuple("abcdefghijkl")
    classes = MemberClass("Lasso, Ridge", 3, 1, True, 3000), *[MemberClass("SVR", 1, 2, False, 50)] * 9
    fleet = Fleet("shop", classes, (MemberOrigin("Ridge", "1.9", "the given sample"),))
    inputs = Inputs(3, (0, 1), (TextInput("shop", (2,), (ids,), (True,)),), numbered="shop_number")
    golden = Golden(np.zeros((1, 3)), {"y": np.zeros((1, 1))})
    document = replace(document_of(inputs, ["u", "v", "shop"]), fleet=fleet)
    errors = np.arange(12) / 1e8
    mask, count, zero = np.ones((12, 3), bool), np.zeros(12, np.int32), {"y": np.zeros(12)}
    table = MemberTable(mask, {"y": errors}, zero, {"y": np.ones((12, 1))}, zero, {}, count, count, mask, mask)
    text = " ".join(contract_of("demand", 1, document, golden, members=table, member="c").text().split())
    assert "Models 12 models; shop names the one that answers a row. 3 models (Lasso, Ridge): 1 launch for" in text
    assert text.count("1 model (SVR): 2 launches, 50 bytes.") == 7
    assert "2 further models in 2 classes: 4 launches, 100 bytes." in text
    assert ": 1.1e-07 of 'l', the worst; 5.0e-08 of 'f', the median; 2.0e-08 of 'c'." in text


def test_columns_keep_the_order_of_training_whatever_the_width() -> None:
    X = HOMES[["area", "<b>rooms</b>"]].rename(columns={"area": "living area, m²", "<b>rooms</b>": " rooms"})
    assert '      2 columns: "living area, m\\u00b2", " rooms".\n' in contract(Ridge().fit(X, X.sum(axis=1)), X).text(
        80
    )
    names = [f"sensor_{number}" for number in range(300)]
    text = made(Inputs.plain(300), names).text(60)
    assert f"300 columns: {', '.join(names)}." in " ".join(text.split())
    assert max(map(len, text.partition("Ask it")[0].splitlines())) <= 60
    assert (
        "  input   X  FP32  [rows, 300]  sensor_0, sensor_1, sensor_2, sensor_3, sensor_4, sensor_5, and 294 more"
        in (made(Inputs.plain(300), names).brief().splitlines())
    )


@pytest.mark.parametrize(
    ("inputs", "nan", "sentences"),
    [
        (Inputs.plain(3), (), ["3 columns, in training order.", "NaN and infinity are refused."]),
        (Inputs.plain(3), (0, 1, 2), ["A missing number is NaN."]),
        (Inputs.plain(3), (1,), ["A missing number is NaN in column 1; elsewhere it is refused."]),
        (Inputs.plain(3), (0, 2), ["A missing number is NaN; it is refused in column 1."]),
        (
            Inputs(3, (0,), integers=IntegerInput((1, 2), ((), ()), (False, False)), categorical=(0,)),
            (),
            [
                *("1 column: column 0.", "Categories, which must not be rounded: column 0.", "INT64  [rows, 2]"),
                *("2 columns: column 1, column 2.", "No number may be missing."),
            ],
        ),
        (
            Inputs(2, (), integers=IntegerInput((0, 1), ((), ()), (False, False), (DateColumn("s"), None))),
            (0,),
            [
                "Dates, in nanoseconds since 1970-01-01 UTC: column 0.",
                "A missing date is -9223372036854775808.",
                "No number may be missing.",
            ],
        ),
        (
            Inputs(2, (), (TextInput("t", (0, 1), (("a\x1b[1m",), ("b",)), (True, False)),)),
            (0,),
            ['A missing string is "" in column 0; elsewhere it is refused.', 'column 0: "a\\u001b[1m"; any other is r'],
        ),
    ],
)
def test_what_counts_as_missing(inputs: Inputs, nan: Sequence[int], sentences: list[str]) -> None:
    text = made(inputs, nan=nan).text(200)
    for sentence in sentences:
        assert sentence in text


def test_what_a_model_of_dates_is_asked() -> None:
    table = orders(unit="us", zone="Europe/Berlin")
    found = contract(fitted(table), table)
    since = "nanoseconds since 1970-01-01 UTC"
    brief = f"integers  INT64  [rows, 1]  ordered ({since}; NaT = -9223372036854775808)"
    assert brief in found.brief()
    text = found.text(200)
    assert f"Dates, in {since}: ordered, whose time zone is Europe/Berlin.\n      No date may be missing.\n" in text
    assert re.search(r"\n  ordered: \d{4}-.* UTC, \d{4}-.* UTC, 2033-\d\d-\d\d \d\d:\d\d:\d\d UTC\.\n", text)
    mixed = Inputs(3, (0,), integers=IntegerInput((1, 2), ((), ()), (False, False), (None, DateColumn("s"))))
    assert f"a, b (b: {since}; NaT = " in made(mixed, ["x", "a", "b"]).brief()


def test_what_a_model_answers() -> None:
    X = HOMES[["area"]].to_numpy()
    text = contract(GaussianProcessRegressor(alpha=1.0).fit(X, X[:, 0]), X).text()
    assert "  std  FP32  [rows, 1]  the standard deviation of the prediction\n" in text
    assert (
        "FP32  [rows, 2]  the prediction, a column for each target\n"
        in contract(Ridge().fit(X, np.hstack([X, X])), X).text()
    )


def test_why_an_error_above_the_tolerance_passed() -> None:
    rounded = Parity(1e-8, 0.5, 0.0)
    forced = made(Inputs.plain(1), outputs={"y": OutputParity((1.0,), 0.5, 9.0, 0.4, rounded)}, why="FP32: it rounds")
    assert "(1.0e-08 to the rounded rows)" in forced.text()
    assert forced.notes()[0] == "FP32: it rounds."
    assert "comes from rounding to FP32, which was requested" in forced.notes()[1]
    (note,) = made(Inputs.plain(1), outputs={"y": OutputParity((1.0,), 0.5, 1.0, 0.0)}).notes()
    assert note == "Output y passes: its error of 5.0e-01 is within one unit in the answer's last float32 place."


def test_many_inputs_are_few_lines() -> None:
    groups = tuple(TextInput(f"g{number}", (number,), (("a",),), (True,)) for number in range(40))
    lines = made(Inputs(40, (), groups)).brief().splitlines()
    assert len(lines) == 9
    assert lines[6] == "  and 34 more inputs"


class _Page(HTMLParser):
    """Collects the tags that are open, all attributes, and the text."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(fragment)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_holds_the_same_and_nothing_of_a_names_own() -> None:
    found = replace(homes(), estimator="<i>Ridge</i>")
    html = found.html("<u>models</u>/homes/3")
    page = _Page(html)
    assert page.open == []
    assert page.tags == {
        *("div", "p", "b", "br", "table", "thead", "tbody", "tr", "th", "td", "pre", "details"),
        "summary",
    }
    assert page.attributes == {"style"}
    assert "url(" not in html
    for words in ("<i>Ridge</i>", "<u>models</u>/homes/3", "2 columns: area, <b>rooms</b>.", found.python, found.shell):
        assert words in page.text
    for words in (*found.inputs[1].notes, *found.notes(), "the prediction", "accepted: 1e-05 or 1 ulp"):
        assert words in page.text


def test_html_of_many_columns_shows_a_few_first() -> None:
    html = made(Inputs.plain(300), [f"sensor_{number}" for number in range(300)]).html()
    assert "sensor_5, and 294 more</summary>300 columns: sensor_0, " in html
    assert "not exported yet" in html


def test_a_model_that_takes_nan_somewhere_says_where() -> None:
    X = HOMES[["area", "<b>rooms</b>"]]
    assert "A missing number is NaN." in contract(HistGradientBoostingRegressor().fit(X, X["area"]), X).text()
