"""Models that take strings beside numbers, on a real Triton server: clients, commands, `verify` and `compare`."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from tests import documents
from tests.servers import triton_server
from triton_regressors.clients import errors
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.compare.batching import BatchingConfiguration
from triton_regressors.clients.compare.compare import compare
from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.clients.verify import verify
from triton_regressors.commands.predict import predict as predict_command
from triton_regressors.kernels.format.inputs import Inputs, TextInput

pytestmark = pytest.mark.server

# y = age + 2 · income + 10 · the bytes of zip + 1000 · the bytes of city
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        tensors = {name: pb_utils.get_input_tensor_by_name(request, name) for name in ("X", "cat")}
        tensors = {name: tensor.as_numpy() for name, tensor in tensors.items() if tensor is not None}
        lengths = np.vectorize(len, otypes=[np.float32])(tensors["cat"])
        y = lengths @ np.array([10, 1000], np.float32)
        if "X" in tensors:
            y += tensors["X"] @ np.array([1, 2], np.float32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", y.astype(np.float32)[:, None])])
"""

CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 8
{numbers}
input {{ name: "cat" data_type: TYPE_STRING dims: 2 }}
output {{ name: "y" data_type: TYPE_FP32 dims: 1 }}
instance_group {{ kind: KIND_CPU count: 1 }}
dynamic_batching {{}}
{columns}
"""
NUMBERS = 'input { name: "X" data_type: TYPE_FP32 dims: 2 }'
COLUMNS = "parameters {{ key: 'columns' value {{ string_value: '{}' }} }}"
NAMES = {"X": ["age", "income"], "cat": ["zip", "city"]}
INPUTS = Inputs(4, (0, 3), (TextInput("cat", (1, 2), (("01234", "9"), ("Köln", "NA")), (False, False)),))
ROWS = {
    "X": np.array([[34, 1.5], [51, 2], [7, 0]], np.float32),
    "cat": np.array([["01234", "Köln"], ["9", None], ["", "NA"]], dtype=object),
}
PEOPLE = pd.DataFrame({"note": ["x", "y", "z"], "city": ROWS["cat"][:, 1], "income": ROWS["X"][:, 1]}).assign(
    zip=ROWS["cat"][:, 0], age=ROWS["X"][:, 0]
)
Y = np.array([34 + 3 + 50 + 5000, 51 + 4 + 10, 7 + 2000], np.float32)
QUICK = {"warmup_s": 0.1, "window_s": 0.2, "max_windows": 1, "client_processes": 1}
NONE = BatchingConfiguration("none", dynamic_batching=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, write_model: Callable, numpy1: None) -> Iterator[TritonServer]:
    """Serves `people`; `unnamed`, fitted on arrays; and `words`, which takes strings alone."""
    repository = tmp_path_factory.mktemp("repository")
    columns = COLUMNS.format(json.dumps(NAMES))
    for name, parts in {
        "people": {"numbers": NUMBERS, "columns": columns},
        "unnamed": {"numbers": NUMBERS, "columns": ""},
        "words": {"numbers": "", "columns": COLUMNS.format(json.dumps({"cat": NAMES["cat"]}))},
    }.items():
        write_model(repository, name, code=MODEL, config=CONFIG.format(name=name, **parts))
    write_golden(repository / "people" / "1")
    with triton_server([repository]) as running:
        yield running


def write_golden(version: Path, wrong: float = 0.0) -> None:
    """Golden rows as the exporter writes them: numbers in place of the strings."""
    random = np.random.default_rng(0)
    matrix = random.integers(0, 50, (20, 4)).astype(np.float32)
    matrix[:, 1:3] = random.integers(-1, 2, (20, 2))
    matrix[3, 2] = np.nan
    tensors = INPUTS.decode(matrix)
    lengths = np.vectorize(len)(tensors["cat"])
    y = (tensors["X"] @ [1.0, 2.0] + lengths @ [10.0, 1000.0])[:, None]
    documents.write_golden(version, matrix, INPUTS, y=y + wrong)


class TestClients:
    """Each protocol, with and without asyncio."""

    def test_a_mapping(self, client: Client) -> None:
        np.testing.assert_array_equal(client.predict("people", ROWS), Y)
        np.testing.assert_array_equal(client.predict("unnamed", ROWS), Y)
        np.testing.assert_array_equal(client.infer("words", {"cat": [["é", b"b"]]})["y"], [[1020]])

    def test_a_table(self, client: Client) -> None:
        np.testing.assert_array_equal(client.predict("people", PEOPLE), Y)
        y = client.predict("words", PEOPLE)
        np.testing.assert_array_equal(y, [5050, 10, 2000])

    def test_a_table_without_a_single_string(self, client: Client) -> None:
        y = client.predict("people", PEOPLE[["age", "income"]].assign(zip=np.nan, city=np.nan))
        np.testing.assert_array_equal(y, [37, 55, 7])

    def test_a_model_that_is_loaded_again_with_its_columns_elsewhere(
        self, client: Client, server: TritonServer
    ) -> None:
        config = client.config("people")
        config.parameters["columns"].string_value = json.dumps({"X": ["income", "age"], "cat": ["zip", "city"]})
        with Client(server.grpc_url) as operator:
            operator.load("people", config=config)
            try:
                np.testing.assert_array_equal(client.predict("people", PEOPLE)[1:], [2 + 102 + 10, 14 + 2000])
            finally:
                operator.unload("people")
                operator.load("people")
        np.testing.assert_array_equal(client.predict("people", PEOPLE), Y)

    @pytest.mark.parametrize(
        ("model", "X", "says"),
        [
            ("people", {"X": ROWS["X"]}, r"missing required input\(s\) \['cat'\]"),
            (
                "people",
                ROWS["X"],
                "'people' has the inputs 'X' and 'cat': give a table with named columns, or a mapping",
            ),
            ("words", {"dog": [["a", "b"]]}, "'words' has no input 'dog'; it takes the input 'cat'"),
            ("people", {**ROWS, "X": ROWS["X"][:, :1]}, r"unexpected shape for input 'X'.*Expected \[-1,2\], got"),
            (
                "people",
                {**ROWS, "cat": ROWS["X"]},
                "cat's columns 'zip', 'city' must be strings: 'zip' holds 34.0 in row 0",
            ),
            (
                "people",
                {**ROWS, "X": ROWS["cat"]},
                "X's columns 'age', 'income' must be numbers: 'age' holds '' in row 2",
            ),
            ("people", {**ROWS, "X": ROWS["X"][:1]}, "differ in their number of rows: 'X' 1, 'cat' 3"),
            (
                "people",
                ROWS["cat"],
                "'people' has the inputs 'X' and 'cat': give a table with named columns, or a mapping",
            ),
            ("people", PEOPLE.drop(columns="zip"), "lacks column 'zip'"),
            ("unnamed", PEOPLE, "'unnamed' does not say which columns its inputs 'X' and 'cat' are"),
        ],
    )
    def test_errors_name_the_input_or_the_column(self, client: Client, model: str, X: object, says: str) -> None:
        with pytest.raises(errors.InvalidRequest, match=says):
            client.predict(model, X)
        np.testing.assert_array_equal(client.predict("people", ROWS), Y)

    def test_an_unknown_model(self, client: Client) -> None:
        with pytest.raises(errors.ModelNotFound, match="'nothing'"):
            client.predict("nothing", PEOPLE)


@pytest.mark.parametrize("X", [{name: np.tile(rows, (9, 1)) for name, rows in ROWS.items()}, pd.concat([PEOPLE] * 9)])
def test_more_rows_than_a_request_may_have(server: TritonServer, X: object) -> None:
    with Client(server.grpc_url) as client:
        np.testing.assert_array_equal(client.predict("people", X), np.tile(Y, 9))


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_verify(server: TritonServer, tmp_path: Path, protocol: str) -> None:
    url = server.grpc_url if protocol == "grpc" else server.http_url
    with Client(url, protocol) as client:
        result = verify(client, server.repositories[0] / "people")
        assert result.passed
        assert (result.rows, len(result.batchings)) == (20, 3)
        (tmp_path / "people" / "1").mkdir(parents=True)
        write_golden(tmp_path / "people" / "1", wrong=1.0)
        assert not verify(client, "people", repository=tmp_path).passed


class TestPredictCommand:
    CSV = 'id,age,zip,city,income\n1,34,01234,Köln,1.5\n2,51,9,,2\n3,7,,"NA",0\n'

    @pytest.fixture
    def run(self, server: TritonServer, tmp_path: Path) -> Callable:
        app = typer.Typer()
        app.command()(predict_command)

        def predict(name: str, rows: Path, *options: str) -> np.ndarray:
            arguments = [name, str(rows), "--url", server.grpc_url, "--output", str(tmp_path / "y.npy"), *options]
            result = CliRunner().invoke(app, arguments)
            if result.exception:
                raise result.exception
            return np.load(tmp_path / "y.npy")

        return predict

    def test_csv(self, run: Callable, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text(self.CSV)
        np.testing.assert_array_equal(run("people", tmp_path / "x.csv"), Y)
        np.testing.assert_array_equal(run("words", tmp_path / "x.csv"), [5050, 10, 2000])

    def test_strings_are_as_written(self, run: Callable, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text('zip,city,age,income\n1.0, b,1,nan\n"nan","a,\n""b",1,\n')
        # 1.0 is three bytes, " b" two, "nan" three, and 'a,\n"b' five.
        y = run("words", tmp_path / "x.csv")
        np.testing.assert_array_equal(y, [2030, 5030])

    def test_columns_of_a_file_by_other_names(self, run: Callable, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text(self.CSV.replace("zip", "plz").replace("age", "alter"))
        for model in ("people", "unnamed"):
            y = run(model, tmp_path / "x.csv", "--columns", "alter,income,plz,city")
            np.testing.assert_array_equal(y, Y)

    def test_parquet(self, run: Callable, tmp_path: Path) -> None:
        PEOPLE.to_parquet(tmp_path / "x.parquet")
        np.testing.assert_array_equal(run("people", tmp_path / "x.parquet"), Y)
        PEOPLE.assign(zip=[1234, 9, 0]).to_parquet(tmp_path / "x.parquet")
        with pytest.raises(
            errors.RowsError,
            match=r"x\.parquet: The table's column 'zip' must be strings: it holds 1234 in row 0\.$",
        ):
            run("people", tmp_path / "x.parquet")

    @pytest.mark.parametrize(
        ("model", "name", "content", "options", "says"),
        [
            (
                "people",
                "x.csv",
                "34,01234,Bonn,1.5\n",
                (),
                r"does not name its columns; .* 'age', 'income', 'zip', 'city'",
            ),
            ("people", "x.csv", "age,income,zip,city\n", (), r"x\.csv: The table has no rows"),
            ("people", "x.csv", "age,income,zip,city\n1,2,3,4,5\n", (), "lines with more cells than its first"),
            ("unnamed", "x.csv", CSV, (), "'unnamed' was fitted on columns without names: .* inputs 'X' and 'cat', in"),
            ("unnamed", "x.csv", CSV, ("--columns", "age"), "1 columns are named; .* takes 2 for 'X', 2 for 'cat'"),
            ("people", "x.npy", ROWS["X"], (), r"x\.npy does not name its columns"),
        ],
    )
    def test_errors(
        self, run: Callable, tmp_path: Path, model: str, name: str, content: object, options: tuple, says: str
    ) -> None:
        if isinstance(content, str):
            (tmp_path / name).write_text(content)
        else:
            np.save(tmp_path / name, content)
        with pytest.raises(errors.RowsError, match=says) as caught:
            run(model, tmp_path / name, *options)
        assert name in str(caught.value) or model in str(caught.value)


class TestCompare:
    @pytest.mark.parametrize("clients", [1, 4])
    def test_golden_rows(self, server: TritonServer, clients: int) -> None:
        urls = {"url": server.grpc_url, "http_url": server.http_url}
        comparison = compare(
            *("people", server.repositories[0], (NONE,), (clients,)),
            rows=(3,),
            protocols=("grpc", "http"),
            **urls,
            **QUICK,
        )
        assert len(comparison.points) == 2
        for point in comparison.points:
            assert point.floor is not None
            for figures in (point.model, point.floor):
                assert not figures.errors
                assert figures.answers_checked > 0

    def test_a_server_of_its_own(self, server: TritonServer) -> None:
        (point,) = compare("people", server.repositories[0], (NONE,), (1,), **QUICK).points
        assert not point.model.errors

    def test_rows_of_a_file(self, server: TritonServer, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text(TestPredictCommand.CSV)
        options = {"url": server.grpc_url, "rows_file": tmp_path / "x.csv", "floor": False, **QUICK}
        for model in ("people", "words"):
            (point,) = compare(model, None, (NONE,), (2,), rows=(2,), **options).points
            assert not point.model.errors
            assert point.model.answers_checked > 0

    def test_golden_rows_of_other_inputs(self, server: TritonServer, tmp_path: Path) -> None:
        documents.write_golden(tmp_path / "words" / "1", ROWS["X"], y=Y[:, None].astype(np.float64))
        with pytest.raises(ComparisonError, match=r"golden rows of .*words/1 lack 'cat'; export the model again\.$"):
            compare("words", tmp_path, (NONE,), (2,), url=server.grpc_url, **QUICK)
