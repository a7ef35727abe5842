"""Evaluates the part of PromQL that the rules of docker/drift.yaml are written in, at one moment.

Samples are given as they are at that moment: gauges by their value, counters by what they grew within the range that an
expression asks for. It knows `+ - * / ^`, comparisons that filter, `and`, `or`, `unless`, `on`, `group_left()`, sums,
maxima and counts `by` labels, `increase`, `clamp_min`, `ln`, `sqrt`, `abs`, `label_replace` with an empty source,
`offset` (what was a day ago is given under "offset NAME") and label matchers of `=`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Value = Vector | float

TOKEN = re.compile(r'\s*("[^"]*"|[\w:.]+(?<![.])|\[[^\]]*\]|>=|<=|==|!=|!~|=~|[-+*/^(){},<>=])')
ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else math.nan if not a or a != a else math.copysign(math.inf, a),
    "^": operator.pow,
}
COMPARED = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "==": operator.eq}
SETS = ("and", "or", "unless")
LEVELS = (("or",), ("and", "unless"), tuple(COMPARED), ("+", "-"), ("*", "/"), ("^",))
"""Operators by how tightly they bind, the loosest first."""

FUNCTIONS: dict[str, Callable[..., float]] = {
    "ln": lambda x: math.log(x) if x > 0 else -math.inf,
    "sqrt": math.sqrt,
    "abs": abs,
    "clamp_min": max,
}
AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {"sum": math.fsum, "max": max, "count": len}


def labelled(**labels: str) -> Labels:
    """Return labels as vectors are keyed by them."""
    return frozenset(labels.items())


def evaluate(expression: str, samples: Mapping[str, Vector]) -> Vector:
    """Return the vector that an expression is, of samples by their metric's name."""
    reader = _Reader(expression, samples)
    found = reader.binary(0)
    assert reader.at == len(reader.tokens), f"cannot read {reader.tokens[reader.at :]} in {expression}"
    assert isinstance(found, dict)
    return found


def evaluate_rules(groups: list[dict[str, Any]], samples: Mapping[str, Vector]) -> dict[str, Vector]:
    """Return what rules record, by name, and what each alert fires on, whatever it waits for."""
    found = dict(samples)
    for rule in (rule for group in groups for rule in group["rules"]):
        found[rule.get("record") or rule["alert"]] = evaluate(rule["expr"], found)
    return found


class _Reader:
    """Reads an expression from left to right and computes it meanwhile."""

    def __init__(self, expression: str, samples: Mapping[str, Vector]) -> None:
        self.tokens, self.at, self._samples = TOKEN.findall(expression), 0, samples
        assert "".join(self.tokens).replace(" ", "") == re.sub(r"\s", "", expression), expression

    def binary(self, level: int) -> Value:
        if level == len(LEVELS):
            return self._unary()
        left = self.binary(level + 1)
        while self._peek() in LEVELS[level]:
            operation, on = self._next(), None
            if self._peek() == "bool":
                raise AssertionError("bool is not known")
            if self._peek() == "on":
                self._next()
                on = self._names()
            many = self._peek() == "group_left"
            if many:
                self._next()
                assert self._names() == []
            left = _combined(operation, left, self.binary(level + 1), on, many=many)
        return left

    def _unary(self) -> Value:
        token = self._next()
        if token == "(":
            found = self.binary(0)
            self._expect(")")
            return found
        if re.fullmatch(r"[\d.]+", token):
            return float(token)
        if token in AGGREGATIONS:
            by: list[str] = []
            if self._peek() == "by":
                self._next()
                by = self._names()
            (vector,) = self._arguments()
            assert isinstance(vector, dict)
            groups: dict[Labels, list[float]] = {}
            for labels, number in vector.items():
                groups.setdefault(_only(labels, by), []).append(number)
            return {labels: AGGREGATIONS[token](numbers) for labels, numbers in groups.items()}
        if token == "label_replace":
            vector, name, value, source, _ = self._arguments()
            assert source == '""'
            return {labels | labelled(**{name[1:-1]: value[1:-1]}): number for labels, number in vector.items()}
        if token == "increase":
            return self._arguments()[0]  # type: ignore[no-any-return]
        if token in FUNCTIONS:
            vector, *others = self._arguments()
            if isinstance(vector, float):
                return FUNCTIONS[token](vector, *others)
            return {labels: FUNCTIONS[token](number, *others) for labels, number in vector.items()}
        return self._selected(token)

    def _selected(self, name: str) -> Vector:
        """Return the samples of a metric that have the labels that are asked for."""
        wanted: list[tuple[str, str]] = []
        refused: list[tuple[str, str]] = []
        if self._peek() == "{":
            self._next()
            while self._peek() != "}":
                label, relation, value = self._next(), self._next(), self._next()[1:-1]
                assert relation in ("=", "!~")
                (wanted if relation == "=" else refused).append((label, value))
                if self._peek() == ",":
                    self._next()
            self._next()
        if self._peek().startswith("["):
            self._next()
        if self._peek() == "offset":
            self._next()
            self._next()
            name = f"offset {name}"
        return {
            labels: number
            for labels, number in self._samples.get(name, {}).items()
            if labels >= set(wanted) and not any(re.fullmatch(v, dict(labels).get(k, "")) for k, v in refused)
        }

    def _arguments(self) -> list[Any]:
        self._expect("(")
        found: list[Any] = []
        while True:
            found.append(self._next() if self._peek().startswith('"') else self.binary(0))
            if self._next() == ")":
                return found

    def _names(self) -> list[str]:
        self._expect("(")
        found = []
        while (token := self._next()) != ")":
            if token != ",":
                found.append(token)
        return found

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _next(self) -> str:
        self.at += 1
        token: str = self.tokens[self.at - 1]
        return token

    def _expect(self, token: str) -> None:
        assert self._next() == token


def _only(labels: Labels, names: list[str]) -> Labels:
    return frozenset(each for each in labels if each[0] in names)


def _combined(operation: str, left: Value, right: Value, on: list[str] | None, *, many: bool) -> Value:
    """Return two sides of an operator put together: labels must match, those of `on` or all."""

    def key(labels: Labels) -> Labels:
        return labels if on is None else _only(labels, on)

    if operation in SETS:
        assert isinstance(left, dict)
        assert isinstance(right, dict)
        there = {key(labels) for labels in right}
        if operation == "or":
            here = {key(labels) for labels in left}
            return left | {labels: number for labels, number in right.items() if key(labels) not in here}
        return {labels: number for labels, number in left.items() if (key(labels) in there) == (operation == "and")}
    if isinstance(left, float) and isinstance(right, float):
        return ARITHMETIC[operation](left, right)
    if isinstance(left, float):
        assert isinstance(right, dict)
        assert operation in ARITHMETIC
        return {labels: ARITHMETIC[operation](left, number) for labels, number in right.items()}
    if isinstance(right, float):
        pairs = [(labels, number, right) for labels, number in left.items()]
    else:
        of_key = {key(labels): number for labels, number in right.items()}
        assert len(of_key) == len(right), "several samples on the right have the same labels"
        assert many or len({key(labels) for labels in left}) == len(left), "several on the left, without group_left"
        pairs = [(labels, n, of_key[key(labels)]) for labels, n in left.items() if key(labels) in of_key]
    if operation in COMPARED:
        return {labels: a for labels, a, b in pairs if COMPARED[operation](a, b)}
    return {labels: ARITHMETIC[operation](a, b) for labels, a, b in pairs}
