"""Mutations of inputs in terms of their structure."""

import json
import math
import random
import tomllib
from collections.abc import Callable
from typing import Any

import tomli_w
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from tests.fuzz.target import Mutate

WHOLE = (0, 1, 2, -1, 127, 128, 2**31 - 1, 2**32 - 1, 2**40, 2**40 + 1, 2**63 - 1, 2**63, 2**64 - 1)
REAL = (
    0.0,
    -0.0,
    0.5,
    1.0,
    -1.0,
    24.0,
    5e-324,
    1e12,
    1e13,
    1e30,
    1e31,
    1.8e308,
    math.nan,
    math.inf,
)
TEXT = ("", "a", "b", "wifi", "é", "\0", "x" * 300)
BYTES = (b"", bytes(4), bytes(15), bytes(16), bytes(17), b"\xff" * 16)

_KINDS: dict[int, tuple[object, ...]] = {
    FieldDescriptor.CPPTYPE_STRING: TEXT,
    FieldDescriptor.CPPTYPE_DOUBLE: REAL,
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
    FieldDescriptor.CPPTYPE_ENUM: (0, 1, 2, 3, 4, 22, 99, 2**31 - 1),
}

_MOST_REPEATED = 8


def message_mutation(kind: type[Message]) -> Mutate:
    """Change a field of a serialised message of this kind, at any depth. An input that is no such
    message is replaced by a new one."""

    def mutate(data: bytes, draws: random.Random) -> bytes:
        message = kind()
        try:
            message.ParseFromString(data)
        except DecodeError:
            message.Clear()
        for _ in range(draws.choice((1, 1, 2, 4))):
            _change_message(message, draws)
        serialised: bytes = message.SerializeToString()
        return serialised

    return mutate


def _change_message(message: Any, draws: random.Random) -> None:
    field = draws.choice(message.DESCRIPTOR.fields)
    if draws.random() < 0.1:
        message.ClearField(field.name)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(message, field.name)[draws.choice(TEXT)] = draws.choice(REAL)
    elif field.is_repeated:
        _change_repeated(getattr(message, field.name), field, draws)
    elif field.message_type is not None:
        inner = getattr(message, field.name)
        inner.SetInParent()
        _change_message(inner, draws)
    else:
        setattr(message, field.name, _value(field, draws))


def _change_repeated(repeated: Any, field: Any, draws: random.Random) -> None:
    if repeated and (len(repeated) >= _MOST_REPEATED or draws.random() < 0.2):
        del repeated[draws.randrange(len(repeated))]
    elif field.message_type is None:
        repeated.append(_value(field, draws))
    elif not repeated or draws.random() < 0.3:
        _change_message(repeated.add(), draws)
    elif draws.random() < 0.3:
        repeated.add().CopyFrom(draws.choice(repeated))
    else:
        _change_message(draws.choice(repeated), draws)


def _value(field: Any, draws: random.Random) -> object:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return draws.choice(BYTES)
    if field.cpp_type in _KINDS:
        return draws.choice(_KINDS[field.cpp_type])
    bits = 32 if field.cpp_type == FieldDescriptor.CPPTYPE_UINT32 else 64
    return draws.choice(WHOLE) % 2**bits


# --- trees of tables and lists -------------------------------------------------------------------


def _tree_mutation(
    loads: Callable[[str], Any], dumps: Callable[[Any], str], words: tuple[str, ...]
) -> Mutate:
    def mutate(data: bytes, draws: random.Random) -> bytes:
        try:
            tree = loads(data.decode())
            text = dumps(_changed_tree(tree, words, draws))
        except (ValueError, TypeError, RecursionError, AttributeError):
            return data
        return text.encode(errors="surrogatepass")

    return mutate


def toml_mutation(*words: str) -> Mutate:
    """Change a value of a TOML file, at any depth, or put one of `words` there or as a key."""
    return _tree_mutation(tomllib.loads, tomli_w.dumps, words)


def json_mutation(*words: str) -> Mutate:
    """Change a value of a JSON text, at any depth, or put one of `words` there or as a key."""
    return _tree_mutation(json.loads, json.dumps, words)


def _changed_tree(tree: Any, words: tuple[str, ...], draws: random.Random) -> Any:
    if isinstance(tree, dict) and tree and draws.random() < 0.9:
        key = draws.choice(list(tree))
        action = draws.random()
        if action < 0.1:
            return {name: value for name, value in tree.items() if name != key}
        if action < 0.25:
            return {**tree, draws.choice((*words, *TEXT)): _leaf(words, draws)}
        return {**tree, key: _changed_tree(tree[key], words, draws)}
    if isinstance(tree, list) and tree and draws.random() < 0.9:
        place = draws.randrange(len(tree))
        action = draws.random()
        if action < 0.1:
            return tree[:place] + tree[place + 1 :]
        if action < 0.25 and len(tree) < _MOST_REPEATED:
            return [*tree, tree[place]]
        return [*tree[:place], _changed_tree(tree[place], words, draws), *tree[place + 1 :]]
    return _leaf(words, draws)


def _leaf(words: tuple[str, ...], draws: random.Random) -> object:
    kinds: tuple[tuple[object, ...], ...] = (
        words or TEXT, words or TEXT, TEXT, REAL, WHOLE, (True, False, [], {})
    )  # fmt: skip
    return draws.choice(draws.choice(kinds))
