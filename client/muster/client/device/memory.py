"""The memory of a device that survives its process: its two newest rounds, in a file of two slots.

For each round a device keeps its state before the round, its state after it, and its update. Two
rounds are enough: a server may call for a round while it still commits the round before, but never
further ahead. If a killed server has lost the earlier round, it calls the device for both rounds
again. The device then starts from the states before them, or sends the updates that it holds.
Nothing is trained, counted or drained twice.

Rounds are written to the two slots in turn, each with a checksum, so one slot is whole at whatever
instant the device is killed. A device writes every round. Writing over a file costs a tenth of
making and renaming one, and writing over a mapped file needs no system call.
"""

import math
import mmap
import struct
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import xxhash

from muster.common.exchange import Body, Call, Key, Update
from muster.common.facts import Facts
from muster.common.files import fsync_path, remove_unfinished, write_atomic
from muster.wire.bodies import checksum as body_checksum

_CHECKSUM = struct.Struct("<8s")
"""A record begins with the XXH3-64 of everything up to the body. The body's checksum is a field."""

_FIELDS = struct.Struct(f"<QQ16s QQ QQ16sQ7dQ{len(Facts._fields)}d 13I")
"""The fields of fixed size of a record:

- number of the record, round, checksum of the model;
- rounds trained before and after;
- of the update: attempt, examples (0: there is no update), checksum, length, seconds and loss,
  steps, and facts (NaN: not measured);
- lengths of the parts that follow: client, lives before and after, residuals before and after,
  control variates before and after, what else the device keeps before and after, local entries
  before and after, report of the update, and body.
"""

BODY_BYTES = 1 << 20
"""Longer bodies are not written to the file, because they would keep the disk busier than the
server's commits. A device that loses a body trains again, to the same bits."""

STATE_FILE = "state.bin"
"""Name of the file in the folder of a device."""

_SLOTS = 2

_SLOT_TABLE = struct.Struct("<Q")
"""The file begins with the length of a slot in bytes."""

_NO_UPDATE = Update(Key("", 0, 0), 0, bytes(16), 0, 0.0, 0.0, 0.0)


class State(NamedTuple):
    """The state of a device between rounds.

    The decision and the training of a round are functions of the state before it.

    Attributes:
        trained: rounds in which this device has trained, each counted once.
        residual: what compression has left out of its updates so far, float32; empty before the
            first update, and if the codec has no feedback.
        control: the device's control variate, float32; empty (for 0) before its first update, and
            if the aggregator has none.
        life: step and values of `muster.client.life.simulation.STATE`; empty before its first
            round, and for a device without a simulated life.
        own: what else a device keeps of its own: a rational device its `ModelJudgement`
            (`muster.client.device.rational`), a device of a hosted task what its app keeps, a
            device with a trainer of the user's own its state (`muster.client.training.kept_state`).
            Empty before its first round, and for all other devices.
        local: the device's local entries of the model (`muster.tasks.parts.local_bytes`); empty
            before its first round, and if the model has none.
    """

    trained: int = 0
    residual: bytes = b""
    life: tuple[float, ...] = ()
    control: bytes = b""
    own: bytes = b""
    local: bytes = b""


class StoredUpdate(NamedTuple):
    """An update that can be sent, under the key of the newest call."""

    update: Update
    body: Body


class RoundRecord(NamedTuple):
    """The record of a round that the server may not have committed yet.

    Attributes:
        model: checksum of the base version's body.
        update: the update as it was or will be sent; None if the device gave up.
    """

    round: int
    model: bytes
    before: State
    after: State
    update: Update | None = None
    body: Body = b""

    @property
    def stored(self) -> StoredUpdate | None:
        """The update as it was or will be sent; None if the device gave up, or if the body was lost
        with an earlier process."""
        if self.update is None or len(self.body) != self.update.length:
            return None
        return StoredUpdate(self.update, self.body)


