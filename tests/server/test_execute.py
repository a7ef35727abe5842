"""An entry and its plan in this process: events that a real server cannot be made to produce at a chosen moment."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tests.server.conftest import CheckAnswers
from tests.server.in_process import loaded
from tests.server.models import models, rows
from triton_regressors import export_fleet
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.plan.plan import load_plan
from triton_regressors.scoring.backend_stub import Tensor


@pytest.fixture
def plan_directory(repository: Path) -> Path:
    return repository / "bayes" / "1"


def test_outputs_not_asked_for_are_not_computed(plan_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = load_plan(plan_directory)
    only_std = [step for step in plan.steps if step not in plan.steps_for(("y",))]
    only_y = [step for step in plan.steps if step not in plan.steps_for(("std",))]
    assert only_std
    assert only_y
    ran: list[str] = []
    for kind in {type(step.operation) for step in plan.steps}:

        def recorded(self: Any, *arguments: Any, original: Any = kind.compute_on_cpu) -> torch.Tensor:
            ran.extend(step.output for step in plan.steps if step.operation is self)
            return original(self, *arguments)

        monkeypatch.setattr(kind, "compute_on_cpu", recorded)
    runner = Runner(plan, engine="torch", device="cpu", max_rows=16)
    for outputs, spared in ((("y",), only_std), (("std",), only_y), (("y", "std"), [])):
        ran.clear()
        runner.predict(rows(3), outputs)
        assert ran == [step.output for step in plan.steps if step not in spared]


class FakeRequest:
    """A request in the form that the Python backend gives to `execute`."""

    def __init__(
        self, X: np.ndarray, outputs: Sequence[str] = ("y",), cancelled: bool = False, **parameters: object
    ) -> None:
        self.X, self.outputs, self.cancelled, self.asked = X, list(outputs), cancelled, 0
        self._parameters = parameters

    def inputs(self) -> list[Tensor]:
        tensors = self.X if isinstance(self.X, dict) else {"X": self.X}
        return list(map(Tensor, tensors, tensors.values()))

    def parameters(self) -> str:
        return json.dumps(self._parameters, separators=(",", ":"))

    def requested_output_names(self) -> list[str]:
        return self.outputs

    def is_cancelled(self) -> bool:
        self.asked += 1
        return self.cancelled


@pytest.fixture
def in_process(repository: Path) -> Iterator[Any]:
    """The entry `gathered` in this process, for events that a real server cannot produce at a chosen moment."""
    with loaded(repository / "gathered") as model:
        yield model


def test_a_large_request_that_was_cancelled_is_skipped(in_process: Any, check_answers: CheckAnswers) -> None:
    in_process.large_rows = 4
    large = FakeRequest(rows(4, 1), cancelled=True)
    small = FakeRequest(rows(3, 2), cancelled=True)
    kept = FakeRequest(rows(5, 3))
    answers = in_process.execute([large, small, kept])
    assert (answers[0].error.code, answers[0].error.message) == ("CANCELLED", "The request was cancelled.")
    assert (large.asked, small.asked, kept.asked) == (1, 0, 1)
    for request, answer in ((small, answers[1]), (kept, answers[2])):
        assert answer.error is None
        check_answers(models()["gathered"], request.X, answer.outputs)


def test_large_requests_are_answered_with_their_batch(
    in_process: Any, monkeypatch: pytest.MonkeyPatch, check_answers: CheckAnswers
) -> None:
    """Looking at each request by itself searches its rows in several passes and stages them again."""
    monkeypatch.delattr(type(in_process), "_refuse")
    in_process.large_rows = 4
    requests = [FakeRequest(rows(4, 1)), FakeRequest(rows(3, 2))]
    for request, answer in zip(requests, in_process.execute(requests), strict=True):
        assert answer.error is None
        check_answers(models()["gathered"], request.X, answer.outputs)
    assert [request.asked for request in requests] == [1, 0]


@pytest.mark.parametrize(
    ("asked", "computed"),
    [
        ([("y",), ("y",)], ("y",)),
        ([("std",), ("std",)], ("std",)),
        ([("y",), ("std",)], ("y", "std")),
        ([("std", "y"), ("y",)], ("y", "std")),
    ],
)
def test_a_batch_computes_only_what_its_requests_ask_for(
    in_process: Any,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[tuple[str, ...]],
    computed: tuple[str, ...],
    check_answers: CheckAnswers,
) -> None:
    ran: list[tuple[str, ...]] = []
    launch = in_process.runner.executor.launch
    monkeypatch.setattr(in_process.runner.executor, "launch", lambda *given: ran.append(given[-1]) or launch(*given))
    requests = [FakeRequest(rows(2, seed), outputs) for seed, outputs in enumerate(asked)]
    answers = in_process.execute(requests)
    assert ran == [computed]
    for request, answer in zip(requests, answers, strict=True):
        assert list(answer.outputs) == request.outputs
        check_answers(models()["gathered"], request.X, answer.outputs)


def test_no_exception_escapes_execute(in_process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(in_process.runner.executor, "launch", failing)
    answers = in_process.execute([FakeRequest(rows(1)), FakeRequest(rows(2))])
    assert [answer.error.code for answer in answers] == ["INTERNAL", "INTERNAL"]
    assert {answer.error.message for answer in answers} == {
        "The model failed on this batch: RuntimeError: out of memory"
    }


def test_a_request_without_rows_in_a_batch(in_process: Any, check_answers: CheckAnswers) -> None:
    empty, good = FakeRequest(np.zeros((0, 8), np.float32)), FakeRequest(rows(2))
    answers = in_process.execute([empty, good])
    assert (answers[0].error.code, answers[0].error.message) == ("INVALID_ARG", "X has no rows.")
    check_answers(models()["gathered"], good.X, answers[1].outputs)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A fleet of two models in this process, which take a column of strings beside two of numbers."""
    shops = {}
    for number in range(2):
        rng = np.random.default_rng(number)
        table = pd.DataFrame({"a": rng.standard_normal(50), "b": rng.standard_normal(50), "kind": [*"xyzzy"] * 10})
        encoded = ColumnTransformer([("kinds", OneHotEncoder(), ["kind"])], remainder="passthrough")
        shops[f"shop-{number}"] = make_pipeline(encoded, Ridge()).fit(table, table["a"] + 2 * table["b"])
    directory = tmp_path_factory.mktemp("fleet")
    export_fleet(shops, directory, name="demand", by="shop")
    with loaded(directory / "demand") as model:
        yield model


