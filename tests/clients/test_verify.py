import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from safetensors.numpy import save_file
from typer.testing import CliRunner

from tests import documents
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import ModelNotFound, RowsError, ServerError
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.clients.verify import verify
from triton_regressors.commands import predict as query
from triton_regressors.commands.serve import serve
from triton_regressors.exporter.compilation import Export
from triton_regressors.kernels.entry import Entry, sealed

pytestmark = pytest.mark.server
WriteModel = Callable[..., Path]
X = np.random.default_rng(0).uniform(0, 50, (41, 3)).astype(np.float32)
GOLDEN = 2 * X.astype(np.float64).sum(axis=1, keepdims=True)


def write_golden(entry: Path, version: int = 1, **outputs: np.ndarray) -> Path:
    """The golden rows of a version, as the exporter writes them."""
    documents.write_golden(entry / str(version), X, **outputs)
    return entry


def seal(directory: Path, document: dict) -> None:
    """Write a plan.json with these keys and the digests of the files as they are now."""
    (directory / "plan.json").write_bytes(sealed(directory, document))


def save_sealed(directory: Path, tensors: dict) -> None:
    """Put other tensors into a version's golden rows, with digests that fit."""
    save_file(tensors, directory / "golden.safetensors")
    seal(directory, json.loads((directory / "plan.json").read_text()))


def replace_parity(directory: Path, **changes: object) -> None:
    """Change the parity report of a version, with digests that fit."""
    document = json.loads((directory / "plan.json").read_text())
    seal(directory, {**document, "parity": {**document["parity"], **changes}})


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    return write_golden(tmp_path / "sums", y=GOLDEN, std=np.abs(X[:, :1]).astype(np.float64))


@pytest.fixture(params=["grpc", "http"])
def client(request: pytest.FixtureRequest, server: TritonServer) -> Iterator[Client]:
    url = server.grpc_url if request.param == "grpc" else server.http_url
    with Client(url, request.param) as connected:
        yield connected


def test_right_answers_pass(client: Client, entry: Path) -> None:
    result = verify(client, entry)
    assert result.passed
    assert (result.model, result.version, result.rows) == ("sums", "1", 41)
    assert {output.name for output in result.outputs} == {"y", "std"}
    assert all(output.max_error < 1e-6 for output in result.outputs)
    assert len(result.batchings) == 3
    assert repr(result).startswith("Verification(sums version 1 passed on 41 golden rows; y: ")
    assert repr(result).endswith(" std; the same bits in 3 batchings)")
    assert verify(client, "sums", repository=entry.parent, seed=7) == result


