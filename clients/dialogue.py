"""What a client asks a Triton server one after another to answer one call, and what it makes of the answers.

A dialogue is a generator, so that `Client` and `AsyncClient` have the same: it yields requests, and is given their
answers, or the error that the first of them met.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.calls import Call, Calls
from triton_regressors.clients.configuration import Configuration
from triton_regressors.clients.errors import (
    InferenceError,
    InvalidRequest,
    ModelNotFound,
    ServerFault,
    ServerUnavailable,
)
from triton_regressors.clients.listing import there_is
from triton_regressors.clients.parts import Answer, Answers, joined, named_row, renumbered
from triton_regressors.clients.tensors import Given, as_frame, some_rows
from triton_regressors.kernels.format.columns_digest import COLUMNS_DIGEST

T = TypeVar("T")
Requests: TypeAlias = Sequence[Callable[[], Call[Any]]]
"""Each is made when it is sent, so that one part of a table at a time is in memory twice."""
Dialogue: TypeAlias = Generator[Requests, list[Any], T]

_Answered: TypeAlias = tuple[tuple[object, ...], dict[str, np.ndarray], dict[int, str], bool]
"""The answers' origin, see `Answer`, the outputs, the reason for each refused row, and whether one target is a column.
"""

ERRORS = ("stop", "row")
"""What becomes of a table with rows that are refused: an error, or NaN for these rows."""

PIECE_ROWS = 512
"""Rows that are asked together while those that are refused are looked for."""

ATTEMPTS = 3
"""So often a table is sent, where each time the model was loaded anew meanwhile, with other inputs or as another
version."""

SIDE_BY_SIDE = 4
"""So many parts of one table an AsyncClient has under way at a time."""


class Dialogues:
    """The dialogues of one client, which remembers what the models that it asked take."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._known: dict[str, Configuration] = {}

    def forget(self, model: str) -> None:
        """Ask the server anew before this model is asked again."""
        self._known.pop(model, None)

    def config(self, model: str) -> Dialogue[model_config_pb2.ModelConfig]:
        """The configuration in use; `infer` goes by it from then on."""
        config = yield from self._one(self._calls.config(model), model)
        with suppress(ServerFault):  # of what cannot be read, `infer` tells
            self._known[model] = Configuration.of(config)
        return config

    def statistics(self, model: str) -> Dialogue[dict[str, Any]]:
        """The statistics extension's answer."""
        return self._one(self._calls.statistics(model), model)

    def infer(
        self, model: str, X: Given, outputs: Sequence[str], version: str | int, errors: str = "stop"
    ) -> Dialogue[Answers]:
        """Ask a model about a table: see `Client.infer`.

        The table is converted by what the server said of the model when it was asked for the first time. Where that may
        be out of date unseen by the server, the request says what it goes by, and our models look whether it is what
        they take. Other models do not look: of these the server is asked again once the answer is here. One that takes
        the same before and after has taken it meanwhile, unless it was replaced and put back in between.
        """
        self._calls.check(model, outputs, version)
        if errors not in ERRORS:
            raise InvalidRequest(f"errors is {errors!r}; accepted: {', '.join(map(repr, ERRORS))}.")
        ask = self._by_row if errors == "row" else self._infer
        try:
            return Answers(*(yield from ask(model, X, outputs, version))[1:])
        except ModelNotFound as error:
            raise (yield from self._explained(error, model)) from error.__cause__

    def _one(self, call: Call[T], model: str) -> Dialogue[T]:
        """One request about a model."""
        try:
            (answer,) = yield [lambda: call]
        except ModelNotFound as error:
            raise (yield from self._explained(error, model)) from error.__cause__
        return cast(T, answer)

    def _by_row(self, model: str, X: Given, outputs: Sequence[str], version: str | int) -> Dialogue[_Answered]:
        """Ask for a table; if a row is refused, ask again without it. The answers to refused rows are NaN.

        A refusal names the first row that is wrong. A table of many rows is asked in pieces then, so that one row that
        is wrong costs few others another request.
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
            raise ServerUnavailable(f"Model '{model}' was loaded anew while a table was asked; ask again.")
        known = self._known[model]
        widths, column = dict(known.widths), column or known.answers_column
        whole = {name: np.full((total, widths.get(name, 1)), np.nan, np.float32) for name in outputs}
        for first, answers in found:
            for name, array in answers.items():
                whole[name][first : first + len(array)] = array
        return next(iter(origins), ()), whole, dict(sorted(refused.items())), column

    def _infer(self, model: str, X: Given, outputs: Sequence[str], version: str | int) -> Dialogue[_Answered]:
        known = self._known.get(model) or (yield from self._learn(model))
        for _ in range(ATTEMPTS):
            used = known
            try:
                tensors, certain = used.tensors(X)
                digest = "" if certain else used.digest
                answers: list[Answer] = yield [
                    partial(self._calls.infer, model, part.of(tensors), outputs, version, part, digest)
                    for part in used.parts(tensors)
                ]
            except InvalidRequest as error:
                known = yield from self._learn(model)
                if known == used and not str(error).startswith(COLUMNS_DIGEST):  # else it was replaced and put back
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
            f"Model '{model}' was loaded anew, as another version or with other inputs, each of the {ATTEMPTS} times "
            "that it was asked; nothing is joined from two versions' answers."
        )

    def _learn(self, model: str) -> Dialogue[Configuration]:
        """Ask what a model takes, and remember it."""
        (config,) = yield [partial(self._calls.config, model)]
        self._known[model] = found = Configuration.of(config)
        return found

    def _explained(self, error: ModelNotFound, model: str) -> Dialogue[ModelNotFound]:
        """The error and what the server has instead; the error alone where this client may not list the models."""
        try:
            (index,) = yield [self._calls.index]
        except InferenceError:
            return error
        return ModelNotFound(f"{error} {there_is(model, index)}")


def hold(dialogue: Dialogue[T], run: Callable[[Call[Any]], Any]) -> T:
    """Have a dialogue, one request after another."""
    try:
        requests = next(dialogue)
        while True:
            try:
                answers = [run(make()) for make in requests]
            except InferenceError as error:
                requests = dialogue.throw(error)
            else:
                requests = dialogue.send(answers)
    except StopIteration as end:
        return cast(T, end.value)


async def hold_side_by_side(dialogue: Dialogue[T], run: Callable[[Call[Any]], Awaitable[Any]]) -> T:
    """Have a dialogue; the parts of a table are asked side by side."""
    try:
        requests = next(dialogue)
        while True:
            try:
                answers = await _side_by_side(requests, run)
            except InferenceError as error:
                requests = dialogue.throw(error)
            else:
                requests = dialogue.send(answers)
    except StopIteration as end:
        return cast(T, end.value)


async def _side_by_side(requests: Requests, run: Callable[[Call[Any]], Awaitable[Any]]) -> list[Any]:
    """Return the answers, in order; or the error of the first request that failed, once none is under way any more."""
    if len(requests) == 1:
        return [await run(requests[0]())]
    answers: dict[int, Any] = {}
    failures: dict[int, Exception] = {}
    waiting = iter(enumerate(requests))

    async def work() -> None:
        for place, make in waiting:
            if failures:
                return
            try:
                answers[place] = await run(make())
            except Exception as error:
                failures[place] = error

    await asyncio.gather(*(work() for _ in range(SIDE_BY_SIDE)))
    if failures:
        raise failures[min(failures)]
    return [answers[place] for place in range(len(requests))]
