"""What one device states in its messages, and a fleet in which it states something else.

What a device may state is read from the protocol: every field of every message that a device may
send is walked, also one that is added later.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from muster.common.bounds import COVARIATE, FORESEEN_STEPS
from muster.simulation.history import History
from muster.simulation.programs import Programs
from muster.v1 import fleet_pb2 as pb
from muster.wire import CHUNK_BYTES, messages
from muster.wire.in_memory.frames import FrameKind
from muster.wire.in_memory.network import InMemoryConnection

LIAR = "liar-0000"
"""The device whose messages are changed on their way."""

HONEST = "dev-0000"
"""A device whose name the liar may use."""

_BITS = {FieldDescriptor.CPPTYPE_UINT32: 32, FieldDescriptor.CPPTYPE_UINT64: 64}

_WHOLE = (0, 1, FORESEEN_STEPS, CHUNK_BYTES, messages.LARGEST)
_REAL = (0.0, 1.0, 24.0, 2.0**31, 3.4028234663852886e38, messages.LONGEST_S)
_LIMITS = (*_REAL, COVARIATE)
"""The limits that the decoding of messages has for some field; every field is tried with all."""

_TEXTS = ("", "x", LIAR, HONEST, "é\x00\u2028", "x" * 501, "x" * 40_000)
_BODIES = (b"", b"x", bytes(15), bytes(16), b"\xff" * 17, bytes(1 << 16), b"\xff" * 40_000)


class Times(NamedTuple):
    """Instead of a value: how often the field stands in its message, with what it has there."""

    times: int


class Place(NamedTuple):
    """A field of a message: the call, and the names that lead to the field."""

    method: str
    path: tuple[str, ...]
    field: FieldDescriptor

    def __str__(self) -> str:
        return ".".join((self.method, *self.path))

    @property
    def name(self) -> str:
        """The message and the field, as `muster.common.claims` names them."""
        parent = self.field.containing_type
        assert parent is not None
        if parent.GetOptions().map_entry:
            assert parent.containing_type is not None
            return f"{parent.containing_type.name}.{self.path[-2]}"
        return f"{parent.name}.{self.field.name}"

    def values(self) -> list[Any]:
        """Values at the limits of the field and beside them, and how often it may stand there."""
        return [*self._values(), *self._times()]

    def _values(self) -> list[Any]:
        match self.field.cpp_type:
            case FieldDescriptor.CPPTYPE_DOUBLE:
                beside = [math.nextafter(x, side) for x in _LIMITS for side in (0.0, math.inf)]
                extremes = [5e-324, 1e308, math.inf, -math.inf, -1.0, -0.0, math.nan]
                found = {*map(repr, (*_LIMITS, *beside, *extremes))}
                return sorted(map(float, found), key=lambda number: (number != number, number))
            case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
                bits = _BITS[self.field.cpp_type]
                near = {limit + side for limit in _WHOLE for side in (-1, 0, 1)}
                near |= {2 ** (bits - 1), 2**bits - 1}
                return sorted(number for number in near if 0 <= number < 2**bits)
            case FieldDescriptor.CPPTYPE_BOOL:
                return [False, True]
            case FieldDescriptor.CPPTYPE_ENUM:
                assert self.field.enum_type is not None
                return [*sorted(self.field.enum_type.values_by_number), 999, -1, 2**31 - 1]
            case FieldDescriptor.CPPTYPE_STRING if self.field.type == FieldDescriptor.TYPE_BYTES:
                return list(_BODIES)
            case FieldDescriptor.CPPTYPE_STRING:
                return list(_TEXTS)
        return []

    def _times(self) -> list[Times]:
        if self.field.is_repeated:
            return [Times(number) for number in (0, 2, 40, 2000)]
        return [Times(0), Times(1)] if self.field.has_presence else []


def _below(
    kind: Descriptor, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], FieldDescriptor]]:
    for field in kind.fields:
        here = (*path, field.name)
        yield here, field
        if field.message_type is not None:
            yield from _below(field.message_type, here)


def places() -> list[Place]:
    """Every field of every message that a device may send."""
    service = pb.DESCRIPTOR.services_by_name["Fleet"]
    return [
        Place(method.name, *found)
        for method in service.methods
        for found in _below(method.input_type, ())
    ]


def state(message: Any, path: Sequence[str], value: Any) -> int:
    """Set a field wherever its message has room for it; return the number of such places."""
    name, *rest = path
    kind = message.DESCRIPTOR.fields_by_name[name]
    part = getattr(message, name)
    is_map = kind.message_type is not None and kind.message_type.GetOptions().map_entry
    if rest and is_map:
        return _state_in_map(part, rest[0], value)
    if rest:
        parts = part if kind.is_repeated else [part] if message.HasField(name) else []
        return sum(state(each, rest, value) for each in parts)
    if isinstance(value, Times):
        return _repeat(message, kind, value.times)
    if kind.is_repeated:
        part[:] = [value] * len(part)
        return len(part)
    setattr(message, name, value)
    return 1


def _state_in_map(part: Any, of_entry: str, value: Any) -> int:
    """Set the values of a map, or its keys."""
    entries = dict(part)
    if of_entry == "key" and entries:
        part.clear()
        part[value] = next(iter(entries.values()))
    else:
        part.update(dict.fromkeys(entries, value))
    return len(entries)


def _repeat(message: Message, field: FieldDescriptor, times: int) -> int:
    """Let a field stand in its message so often; if it is absent, with a value that it may have."""
    part, name = getattr(message, field.name), field.name
    if not field.is_repeated:
        message.ClearField(name)
        if times and field.message_type is not None:
            part.SetInParent()
        elif times:
            setattr(message, name, field.default_value)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        first = next(iter(dict(part).values()), 0.0)
        message.ClearField(name)
        getattr(message, name).update({f"more{number}": first for number in range(times)})
    else:
        there = list(part)[:1] or [
            b"" if field.type == FieldDescriptor.TYPE_BYTES else _DEFAULTS.get(field.cpp_type, 0)
        ]
        message.ClearField(name)
        part = getattr(message, name)
        for _ in range(times):
            if field.message_type is None:
                part.append(there[0])
            elif (made := part.add()) is not None and there[0]:
                made.MergeFrom(there[0])
    return 1


_DEFAULTS: Mapping[int, Any] = {FieldDescriptor.CPPTYPE_STRING: HONEST}


class Liar:
    """States something else than the truth, one value after the other, and then the truth.

    Attributes:
        left: for each place, the values that it has not stated yet; the next one is the last.
        told: what it has stated, a text for each message.
    """

    def __init__(self, left: Mapping[Place, list[Any]]) -> None:
        self.left = left
        self.told: list[str] = []

    def change(self, method: str, message: Message) -> bool:
        """State the next values in this message; return whether it has room for them."""
        said = []
        for place, values in self.left.items():
            if values and place.method == method and can_state(message, place, values[-1]):
                said.append(f"{place} = {_short(values.pop())}")
        self.told += [", ".join(said)] if said else []
        return bool(said)


def can_state(message: Message, place: Place, value: Any) -> bool:
    """State a value wherever a message has room for it; return whether it has."""
    return bool(state(message, place.path, value))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:50]}… ({len(text)} characters)"


_INPUTS = {
    f"/{pb.DESCRIPTOR.package}.Fleet/{method.name}": GetMessageClass(method.input_type)
    for method in pb.DESCRIPTOR.services_by_name["Fleet"].methods
}


@contextmanager
def _lying(liar: Liar) -> Iterator[None]:
    """Let every message of the liar pass through its hands while the context is active."""
    send = InMemoryConnection.send

    def changed(connection: InMemoryConnection, target: int, frame: Any) -> None:
        if target and connection.hosts[0] == LIAR and frame.kind is FrameKind.MESSAGE:
            called = connection.methods[frame.stream]
            message = _INPUTS[called].FromString(frame.payload)
            if liar.change(called.rpartition("/")[2], message):
                frame = frame._replace(payload=message.SerializeToString())
        send(connection, target, frame)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InMemoryConnection, "send", changed)
        yield


class Course(NamedTuple):
    """What a run with a liar came to.

    Attributes:
        status: how the run ended.
        silent: whether it ended because the liar owed an answer or a sum, which it says.
        wrong: what must not happen, and what was logged with a traceback.
        honest: (round, client) to (outcome, reason), for all updates of the other devices.
        liar: the rounds in which the liar's update counted.
        weights: (round, client) to the share of its update among the honest ones that counted.
        shares: (round, client) to the share of its update in the model.
        called: the calls of honest devices, as (round, client).
        opened: the scenario seconds at which rounds opened.
        warned: the warnings of the journal.
    """

    status: str
    silent: bool
    wrong: list[str]
    honest: Mapping[tuple[int, str], tuple[str, str | None]]
    liar: frozenset[int]
    weights: Mapping[tuple[int, str], float]
    shares: Mapping[tuple[int, str], float]
    called: frozenset[tuple[int, str]]
    opened: Mapping[int, float | None]
    warned: Sequence[str]


class _Tracebacks(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def _tracebacks() -> Iterator[list[str]]:
    handler = _Tracebacks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging, "disable", lambda level: None)
        logging.getLogger().addHandler(handler)
        try:
            yield handler.found
        finally:
            logging.getLogger().removeHandler(handler)


def course(programs: Programs, folder: Path, liar: Liar) -> Course:
    """Play a run in which a device lies."""
    history = History(programs, folder, 0, most_s=1e5, most_steps=400_000)
    with _lying(liar), _tracebacks() as errors:
        outcome = history.play()
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        course = _course_of(ledger, folder)
    history.close()
    owing = f"1 of {len(programs.packs)} have not ({LIAR})", f"the sum with the update of {LIAR} "
    silent = any(what in failure for failure in outcome.failures for what in owing)
    wrong = [each for each in outcome.violations if LIAR not in each]
    return course._replace(status=outcome.status, silent=silent, wrong=[*wrong, *errors])


def _course_of(ledger: sqlite3.Connection, folder: Path) -> Course:
    rows = ledger.execute(
        "SELECT call_round, client, outcome, reason FROM contributions WHERE client != ?", (LIAR,)
    )
    honest = {(round, client): (found, reason) for round, client, found, reason in rows}
    folded = ledger.execute(
        "SELECT c.round, client, weight, normaliser FROM contributions AS c JOIN rounds USING "
        "(round) WHERE c.outcome = 'folded'"
    ).fetchall()
    sums: dict[int, float] = {}
    for round, client, weight, _ in folded:
        sums[round] = sums.get(round, 0.0) + (weight if client != LIAR else 0.0)
    others = [row for row in folded if row[1] != LIAR]
    called = ledger.execute("SELECT round, client FROM answers WHERE client != ?", (LIAR,))
    lines = (folder / "journal.jsonl").read_text().splitlines()
    events = (json.loads(line) for line in lines)
    return Course(
        "",
        False,
        [],
        honest,
        frozenset(round for round, client, *_ in folded if client == LIAR),
        {(r, c): weight / sums[r] for r, c, weight, _ in others if sums[r]},
        {(r, c): weight / normaliser for r, c, weight, normaliser in others if normaliser},
        frozenset((r, c) for r, c in called),
        dict(ledger.execute("SELECT round, scenario_s FROM rounds")),
        [event["warning"] for event in events if event["event"] == "warned"],
    )
