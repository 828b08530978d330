"""What a device remembers over its own death: its two newest rounds, in a file of two slots.

A device keeps its state before a round, the state after it, and its update. A server may call for a
round while it still writes the one before down, for none later; if it forgets that one (it was
killed), the device is called for both again, from the states before, or sends the updates it holds:
nothing is trained, counted or drained twice.

Rounds are written to the two slots in turn, each with a checksum, so that whatever instant kills
the device one of them is whole. A device does it every round: writing over a file costs a tenth of
making and renaming one, and over a mapped one no system call.
"""

import mmap
import struct
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import xxhash

from muster.common.exchange import Body, Call, Key, Update
from muster.common.files import remove_unfinished, write_atomic
from muster.wire.bodies import checksum as body_checksum

_CHECKSUM = struct.Struct("<8s")
"""A record begins with the XXH3-64 of what follows up to the body, whose own is among the facts."""

_FACTS = struct.Struct("<QQ16s QQ QQ16sQ7d 6I")
"""Number of the record, round, checksum of the model; rounds trained before and after; the update:
attempt, examples (0: there is none), checksum, length, seconds and loss; lengths of what follows:
client, lives and residuals before and after, body."""

BODY_BYTES = 1 << 20
"""Longer bodies stay in memory alone. A device that loses one trains again, to the same bits; the
disk would be busier with them than with the server's commits."""

_SLOTS = 2

_SLOT_TABLE = struct.Struct("<Q")
"""The file begins with the length of a slot."""

_NO_UPDATE = Update(Key("", 0, 0), 0, bytes(16), 0, 0.0, 0.0, 0.0)


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


class StoredUpdate(NamedTuple):
    """An update that can be sent; its key is that of the newest call."""

    update: Update
    body: Body


class RoundRecord(NamedTuple):
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
        self._number, self._slot_bytes = 0, 0
        self._file: mmap.mmap | None = None
        # An empty one is what is left of a new one when the machine lost its power.
        if self._path.exists() and self._path.stat().st_size >= _SLOT_TABLE.size:
            self._open()
        self.held: tuple[RoundRecord, ...] = self._read()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

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

    def update_for(self, call: Call) -> StoredUpdate | None:
        """The update held for a call, under the call's key; None if it must be trained."""
        for held in self.held:
            if held.round == call.key.round and held.model == call.model_checksum:
                # Else it gave up, or the body was lost with the process that trained it.
                if held.update is not None and len(held.body) == held.update.length:
                    return StoredUpdate(held.update._replace(key=call.key), held.body)
        return None

    def hold(self, held: RoundRecord) -> None:
        """Remember a round, over the one before the last."""
        self._number += 1
        record = self._record(self._number, held)
        size = sum(map(len, record))
        if self._file is None or size > self._slot_bytes:
            self._begin_file(size, record)
        else:
            # The slot's old record is no longer whole once this has begun; the other slot's is.
            at = self._offset(self._number)
            for part in record:
                self._file[at : at + len(part)] = part
                at += len(part)
        self.held = *map(self._lasting, self.held[-1:]), held

    def _lasting(self, held: RoundRecord) -> RoundRecord:
        """What stays of a round when the next one is held."""
        return held if len(held.body) <= self._body_bytes else held._replace(body=b"")

    def _record(self, number: int, held: RoundRecord) -> tuple[bytes, Body]:
        """A record: its facts, and the body."""
        round, model, before, after, update, _ = held
        body = self._lasting(held).body
        (client, _, attempt), *sent = update or _NO_UPDATE
        pieces = client.encode(), *map(_packed, (before.life, after.life))
        pieces += before.residual, after.residual
        lengths = *map(len, pieces), len(body)
        trained = before.trained, after.trained
        facts = _FACTS.pack(number, round, model, *trained, attempt, *sent, *lengths)
        told = b"".join((facts, *pieces))
        return xxhash.xxh3_64_digest(told) + told, body

    def _offset(self, number: int) -> int:
        return _SLOT_TABLE.size + (number % _SLOTS) * self._slot_bytes

    def _begin_file(self, slot_bytes: int, record: tuple[bytes, Body]) -> None:
        """A file with larger slots takes the place of the old one, with `record` in it and the one
        before."""
        before = [self._record(self._number - 1, held) for held in self.held[-1:]]
        self._slot_bytes = max([slot_bytes, *(sum(map(len, parts)) for parts in before)])
        slots = [record, before[0] if before else (b"", b"")]
        if self._number % _SLOTS:
            slots.reverse()
        parts: list[Body] = [_SLOT_TABLE.pack(self._slot_bytes)]
        for facts, body in slots:
            parts += facts, body, bytes(self._slot_bytes - len(facts) - len(body))
        write_atomic(self._path, *parts)
        self.close()
        self._open()

    def _open(self) -> None:
        with self._path.open("r+b") as file:
            self._file = mmap.mmap(file.fileno(), 0)

    def _read(self) -> tuple[RoundRecord, ...]:
        if self._file is None:
            return ()
        (self._slot_bytes,) = _SLOT_TABLE.unpack_from(self._file)
        slots = [self._read_slot(slot) for slot in range(_SLOTS)]
        slots.sort(key=lambda record: record[0])
        self._number = slots[-1][0]
        if len(self._file) < self._offset(0) + _SLOTS * self._slot_bytes:
            self._slot_bytes = 0  # not all of it is there: the next round begins a new file
        return tuple(held for _, held in slots if held is not None)

    def _read_slot(self, slot: int) -> tuple[int, RoundRecord | None]:
        """(number, round) of a slot; (0, None) when it is empty or torn."""
        assert self._file is not None
        at = self._offset(slot)
        record = self._file[at : at + self._slot_bytes]
        if len(record) < _CHECKSUM.size + _FACTS.size:
            return 0, None
        (checksum,) = _CHECKSUM.unpack_from(record)
        number, round, model, *facts = _FACTS.unpack_from(record, _CHECKSUM.size)
        trained, sent, lengths = facts[:2], facts[2:-6], facts[-6:]
        ends = list(accumulate(lengths, initial=_CHECKSUM.size + _FACTS.size))
        *_, begins, end = ends
        told = record[_CHECKSUM.size : begins]
        if len(record) < end or xxhash.xxh3_64_digest(told) != checksum:
            return 0, None
        client, *lives, old, new, body = (record[start:stop] for start, stop in pairwise(ends))
        before, after = (
            State(count, residual, _unpacked(life))
            for count, residual, life in zip(trained, (old, new), lives, strict=True)
        )
        attempt, examples, *rest = sent
        update = Update(Key(client.decode(), round, attempt), examples, *rest) if examples else None
        if body and (update is None or body_checksum(body) != update.checksum):
            return 0, None
        return number, RoundRecord(round, model, before, after, update, body)


def _packed(life: tuple[float, ...]) -> bytes:
    return struct.pack(f"<{len(life)}d", *life) if life else b""


def _unpacked(life: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(life) // 8}d", life)
