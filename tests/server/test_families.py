"""An entry of every family of lowerings, served by the triton engine: a row's bits do not depend on its batch.

Without a GPU the torch engine's bits are compared for every case of the catalogue, see parity.py, and the kernels' own
in tests/kernels.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.exporter.catalogue.cases import CASES
from tests.server.parity import take
from tests.servers import triton_server
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.kernels.format.parity import measure, units

pytestmark = [pytest.mark.server, pytest.mark.gpu]

FAMILIES = {  # the files of exporter/estimators/ and a case of each
    "boosting": "hist-categories",
    "boosting by weighted median": "ada-default",
    "cluster": "before-ridge-k-means",
    "compose": "columns-nested",
    "compose of targets": "chain-polynomial",
    "decomposition": "pca-whiten",
    "encoding": "one-hot-ignore",
    "encoding beside scaled columns": "one-hot-beside-scaled-ridge",
    "ensemble": "stacking-mixed",
    "gaussian_process": "gaussian-process-scaled-rbf",
    "impute": "iterative-imputer-curved",
    "isotonic": "isotonic-clip",
    "kernel_approximation": "kernel-ridge-rbf",
    "kernel_approximation in parts": "kernel-ridge-parts",
    "linear": "ridge",
    "manifold": "isomap",
    "neighbors": "knn-euclidean",
    "neighbors within a radius": "radius",
    "neighbors that impute": "knn-imputer",
    "neural": "mlp-wide-deep",
    "preprocessing": "scaler-standard-polynomial",
    "splines": "spline-linear-quantile",
    "svm": "svm-rbf",
    "transforms": "quantile-normal",
    "trees": "forest-targets",
}
OF_STRINGS = ("strings-one-hot", "strings-two-groups", "strings-stacked")
ROWS = 1000
SIZES = (1, 2, 7, 64, ROWS)


def rows(case: str) -> Any:
    """Return the case's rows again and again, the numbers moved a little each time; its own come first."""
    _, X = CASES[case].fitted()
    again = np.resize(np.arange(len(X)), ROWS)
    moves = 1 + 1e-3 * np.random.default_rng(0).standard_normal((ROWS, X.shape[1]))
    moves[: len(X)] = 1
    if not isinstance(X, pd.DataFrame):
        return X[again] * moves
    table = X.iloc[again].reset_index(drop=True)
    numbers = X.select_dtypes("number").columns
    table[numbers] = table[numbers] * moves[:, : len(numbers)]
    return table


@contextmanager
def serving(directory: Path, cases: Iterable[str]) -> Iterator[TritonServer]:
    """Serve the cases by the triton engine."""
    for case in cases:
        estimator, X = CASES[case].fitted()
        export(estimator, directory, name=case, sample=X, max_batch_size=ROWS, engine="triton")
    with triton_server([directory], startup_timeout_s=240) as running:
        yield running


@pytest.fixture(scope="module", name="server")
def every_family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with serving(tmp_path_factory.mktemp("families") / "models", FAMILIES.values()) as running:
        yield running


@pytest.fixture(scope="module")
def server_of_strings(tmp_path_factory: pytest.TempPathFactory, numpy1: None) -> Iterator[TritonServer]:
    with serving(tmp_path_factory.mktemp("strings") / "models", OF_STRINGS) as running:
        yield running


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_bits_do_not_depend_on_the_batch(server: TritonServer, family: str, protocol: str) -> None:
    check(server, FAMILIES[family], protocol)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("case", OF_STRINGS)
def test_bits_of_models_of_strings(server_of_strings: TritonServer, case: str, protocol: str) -> None:
    check(server_of_strings, case, protocol)


def check(server: TritonServer, case: str, protocol: str) -> None:
    """Ask for the rows at once, in batches of each size, and many at a time: the first answers are the estimator's, and
    all are the same.
    """
    X, expected = rows(case), CASES[case].expected()
    outputs = tuple(expected)
    with Client(server.grpc_url if protocol == "grpc" else server.http_url, protocol) as client:
        whole = client.infer(case, X, outputs=outputs)
        for name, values in expected.items():
            parity = measure(whole[name][: len(values)], values, units(values))
            assert parity.within(1e-5)
        for size in SIZES:
            for first in (0, 13, ROWS - size):
                indices = np.random.default_rng(first).permutation(ROWS)[:size]
                found = client.infer(case, take(X, indices), outputs=outputs)
                assert all(found[name].tobytes() == whole[name][indices].tobytes() for name in outputs)

        chunks = np.array_split(np.random.default_rng(1).permutation(ROWS), 150)
        with ThreadPoolExecutor(32) as threads:  # so that the server makes batches of several requests
            answers = list(threads.map(lambda chunk: client.infer(case, take(X, chunk), outputs=outputs), chunks))
    for chunk, found in zip(chunks, answers, strict=True):
        assert all(found[name].tobytes() == whole[name][chunk].tobytes() for name in outputs)
