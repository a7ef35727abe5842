"""Editing a config.pbtxt: the message is the wanted one, and what its author wrote stays."""

from __future__ import annotations

from collections.abc import MutableSequence
from io import StringIO
from random import Random
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from triton_regressors.model_config import edit_pbtxt, from_pbtxt, to_pbtxt

CONFIG = """\
# Ours; ask Anna.
name: "m"    backend: 'python'
max_batch_size: 0x40  # as the machine allows
instance_group [
  # the fast one
  { count: 1 kind: KIND_GPU gpus: [0, 1] },  # two GPUs
  {
    kind: KIND_CPU;  # spare
    count: 2  # cores
  }
]
dynamic_batching {  # since May
    preferred_batch_size: [8,  # small
      16]  # large
    # keep this
    preserve_ordering: true }

parameters { key: "engine" value { string_value: "auto" } }
parameters: <
  key: "note", value: { string_value: "# no comment, \\"}\\" no brace" # a comment
    ' and more' }
>
version_policy: { specific { versions: 1 } }  # pinned
# That is all.
"""


def edited(text: str, **changes: Any) -> str:
    """Return the text after an edit, which is right; each change is text to merge, or None for a field to clear."""
    wanted = from_pbtxt(text)
    for name, change in changes.items():
        if change is None:
            wanted.ClearField(name)
        else:
            text_format.Merge(change, wanted)
    found = edit_pbtxt(text.encode(), wanted)
    assert from_pbtxt(found) == wanted
    return found.decode()


def replaced(*pairs: tuple[str, str]) -> str:
    """Return CONFIG with each piece of text, which it holds once, in place of another."""
    text = CONFIG
    for old, new in pairs:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def test_what_does_not_change_is_not_rewritten() -> None:
    assert edited(CONFIG) == CONFIG
    assert edited(CONFIG, max_batch_size="max_batch_size: 8") == replaced(("0x40", "8"))
    assert edit_pbtxt(b"max_batch_size: 1 # \xc3\xa9\r\n", from_pbtxt("max_batch_size: 2")) == (
        b"max_batch_size: 2 # \xc3\xa9\r\n"
    )


def test_every_instance_group_changes_in_its_place() -> None:
    wanted = from_pbtxt(CONFIG)
    for group in wanted.instance_group:
        group.count, group.kind, group.gpus[:] = 3, model_config_pb2.ModelInstanceGroup.KIND_CPU, []
    assert edit_pbtxt(CONFIG.encode(), wanted).decode() == replaced(
        ("count: 1 kind: KIND_GPU gpus: [0, 1] }", "count: 3 kind: KIND_CPU }"), ("count: 2", "count: 3")
    )


def test_fields_are_added_on_lines_of_their_own_or_beside_the_others() -> None:
    found = edited(
        CONFIG,
        delay="dynamic_batching { max_queue_delay_microseconds: 5 }",
        cache="response_cache { enable: true }",
        parameter='parameters { key: "new" value { string_value: "x" } }',
    )
    assert found == (
        replaced(("true }", "true\n    max_queue_delay_microseconds: 5 }"))
        + 'parameters {\n  key: "new"\n  value {\n    string_value: "x"\n  }\n}\nresponse_cache {\n  enable: true\n}\n'
    )
    one_line = "version_policy { latest {} } # the newest"
    assert edited(one_line, more="version_policy { latest { num_versions: 2 } }") == (
        "version_policy { latest { num_versions: 2 } } # the newest"
    )
    assert edited("instance_group [{}]", more="instance_group { count: 2 }") == "instance_group [{}, { count: 2 }]"
    assert edited("", more="max_batch_size: 2") == "max_batch_size: 2\n"


def test_fields_go_with_the_lines_they_have_for_themselves() -> None:
    before, after = CONFIG.split("dynamic_batching {")[0], CONFIG.split("preserve_ordering: true }\n")[1]
    assert edited(CONFIG, dynamic_batching=None) == before + after
    assert edited(CONFIG, max_batch_size=None) == replaced(("max_batch_size: 0x40  # as", "# as"))
    assert edited(CONFIG, backend=None) == replaced(("    backend: 'python'", ""))
    assert edited("max_batch_size: 1\n# the rest", max_batch_size=None) == "# the rest"
    tight = "max_batch_size:1 dynamic_batching{}backend:'b'"
    assert edited(tight, dynamic_batching=None) == "max_batch_size:1 backend:'b'"


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ((16,), "[  # small\n      16]"),
        ((8,), "[8  # small\n      ]"),
        ((4, 16), "[4,  # small\n      16]"),
        ((8, 16, 32), "[8,  # small\n      16, 32]"),
    ],
)
def test_the_values_of_a_list(sizes: tuple[int, ...], found: str) -> None:
    wanted = from_pbtxt(CONFIG)
    wanted.dynamic_batching.preferred_batch_size[:] = sizes
    assert edit_pbtxt(CONFIG.encode(), wanted).decode() == replaced(("[8,  # small\n      16]", found))


