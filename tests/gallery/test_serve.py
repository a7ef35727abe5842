"""Exhibits behind the real Triton server: their answers and refusals, and the commands around them."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from tritonclient.utils import InferenceServerException
from typer.testing import CliRunner

from gallery.__main__ import make_app
from gallery.errors import GalleryError
from gallery.serving import entries
from gallery.serving.client import PROTOCOLS, Connection, check, served
from gallery.serving.entries import write
from gallery.serving.services import SERVICES
from tests.processes import running
from tests.servers import triton_server
from tests.waiting import wait_for
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import ServerFault
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.kernels.format.digests import file_digests

pytestmark = pytest.mark.server
ROOT = Path(__file__).parents[2]

x, X = torch.arange(6.0), torch.arange(6.0).view(2, 3)
halves = [torch.ones(shape, dtype=torch.float16) for shape in ((2, 3), (4, 5), (5,))]
q, k = torch.ones(1, 1, 2, 64, dtype=torch.float16), torch.ones(1, 1, 2, 128, dtype=torch.float16)
image, filters = (torch.ones(shape, dtype=torch.float16) for shape in ((1, 2, 4, 4), (3, 2, 9, 9)))

BAD: list[tuple[str, dict[str, torch.Tensor], dict[str, Any], str]] = [
    ("map", {"x": x}, {"d": 1.0}, "There is no parameter 'd'; accepted are: c."),
    ("map", {"x": x}, {"c": "one"}, "The parameter 'c' is 'one'; it must be of the type float."),
    ("map", {"x": X}, {}, "unexpected shape for input 'x' for model 'map'. Expected [-1], got [2,3]."),
    ("map", {"x": x}, {"c": "1" * 100_000}, "1111..."),
    ("zip", {"x": x, "y": x[:4]}, {}, "'y' has shape [4]; [6] is needed."),
    ("zip", {"x": x}, {}, "expected 2 inputs but got 1 inputs for model 'zip'."),
    ("dot", {"x": x, "y": x[:4]}, {}, "'y' has shape [4]; [6] is needed."),
    ("pooling", {"x": X.view(1, 2, 3)}, {"window": "3,three"}, 'it must be whole numbers, as in "3,3".'),
    (
        "pooling",
        {"x": X.view(1, 2, 3)},
        {"window": "3,300"},
        "The parameter 'window' is '3,300'; at most 16 is served.",
    ),
    ("pooling", {"x": X.view(1, 2, 3)}, {}, "'window' 3 "),
    ("softmax", {"x": X}, {"axis": 0}, "There is no parameter 'axis'; accepted are: none."),
    ("matmul_relu", dict(zip("ab", halves, strict=False)) | {"bias": halves[2]}, {}, "'b' has shape [4, 5]; [3, any]"),
    ("layer_norm", {"x": X, "weight": x, "bias": x}, {}, "'weight' has shape [6]; [3] is needed."),
    ("layer_norm", {"x": X, "weight": x[:3], "bias": x[:3]}, {"eps": True}, "'eps' is True; it must be of the type"),
    ("layer_norm", {"x": X, "weight": x[:3], "bias": x[:3]}, {"eps": -5.0}, "'eps' is -5.0; it must be above 0 and"),
    ("attention", {"q": q, "k": k, "v": k}, {}, "'k' has shape [1, 1, 2, 128]; [1, 1, any, 64] is needed."),
    ("attention", {"q": q, "k": q, "v": q}, {"causal": 1}, "'causal' is 1; it must be of the type bool."),
    ("convolution", {"x": image, "weight": filters, "bias": halves[0][0]}, {}, "'weight' has shape [3, 2, 9, 9]"),
    ("convolution", {"x": image, "weight": filters, "bias": halves[2]}, {}, "'bias' has shape [5]; [3] is needed."),
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("gallery") / "models"
    write(directory, SERVICES)
    return directory


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[TritonServer]:
    with triton_server([repository]) as running:
        yield running


@pytest.fixture(params=PROTOCOLS)
def connection(request: pytest.FixtureRequest, server: TritonServer) -> Iterator[Connection]:
    with Connection(request.param, server.grpc_url if request.param == "grpc" else server.http_url) as connected:
        yield connected


@pytest.mark.parametrize("name", SERVICES)
def test_a_served_exhibit_answers_as_its_reference(connection: Connection, name: str) -> None:
    few = None if connection.protocol == "grpc" else 3  # the interpreter is slow
    rows = list(islice(check(connection, name, timed=False), few))
    assert len(rows) >= 3
    assert not [row for row in rows if not row.agrees]


@pytest.mark.parametrize(("name", "tensors", "scalars", "sentence"), BAD)
def test_a_bad_request_is_refused_by_a_sentence(
    connection: Connection, name: str, tensors: dict[str, torch.Tensor], scalars: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(GalleryError) as refused:
        connection.ask(name, tensors, scalars)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith(f"{name} over ")
    assert next(check(connection, name, timed=False)).agrees


def test_the_kernel_s_refusal_is_the_client_s_fault(server: TritonServer) -> None:
    for protocol, url, status in (("grpc", server.grpc_url, "INVALID_ARGUMENT"), ("http", server.http_url, "400")):
        library = importlib.import_module(f"tritonclient.{protocol}")
        inputs = []
        for name, length in (("x", 3), ("y", 4)):
            inputs.append(library.InferInput(name, [length], "FP32"))
            inputs[-1].set_data_from_numpy(torch.ones(length).numpy())
        with pytest.raises(InferenceServerException) as refused:
            library.InferenceServerClient(url).infer("zip", inputs)
        assert status in refused.value.status()


def test_requests_that_the_server_joins_fail_for_themselves_alone(server: TritonServer) -> None:
    library = importlib.import_module("tritonclient.grpc")
    client = library.InferenceServerClient(server.grpc_url)
    pending = []
    for number in range(24):
        rows = torch.randn(1 + number % 3, 5 + number % 2)
        given = library.InferInput("x", list(rows.shape), "FP32")
        given.set_data_from_numpy(rows.numpy())
        bad = {"axis": 0} if number % 6 == 0 else {}
        done: list[Any] = []
        client.async_infer(
            "softmax", [given], partial(lambda done, result, error: done.extend([result, error]), done), parameters=bad
        )
        pending.append((rows, bad, done))
    wait_for(lambda: all(done for _, _, done in pending))
    for rows, bad, (answer, error) in pending:
        if bad:
            assert "There is no parameter 'axis'" in str(error)
        else:
            assert error is None
            torch.testing.assert_close(torch.tensor(answer.as_numpy("y")), torch.softmax(rows, -1))


def seal(version: Path) -> None:
    (version / entries.DIGESTS).write_text(json.dumps(file_digests(version, entries.DIGESTS)))


def test_an_entry_that_is_damaged_or_wrong_is_not_served(server: TritonServer, repository: Path) -> None:
    for name, sealed, reason in (
        ("damaged", False, "is not as it was exported: its SHA-256 is not the one in digests.json"),
        ("wrong", True, "On this device the gallery's map differs from its reference by"),
    ):
        shutil.copytree(repository / "map", repository / name)
        config = repository / name / "config.pbtxt"
        config.write_text(config.read_text().replace('name: "map"', f'name: "{name}"'))
        kernel = repository / name / "1/gallery/kernels/map.py"
        assert "value + c" in kernel.read_text()
        kernel.write_text(kernel.read_text().replace("value + c", "value - c"))
        if sealed:
            seal(kernel.parents[2])
        with Client(server.grpc_url) as client, pytest.raises(ServerFault, match=reason):
            client.load(name)
        shutil.rmtree(repository / name)


def test_query_prints_what_it_compared(server: TritonServer) -> None:
    asked = ["query", "map", "dot", "--grpc", server.grpc_url, "--http", server.http_url]
    done = CliRunner().invoke(make_app(), asked)
    assert done.exit_code == 0, done.output
    for word in ("map", "dot", "gRPC", "HTTP", "4097", "1e-06"):
        assert word in done.output
    for option, protocol in (("--grpc", "gRPC"), ("--http", "HTTP")):
        nobody = CliRunner().invoke(make_app(), ["query", "map", *asked[3:], option, "127.0.0.1:9"])
        assert str(nobody.exception).startswith(f"Nothing answers over {protocol} at 127.0.0.1:9")


def test_serve_writes_starts_and_stops(tmp_path: Path) -> None:
    ports = [f"--{service}-port=0" for service in ("grpc", "http", "metrics")]
    command = [sys.executable, "-m", "gallery", "serve", "--only=map", f"--repository={tmp_path / 'models'}", *ports]
    environment = {**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with running(command, text=True, env=environment, cwd=ROOT, **pipes) as serving:
        assert serving.stdout is not None
        shown = serving.stdout.readline()
        while "Ctrl-C stops the server" not in shown:
            line = serving.stdout.readline()
            assert line, shown
            shown += line
        url = re.search(r"gRPC\W+(127\.0\.0\.1:\d+)", shown)
        assert url is not None
        with Connection("grpc", url[1]) as connection:
            assert served(connection) == ["map"]
            assert next(check(connection, "map")).agrees
        serving.send_signal(signal.SIGINT)
        assert serving.wait() == 0
        with Connection("grpc", url[1]) as connection, pytest.raises(GalleryError, match="Nothing answers over gRPC"):
            served(connection)


@pytest.mark.gpu
def test_a_gpu_answers_about_large_tensors(server: TritonServer) -> None:
    compiled = re.findall(r"(\w+) is checked against its reference, compiled for ([^.]+)\.", server.log)
    assert {name for name, _ in compiled} == set(SERVICES)
    assert {device for _, device in compiled} == {torch.cuda.get_device_name()}
    sizes = {
        "map": (10**6 + 1,), "zip": (10**6 + 1,), "dot": (10**6 + 1,), "softmax": (1000, 5000),
        "pooling": (8, 500, 500, 3, 1, 1, 1), "matmul_relu": (1000, 1100, 900), "layer_norm": (1000, 3000),
        "convolution": (2, 64, 56, 56, 64, 3, 1, 1, 1), "attention": (2, 4, 1000, 1000, 64, 1),
    }  # fmt: skip
    assert sizes.keys() == SERVICES.keys()
    with Connection("grpc", server.grpc_url) as connection:
        for name, size in sizes.items():
            (row,) = check(connection, name, [size])
            print(row)
            assert row.agrees, row
