"""Request flows: the sequences of requests that one call of a client sends, and the handling of the answers.

A request flow does no I/O. It is a generator, so that `Client` and `AsyncClient` share it: it yields requests and
receives their answers, or the error of the first request that failed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.client.calls import Call, Calls
from triton_regressors.clients.client.configuration import Configuration
from triton_regressors.clients.client.listing import available_models
from triton_regressors.clients.client.parts import Answer, Answers, Part, joined, named_row, renumbered
from triton_regressors.clients.client.tensors import Given, Tensors, as_frame, some_rows
from triton_regressors.clients.contributions.condition import Condition
from triton_regressors.clients.contributions.contributions import Contributions
from triton_regressors.clients.errors import (
    InferenceError,
    InvalidRequest,
    ModelNotFound,
    ServerFault,
    ServerUnavailable,
)
from triton_regressors.kernels.format.columns_digest import COLUMNS_DIGEST

T = TypeVar("T")
Requests: TypeAlias = Sequence[Callable[[], Call[Any]]]
"""Functions that each make a request when it is sent, so that one part of a table at a time is in memory twice."""
RequestFlow: TypeAlias = Generator[Requests, list[Any], T]

_Answered: TypeAlias = tuple[tuple[object, ...], dict[str, np.ndarray], dict[int, str], bool]
"""The answers' origin, see `Answer`, the outputs, the reason for each refused row, and whether one target is a column.
"""

Y = "y"

ERRORS = ("stop", "row")
"""The ways to treat a table with refused rows: an error, or NaN for these rows."""

PIECE_ROWS = 512
"""Rows in one request during the search for refused rows."""

ATTEMPTS = 3
"""The number of attempts to send a table if the model is loaded again during each one, with other inputs or as another
version."""

CONCURRENT_PARTS = 4
"""Parts of one table that an AsyncClient sends concurrently."""


class RequestFlows:
    """The request flows of one client, and the configurations of the models that it asked."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._known: dict[str, Configuration] = {}

    def forget(self, model: str) -> None:
        """Forget a model's configuration, so that the next request for the model reads it again."""
        self._known.pop(model, None)

    def config(self, model: str) -> RequestFlow[model_config_pb2.ModelConfig]:
        """Ask for the configuration in use; `infer` uses it from then on."""
        config = yield from self._one(self._calls.config(model), model)
        with suppress(ServerFault):  # `infer` reports a configuration that cannot be read
            self._known[model] = Configuration.of(config)
        return config

    def statistics(self, model: str) -> RequestFlow[dict[str, Any]]:
        """Ask for the statistics extension's answer."""
        return self._one(self._calls.statistics(model), model)

    def infer(
        self, model: str, X: Given, outputs: Sequence[str], version: str | int, errors: str = "stop"
    ) -> RequestFlow[Answers]:
        """Ask a model about a table: see `Client.infer`.

        The table is converted by the remembered configuration of the model. If that may be out of date without the
        server noticing, the request carries a digest of the columns, which our models compare with their own. Other
        models do not compare: for these the configuration is read again after the answer. If it is the same before and
        after, it was the same in between, unless the model was replaced and put back meanwhile.
        """
        self._calls.check(model, outputs, version)
        if errors not in ERRORS:
            raise InvalidRequest(f"errors is {errors!r}; accepted: {', '.join(map(repr, ERRORS))}.")
        ask = self._by_row if errors == "row" else self._infer
        try:
            return Answers(*(yield from ask(model, X, outputs, version))[1:])
        except ModelNotFound as error:
            raise (yield from self._explained(error, model)) from error.__cause__

    def explain(self, model: str, X: Given, where: str | None, version: str | int) -> RequestFlow[Contributions]:
        """Ask a model for contributions: see `Client.explain`."""
        self._calls.check(model, (Y,), version)
        try:
            return (yield from self._explain(model, X, where, version))
        except ModelNotFound as error:
            raise (yield from self._explained(error, model)) from error.__cause__

    def _explain(self, model: str, X: Given, where: str | None, version: str | int) -> RequestFlow[Contributions]:
        """Ask for contributions; with a condition first for the output that it compares, then for the rows it takes."""
        known = self._known.get(model)
        if known is None or not known.game:
            known = yield from self._learn(model)
        game, widths = known.explained(), dict(known.widths)
        X, rows, before = X if isinstance(X, Mapping) else as_frame(X), None, None
        if where is not None:
            condition = Condition.parse(where, {name: widths[name] for name in widths if name not in game.outputs})
            before, found, _, _ = yield from self._infer(model, X, (condition.output,), version)
            (rows,) = np.nonzero(condition.holds(found[condition.output]))
            X = some_rows(X, rows)
        if before is not None and rows is not None and not len(rows):
            origin, found = before, {name: np.empty((0, widths[name]), np.float32) for name in (Y, *game.outputs)}
        else:
            origin, found, _, _ = yield from self._infer(model, X, (Y, *game.outputs), version)
        if self._known[model].game != known.game or (before and before[0] != origin[0]):
            raise ServerUnavailable(f"Model '{model}' was loaded again during the request; send the table again.")
        rows = np.arange(len(found[Y])) if rows is None else rows
        cells = known.cells(X, game)
        return Contributions.of(model, str(origin[0]), game, found, found[Y], cells, rows)

    def _one(self, call: Call[T], model: str) -> RequestFlow[T]:
        """Send one request about a model."""
        try:
            (answer,) = yield [lambda: call]
        except ModelNotFound as error:
            raise (yield from self._explained(error, model)) from error.__cause__
        return cast(T, answer)

    def _by_row(self, model: str, X: Given, outputs: Sequence[str], version: str | int) -> RequestFlow[_Answered]:
        """Ask for a table; if a row is refused, ask again without it. The answers to refused rows are NaN.

        A refusal names the first wrong row. A table of many rows is then sent in pieces, so that a wrong row causes few
        other rows to be sent again.
        """
        X = X if isinstance(X, Mapping) else as_frame(X)
        try:
            return (yield from self._infer(model, X, outputs, version))
        except InvalidRequest as error:
            if named_row(str(error)) is None:  # the request itself is wrong
                raise
        total = len(as_frame(next(iter(X.values()))) if isinstance(X, Mapping) else X)
        spans = [(first, min(first + PIECE_ROWS, total)) for first in range(0, total, PIECE_ROWS)][::-1]
        refused, found, origins = dict[int, str](), list[tuple[int, dict[str, np.ndarray]]](), set[Any]()
        column = False
        while spans:
            first, stop = spans.pop()
            try:
                piece = some_rows(X, slice(first, stop))
                origin, answers, _, column = yield from self._infer(model, piece, outputs, version)
            except InvalidRequest as error:
                row = named_row(str(error))
                if row is None or not 0 <= row < stop - first:
                    raise
                row += first
                refused[row] = renumbered(str(error), first)
                spans += [span for span in ((row + 1, stop), (first, row)) if span[0] < span[1]]
            else:
                found.append((first, answers))
                origins.add(origin)
        if len(origins) > 1:
            raise ServerUnavailable(f"Model '{model}' was loaded again during the request; send the table again.")
        known = self._known[model]
        widths, column = dict(known.widths), column or known.answers_column
        whole = {name: np.full((total, widths.get(name, 1)), np.nan, np.float32) for name in outputs}
        for first, answers in found:
            for name, array in answers.items():
                whole[name][first : first + len(array)] = array
        return next(iter(origins), ()), whole, dict(sorted(refused.items())), column

    def _infer(self, model: str, X: Given, outputs: Sequence[str], version: str | int) -> RequestFlow[_Answered]:
        known = self._known.get(model) or (yield from self._learn(model))
        for _ in range(ATTEMPTS):
            used = known
            try:
                tensors, certain = used.tensors(X)
                digest = "" if certain else used.digest
                answers: list[Answer] = yield [
                    partial(self._request, used, tensors, outputs, version, part, digest)
                    for part in used.parts(tensors)
                ]
            except InvalidRequest as error:
                known = yield from self._learn(model)
                if known == used and not str(error).startswith(COLUMNS_DIGEST):  # with it: it was replaced and put back
                    raise
                continue
            if len({answer.origin for answer in answers}) > 1:
                known = yield from self._learn(model)
                continue
            if not (certain or digest):
                known = yield from self._learn(model)
            if known.inputs == used.inputs:
                return answers[0].origin, joined(answers), {}, known.answers_column
        raise ServerUnavailable(
            f"Model '{model}' was loaded again, as another version or with other inputs, during each of {ATTEMPTS} "
            "attempts. Answers of two versions are not joined; send the table again."
        )

    def _request(
        self, used: Configuration, tensors: Tensors, outputs: Sequence[str], version: str | int, part: Part, digest: str
    ) -> Call[Answer]:
        """Return the request for a part of a table by the configuration that its tensors were made by."""
        return self._calls.infer(used.model, used.sent(part.of(tensors)), outputs, version, part, digest)

    def _learn(self, model: str) -> RequestFlow[Configuration]:
        """Ask for a model's configuration, and remember it."""
        (config,) = yield [partial(self._calls.config, model)]
        self._known[model] = found = Configuration.of(config)
        return found

    def _explained(self, error: ModelNotFound, model: str) -> RequestFlow[ModelNotFound]:
        """Return the error with the models that the server has; the error alone if this client may not list them."""
        try:
            (index,) = yield [self._calls.index]
        except InferenceError:
            return error
        return ModelNotFound(f"{error} {available_models(model, index)}")


