"""Partial sums: the sums of updates that the processes of devices hold, which the server asks for
when a round has closed and the weights are known."""

import asyncio
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import xxhash

from muster.common.clock import Clock
from muster.common.errors import RemoteProtocolError
from muster.common.exact_sum import ExactSum
from muster.common.exchange import Key, SumHeader
from muster.common.partial_sums import EncodedSum, partial_sum_lengths
from muster.server.fleet import ConnectedPack, Fleet
from muster.server.updates.round_updates import PendingUpdate
from muster.server.updates.uploads import UploadFiles
from muster.wire import CHUNK_BYTES


@dataclass(slots=True, eq=False)
class WantedSum:
    """A sum that the server has asked a process for.

    Attributes:
        number: its number, within this incarnation of the server.
        updates: the updates in it, of devices of one process.
        weights: one per update.
        arrived: the sum, when it is here.
    """

    number: int
    updates: Sequence[PendingUpdate]
    weights: Sequence[float]
    arrived: "asyncio.Future[ArrivedSum]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def clients(self) -> list[str]:
        """The devices of its updates."""
        return [update.update.key.client for update in self.updates]

    def bounds(self, missing: Iterable[str] = ()) -> list[float]:
        """|w|·max|Δ| of the updates in it, without those of the devices that are missing."""
        left = set(missing)
        return [
            weight * update.body.largest
            for update, weight in zip(self.updates, self.weights, strict=True)
            if update.update.key.client not in left
        ]


class ArrivedSum:
    """The bytes of a partial sum, which arrive chunk by chunk in a file without a name.

    Attributes:
        missing: clients whose updates are not in the sum.

    Raises:
        RemoteProtocolError: the sum has a length that no sum of this model has, or names devices
            that are not in it.
    """

    def __init__(
        self, files: UploadFiles, wanted: WantedSum, header: SumHeader, parameters: int
    ) -> None:
        self.wanted = wanted
        self.missing = frozenset(header.missing)
        self._header = header
        self._parameters = parameters
        clients = set(wanted.clients)
        if len(self.missing) != len(header.missing) or not self.missing <= clients:
            raise RemoteProtocolError(
                f"{len(header.missing)} updates are missing in a sum of {len(clients)}; expected "
                f"names of devices that are in it, each once"
            )
        lengths = partial_sum_lengths(parameters) if self.missing < clients else (0, 0)
        if header.length not in lengths:
            raise RemoteProtocolError(
                f"a sum of {header.length} bytes; expected {' or '.join(map(str, lengths))} for "
                f"{parameters} parameters"
            )
        self._fine = header.length == lengths[1]
        self._files = files
        self._file: int | None = None
        self._hash = xxhash.xxh3_128()
        self._received = 0

    @property
    def key(self) -> Key:
        """The key under which its transfer is accounted for: that of the first update in it."""
        return self.wanted.updates[0].update.key

    @property
    def complete(self) -> bool:
        """Whether all of it has arrived."""
        return self._received == self._header.length

    def write(self, chunk: bytes) -> None:
        """Append a chunk.

        Raises:
            RemoteProtocolError: the chunk is empty, longer than a chunk may be, or goes beyond the
                length that the header stated.
            OSError: the disk is full. The chunk can be written again.
        """
        end = self._received + len(chunk)
        if not 0 < len(chunk) <= CHUNK_BYTES or end > self._header.length:
            raise RemoteProtocolError(
                f"a chunk of {len(chunk)} bytes at {self._received} of {self._header.length}; "
                f"expected at most {CHUNK_BYTES} at a time, and not more than the header stated"
            )
        if self._file is None:
            self._file = self._files.take()
        rest, at = memoryview(chunk), self._received
        while rest:  # a disk that is almost full takes a part
            written = os.pwrite(self._file, rest, at)
            rest, at = rest[written:], at + written
        self._hash.update(chunk)
        self._received = end

    def damaged(self) -> bool:
        """Whether a complete sum is not the one that its process has sent."""
        return bool(self._received) and self._hash.digest() != self._header.checksum

    def require_possible(self) -> None:
        """Check that a complete sum can be one of the updates in it.

        Raises:
            RemoteProtocolError: it has an entry that is larger than theirs can make it.
        """
        if not self._received:
            return
        largest, most = self._encoded().largest(), math.fsum(self.wanted.bounds(self.missing)) + 1
        if largest > most:
            raise RemoteProtocolError(
                f"a sum has an entry of {largest:.6g}; the updates in it make at most {most:.6g}"
            )

    def add_to(self, sum: ExactSum) -> None:
        """Add it to the sum of a round.

        Raises:
            Diverged: the sum left its range.
        """
        if self._received:
            sum.add_part(self._encoded().read, self.wanted.bounds(self.missing))

    def _encoded(self) -> EncodedSum:
        return EncodedSum(self._pread, self._parameters, self._fine)

    def _pread(self, length: int, offset: int) -> bytes:
        assert self._file is not None
        return os.pread(self._file, length, offset)

    def close(self) -> None:
        """Return the file to `UploadFiles`."""
        if self._file is not None:
            self._files.give(self._file)
            self._file = None


