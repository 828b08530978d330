"""Numbers that one device states in its messages, and a fleet in which it does so.

Which numbers there are is read from the protocol: every field of every message that a device may
send is walked, also one that is added later.
"""

from __future__ import annotations

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

from muster.common.bounds import FORESEEN_STEPS
from muster.simulation.history import History
from muster.simulation.programs import Programs
from muster.v1 import fleet_pb2 as pb
from muster.wire import CHUNK_BYTES, messages
from muster.wire.in_memory.frames import FrameKind
from muster.wire.in_memory.network import InMemoryConnection

LIAR = "liar-0000"
"""The device whose messages are changed on their way."""

_KINDS = {
    FieldDescriptor.CPPTYPE_UINT32: 32,
    FieldDescriptor.CPPTYPE_UINT64: 64,
    FieldDescriptor.CPPTYPE_DOUBLE: None,
}
"""The kinds of numeric fields that there are; None for one that is not a whole number."""

_WHOLE = (0, 1, FORESEEN_STEPS, CHUNK_BYTES, messages.LARGEST)
_REAL = (0.0, 1.0, 24.0, 2.0**31, 3.4028234663852886e38, messages.LONGEST_S)
_LIMITS = (*_REAL, messages.LARGEST_COVARIATE)
"""The limits that the decoding of messages has for some field; every field is tried with all."""


class Place(NamedTuple):
    """A numeric field of a message: the call, and the names that lead to the field."""

    method: str
    path: tuple[str, ...]
    field: FieldDescriptor

    def __str__(self) -> str:
        return ".".join((self.method, *self.path))

    def values(self) -> list[Any]:
        """The smallest and the largest numbers of the field, its limits, and those beside them."""
        bits = _KINDS[self.field.cpp_type]
        if bits is None:
            beside = [math.nextafter(limit, side) for limit in _LIMITS for side in (0.0, math.inf)]
            extremes = [5e-324, 1e308, math.inf, -1.0, math.nan]
            return sorted(
                {*_LIMITS, *beside, *extremes}, key=lambda number: (number != number, number)
            )
        near = {limit + side for limit in _WHOLE for side in (-1, 0, 1)}
        near |= {2 ** (bits - 1), 2**bits - 1}
        return sorted(number for number in near if 0 <= number < 2**bits)


def _below(
    kind: Descriptor, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], FieldDescriptor]]:
    for field in kind.fields:
        here = (*path, field.name)
        if field.cpp_type in _KINDS:
            yield here, field
        elif field.message_type is not None:
            yield from _below(field.message_type, here)


def places() -> list[Place]:
    """Every numeric field of every message that a device may send."""
    service = pb.DESCRIPTOR.services_by_name["Fleet"]
    return [
        Place(method.name, *found)
        for method in service.methods
        for found in _below(method.input_type, ())
    ]


def state(message: Any, path: Sequence[str], value: Any) -> int:
    """Set a field wherever its message has room for it; return the number of such places."""
    name, *rest = path
    if isinstance(message, Message):
        kind: Any = message.DESCRIPTOR.fields_by_name[name]
        part = getattr(message, name)
        if rest and kind.message_type.GetOptions().map_entry:
            for key in part:
                part[key] = value
            return len(part)
        repeated = kind.is_repeated
        if rest:
            parts = part if repeated else [part] if message.HasField(name) else []
            return sum(state(each, rest, value) for each in parts)
        if repeated:
            part[:] = [value] * len(part)
            return len(part)
        setattr(message, name, value)
    return 1


class Liar:
    """States other numbers than the right ones, one after the other, and then the right ones.

    Attributes:
        left: for each place, the numbers that it has not stated yet; the next one is the last.
        told: what it has stated, a text for each message.
    """

    def __init__(self, left: Mapping[Place, list[Any]]) -> None:
        self.left = left
        self.told: list[str] = []

    def change(self, method: str, message: Message) -> bool:
        """State the next numbers in this message; return whether it has room for them."""
        said = []
        for place, values in self.left.items():
            if values and place.method == method and state(message, place.path, values[-1]):
                said.append(f"{place} = {values.pop()!r}")
        self.told += [", ".join(said)] if said else []
        return bool(said)


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
    """

    status: str
    silent: bool
    wrong: list[str]
    honest: Mapping[tuple[int, str], tuple[str, str | None]]


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
    query = "SELECT call_round, client, outcome, reason FROM contributions WHERE client != ?"
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        rows = ledger.execute(query, (LIAR,)).fetchall()
    history.close()
    honest = {(round, client): (found, reason) for round, client, found, reason in rows}
    owing = f"1 of 3 have not ({LIAR})", f"the sum with the update of {LIAR} (1 in all)"
    silent = any(what in failure for failure in outcome.failures for what in owing)
    wrong = [each for each in outcome.violations if LIAR not in each]
    return Course(outcome.status, silent, [*wrong, *errors], honest)
