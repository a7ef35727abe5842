"""The parser, editor and printer of config.pbtxt, the Triton server's configuration of a model.

The file is a `ModelConfig` message in protobuf's text format. An edit rewrites the values that change, removes and adds
fields where the message loses and gains them, and leaves every other character as its author wrote it: comments, order,
layout and spelling. A comment is removed only with the field whose braces hold it. No library does this for Python:
`google.protobuf.text_format` forgets comments when it parses.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from triton_regressors.kernels.format.member_tensors import joined_with

TOKEN = re.compile(
    r"""\s+ | \#.*                                                # white space, a comment
        | ( "[^"\\]*(?:\\.[^"\\]*)*" | '[^'\\]*(?:\\.[^'\\]*)*'   # a string
        | [\w.+-]+ | . )                                          # a name, a number, a bracket, a separator""",
    re.VERBOSE,
)
CLOSING = {"{": "}", "<": ">"}


def from_pbtxt(content: str | bytes) -> Any:
    """Return the `ModelConfig` in the content of a config.pbtxt, or raise ValueError with the place of the fault."""
    try:
        return text_format.Parse(content, model_config_pb2.ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"The config.pbtxt cannot be read: {error}.") from error


def to_pbtxt(config: Any) -> str:
    """Return a `ModelConfig` as the text of a new config.pbtxt."""
    text: str = text_format.MessageToString(config)
    return text


def sent_inputs(config: Any) -> list[Any]:
    """Return the inputs of a configuration without those that a request for a fleet may have in place of `X` and ids.

    These are optional INT32 inputs, and one named after such that holds the columns of `X` too.
    """
    numbers = {each.name for each in config.input if each.optional and each.data_type == model_config_pb2.TYPE_INT32}
    others = numbers | set(map(joined_with, numbers))
    return [each for each in config.input if each.name not in others]


def edit_pbtxt(content: bytes, wanted: Any) -> bytes:
    """Return the content of a config.pbtxt, edited only where needed to hold the `ModelConfig` `wanted`.

    The result is parsed again. Raises ValueError if the content cannot be read, or the result is not `wanted`.
    """
    config = from_pbtxt(content)
    if config == wanted:
        return content
    text = content.decode()
    edit = _Edit(text)
    edit.message(_Reader(text).body(""), config, wanted)
    edited = edit.result().encode()
    if from_pbtxt(edited) != wanted:
        raise ValueError("The config.pbtxt cannot be edited in place; write the whole configuration into it again.")
    return edited


@dataclass(frozen=True)
class _Value:
    """One value in the text, from `start` to `end`: literals (adjacent strings are one value), or a message's body."""

    start: int
    end: int
    literals: Sequence[tuple[int, int]]
    body: _Body | None


@dataclass(frozen=True)
class _Field:
    """A field in the text, from its name to its separator; `commas` lie between its values if these are a list."""

    name: str
    start: int
    end: int
    values: Sequence[_Value]
    commas: Sequence[tuple[int, int]]
    is_list: bool


@dataclass(frozen=True)
class _Body:
    """The fields of a message in the text, and where the message begins and ends within its braces."""

    fields: Sequence[_Field]
    start: int
    end: int


class _Reader:
    """Finds the fields in a text that protobuf has parsed; it understands only valid texts."""

    def __init__(self, text: str) -> None:
        self._tokens = [(found[1], *found.span()) for found in TOKEN.finditer(text) if found[1]]
        self._tokens.append(("", len(text), len(text)))
        self._next = 0

    def body(self, closing: str) -> _Body:
        """Read fields up to and with a closing brace, or the text's end if that is ""."""
        start = self._tokens[self._next - 1][2] if closing else 0
        fields = []
        while self._token() != closing:
            fields.append(self._field())
        return _Body(fields, start, self._take()[0])

    def _field(self) -> _Field:
        name = self._token()
        start, _ = self._take()
        if self._token() == ":":
            self._take()
        values: list[_Value] = []
        commas: list[tuple[int, int]] = []
        is_list = self._token() == "["
        if is_list:
            self._take()
            while self._token() != "]":
                if values:
                    commas.append(self._take())
                values.append(self._value())
            _, end = self._take()
        else:
            values.append(self._value())
            end = values[0].end
        if self._token() in (",", ";"):
            _, end = self._take()
        return _Field(name, start, end, values, commas, is_list)

    def _value(self) -> _Value:
        closing = CLOSING.get(self._token())
        literals = [self._take()]
        if closing:
            body = self.body(closing)
            return _Value(literals[0][0], self._tokens[self._next - 1][2], (), body)
        while self._token()[:1] in ("'", '"'):
            literals.append(self._take())
        return _Value(literals[0][0], literals[-1][1], literals, None)

    def _token(self) -> str:
        return self._tokens[self._next][0]

    def _take(self) -> tuple[int, int]:
        """Step over a token and return its start and end."""
        _, start, end = self._tokens[self._next]
        self._next += 1
        return start, end


class _Edit:
    """The changes to a text: replacements for the characters from a start to an end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._changes: list[tuple[int, int, str]] = []

    def result(self) -> str:
        """Return the text with the changes made."""
        parts, done = [], 0
        for start, end, replacement in sorted(self._changes, key=lambda change: change[0]):
            parts += [self._text[done:start], replacement]
            done = max(done, end)
        return "".join([*parts, self._text[done:]])

    def message(self, body: _Body, old: Any, new: Any) -> None:
        """Make `body`, which holds the message `old`, hold the message `new`."""
        for descriptor in new.DESCRIPTOR.fields:
            before, after = _values(old, descriptor), _values(new, descriptor)
            if before != after:
                fields = [field for field in body.fields if field.name == descriptor.name]
                held = [value for field in fields for value in field.values]
                container = getattr(old, descriptor.name)
                if hasattr(container, "GetEntryClass"):
                    texts = [self._text[value.body.start : value.body.end] for value in held if value.body]
                    before = [text_format.Parse(text, container.GetEntryClass()()) for text in texts]
                    kept, added = _matched_by_key(before, after)
                else:
                    if not isinstance(container, MutableSequence):
                        before = [container] * len(held)  # a default may be stated, and more than once
                    kept, added = _matched_in_order(before, after)
                self._values_of(body, descriptor, fields, list(zip(before, kept, strict=True)), added)

    def _values_of(
        self, body: _Body, descriptor: Any, fields: Sequence[_Field], pairs: Sequence[tuple[Any, Any]], added: Any
    ) -> None:
        """Change each value of the fields of one name from the first to the second of its pair, then add further ones.

        None as the second value means that the value is removed.
        """
        remaining = iter(pairs)
        anchor = None  # the last value of a list, behind which further ones have a place
        for field in fields:
            kept: list[int] = []
            removed: list[int] = []
            for place, value in enumerate(field.values):
                old, new = next(remaining)
                (removed if new is None else kept).append(place)
                if new is not None and old != new:
                    self._value(value, descriptor, old, new)
            if removed and not kept:
                self._cut(field.start, field.end)
            else:
                for place in removed:
                    comma = field.commas[place if place < kept[-1] else place - 1]
                    for start, end in ((field.values[place].start, field.values[place].end), comma):
                        self._cut(start, end)
            anchor = field.values[kept[-1]] if field.is_list and kept else None
        for value in added:
            if anchor is not None:
                self._changes.append((anchor.end, anchor.end, f", {_printed_value(descriptor, value)}"))
            else:
                self._append(body, descriptor, value)

    def _value(self, value: _Value, descriptor: Any, old: Any, new: Any) -> None:
        if value.body is not None:
            self.message(value.body, old, new)
            return
        (start, end), *further = value.literals
        self._changes.append((start, end, _printed_value(descriptor, new)))
        for start, end in further:
            self._cut(start, end)

    def _cut(self, start: int, end: int) -> None:
        """Remove the text between `start` and `end`: whole lines if nothing else is on them, else with its space."""
        line = self._text.rfind("\n", 0, start) + 1
        line_end = self._text.find("\n", end)
        before, after = self._text[line:start], self._text[end : line_end if line_end >= 0 else len(self._text)]
        if not before.strip() and not after.strip():
            start, end = (line - 1, end + len(after)) if line else (0, end + len(after) + 1)
        elif not before.strip():
            end += len(after) - len(after.lstrip())
        elif not after or after[0].isspace() or after[0] in "}>],":
            start -= len(before) - len(before.rstrip())
        self._changes.append((start, end, ""))

    def _append(self, body: _Body, descriptor: Any, value: Any) -> None:
        """Add a field at a body's end: on a line of its own, or beside the others if the body is one line."""
        inner = self._text[body.start : body.end]
        end = body.start + len(inner.rstrip())
        whole = body.end == len(self._text)
        if "\n" not in inner and not whole:
            space = "" if inner[-1:].isspace() else " "
            self._changes.append((end, end, f" {_printed_field(descriptor, value, as_one_line=True)}{space}"))
            return
        neighbour = body.fields[-1].start if body.fields else body.end
        line = self._text[self._text.rfind("\n", 0, neighbour) + 1 : neighbour]
        margin = line[: len(line) - len(line.lstrip())] + ("" if body.fields or whole else "  ")
        lines = textwrap.indent(_printed_field(descriptor, value), margin)
        newline = inner.rfind("\n")
        if newline >= 0 and inner[newline:].isspace():
            end = body.start + newline  # behind a comment too, with what white space it ends in
        self._changes.append((end, end, f"\n{lines}" if self._text[:end] else f"{lines}\n"))


def _values(message: Any, descriptor: Any) -> list[Any]:
    """Return the values of a message's field: none or one, or those of a repeated field, or a map's entries."""
    value = getattr(message, descriptor.name)
    if hasattr(value, "GetEntryClass"):
        return [value.GetEntryClass()(key=key, value=value[key]) for key in sorted(value)]
    if isinstance(value, MutableSequence):
        return list(value)
    present = message.HasField(descriptor.name) if descriptor.has_presence else value != descriptor.default_value
    return [value] if present else []


def _matched_in_order(before: Sequence[Any], after: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the new value for each value of `before`, and the values of `after` that are added behind them.

    If there are fewer values than before, the surplus values at the first difference are removed (become None).
    """
    surplus = max(len(before) - len(after), 0)
    same = next((place for place, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(after))
    same = same if surplus else 0
    kept = [*after[:same], *[None] * surplus, *after[same:]]
    return kept[: len(before)], kept[len(before) :]


def _matched_by_key(before: Sequence[Any], after: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Match a map's entries as `_matched_in_order` matches values; of several with one key the last counts."""
    last = {entry.key: place for place, entry in enumerate(before)}
    wanted = {entry.key: entry for entry in after}
    kept = [
        wanted.get(entry.key) if last[entry.key] == place or entry.key not in wanted else entry
        for place, entry in enumerate(before)
    ]
    return kept, [entry for key, entry in wanted.items() if key not in last]


def _printed_field(descriptor: Any, value: Any, as_one_line: bool = False) -> str:
    out = StringIO()
    text_format.PrintField(descriptor, value, out, as_one_line=as_one_line)
    return out.getvalue().rstrip()


def _printed_value(descriptor: Any, value: Any) -> str:
    out = StringIO()
    text_format.PrintFieldValue(descriptor, value, out, as_one_line=True)
    return out.getvalue().strip()