class Memory:
    """The state file of one device.

    Attributes:
        held: the records of its two newest rounds, oldest first; fewer before the second round.
            Both may be of one round: on clocks that run, a device may give up a call, and train
            when a restarted server calls it again. The newer one is then what has become of it.
        folder: that of the device.

    Args:
        folder: `devices/<client>` of the run folder; made if it does not exist.
        body_bytes: bodies longer than this are kept in the process but not in the file.
    """

    def __init__(self, folder: Path, body_bytes: int = BODY_BYTES) -> None:
        self.folder = folder
        self._body_bytes = body_bytes
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)
        self._path = folder / STATE_FILE
        self._number, self._slot_bytes = 0, 0
        self._synced = 0
        self._file: mmap.mmap | None = None
        # A power cut can leave a new file empty.
        if self._path.exists() and self._path.stat().st_size >= _SLOT_TABLE.size:
            self._open()
        self.held: tuple[RoundRecord, ...] = self._read()

    def close(self) -> None:
        """Close the file."""
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
            elif earlier is None or held.round >= earlier.round:
                earlier = held
        if earlier is not None:
            return earlier.after
        return State() if later is None else later.before

    def counted_for(self, call: Call) -> State:
        """The state after the device's newest update that counted, before the round of a call.

        The server says which update that was. A device does not learn otherwise what became of an
        update that was accepted, or that came too late.
        """
        round = call.key.round
        again = [held for held in self.held if held.round == round]
        earlier = [held for held in self.held if held.round < round]
        if again or not earlier:
            return self.before(round)
        newest = max(reversed(earlier), key=lambda held: held.round)
        sent_in_vain = newest.update is not None and newest.round != call.counted_round
        return newest.before if sent_in_vain else newest.after

    def records_of(self, call: Call) -> list[RoundRecord]:
        """The records of a call. There may be two of them: if the body of the update was lost with
        an earlier process, the device has trained again."""
        return [
            held
            for held in self.held
            if held.round == call.key.round and held.model == call.model_checksum
        ]

    def update_for(self, call: Call) -> StoredUpdate | None:
        """The stored update for a call, under the call's key; None if there is none."""
        for held in self.records_of(call):
            if (stored := held.stored) is not None:
                return StoredUpdate(stored.update._replace(key=call.key), stored.body)
        return None

    def hold(self, held: RoundRecord) -> None:
        """Store the record of a round; it replaces the older of the two stored records.

        Raises:
            OSError: the disk is full. Nothing has changed.
        """
        number = self._number + 1
        record = self._record(number, held)
        size = sum(map(len, record))
        if self._file is None or size > self._slot_bytes:
            self._begin_file(number, size, record)
        else:
            # Writing destroys the old record of this slot. The other slot's record stays whole.
            at = self._offset(number)
            for part in record:
                self._file[at : at + len(part)] = part
                at += len(part)
        self._number = number
        newest = self.held[-1:]
        if newest and len(newest[0].body) > self._body_bytes:  # it is not in the file either
            newest = (newest[0]._replace(body=b""),)
        self.held = *newest, held

    def sync(self) -> None:
        """Make the records survive a power cut, too. Without it they survive the death of the
        process alone.

        Raises:
            OSError: the disk refuses.
        """
        if self._synced != self._number:
            fsync_path(self._path)  # Linux also writes what was changed through the map
            fsync_path(self.folder)
            self._synced = self._number

    def _record(self, number: int, held: RoundRecord) -> tuple[bytes, Body]:
        """The bytes of a record, in two parts: everything up to the body, and the body."""
        round, model, before, after, update, _ = held
        body = held.body if len(held.body) <= self._body_bytes else b""
        (client, _, attempt), *sent, facts, report, _ = update or _NO_UPDATE
        sent += [math.nan if fact is None else fact for fact in facts]
        lives = [struct.pack(f"<{len(life)}d", *life) for life in (before.life, after.life)]
        pieces = client.encode(), *lives
        pieces += before.residual, after.residual, before.control, after.control
        pieces += before.own, after.own, before.local, after.local, report
        lengths = *map(len, pieces), len(body)
        trained = before.trained, after.trained
        fields = _FIELDS.pack(number, round, model, *trained, attempt, *sent, *lengths)
        checked = b"".join((fields, *pieces))
        return xxhash.xxh3_64_digest(checked) + checked, body

    def _offset(self, number: int) -> int:
        return _SLOT_TABLE.size + (number % _SLOTS) * self._slot_bytes

    def _begin_file(self, number: int, slot_bytes: int, record: tuple[bytes, Body]) -> None:
        """Replace the file by one with larger slots, with `record` and the record before it."""
        before = [self._record(number - 1, held) for held in self.held[-1:]]
        slot_bytes = max([slot_bytes, *(sum(map(len, parts)) for parts in before)])
        slots = [record, before[0] if before else (b"", b"")]
        if number % _SLOTS:
            slots.reverse()
        parts: list[Body] = [_SLOT_TABLE.pack(slot_bytes)]
        for facts, body in slots:
            parts += facts, body, bytes(slot_bytes - len(facts) - len(body))
        write_atomic(self._path, *parts)
        self._slot_bytes = slot_bytes
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
            self._slot_bytes = 0  # the file is too short: the next round begins a new one
        return tuple(held for _, held in slots if held is not None)

    def _read_slot(self, slot: int) -> tuple[int, RoundRecord | None]:
        """Number and record of a slot; (0, None) if the slot is empty or torn."""
        assert self._file is not None
        at = self._offset(slot)
        record = self._file[at : at + self._slot_bytes]
        if len(record) < _CHECKSUM.size + _FIELDS.size:
            return 0, None
        (checksum,) = _CHECKSUM.unpack_from(record)
        number, round, model, *fields = _FIELDS.unpack_from(record, _CHECKSUM.size)
        trained, sent, lengths = fields[:2], fields[2:-13], fields[-13:]
        ends = list(accumulate(lengths, initial=_CHECKSUM.size + _FIELDS.size))
        *_, begins, end = ends
        checked = record[_CHECKSUM.size : begins]
        if len(record) < end or xxhash.xxh3_64_digest(checked) != checksum:
            return 0, None
        client, *parts, report, body = (record[start:stop] for start, stop in pairwise(ends))
        lives, *kept = (parts[place : place + 2] for place in range(0, len(parts), 2))
        before, after = (
            State(count, residual, _unpacked(life), *others)
            for count, life, residual, *others in zip(trained, lives, *kept, strict=True)
        )
        measured = sent[-len(Facts._fields) :]
        attempt, examples, *rest = sent[: -len(measured)]
        rest += Facts(*(None if math.isnan(fact) else fact for fact in measured)), report
        update = Update(Key(client.decode(), round, attempt), examples, *rest) if examples else None
        if body and (update is None or body_checksum(body) != update.checksum):
            body = b""  # the states are whole; the device trains again, to the same bits
        return number, RoundRecord(round, model, before, after, update, body)


def _unpacked(life: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(life) // 8}d", life)
