"""Entries that read columns of strings, on a real Triton server, asked by tables over gRPC and HTTP.

Their answers are compared with scikit-learn's in test_parity.py. The embedded server's Python backend reads strings
beside numpy 1 alone; `TritonServer` gives it that.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tritonclient.grpc
import tritonclient.http
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from tritonclient.utils import InferenceServerException

from tests.exporter.catalogue.cases import CASES
from tests.server.snippets import run_snippets
from tests.servers import triton_server
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import InvalidRequest, ServerFault
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.clients.verify import verify

pytestmark = pytest.mark.server

MODELS = {name: CASES[f"strings-{name}"] for name in ("one-hot", "one-hot-ignore", "two-groups", "alone")}

OWNERS = pd.DataFrame({"owner": ["Ada", "None", None, "Bea"] * 6, "pet": ["cat", "nan", "dog", "cat"] * 6})
"""A table with an owner called None and a pet called nan."""


def fit_owners() -> Any:
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["owner", "pet"]))
    return make_pipeline(encoder, Ridge()).fit(OWNERS, np.arange(24.0) + 5 * OWNERS["owner"].isna())


PEOPLE = pd.DataFrame(
    {
        "name": [
            f"{last}, {title}. {number}" for number, (last, title) in enumerate([("Öz", "Mr"), ("Li", "Ms")] * 12)
        ],
        "town": ["Bonn", " ulm", "STRASSE", "Bonn "] * 6,
        "age": np.arange(24.0),
    }
)


def titles_and_towns(table: pd.DataFrame) -> pd.DataFrame:
    title, town = table["name"].str.split(", ").str[1].str.split(".").str[0], table["town"].str.strip().str.lower()
    return pd.DataFrame({"title": title, "both": title + "@" + town, "town": town, "age": table["age"]})


def fit_people() -> Any:
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["title", "both"]),
        (OneHotEncoder(), ["town"]),
        remainder="passthrough",
    )
    y = PEOPLE["age"] + 5.0 * PEOPLE["town"].str.len().astype(float)
    return make_pipeline(FunctionTransformer(titles_and_towns), encoder, Ridge()).fit(PEOPLE, y)


@pytest.fixture(scope="module", name="repository")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("strings") / "models"
    for name, case in MODELS.items():
        model, X = case.fitted()
        export(model, directory, name=name, sample=X, max_queue_delay_us=500)
    export(fit_owners(), directory, name="owners", sample=OWNERS)
    export(fit_people(), directory, name="people", sample=PEOPLE)
    return directory


@pytest.fixture(scope="module", name="server")
def running(repository: Path, numpy1: None) -> Iterator[TritonServer]:
    with triton_server([repository]) as server:
        yield server


@pytest.fixture(scope="module", name="client")
def connected(server: TritonServer) -> Iterator[Client]:
    with Client(server.grpc_url) as client:
        yield client


@pytest.mark.parametrize("name", MODELS)
def test_both_protocols_and_the_golden_rows(server: TritonServer, client: Client, repository: Path, name: str) -> None:
    _, X = MODELS[name].fitted()
    with Client(server.http_url, "http") as http:
        assert http.predict(name, X).tobytes() == client.predict(name, X).tobytes()
    assert verify(client, repository / name).passed


def test_requests_with_bad_strings_fail_alone(client: Client) -> None:
    model, X = MODELS["one-hot"].fitted()
    expected = model.predict(X)
    unknown, missing = X.head(3).copy(), X.head(3).copy()
    unknown.loc[2, "city"] = "Atlantis"
    missing.loc[1, "job"] = None
    errors = {
        "unknown": "cat must hold categories that the model was fitted on: row 2, column 0 ('city') is 'Atlantis'.",
        "missing": "cat must hold no empty string, which is a missing value: row 1, column 1 ('job') is empty.",
    }

    def ask(number: int) -> str:
        kind = ("good", "unknown", "good", "missing")[number % 4]
        if kind == "good":
            rows = slice(number % 90, number % 90 + 5)
            found = client.predict("one-hot", X[rows])
            return "" if np.allclose(found, expected[rows], rtol=1e-5) else "wrong"
        try:
            client.predict("one-hot", unknown if kind == "unknown" else missing)
        except InvalidRequest as error:
            return "" if errors[kind] in str(error) else str(error)
        return f"{kind} was answered"

    with ThreadPoolExecutor(16) as threads:
        assert [answer for answer in threads.map(ask, range(200)) if answer] == []


def test_bits_do_not_depend_on_the_batch(client: Client) -> None:
    name = "one-hot-ignore"
    _, X = MODELS[name].fitted()
    X = pd.concat([X, X.head(20).assign(city="Atlantis")], ignore_index=True)
    whole = client.predict(name, X)
    order = np.random.default_rng(0).permutation(len(X))
    for size in (1, 2, 7, 64, len(X)):
        chosen = order[:size]
        assert client.predict(name, X.iloc[chosen]).tobytes() == whole[chosen].tobytes()


def ask_plainly(library: ModuleType, url: str, model: str, **tensors: np.ndarray) -> np.ndarray:
    """Ask with NVIDIA's client and nothing of ours."""
    inputs = [
        library.InferInput(name, x.shape, "BYTES" if x.dtype == object else "FP32") for name, x in tensors.items()
    ]
    for tensor, x in zip(inputs, tensors.values(), strict=True):
        tensor.set_data_from_numpy(x)
    with library.InferenceServerClient(url) as client:
        answer: np.ndarray = client.infer(model, inputs).as_numpy("y")
    return answer[:, 0]