def test_what_export_returned_and_an_entry_of_any_repository_are_taken(
    client: Client, entry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, written = verify(client, entry), Entry(entry, 1)
    monkeypatch.chdir(entry.parent.parent)
    relative = entry.relative_to(Path.cwd())
    for given in (written, Export(written, None), str(entry), str(relative), relative):  # type: ignore[arg-type]
        assert verify(client, given) == wanted
    with pytest.raises(RowsError, match=r"^There is no entry sum, here or in the repository model_repository; give"):
        verify(client, "sum")


def test_a_wrong_row_fails(client: Client, entry: Path) -> None:
    wrong = GOLDEN.copy()
    wrong[17] += 3 * wrong.std()
    result = verify(client, write_golden(entry, y=wrong))
    assert not result.passed
    assert result.bit_identical
    (check,) = result.outputs
    assert not check.within
    assert " failed on 41 golden rows; y: " in repr(result)
    assert " std, beyond tolerance; the same bits " in repr(result)
    assert check.max_error == pytest.approx(3 * GOLDEN.std() / wrong.std(), rel=1e-3)


@pytest.mark.parametrize("golden", [np.hstack([GOLDEN, GOLDEN]), np.where(np.arange(41) == 3, np.nan, GOLDEN.T).T])
def test_another_shape_and_nan_fail(client: Client, entry: Path, golden: np.ndarray) -> None:
    result = verify(client, write_golden(entry, y=np.ascontiguousarray(golden)))
    assert [check.within for check in result.outputs] == [False]
    assert not result.passed


def test_bits_that_depend_on_the_batch_fail(server: TritonServer, client: Client, entry: Path) -> None:
    model = server.repositories[0] / "sums" / "1" / "model.py"
    code = model.read_text().replace("2 * x.sum", "(2 + 3e-7 * (len(x) == 5)) * x.sum")
    config = client.config("sums")
    config.name = "uneven"
    client.load("uneven", config=config, files={"1/model.py": code.encode()})
    try:
        result = verify(client, entry, model="uneven")
    finally:
        client.unload("uneven")
    assert not result.bit_identical
    assert not result.passed
    assert all(check.within for check in result.outputs)  # within tolerance all the same


def test_versions(client: Client, entry: Path) -> None:
    write_golden(entry, version=10, y=GOLDEN)
    (entry / ".11.staging").mkdir()
    with pytest.raises(ModelNotFound, match="'sums' version 10 is not found"):
        verify(client, entry)  # the newest here, which the server does not have
    assert verify(client, entry, version=1).passed
    with pytest.raises(RowsError, match=r"has no version 3; it has 1, 10\.$"):
        verify(client, entry, version=3)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda entry: entry.rename(entry.with_name("elsewhere")), "There is no entry "),
        (lambda entry: (entry / "1").rename(entry / "one"), "is not an entry: it has no version directory"),
        (lambda entry: (entry / "1").rename(entry / "²"), "is not an entry: it has no version directory"),
        (lambda entry: (entry / "1" / "plan.json").unlink(), r"Cannot read the plan .*plan\.json: .*No such file"),
        (
            lambda entry: (entry / "1" / "golden.safetensors").unlink(),
            r"golden\.safetensors is missing: the version was",
        ),
        (
            lambda entry: (entry / "1" / "golden.safetensors").write_bytes(b"junk"),
            r"golden\.safetensors is not as it was",
        ),
        (
            lambda entry: (entry / "1" / "model.py").write_text(""),
            r"model\.py is not part of the exported version; remove it",
        ),
        (lambda entry: (entry / "1" / "plan.json").write_text("{"), r"Cannot read the plan .*plan\.json: "),
        (
            lambda entry: (entry / "1" / "plan.json").write_text("{}"),
            r"plan\.json has no digests .*export the model again",
        ),
        (lambda entry: seal(entry / "1", {}), r"plan\.json does not hold what an export writes \(n_features must"),
        (lambda entry: save_sealed(entry / "1", {"y": GOLDEN}), r"golden\.safetensors is incomplete: 'X' is missing\."),
        (
            lambda entry: save_sealed(entry / "1", dict.fromkeys(("X", "y", "std"), X[:0])),
            r"golden\.safetensors has no rows; at",
        ),
        (
            lambda entry: replace_parity(entry / "1", tolerance=1e300),
            r"plan\.json has the tolerance 1e\+300; it must lie",
        ),
        (lambda entry: replace_parity(entry / "1", tolerance=0), r"plan\.json has the tolerance 0\.0; it must lie"),
        (
            lambda entry: replace_parity(entry / "1", tolerance="1"),
            r"plan\.json does .* \(parity\.tolerance must be",
        ),
    ],
)
def test_entries_that_cannot_be_read(server: TritonServer, entry: Path, spoil: Callable, says: str) -> None:
    spoil(entry)
    with Client(server.grpc_url) as client, pytest.raises(RowsError, match=says):
        verify(client, entry)