def test_maps_and_choices() -> None:
    found = edited(
        CONFIG,
        note='parameters { key: "note" value { string_value: "shorter" } }',
        policy="version_policy { latest { num_versions: 2 } }",
    )
    assert found == replaced(
        ('"# no comment, \\"}\\" no brace" # a comment\n    \' and more\' }', '"shorter" # a comment\n    }'),
        ("{ specific { versions: 1 } }", "{ latest { num_versions: 2 } }"),
    )
    repeated = 'parameters { key: "a" } # first\nparameters { key: "a" value { string_value: "last" } } # counts\n'
    assert edited(repeated, more='parameters { key: "a" value { string_value: "x" } }') == repeated.replace("last", "x")
    assert edited(repeated, parameters=None) == "# first\n# counts\n"


@pytest.mark.parametrize("content", ["max_batch_size: many", "name: {", b"\xff", 'colour: "red"'])
def test_what_is_no_configuration(content: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"^The config\.pbtxt cannot be read: "):
        from_pbtxt(content)
    with pytest.raises(ValueError, match=r"^The config\.pbtxt cannot be read: "):
        edit_pbtxt(content if isinstance(content, bytes) else content.encode(), from_pbtxt(""))


# Any configuration, written in any way

Path = tuple[tuple[str, Any], ...]
"""The place of a value: for each message around it, and for itself, the field and the number or key in it."""
LETTERS = "ab \"'\\#{}[]<>:,;\nΔ"


def items(message: Any, descriptor: Any) -> list[tuple[Any, Any]]:
    """Return the values of a field, each with its number or key."""
    value = getattr(message, descriptor.name)
    if hasattr(value, "GetEntryClass"):
        return [(key, value.GetEntryClass()(key=key, value=value[key])) for key in value]
    if isinstance(value, MutableSequence):
        return list(enumerate(value))
    present = message.HasField(descriptor.name) if descriptor.has_presence else value != descriptor.default_value
    return [(0, value)] if present else []


def scalar(random: Random, descriptor: Any) -> Any:
    if descriptor.enum_type is not None:
        return random.choice(descriptor.enum_type.values).number
    if descriptor.cpp_type == descriptor.CPPTYPE_STRING:
        return "".join(random.choices(LETTERS, k=random.randrange(5)))
    if descriptor.cpp_type == descriptor.CPPTYPE_BOOL:
        return random.random() < 0.7
    if descriptor.cpp_type in (descriptor.CPPTYPE_DOUBLE, descriptor.CPPTYPE_FLOAT):
        return random.randrange(-8, 9) / 8
    return random.randrange(5)


def set_field(random: Random, message: Any, descriptor: Any, depth: int) -> None:
    """Give a field a value, or one more value."""
    container = getattr(message, descriptor.name)
    if hasattr(container, "GetEntryClass"):
        key = random.choice("abc" if isinstance(container.GetEntryClass()().key, str) else range(3))
        value = descriptor.message_type.fields_by_name["value"]
        if value.message_type is None:
            container[key] = scalar(random, value)
        else:
            fill(random, container[key], depth + 1)
    elif descriptor.message_type is not None:
        part = container.add() if isinstance(container, MutableSequence) else container
        part.SetInParent()
        fill(random, part, depth + 1)
    elif isinstance(container, MutableSequence):
        container.append(scalar(random, descriptor))
    else:
        setattr(message, descriptor.name, scalar(random, descriptor))


def fill(random: Random, message: Any, depth: int = 0) -> Any:
    """Give some fields of a message some values."""
    fields = list(message.DESCRIPTOR.fields)
    for descriptor in random.choices(fields, k=random.randrange(6 if depth < 3 else 2)) if fields else ():
        set_field(random, message, descriptor, depth)
    return message


def change(random: Random, message: Any, path: Path = ()) -> set[Path]:
    """Change a message at random; return the places, as they were, of the values taken out of repeated fields."""
    removed = set()
    for descriptor in message.DESCRIPTOR.fields:
        values, container = items(message, descriptor), getattr(message, descriptor.name)
        number, value = random.choice(values) if values else (0, None)
        what = random.randrange(12)
        if what == 0:
            message.ClearField(descriptor.name)
        elif what == 1 and (values or random.random() < 0.3):
            set_field(random, message, descriptor, 2)
        elif what == 2 and values and isinstance(container, MutableSequence):
            if number + 1 == len(values) or value != values[number + 1][1]:  # of two equal ones, either may go
                del container[number]
                removed.add((*path, (descriptor.name, number)))
        elif what == 2 and values and hasattr(container, "GetEntryClass"):
            del container[number]
        elif what < 5 and values and descriptor.message_type is not None:
            part = value if hasattr(container, "GetEntryClass") else None
            if part is None:
                part = container[number] if isinstance(container, MutableSequence) else container
                removed |= change(random, part, (*path, (descriptor.name, number)))
            elif part.DESCRIPTOR.fields_by_name["value"].message_type is not None:
                removed |= change(random, container[number], (*path, (descriptor.name, number), ("value", 0)))
        elif what < 5 and values and isinstance(container, MutableSequence):
            container[number] = scalar(random, descriptor)
    return removed


