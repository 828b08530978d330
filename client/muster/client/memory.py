"""What a device remembers over its own death: its two newest rounds, in a file of two slots.

A device keeps its state before a round, the state after it, and its update. A server may call for a
round while it still writes the one before down, for none later; if it forgets that one (it was
killed), the device is called for both again, from the states before, or sends the updates it holds:
nothing is trained, counted or drained twice.

Rounds are written to the two slots in turn, each with a checksum, so that whatever instant kills
the device one of them is whole. Writing over an open file costs a tenth of making and renaming one,
and a device does it every round.
"""

import math
import os
import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import xxhash

from muster.common.exchange import Body, Call, Key, Update
from muster.common.files import remove_unfinished, write_atomic
from muster.wire.bodies import checksum as body_checksum

_HEAD = struct.Struct("<8sQIIII")
"""XXH3-64 of what follows it up to the body, whose own is among the facts; number of the record;
lengths of the facts (JSON: round, checksum of the model, state before, state after, update), of the
two states' residuals and of the body."""

BODY_BYTES = 1 << 20
"""Longer bodies stay in memory alone. A device that loses one trains again, to the same bits; the
disk would be busier with them than with the server's commits."""

_NO_CHECKSUM = bytes(8)
_SLOTS = 2


_SLOT_TABLE = struct.Struct("<Q")
"""The file begins with the length of a slot."""

_SLACK_BYTES = 256
"""Numbers in a record grow by a few digits during a run."""


class State(NamedTuple):
    """A device's own state; decision and training of a round are functions of the one before it.

    Attributes:
        trained: rounds this device has trained in, each counted once.
        residual: what compression left out of its updates so far, float32; empty before the first,
            and where the codec has no feedback.
        life: step and values of `muster.client.lives.STATE`; empty for a device without a life, and
            before its first round.
    """

    trained: int = 0
    residual: bytes = b""
    life: tuple[float, ...] = ()


class Parcel(NamedTuple):
    """An update that can be sent; its key is that of the newest call."""

    update: Update
    body: Body


class Held(NamedTuple):
    """A round that may not be committed yet.

    Attributes:
        model: checksum of the base version's body.
        update: as it was or will be sent; None when the device gave up.
    """

    round: int
    model: bytes
    before: State
    after: State
    update: Update | None = None
    body: Body = b""