def test_strings_that_no_sample_held(server: TritonServer, client: Client, repository: Path) -> None:
    model = fit_people()
    asked = pd.DataFrame({"name": ["Zoe, Ms. Q", "A, Dr. B"], "town": ["\u00a0ULM\n", "bonn"], "age": [30.0, 40.0]})
    whole = client.predict("people", pd.concat([asked, PEOPLE], ignore_index=True))
    np.testing.assert_allclose(whole[:2], model.predict(asked), rtol=1e-6)
    with Client(server.http_url, "http") as http:
        assert http.predict("people", asked).tobytes() == whole[:2].tobytes()
    assert verify(client, repository / "people").passed
    with pytest.raises(InvalidRequest, match=r"the model was fitted on: row 1, column 1 \('town'\) is 'Rom'"):
        client.predict("people", asked.assign(town=["Ulm", "Rom"]))
    without_title = asked.assign(name=["Zoe", "A, Ms. B"])
    np.testing.assert_allclose(client.predict("people", without_title), model.predict(without_title), rtol=1e-6)
    sent = {"X": np.zeros((1, 1), np.float32), "text": np.array([[b"\xff, Ms. Q", b"Ulm"]], dtype=object)}
    with pytest.raises(InvalidRequest, match=r"column 0 \('name'\), .* is not UTF-8"):
        client.predict("people", sent)
    rows, answers = run_snippets(repository / "people", server)
    for found in answers:
        np.testing.assert_allclose(found["y"][:, 0], model.predict(rows), rtol=1e-6)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_what_a_plain_client_makes_of_a_missing_value_is_one(server: TritonServer, protocol: str) -> None:
    library = getattr(tritonclient, protocol)
    url = server.grpc_url if protocol == "grpc" else server.http_url
    model = fit_owners()
    sent = np.array(
        [["Ada", None], [None, "cat"], [float("nan"), "cat"], [pd.NA, "cat"], [pd.NaT, "cat"]], dtype=object
    )
    spelt = np.array([[str(value) for value in row] for row in sent], dtype=object)
    # None is somebody's name: what a client writes so is that person.
    meant = pd.DataFrame({"owner": ["Ada", "None", None, None, None], "pet": [None, "cat", "cat", "cat", "cat"]})
    for strings in (sent, spelt):
        found = ask_plainly(library, url, "owners", onehotencoder=strings)
        np.testing.assert_allclose(found, model.predict(meant), rtol=1e-6)
    names = ask_plainly(library, url, "owners", onehotencoder=np.array([["Bea", "nan"]], dtype=object))
    np.testing.assert_allclose(names, model.predict(pd.DataFrame({"owner": ["Bea"], "pet": ["nan"]})), rtol=1e-6)