def lost(old: Any, new: Any, removed: set[Path], path: Path = ()) -> set[Path]:
    """Return the places of all values that a message has lost; the outermost ones of those inside one another."""
    found = set()
    for descriptor in old.DESCRIPTOR.fields:
        before, after = items(old, descriptor), dict(items(new, descriptor))
        places = [(*path, (descriptor.name, key)) for key, _ in before]
        if removed.isdisjoint(places):  # else the others have other numbers now, and are as they were
            for place, (key, value) in zip(places, before, strict=True):
                if key not in after:
                    found.add(place)
                elif descriptor.message_type is not None:
                    found |= lost(value, after[key], removed, place)
    return found | removed


class Writer:
    """Writes a message as its author might have: comments anywhere, brackets, separators and literals of all kinds."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.parts: list[str] = []
        self.comments: list[tuple[str, list[Path]]] = []
        """Each comment, and the values of which one must stay if it is to stay; none if it stays in any case."""

    def put(self, token: str, *around: Path) -> None:
        """Write a token, white space and sometimes a comment."""
        self.parts.append(token)
        self.parts.append(self.random.choice(["\n", " ", "\n  ", "\t"]))
        if self.random.random() < 0.15:
            comment = f"# {len(self.comments)} }} \" '."
            self.comments.append((comment, list(around)))
            self.parts.append(comment + "\n")

    def message(self, message: Any, path: Path = ()) -> None:
        fields = list(message.DESCRIPTOR.fields)
        self.random.shuffle(fields)
        around = [path] if path else []
        for descriptor in fields:
            values = items(message, descriptor)
            repeated = isinstance(getattr(message, descriptor.name), MutableSequence)
            while values:
                count = self.random.randint(1, len(values)) if self.random.random() < 0.5 else 1
                as_list = count > 1 or ((repeated or len(values) > 1) and self.random.random() < 0.3)
                self.field(descriptor, values[:count], as_list, path, around)
                values = values[count:]

    def field(self, descriptor: Any, values: list[tuple[Any, Any]], as_list: bool, path: Path, around: Any) -> None:
        places: list[Path] = [(*path, (descriptor.name, key)) for key, _ in values]
        self.put(descriptor.name, *places)
        if descriptor.message_type is None or self.random.random() < 0.5:
            self.put(":", *places)
        if as_list:
            self.put("[", *places)
        last = "" if as_list else self.random.choice(["", "", ",", ";"])
        for place, (_, value) in zip(places, values, strict=True):
            if place != places[0]:
                self.put(",", *places)
            self.value(descriptor, value, place, places if as_list or last else around)
        if as_list:
            last = self.random.choice(["", ",", ";"])
            self.put("]", *(places if last else around))
        if last:
            self.put(last, *around)

    def value(self, descriptor: Any, value: Any, place: Path, behind: list[Path]) -> None:
        if descriptor.message_type is not None:
            brackets = self.random.choice(["{}", "<>"])
            self.put(brackets[0], place)
            self.message(value, place)
            self.put(brackets[1], *behind)
            return
        if isinstance(value, str):
            middle = self.random.randint(0, len(value))
            quote = self.random.choice("\"'")
            if middle:
                self.put(quote + printed(descriptor, value[:middle])[1:-1] + quote, place)
            self.put(quote + printed(descriptor, value[middle:])[1:-1] + quote, *behind)
            return
        self.put(printed(descriptor, value), *behind)


def printed(descriptor: Any, value: Any) -> str:
    out = StringIO()
    text_format.PrintFieldValue(descriptor, value, out, as_utf8=True)
    return out.getvalue()


def stays(places: list[Path], gone: set[Path]) -> bool:
    """Return whether one of the places is left, and everything around it."""
    return not places or any(all(place[: n + 1] not in gone for n in range(len(place))) for place in places)


@given(st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_any_edit_gives_the_wanted_message_and_keeps_the_comments_of_what_stays(random: Random) -> None:
    config = fill(random, model_config_pb2.ModelConfig())
    writer = Writer(random)
    writer.message(config)
    text = "".join(writer.parts)
    assert from_pbtxt(text) == config
    wanted = model_config_pb2.ModelConfig()
    wanted.CopyFrom(config)
    gone = lost(config, wanted, change(random, wanted))
    found = edit_pbtxt(text.encode(), wanted).decode()
    assert from_pbtxt(found) == wanted
    for comment, places in writer.comments:
        assert not stays(places, gone) or comment in found
    assert from_pbtxt(edit_pbtxt(found.encode(), config)) == config


@given(st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_any_configuration_becomes_any_other(random: Random) -> None:
    config, wanted = (fill(random, model_config_pb2.ModelConfig()) for _ in range(2))
    assert from_pbtxt(edit_pbtxt(to_pbtxt(config).encode(), wanted)) == wanted