class Memory:
    """The state file of one device.

    Attributes:
        held: its two newest rounds, or as many as it has had, in their order.

    Args:
        folder: `devices/<client>` of the run folder; made if it is not there.
        body_bytes: longer bodies stay in memory alone.
    """

    def __init__(self, folder: Path, body_bytes: int = BODY_BYTES) -> None:
        self._body_bytes = body_bytes
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)
        self._path = folder / "state.bin"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        self._number, self._slot_bytes = 0, 0
        self.held: tuple[Held, ...] = self._read()

    def close(self) -> None:
        os.close(self._file)

    def before(self, round: int) -> State:
        """The state in which the device enters `round`."""
        earlier, later = None, None
        for held in self.held:
            if held.round == round:
                return held.before
            if held.round > round:
                later = held if later is None or held.round < later.round else later
            elif earlier is None or held.round > earlier.round:
                earlier = held
        if earlier is not None:
            return earlier.after
        return State() if later is None else later.before

    def update_for(self, call: Call) -> Parcel | None:
        """The update held for a call, under the call's key; None if it must be trained."""
        for held in self.held:
            if held.round == call.key.round and held.model == call.model_checksum:
                # Else it gave up, or the body was lost with the process that trained it.
                if held.update is not None and len(held.body) == held.update.length:
                    return Parcel(held.update._replace(key=call.key), held.body)
        return None

    def hold(self, held: Held) -> None:
        """Remember a round, over the one before the last."""
        self._number += 1
        record = self._record(self._number, held)
        size = sum(map(len, record))
        if size > self._slot_bytes:
            self._begin_file(size + _SLACK_BYTES, record)
        else:
            # The slot's old record is no longer whole once this has begun; the other slot's is.
            os.pwritev(self._file, record, self._offset(self._number))
        self.held = *map(self._lasting, self.held[-1:]), held

    def _lasting(self, held: Held) -> Held:
        """What stays of a round when the next one is held."""
        return held if len(held.body) <= self._body_bytes else held._replace(body=b"")

    def _record(self, number: int, held: Held) -> tuple[bytes, bytes, Body]:
        """A record, in parts."""
        before, after, body = held.before, held.after, self._lasting(held).body
        lived = (before.trained, before.life), (after.trained, after.life)
        facts = orjson.dumps((held.round, held.model.hex(), *lived, _told(held.update)))
        parts = facts, before.residual, after.residual
        lengths = *map(len, parts), len(body)
        head = _HEAD.pack(_NO_CHECKSUM, number, *lengths)[len(_NO_CHECKSUM) :]
        told = b"".join((head, *parts))
        return xxhash.xxh3_64_digest(told), told, body

    def _offset(self, number: int) -> int:
        return _SLOT_TABLE.size + (number % _SLOTS) * self._slot_bytes

    def _begin_file(self, slot_bytes: int, record: Sequence[Body]) -> None:
        """A file with larger slots takes the place of the old one, with `record` in it and the one
        before."""
        before = [self._record(self._number - 1, held) for held in self.held[-1:]]
        self._slot_bytes = max([slot_bytes, *(sum(map(len, parts)) for parts in before)])
        slots: list[Sequence[Body]] = [(), ()]
        slots[self._number % _SLOTS] = record
        slots[(self._number - 1) % _SLOTS] = before[0] if before else ()
        room = bytes(self._slot_bytes - sum(map(len, slots[0])))
        write_atomic(self._path, _SLOT_TABLE.pack(self._slot_bytes), *slots[0], room, *slots[1])
        os.close(self._file)
        self._file = os.open(self._path, os.O_RDWR)

    def _read(self) -> tuple[Held, ...]:
        table = os.pread(self._file, _SLOT_TABLE.size, 0)
        if len(table) < _SLOT_TABLE.size:
            return ()
        (self._slot_bytes,) = _SLOT_TABLE.unpack(table)
        slots = [self._read_slot(slot) for slot in range(_SLOTS)]
        slots.sort(key=lambda record: record[0])
        self._number = slots[-1][0]
        return tuple(held for _, held in slots if held is not None)

    def _read_slot(self, slot: int) -> tuple[int, Held | None]:
        """(number, round) of a slot; (0, None) when it is empty or torn."""
        size = min(self._slot_bytes, os.fstat(self._file).st_size)
        record = os.pread(self._file, size, self._offset(slot))
        if len(record) < _HEAD.size:
            return 0, None
        checksum, number, *lengths = _HEAD.unpack_from(record)
        ends = list(accumulate(lengths, initial=_HEAD.size))
        *_, begins, end = ends
        told = record[len(_NO_CHECKSUM) : begins]
        if len(record) < end or xxhash.xxh3_64_digest(told) != checksum:
            return 0, None
        facts, *residuals, body = (record[start:stop] for start, stop in pairwise(ends))
        round, model, *lived, sent = orjson.loads(facts)
        before, after = (
            State(trained, residual, tuple(life))
            for (trained, life), residual in zip(lived, residuals, strict=True)
        )
        update = _update(sent)
        if body and (update is None or body_checksum(body) != update.checksum):
            return 0, None
        return number, Held(round, bytes.fromhex(model), before, after, update, body)


def _told(update: Update | None) -> tuple[Any, ...] | None:
    if update is None:
        return None
    key, examples, checksum, *numbers = update
    return *key, examples, checksum.hex(), *numbers


def _update(told: list[Any] | None) -> Update | None:
    if told is None:
        return None
    client, round, attempt, examples, checksum, *numbers = told
    numbers = [math.nan if number is None else number for number in numbers]  # JSON has no NaN
    return Update(Key(client, round, attempt), examples, bytes.fromhex(checksum), *numbers)