def run_sequentially(flow: RequestFlow[T], send: Callable[[Call[Any]], Any]) -> T:
    """Run a request flow, one request after another."""
    try:
        requests = next(flow)
        while True:
            try:
                answers = [send(make()) for make in requests]
            except InferenceError as error:
                requests = flow.throw(error)
            else:
                requests = flow.send(answers)
    except StopIteration as end:
        return cast(T, end.value)


async def run_concurrently(flow: RequestFlow[T], send: Callable[[Call[Any]], Awaitable[Any]]) -> T:
    """Run a request flow; the parts of a table are sent concurrently."""
    try:
        requests = next(flow)
        while True:
            try:
                answers = await _all(requests, send)
            except InferenceError as error:
                requests = flow.throw(error)
            else:
                requests = flow.send(answers)
    except StopIteration as end:
        return cast(T, end.value)


async def _all(requests: Requests, send: Callable[[Call[Any]], Awaitable[Any]]) -> list[Any]:
    """Return the answers in order. If requests fail, raise the first one's error once none is outstanding."""
    if len(requests) == 1:
        return [await send(requests[0]())]
    answers: dict[int, Any] = {}
    failures: dict[int, Exception] = {}
    waiting = iter(enumerate(requests))

    async def work() -> None:
        for place, make in waiting:
            if failures:
                return
            try:
                answers[place] = await send(make())
            except Exception as error:
                failures[place] = error

    await asyncio.gather(*(work() for _ in range(CONCURRENT_PARTS)))
    if failures:
        raise failures[min(failures)]
    return [answers[place] for place in range(len(requests))]