Ask = Callable[[ConnectedPack, WantedSum, bool], None]
"""`ask(pack, wanted, again)` sends a pack the request for a sum; `again`: it may have lost the
updates in it, and trains again from the model."""


class PartialSums:
    """Asks the processes that hold updates for their sums, and receives these sums.

    Attributes:
        moved_at: monotonic seconds when the newest part of a sum came.

    Args:
        parameters: length of the vectors.
        files: where sums are kept while they arrive.
    """

    def __init__(
        self, parameters: int, fleet: Fleet, files: UploadFiles, ask: Ask, clock: Clock
    ) -> None:
        self._parameters = parameters
        self._fleet = fleet
        self._files = files
        self._ask = ask
        self._clock = clock
        self.moved_at = 0.0
        self._newest = 0
        self._wanted: dict[int, WantedSum] = {}

    async def collect(
        self,
        held: Sequence[PendingUpdate],
        weights: Sequence[float],
        patience_s: float,
        renewed: bool,
    ) -> tuple[list[ArrivedSum], set[str]]:
        """Ask for the sum of held updates with their weights, and wait until it is here.

        Args:
            patience_s: seconds for which the server waits.
            renewed: whether they begin anew whenever a part of a sum comes.

        Returns:
            The sums that have arrived, one of each process, which the caller closes; and the
            clients whose updates are in none of them.
        """
        asked = self._ask_all(held, weights)
        try:
            await self._wait([wanted.arrived for wanted in asked], patience_s, renewed)
        finally:
            for wanted in asked:
                del self._wanted[wanted.number]
        here = [wanted.arrived.result() for wanted in asked if wanted.arrived.done()]
        away = (wanted.clients for wanted in asked if not wanted.arrived.done())
        missing = chain(*away, *(sum.missing for sum in here))
        return here, set(missing)

    def _ask_all(self, held: Sequence[PendingUpdate], weights: Sequence[float]) -> list[WantedSum]:
        by_pack: dict[ConnectedPack | None, list[tuple[PendingUpdate, float]]] = {}
        for update, weight in zip(held, weights, strict=True):
            pack = self._fleet.devices[update.update.key.client].pack
            by_pack.setdefault(pack, []).append((update, weight))
        asked = []
        for pack, parts in by_pack.items():
            updates, of_pack = zip(*parts, strict=True)
            self._newest += 1
            wanted = WantedSum(self._newest, updates, of_pack)
            self._wanted[wanted.number] = wanted
            asked.append(wanted)
            if pack is not None:
                self._ask(pack, wanted, False)
        return asked

    async def _wait(
        self, sums: Sequence["asyncio.Future[ArrivedSum]"], patience_s: float, renewed: bool
    ) -> None:
        waiting = asyncio.ensure_future(asyncio.wait(sums))
        began = self.moved_at = self._clock.monotonic()
        try:
            while not waiting.done():
                until = (self.moved_at if renewed else began) + patience_s
                if self._clock.monotonic() >= until:
                    return
                timer = asyncio.ensure_future(self._clock.sleep_until(until))
                try:
                    await asyncio.wait({waiting, timer}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    timer.cancel()
        finally:
            waiting.cancel()

    def attended(self, pack: ConnectedPack) -> None:
        """Ask a pack that came back again for the sums that it has not sent."""
        for wanted in self._wanted.values():
            if not wanted.arrived.done() and wanted.clients[0] in pack.devices:
                self._ask(pack, wanted, True)

    def revoked(self, clients: Iterable[str]) -> None:
        """Wait no longer for the sums of a process whose credentials have been revoked."""
        for wanted in self._wanted.values():
            if not wanted.arrived.done() and not set(wanted.clients).isdisjoint(clients):
                nothing = SumHeader(wanted.number, 0, b"", wanted.clients)
                wanted.arrived.set_result(
                    ArrivedSum(self._files, wanted, nothing, self._parameters)
                )

    def begin(self, pack: ConnectedPack, header: SumHeader) -> ArrivedSum | None:
        """Begin to receive a sum; None: it is not asked for any more.

        Raises:
            RemoteProtocolError: the sum is another process's, or its header is impossible.
        """
        wanted = self._wanted.get(header.number)
        if wanted is None or wanted.arrived.done():
            return None
        if not pack.devices.keys() >= set(wanted.clients):
            raise RemoteProtocolError(
                f"the sum {header.number} is not that of the devices of this session"
            )
        return ArrivedSum(self._files, wanted, header, self._parameters)

    def receive(self, sum: ArrivedSum) -> bool:
        """Take a sum that has arrived completely; False: it was damaged and must be sent again.

        From here on, `collect` is responsible for closing a sum that is wanted.

        Raises:
            RemoteProtocolError: the sum is impossible.
        """
        wanted = sum.wanted
        if wanted.arrived.done() or wanted.number not in self._wanted:
            sum.close()
            return True
        if sum.damaged():
            sum.close()
            return False
        try:
            sum.require_possible()
        except RemoteProtocolError:
            sum.close()
            raise
        wanted.arrived.set_result(sum)
        return True
