"""The loads of a fleet name its models by a law, and answers are measured by each model's own spread."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from tritonclient.grpc import service_pb2

from tests.exporter.fleets import whole
from triton_regressors import ComparisonError, compare, export, export_fleet
from triton_regressors.clients.compare.load import members, payloads
from triton_regressors.clients.compare.load.generator import Load, Sample
from triton_regressors.clients.compare.load.members import ROWS, draw_rows
from triton_regressors.clients.compare.load.payloads import Payloads, Signature, golden_rows

X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["u", "v"])
SHOPS = [f"shop-{number}" for number in range(5)]
SIGNATURE = Signature(("X", "shop"), "y")


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet whose models' answers differ in size by a factor of 10."""
    models = {shop: Ridge().fit(X, (X["u"] - X["v"]) * 10**place) for place, shop in enumerate(SHOPS)}
    found: Path = export_fleet(models, tmp_path_factory.mktemp("fleet"), name="demand", by="shop").entry.directory
    return found


@pytest.mark.parametrize("law", members.LAWS)
def test_models_are_drawn_by_a_law_whatever_the_number_of_their_rows(law: str) -> None:
    numbers = np.array([2, 0, 1, 1, 3, 0, 0, 0, 0, 3])
    drawn = draw_rows(numbers, law)
    assert (drawn == draw_rows(numbers, law)).all()
    shares = np.sort(np.bincount(numbers[drawn]) / ROWS)
    expected = np.full(4, 1 / 4) if law == "uniform" else np.array([1 / 4, 1 / 3, 1 / 2, 1]) / (25 / 12)
    np.testing.assert_allclose(shares, expected, atol=0.02)
    of_one = np.bincount(drawn[numbers[drawn] == 0], minlength=10)[[1, 5, 6, 7, 8]]
    assert of_one.min() > 0.9 * of_one.mean()


@pytest.mark.parametrize("law", [None, "zipf"])
def test_golden_rows_of_a_fleet(entry: Path, law: str | None) -> None:
    rows = golden_rows(entry, SIGNATURE, law)
    assert rows is not None
    shares = np.sort([(rows.tensors["shop"] == shop.encode()).mean() for shop in SHOPS])
    if law is None:
        np.testing.assert_allclose(shares, 0.2, atol=0.02)
    else:
        np.testing.assert_allclose(shares[-1], 60 / 137, atol=0.02)
    load = Load("grpc", 1, concurrency=1)
    assert len(Payloads.build("demand", SIGNATURE, rows, load, "").requests) == payloads.MAX_PAYLOADS_OF_FLEET
    assert len(Payloads.build("demand", SIGNATURE, rows.zeros(), load, "").requests) == payloads.MAX_PAYLOADS_OF_FLEET


def test_golden_rows_of_a_fleet_whose_ids_and_columns_are_whole_numbers(tmp_path: Path) -> None:
    models = whole.fleet()
    fleet = export_fleet(models, tmp_path, name="demand", by="shop", samples=whole.samples()).entry.directory
    rows = golden_rows(fleet, Signature(("X", "integers", "shop"), "y"))
    assert rows is not None
    assert rows.tensors["shop"].dtype == rows.tensors["integers"].dtype == np.int64
    shares = [(rows.tensors["shop"] == shop).mean() for shop in models]
    np.testing.assert_allclose(shares, 1 / len(models), atol=0.02)
    known = {shop: set(sample["article"]) for shop, sample in whole.samples().items()}
    pairs = zip(rows.tensors["shop"][:, 0].tolist(), rows.tensors["integers"][:, 0].tolist(), strict=True)
    assert all(article in known[shop] for shop, article in pairs)


def test_an_answer_is_wrong_by_its_own_model_s_spread(entry: Path) -> None:
    """The error is within the tolerance of the largest model, and beyond that of all others."""
    rows = golden_rows(entry, SIGNATURE)
    assert rows is not None
    made = Payloads.build("demand", SIGNATURE, rows, Load("grpc", 1, concurrency=1), "")
    found = {}
    for number, expected in enumerate(made.expected):
        (shop,) = service_pb2.ModelInferRequest.FromString(made.requests[number]).raw_input_contents[1:]
        response = service_pb2.ModelInferResponse()
        response.outputs.add(name="y", datatype="FP32").shape.extend([1, 1])
        error = np.array(0.8e-5 * 14_000)
        response.raw_output_contents.append((expected + error).astype(np.float32).tobytes())
        found[shop[4:].decode()] = made.wrong(Sample(number, -1, response.SerializeToString()))
    assert found == {shop: None if shop == SHOPS[-1] else found["shop-0"] for shop in SHOPS}
    assert found["shop-0"] == "wrong answer: values differ from the expected ones"


def test_a_law_that_cannot_be_followed_is_refused(entry: Path, tmp_path: Path) -> None:
    with pytest.raises(ComparisonError, match=r"^Unknown law 'pareto' of ids; accepted: uniform, zipf\.$"):
        compare("demand", entry.parent, ids="pareto")
    with pytest.raises(ComparisonError, match="the rows of a file name their models themselves"):
        compare("demand", entry.parent, ids="zipf", rows_file="rows.csv")
    single = export(Ridge().fit(X, X["u"]), tmp_path, name="one").entry.directory
    with pytest.raises(ComparisonError, match="is an entry of one model; ids is for a fleet"):
        golden_rows(single, Signature(("X",), "y"), "zipf")


@pytest.mark.server
def test_a_fleet_is_compared(entry: Path) -> None:
    from triton_regressors import BatchingConfiguration

    options = {"warmup_s": 0.2, "window_s": 0.2, "max_windows": 3, "client_processes": 1}
    plain = [BatchingConfiguration("none", dynamic_batching=False)]
    result = compare("demand", entry.parent, plain, (2,), (3,), ids="zipf", **options)  # type: ignore[arg-type]
    assert result.settings["ids"] == "zipf"
    for point in result.points:
        assert not point.model.errors
        assert point.model.answers_checked > 0
        assert point.floor is not None
        assert not point.floor.errors