def of_fleet(shop: str | int | None, kinds: str, seed: int) -> FakeRequest:
    """Return a request for a shop by its id, by its number or by neither, with a row for each kind."""
    given: dict[str, Any] = {
        "X": np.random.default_rng(seed).standard_normal((len(kinds), 2)).astype(np.float32),
        "kinds": np.array([[kind.encode()] for kind in kinds], dtype=object).reshape(-1, 1),
    }
    if isinstance(shop, str):
        given["shop"] = np.array([[shop.encode()]] * len(kinds), dtype=object).reshape(-1, 1)
    if isinstance(shop, int):
        given["shop_number"] = np.full((len(kinds), 1), shop, np.int32)
    return FakeRequest(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("most_joined", [0, 6, 4096])
def test_requests_encoded_together_answer_as_each_alone(
    fleet: Any, most_joined: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = fleet.execute.__func__.__globals__["__package__"]
    monkeypatch.setattr(sys.modules[f"{package}.serving.other_tensors"], "MOST_JOINED_ROWS", most_joined)
    named = [of_fleet("shop-1", "x", 0), of_fleet("shop-0", "zyx", 1), of_fleet("shop-9", "y", 2)]
    mixed = [
        *named,
        of_fleet(1, "xy", 3),
        of_fleet(None, "z", 4),
        of_fleet("shop-0", "q", 5),
        of_fleet("shop-0", "", 6),
    ]
    for batch in (named, named[:2], mixed):
        alone = [fleet.execute([request])[0] for request in batch]
        outputs = [(each.error, {name: y.tobytes() for name, y in each.outputs.items()}) for each in alone]
        together = fleet.execute(batch)
        assert [(each.error, {name: y.tobytes() for name, y in each.outputs.items()}) for each in together] == outputs
    assert [error.message for error, _ in outputs if error is not None] == [
        "shop must name a model of this fleet: row 0 is 'shop-9'.",
        "shop is missing: it must name a model of this fleet.",
        "kinds must hold categories that the model 'shop-0' was fitted on: row 0, column 0 ('kind') is 'q'.",
        "X has no rows.",
    ]
