"""Partial sums: the devices of a pack hold their updates back, and the pack sends their sum."""

from collections.abc import Mapping, Sequence
from functools import partial

from muster.client.calls.call_batch import CallBatch
from muster.client.calls.training_runner import TrainingRunner
from muster.client.device.learner import Learner
from muster.client.device.memory import StoredUpdate
from muster.common.compression import Codec
from muster.common.compression.contract import pread_of
from muster.common.exact_sum import ExactSum, ReadBlock, Term
from muster.common.exchange import Body, Call, Held, SumHeader
from muster.common.partial_sums import encode_partial_sum, held_of
from muster.wire.bodies import checksum


class HeldUpdates:
    """The updates that the devices of a pack hold back, and the sum of them that the server asks
    for.

    A device keeps its newest update in its memory, so nothing is kept here but what was measured of
    it.

    Args:
        codec: with which the devices compress their updates. A sum has what the server would have
            read from the compressed bodies.
        secret: whether the server may not get to know the updates. Then it is not told their
            checksums: it could try which update has a checksum, and a short one follows from it.
    """

    def __init__(
        self,
        devices: Mapping[str, Learner],
        codec: Codec,
        runner: TrainingRunner,
        secret: bool = False,
    ) -> None:
        self._secret = secret
        self._devices = devices
        self._codec = codec
        self._runner = runner
        self._measured: dict[str, tuple[bytes, Held]] = {}  # by client, with the body's checksum
        self._number = 0
        self._sum: ExactSum | None = None
        self._missing: list[str] = []

    def announced(self, stored: StoredUpdate, entries: int) -> StoredUpdate:
        """An update as the device announces it to the server, which gets no body.

        Args:
            entries: length of the vectors of an update of the whole model.
        """
        key = stored.update.key
        entries = self._devices[key.client].trained_entries(key.round, entries)
        update = stored.update._replace(held=self._held_of(stored, entries))
        if self._secret:
            update = update._replace(checksum=bytes(len(update.checksum)))
        return StoredUpdate(update, b"")

    def _held_of(self, stored: StoredUpdate, entries: int) -> Held:
        update, body = stored
        client = update.key.client
        if (known := self._measured.get(client)) is None or known[0] != update.checksum:
            held = Held(0.0, 0.0)  # of a body of a wrong length, which the server refuses by it
            if len(body) == self._codec.length(entries):
                held = held_of(self._read(body, entries), entries)
            known = self._measured[client] = update.checksum, held
        return known[1]

    def _read(self, body: Body, entries: int) -> ReadBlock:
        return partial(self._codec.read, pread_of(body), parameters=entries)

    def begin(self, number: int, entries: int) -> None:
        """Begin the sum with this number. An older one is forgotten: the thread may still add to it
        for a session that has ended."""
        self._number, self._missing, self._sum = number, [], ExactSum(entries)

    def continues(self, number: int) -> bool:
        """Whether the sum with this number has begun."""
        return self._sum is not None and self._number == number

    def lost(self, calls: Sequence[Call]) -> list[Call]:
        """The calls whose updates are not here any more, because an earlier process made them."""
        return [c for c in calls if self._devices[c.key.client].memory.update_for(c) is None]

    async def add(self, batch: CallBatch, weights: Sequence[float]) -> None:
        """Add the updates for calls to the sum, each with its weight. Those that are still lost are
        missing in it."""
        terms, entries = [], batch.work.entries
        for call, weight in zip(batch.calls, weights, strict=True):
            stored = self._devices[call.key.client].memory.update_for(call)
            if stored is None:
                self._missing.append(call.key.client)
            else:
                terms.append(self.term(stored, weight, entries))
        assert self._sum is not None
        if terms:
            await self._runner.run(self._sum.add_terms, terms)

    def term(self, stored: StoredUpdate, weight: float, entries: int) -> Term:
        """A weighted update, as it enters a sum.

        Args:
            entries: length of the vector of the update.
        """
        held = self._held_of(stored, entries)
        return Term(self._read(stored.body, entries), weight, held.largest)

    def complete(self) -> tuple[SumHeader, Body]:
        """The sum that has been begun, with its header."""
        assert self._sum is not None
        body: Body = b"" if self._sum.empty else encode_partial_sum(self._sum)
        return SumHeader(self._number, len(body), checksum(body), self._missing), body