class TestCommands:
    """`predict` and `verify` as one types them; `serve` is below."""

    @pytest.fixture
    def run(self) -> Callable:
        app = typer.Typer()
        for command in (serve, query.predict, query.verify):
            app.command()(command)
        return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])

    @pytest.fixture
    def named(self, server: TritonServer) -> Iterator[str]:
        """A model of which the server knows the names of the columns, and this machine has no files."""
        with Client(server.grpc_url) as client:
            config = client.config("spare")
            config.parameters["columns"].string_value = json.dumps({"X": ["a", "b", "c"]})
            client.load("spare", config=config)
            yield "spare"
            client.unload("spare")
            client.load("spare")

    def test_verify(self, server: TritonServer, entry: Path, run: Callable) -> None:
        options = ("--repository", entry.parent, "--url", server.http_url, "--protocol", "http")
        good = run("verify", "sums", *options)
        assert good.exit_code == 0, good.output
        assert "41 golden rows" in good.output
        assert "the same bits" in good.output
        write_golden(entry, y=GOLDEN + GOLDEN.std())
        bad = run("verify", "sums", *options)
        assert bad.exit_code == 1
        assert "beyond tolerance" in bad.output

    @pytest.mark.parametrize("suffix", ["npy", "csv", "parquet"])
    def test_predict(self, server: TritonServer, tmp_path: Path, run: Callable, suffix: str) -> None:
        pd.DataFrame(X, columns=["a", "b", "c"]).assign(target="t").to_csv(tmp_path / "x.csv")
        output = tmp_path / f"y.{suffix}"
        result = run(
            *("predict", "sums", tmp_path / "x.csv", "--url", server.grpc_url, "--columns", "a,b,c"),
            *("--outputs", "y,std", "--output", output),
        )
        assert result.exit_code == 0, result.output
        assert result.stdout == ""
        assert result.stderr == f"Wrote 41 rows to {output}.\n"
        if suffix == "npy":
            written = np.load(output)
        else:
            frame = pd.read_csv(output) if suffix == "csv" else pd.read_parquet(output)
            assert list(frame.columns) == ["y", "std"]
            written = frame.to_numpy()
        np.testing.assert_allclose(written, np.hstack([GOLDEN, X[:, :1]]), rtol=1e-6)

    def test_predict_takes_the_columns_that_the_server_names(
        self, server: TritonServer, named: str, tmp_path: Path, run: Callable
    ) -> None:
        pd.DataFrame(X[:, ::-1], columns=["c", "b", "a"]).assign(target="t").to_csv(tmp_path / "reordered.csv")
        pd.DataFrame(X).to_csv(tmp_path / "headless.csv", index=False, header=False)
        pd.DataFrame(X.astype(np.float64)).to_csv(tmp_path / "other[red].csv", index=False, header=list("cba"))
        np.save(tmp_path / "array.npy", X)
        np.save(tmp_path / "narrow.npy", X[:, :2])
        pd.DataFrame(X, columns=["a", "b", "d"]).to_csv(tmp_path / "without.csv", index=False)
        pd.DataFrame(np.hstack([X, X[:, 2:]]), columns=["a", "b", "c", "c"]).to_csv(tmp_path / "twice.csv", index=False)
        (tmp_path / "a[").mkdir()
        written = tmp_path / "a[" / "x]y[red].npy"  # "a[/x]", which is Rich's for an end, in its path

        def predict(name: str) -> np.ndarray:
            options = ("--url", server.grpc_url, "--outputs", "y,std", "--output", written)
            result = run("predict", named, tmp_path / name, *options)
            if isinstance(result.exception, RowsError):
                raise result.exception
            assert result.exit_code == 0, result.output
            assert f"rows to {written}." in result.output
            return np.load(written)

        for name in ("reordered.csv", "headless.csv", "array.npy"):
            np.testing.assert_allclose(predict(name), np.hstack([GOLDEN, X[:, :1]]), rtol=1e-6)
        np.testing.assert_allclose(predict("other[red].csv"), np.hstack([GOLDEN, X[:, 2:]]), rtol=1e-6)
        for name, says in (
            ("without.csv", r"lacks column 'c' of input 'X'; besides the model's columns it has column 'd'\.$"),
            ("narrow.npy", r"narrow\.npy has shape \(41, 2\); 3 features are expected"),
            ("twice.csv", r"twice\.csv has column 'c' more than once"),
        ):
            with pytest.raises(RowsError, match=says):
                predict(name)

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (("--output", "y.txt"), r"the suffix must be \.npy, \.csv, \.parquet"),
            (("--output", "absent/y.npy"), "there is no directory absent"),
        ],
    )
    def test_predict_refuses_before_it_asks(self, tmp_path: Path, run: Callable, arguments: tuple, says: str) -> None:
        np.save(tmp_path / "x.npy", X)
        result = run("predict", "sums", tmp_path / "x.npy", *arguments)
        assert isinstance(result.exception, RowsError)
        assert re.search(says, str(result.exception))

    def test_serve_says_when_there_is_nothing_to_serve(self, tmp_path: Path, run: Callable) -> None:
        result = run("serve", tmp_path)
        assert isinstance(result.exception, ServerError)
        assert str(result.exception) == f"{tmp_path} holds no entry to serve; `triton-regressors export` writes them."
