"""The last update of every client, or the model that it made, in one file with two slots for each.

A round writes the updates that count into free slots, and its transaction in the ledger names them.
Until then the other slots are valid, so a crash at any moment loses nothing. The file is read and
written in blocks and not mapped, so the server's memory does not grow with the number of clients.
It is sparse: a client that never takes part needs no disk.

The sum of all updates is exact, and therefore depends on nothing but the updates. A round subtracts
the old updates of its clients and adds the new ones. A restarted server adds up all of them again,
and gets the same bits.
"""

import math
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash

from muster.common.errors import LedgerError
from muster.common.exact_sum import BLOCK, ExactSum, ReadBlock, Term, apply, apply_change
from muster.common.files import fsync_path
from muster.common.tensors import WIRE, Vector
from muster.server.account.run_rows import MemoryRow
from muster.server.aggregators.values import CountingUpdate, Retention

MEMORY = "memory.bin"
"""Name of the file in the run folder."""

_PAGE = 4096
"""Slots begin at multiples of it, so that writing one never touches a page of another."""


class _Last(NamedTuple):
    """The last update of a client.

    Attributes:
        slot: the slot that has it.
        largest: its largest absolute entry.
    """

    slot: int
    largest: float


class UpdateMemory:
    """The last updates of the clients of a run, and their sum.

    Attributes:
        sum: Σ y_j over the last updates of all clients, unweighted.

    Args:
        path: the file; it is made by `load`.
        clients: all clients that may take part. Their order determines the places in the file.
    """

    def __init__(self, path: Path, parameters: int, clients: Sequence[str]) -> None:
        self.sum = ExactSum(parameters)
        self._path = path
        self._parameters = parameters
        self._slot_bytes = -(-parameters * WIRE.itemsize // _PAGE) * _PAGE
        self._places = {client: place for place, client in enumerate(clients)}
        self._last: dict[str, _Last] = {}
        self._unnamed: list[MemoryRow] = []
        self._file = -1

    def load(self, rows: Iterable[MemoryRow]) -> None:
        """Open the file, and add up the updates that the ledger names.

        Raises:
            LedgerError: the file is missing, or an update differs from the committed one.
        """
        rows = list(rows)
        if rows and not self._path.exists():
            raise LedgerError(
                f"{self._path} is missing; the ledger names it. Put it back, or start afresh"
            )
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        weakref.finalize(self, os.close, self._file)
        fsync_path(self._path.parent)  # also if a server that was killed had just made the file
        for row in rows:
            read = self._reader(row.client, row.slot)
            checksum, largest = self._examined(read)
            if checksum != row.checksum:
                raise LedgerError(
                    f"{self._path}: the update of {row.client} is not what was committed: its "
                    f"checksum differs. Put back a copy of the file, or start afresh"
                )
            self._last[row.client] = _Last(row.slot, largest)
            self.sum.add_terms([Term(read, 1.0, largest)])
        if rows:
            self._settle()

    def known(self, clients: Iterable[str]) -> int:
        """The number of clients that have a last update when these have sent theirs."""
        return len(self._last) + len(set(clients) - self._last.keys())

    def step(
        self,
        model: Vector,
        updates: Sequence[CountingUpdate],
        round: int,
        *,
        fresh: float,
        past: float,
    ) -> Vector:
        """Put updates in the place of the last ones of their clients, and release their bodies.

        Returns:
            model + fresh · Σ (Δ_i − y_i) + past · Σ y_j, where y are the last updates before.

        Raises:
            Diverged: the sum left its range, or an entry of the result is not a finite float32.
            OSError: the disk is full.
        """
        terms: list[Term] = []
        for update in updates:
            terms += self._exchange(update, round)
        result = apply_change(model, self.sum, terms, fresh=fresh, past=past)
        self._settle()
        return result

    def recall(
        self,
        model: Vector,
        updates: Sequence[CountingUpdate],
        round: int,
        weights: Mapping[str, float],
        retention: Retention = "update",
    ) -> Vector:
        """Put what a round retains of its clients in the place of what was retained before, and
        release the bodies of its updates.

        Args:
            model: the version that all of the updates were trained from.
            weights: a weight for each client of whom something is retained then, and others.
            retention: update: Δ_j is retained. model: model + Δ_j, rounded to float32.

        Returns:
            With y_j for what is retained after the exchange, model + Σ weight_j · y_j; or, if these
            are models, Σ weight_j · y_j + (1 − Σ weight_j) · model. The sum is made anew in each
            round, at the cost of reading all of them.

        Raises:
            Diverged: the sum left its range, or an entry of the result is not a finite float32.
            OSError: the disk is full.
        """
        base = model if retention == "model" else None
        for update in updates:
            self._exchange(update, round, base)
        terms = [
            Term(self._reader(client, last.slot), weights[client], last.largest)
            for client, last in sorted(self._last.items())
            if weights[client]
        ]
        total = ExactSum(self._parameters)
        total.add_terms(terms)
        keep = 1.0 if base is None else math.fsum([1.0, *(-term.weight for term in terms)])
        return apply(model, total, keep=keep, scale=1.0, normaliser=1.0)

    def durable(self) -> list[MemoryRow]:
        """Make the updates durable that were put in place since the last call, and return the rows
        that name them. They must be in the ledger before `step` is called again."""
        if self._unnamed:
            os.fsync(self._file)
        rows, self._unnamed = self._unnamed, []
        return rows

    def _exchange(
        self, update: CountingUpdate, round: int, base: Vector | None = None
    ) -> list[Term]:
        """Write an update into the free slot of its client; return the terms that put it in the
        place of the last one.

        Args:
            base: what is added to the update before, entry by entry; None: nothing.
        """
        client, body = update.contribution.client, update.body
        last = self._last.get(client)
        slot = 0 if last is None else 1 - last.slot
        read = body.read if base is None else _added(base, body.read)
        checksum, largest = self._write(client, slot, read)
        body.close()
        self._unnamed.append(MemoryRow(client, round, slot, checksum))
        self._last[client] = _Last(slot, largest)
        terms = [Term(self._reader(client, slot), 1.0, largest)]
        if last is not None:
            terms.append(Term(self._reader(client, last.slot), -1.0, last.largest))
        return terms

    def _settle(self) -> None:
        self.sum.settle([last.largest for last in self._last.values()])

    # --- the file --------------------------------------------------------------------------------

    def _offset(self, client: str, slot: int) -> int:
        return (2 * self._places[client] + slot) * self._slot_bytes

    def _reader(self, client: str, slot: int) -> ReadBlock:
        offset = self._offset(client, slot)

        def read(start: int, stop: int) -> Vector:
            size = (stop - start) * WIRE.itemsize
            data = os.pread(self._file, size, offset + start * WIRE.itemsize)
            if len(data) < size:
                raise LedgerError(f"{self._path} is shorter than the updates that were committed")
            return np.frombuffer(data, WIRE)

        return read

    def _write(self, client: str, slot: int, read: ReadBlock) -> tuple[str, float]:
        """Write a vector into a slot; return its checksum and its largest absolute entry."""
        offset = self._offset(client, slot)

        def copied(start: int, stop: int) -> Vector:
            block = np.ascontiguousarray(read(start, stop), WIRE)
            rest, at = block.data.cast("B"), offset + start * WIRE.itemsize
            while rest:
                written = os.pwrite(self._file, rest, at)
                rest, at = rest[written:], at + written
            return block

        return self._examined(copied)

    def _examined(self, read: ReadBlock) -> tuple[str, float]:
        """Read a vector; return its checksum and its largest absolute entry."""
        digest, largest = xxhash.xxh3_128(), 0.0
        for start in range(0, self._parameters, BLOCK):
            block = read(start, min(start + BLOCK, self._parameters))
            digest.update(block.data)
            largest = max(largest, float(block.max()), -float(block.min()))
        return digest.hexdigest(), largest


def _added(base: Vector, read: ReadBlock) -> ReadBlock:
    """Read base + vector, in float32. Devices that keep their models add in the same way."""

    def added(start: int, stop: int) -> Vector:
        with np.errstate(over="ignore"):  # what is not finite is refused when it is added up
            return np.asarray(base[start:stop] + read(start, stop))

    return added