@pytest.mark.parametrize("value", [None, float("nan"), "None", "nan"])
def test_a_missing_value_that_scikit_learn_refuses_is_named(server: TritonServer, value: object) -> None:
    rows = {"X": np.zeros((1, 2), np.float32), "cat": np.array([["Paris", value]], dtype=object)}
    with pytest.raises(InferenceServerException) as error:
        ask_plainly(tritonclient.grpc, server.grpc_url, "one-hot", **rows)
    assert f"row 0, column 1 ('job') is '{value}', which counts as missing." in str(error.value)


def test_long_strings_are_refused_and_no_error_quotes_them_whole(client: Client) -> None:
    _, X = MODELS["one-hot"].fitted()
    _, ignoring = MODELS["one-hot-ignore"].fitted()
    known = client.predict("one-hot", X.head(1))
    for length, says in (
        (80, f"is '{80 * 'é'}'."),
        (81, f"is '{80 * 'é'}'... (162 bytes)."),
        (
            2_049,
            f"no string of more than 4,096 bytes, the entry's max_string_bytes: .* is '{80 * 'é'}'... (4,098 bytes).",
        ),
        (5_000_000, f"more than 4,096 bytes.*'{80 * 'é'}'... (10,000,000 bytes)."),
    ):
        with pytest.raises(InvalidRequest, match=says.replace("(", r"\(").replace(")", r"\)")):
            client.predict("one-hot", X.head(1).assign(city="é" * length))
    with pytest.raises(InvalidRequest, match="no string of more than 4,096 bytes"):
        client.predict("one-hot-ignore", ignoring.head(1).assign(city="x" * 4097))
    assert client.predict("one-hot-ignore", ignoring.head(1).assign(city="x" * 4096)).shape == (1,)
    assert client.predict("one-hot", X.head(1)).tobytes() == known.tobytes()


def test_the_limit_of_strings_is_the_entrys_own(client: Client) -> None:
    config = client.config("alone")
    assert config.parameters["max_string_bytes"].string_value == "4096"
    _, X = MODELS["alone"].fitted()
    known = client.predict("alone", X)
    config.parameters["max_string_bytes"].string_value = "2"  # less than the categories have, which stay what they are
    client.load("alone", config=config)
    assert client.predict("alone", X).tobytes() == known.tobytes()
    with pytest.raises(InvalidRequest, match=r"more than 2 bytes.* is 'abc'\."):
        client.predict("alone", X.head(1).assign(city="abc"))
    config.parameters["max_string_bytes"].string_value = "many"
    with pytest.raises(
        ServerFault, match="parameter max_string_bytes must be a whole number of at least 1, not 'many'"
    ):
        client.load("alone", config=config)


def test_the_snippets_of_describe(server: TritonServer, repository: Path) -> None:
    rows, answers = run_snippets(repository / "one-hot", server)
    expected = MODELS["one-hot"].fitted()[0].predict(rows)
    for found in answers:
        np.testing.assert_allclose(found["y"][:, 0], expected, rtol=1e-6)
    rows, answers = run_snippets(repository / "owners", server, {'"(cat|dog)"': "None"})
    assert rows.pet.tolist() == [None]
    for found in answers:
        np.testing.assert_allclose(found["y"][:, 0], fit_owners().predict(rows), rtol=1e-6)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="beside numpy 1 every server reads strings")
def test_an_environment_that_cannot_read_strings_is_named(repository: Path, tmp_path: Path) -> None:
    """An entry of strings comes to a running server that had no need of numpy 1."""
    (tmp_path / "models").mkdir()
    with triton_server([tmp_path / "models"]) as server, Client(server.grpc_url) as client:
        (tmp_path / "models" / "one-hot").symlink_to(repository / "one-hot")
        with pytest.raises(
            ServerFault, match=r"cannot read strings with numpy .*: give its models numpy below 2, as `"
        ):
            client.load("one-hot")
