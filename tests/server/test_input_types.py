"""Users' own tables through the real Triton server: the answer is predict on the unchanged table."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.preprocessing import OneHotEncoder
from tritonclient.utils import InferenceServerException

from tests.documents import golden_of
from tests.server.conftest import Unload
from tests.server.rentals import MEASURES, MODELS, beside, rentals
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.clients.verify import verify
from triton_regressors.kernels.format.parity import measure, units

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", autouse=True)
def served(repository: Any, client: Client, unload: Unload) -> Iterator[None]:
    for name, model in MODELS.items():
        assert model.export(repository, name).compilation.inputs.datatypes() == model.datatypes
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(client.load, MODELS))
    yield
    with ThreadPoolExecutor(len(MODELS)) as threads:  # the server takes a second for each
        list(threads.map(unload, MODELS))


@pytest.mark.parametrize("name", MODELS)
def test_the_answer_is_predict_on_the_table_as_given(either: Client, name: str) -> None:
    expected = MODELS[name].expected()
    found = np.concatenate([either.infer(name, rows)["y"] for rows in MODELS[name].batches()])
    assert measure(found, expected, units(expected)).within(1e-5)


@pytest.mark.parametrize("name", ["rent_boosted", "rent_ids", "rent_hashes"])
def test_bits_do_not_depend_on_the_batch(client: Client, name: str) -> None:
    rows = next(MODELS[name].batches())
    whole = client.predict(name, rows)
    parts = np.array_split(np.random.default_rng(0).permutation(len(rows)), 40)
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda part: client.predict(name, rows.iloc[part]), parts))
    for part, answer in zip(parts, answers, strict=True):
        assert answer.tobytes() == whole[part].tobytes()


@pytest.mark.parametrize("name", ["rent_boosted", "rent_ids", "rent_hashes"])
def test_golden_rows_keep_the_inputs_own_type(repository: Any, client: Client, name: str) -> None:
    assert golden_of(repository / name / "1").X.dtype == np.float64
    assert verify(client, name, repository=repository).passed


def test_columns_are_taken_by_name(client: Client) -> None:
    rows = next(MODELS["rent_times"].batches())
    turned = rows[rows.columns[::-1]].assign(other=1.0)
    assert client.predict("rent_times", turned).tobytes() == client.predict("rent_times", rows).tobytes()
    with pytest.raises(InvalidRequest, match=r"^The table lacks column 'area' of input 'X'"):
        client.predict("rent_times", rows.drop(columns="area"))


def test_a_category_is_sent_exactly_or_not_at_all(client: Client) -> None:
    rows = next(MODELS["rent_ids"].batches())[:3]
    with pytest.raises(
        InvalidRequest, match=r"^integers\[0, 0\] \('id'\) is 100000001\.5, which is not a whole number"
    ):
        client.predict("rent_ids", rows.assign(id=100_000_001.5))
    missing = rows.assign(id=[1e8, np.nan, 1e8])
    with pytest.raises(InvalidRequest, match=r"^integers\[1, 0\] \('id'\) is nan, which is not a whole number"):
        client.predict("rent_ids", missing)


def test_who_sends_plain_tensors_sends_the_types_that_the_server_names(server: TritonServer) -> None:
    rows = next(MODELS["rent_ids"].batches())[:5]
    plain = tritonclient.grpc.InferenceServerClient(server.grpc_url)
    described = {tensor.name: tensor.datatype for tensor in plain.get_model_metadata("rent_ids").inputs}
    assert described == MODELS["rent_ids"].datatypes
    tensors = []
    for name, values in (("X", rows[MEASURES].to_numpy(np.float32)), ("integers", rows[["id"]].to_numpy(np.int64))):
        tensors.append(tritonclient.grpc.InferInput(name, list(values.shape), described[name]))
        tensors[-1].set_data_from_numpy(values)
    found = plain.infer("rent_ids", tensors).as_numpy("y")
    expected = MODELS["rent_ids"].estimator.predict(rows)[:, None]
    assert measure(found, expected, units(expected)).within(1e-5)

    single = tritonclient.grpc.InferInput("X", [5, 2], "FP32")
    single.set_data_from_numpy(rows[MEASURES].to_numpy(np.float32))
    with pytest.raises(InferenceServerException, match="FP32"):
        plain.infer("rent_boosted", [single])


def test_an_unknown_whole_number_is_refused_where_scikit_learn_refuses_it(
    repository: Any, client: Client, unload: Unload
) -> None:
    table, target = rentals()
    columns = [*MEASURES, "hash"]
    export(beside(OneHotEncoder(), "hash").fit(table[columns], target), repository, name="rent_known")
    client.load("rent_known")
    unknown = table[columns][:2].assign(hash=[2**60, 2**60 + 1])
    with pytest.raises(InvalidRequest, match=f"^integers must hold categories .*row 1, column 0 .* is {2**60 + 1}"):
        client.predict("rent_known", unknown)
    unload("rent_known")


def test_a_client_learns_that_a_model_takes_another_type(repository: Any, client: Client, unload: Unload) -> None:
    table, target = rentals()
    X, y = table[MEASURES].to_numpy(), target.to_numpy()
    model = HistGradientBoostingRegressor(max_iter=5).fit(X, y)
    for input in ("fp32", "fp64"):
        export(model, repository / ".." / f"changing_{input}", name="rent_changing", input=input)
    entry = repository / "rent_changing"
    for input in ("fp32", "fp64"):
        (repository / ".." / f"changing_{input}" / "rent_changing").rename(entry)
        client.load("rent_changing")
        found = client.infer("rent_changing", X[:50])["y"]
        rows = X[:50].astype(np.float32).astype(np.float64) if input == "fp32" else X[:50]
        expected = model.predict(rows)[:, None]
        assert measure(found, expected, units(expected)).within(1e-5)
        entry.rename(repository / ".." / f"was_{input}")
    unload("rent_changing")
