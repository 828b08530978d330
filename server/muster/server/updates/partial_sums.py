"""Partial sums: the sums of updates that the processes of devices hold, which the server asks for
when a round has closed and the weights are known."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from muster.common.errors import MusterError, RemoteProtocolError
from muster.common.exact_sum import ExactSum
from muster.common.exchange import Key, SumHeader
from muster.common.partial_sums import ROUNDING, EncodedSum, partial_sum_lengths
from muster.server.fleet.devices import ConnectedPack
from muster.server.fleet.fleet import Fleet
from muster.server.fleet.patience import Patience
from muster.server.updates.round_updates import PendingUpdate
from muster.server.updates.uploads import ArrivingBytes, HeldBody, UploadFiles, WholeBytes
from muster.wire import CHUNK_BYTES

_DAMAGED = 5
"""Times that a sum may arrive damaged before the process is refused."""


class RunStops(MusterError):
    """The run is to stop while the server waits for sums; the round is abandoned."""


@dataclass(slots=True, eq=False)
class WantedSum:
    """A sum that the server has asked a process for.

    Attributes:
        number: its number, within this incarnation of the server.
        updates: the updates in it, of devices of one process.
        weights: one per update.
        step: what is asked for in place of the sum, a step of a secure sum; empty: the sum.
        lengths: that what arrives can have.
        arrived: the sum, when it is here.
        arriving: the sum of which a part is here.
        over: whether the server waits for it no longer.
        reached: the most bytes of any sum for it that have been here.
        damaged: times that it arrived damaged.
    """

    number: int
    updates: Sequence[PendingUpdate]
    weights: Sequence[float]
    step: bytes
    lengths: Sequence[int]
    arrived: "asyncio.Future[ArrivedSum]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    arriving: "ArrivedSum | None" = None
    over: bool = False
    reached: int = 0
    damaged: int = 0

    @property
    def clients(self) -> list[str]:
        """The devices of its updates."""
        return [update.update.key.client for update in self.updates]

    def bounds(self, missing: Collection[str] = ()) -> list[float]:
        """|w|·max|Δ| of the updates in it, without those of the devices that are missing."""
        return [weight * body.largest for weight, body in self._weighed(missing)]

    def norms(self, missing: Collection[str] = ()) -> list[float]:
        """|w|·‖Δ‖ of the same updates."""
        return [weight * body.norm for weight, body in self._weighed(missing)]

    def _weighed(self, missing: Collection[str]) -> Iterable[tuple[float, HeldBody]]:
        for update, weight in zip(self.updates, self.weights, strict=True):
            if update.update.key.client not in missing:
                assert isinstance(update.body, HeldBody)
                yield weight, update.body


class Asked(NamedTuple):
    """What a process is asked for.

    Attributes:
        updates, weights, step: see `WantedSum`.
        lengths: that the reply can have.
    """

    updates: Sequence[PendingUpdate]
    weights: Sequence[float]
    step: bytes
    lengths: Sequence[int]


class ArrivedSum:
    """The bytes of a partial sum, or of a step of a secure one. They arrive chunk by chunk in a
    file without a name, or came in one message.

    Args:
        body: what came in one message; None: it arrives chunk by chunk.

    Attributes:
        missing: clients whose updates are not in the sum.
        senders: the number of calls that have sent parts of it. Only the newest call may go on.

    Raises:
        RemoteProtocolError: the sum has a length that no sum of this model has, or names devices
            that are not in it.
    """

    def __init__(
        self,
        files: UploadFiles,
        wanted: WantedSum,
        header: SumHeader,
        parameters: int,
        body: bytes | None = None,
    ) -> None:
        self.wanted = wanted
        self.header = header
        self.missing = frozenset(header.missing)
        self._parameters = parameters
        clients = set(wanted.clients)
        if len(self.missing) != len(header.missing) or not self.missing <= clients:
            raise RemoteProtocolError(
                f"{len(header.missing)} updates are missing in a sum of {len(clients)}; expected "
                f"names of devices that are in it, each once"
            )
        lengths = wanted.lengths if self.missing < clients else (0, 0)
        if header.length not in lengths:
            raise RemoteProtocolError(
                f"a sum of {header.length} bytes; expected {' or '.join(map(str, lengths))} for "
                f"{parameters} parameters"
            )
        self._fine = header.length == lengths[-1]
        self._bytes = (
            ArrivingBytes(files, header.length) if body is None else WholeBytes(body, header.length)
        )
        self.senders = 0

    @property
    def key(self) -> Key:
        """The key under which its transfer is accounted for: that of the first update in it."""
        return self.wanted.updates[0].update.key

    @property
    def received(self) -> int:
        """Bytes held, in order and without gaps; where a broken upload resumes."""
        return self._bytes.received

    @property
    def complete(self) -> bool:
        """Whether all of it has arrived."""
        return self._bytes.complete

    def write(self, chunk: bytes) -> None:
        """Append a chunk.

        Raises:
            RemoteProtocolError: the chunk is empty, longer than a chunk may be, or goes beyond the
                length that the header stated.
            OSError: the disk is full. The chunk can be written again.
        """
        left = self.header.length - self.received
        if not 0 < len(chunk) <= min(CHUNK_BYTES, left):
            raise RemoteProtocolError(
                f"a chunk of {len(chunk)} bytes at {self.received} of {self.header.length}; "
                f"expected at most {CHUNK_BYTES} at a time, and not more than the header stated"
            )
        assert isinstance(self._bytes, ArrivingBytes)  # nothing is written to what came whole
        self._bytes.append(chunk)

    def damaged(self) -> bool:
        """Whether a complete sum is not the one that its process has sent."""
        return bool(self.received) and self._bytes.checksum() != self.header.checksum

    def require_possible(self) -> None:
        """Check that a complete sum can be one of the updates in it.

        Raises:
            RemoteProtocolError: an entry or the norm is larger than theirs can make it.
        """
        if not self.received or self.wanted.step:
            return
        largest, norm = self._encoded().extent()
        for what, found, bounds, rounding in (
            ("an entry", largest, self.wanted.bounds(self.missing), ROUNDING),
            ("a norm", norm, self.wanted.norms(self.missing), ROUNDING * self._parameters**0.5),
        ):
            most = math.fsum(bounds) * (1 + _TOLERANCE) + rounding
            if found > most:
                raise RemoteProtocolError(
                    f"a sum has {what} of {found:.6g}; the updates in it make at most {most:.6g}"
                )

    def add_to(self, sum: ExactSum) -> None:
        """Add it to the sum of a round.

        Raises:
            Diverged: the sum left its range.
        """
        if self.received:
            sum.add_part(self._encoded().read, self.wanted.bounds(self.missing))

    def whole(self) -> bytes:
        """All of its bytes."""
        return self._bytes.pread(self.received, 0)

    def _encoded(self) -> EncodedSum:
        return EncodedSum(self._bytes.pread, self._parameters, self._fine)

    def close(self) -> None:
        """Return the file to `UploadFiles`."""
        self._bytes.close()


_TOLERANCE = 1e-6
"""Of sums of stated numbers, relative: what rounding them may come to."""

Ask = Callable[[ConnectedPack, WantedSum, bool], None]
"""`ask(pack, wanted, again)` sends a pack the request for a sum; `again`: it may have lost the
updates in it, and trains again from the model."""


class PartialSums:
    """Asks the processes that hold updates for their sums, and receives these sums.

    Args:
        parameters: length of the vectors.
        files: where sums are kept while they arrive.
        stopping: waits until the run is to stop.
        patience: is renewed by every part of a sum that has not been here before.
    """

    def __init__(
        self,
        parameters: int,
        fleet: Fleet,
        files: UploadFiles,
        ask: Ask,
        stopping: Callable[[], Awaitable[object]],
        patience: Patience,
    ) -> None:
        self._parameters = parameters
        self._fleet = fleet
        self._files = files
        self._ask = ask
        self._stopping = stopping
        self._patience = patience
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

        Raises:
            RunStops: the run is to stop, and a sum has not arrived.
        """
        asked = self._of_processes(held, weights)
        replies = await self.exchange(asked, False, patience_s, renewed)
        here = [reply for reply in replies if reply is not None]
        pairs = zip(asked, replies, strict=True)
        away = ([u.update.key.client for u in of.updates] for of, reply in pairs if reply is None)
        return here, set(chain(*away, *(sum.missing for sum in here)))

    async def exchange(
        self, asked: Sequence[Asked], again: bool, patience_s: float, renewed: bool
    ) -> list[ArrivedSum | None]:
        """Ask processes, and wait for what they send.

        Args:
            again: whether they may have lost their updates, and get the model with the request.
            patience_s, renewed: see `collect`.

        Returns:
            What has arrived from each, which the caller closes; None: nothing has.

        Raises:
            RunStops: the run is to stop, and something has not arrived.
        """
        all_wanted = [self._want(of, again) for of in asked]
        here: list[ArrivedSum] = []
        try:
            await self._wait([wanted.arrived for wanted in all_wanted], patience_s, renewed)
            here = [wanted.arrived.result() for wanted in all_wanted if wanted.arrived.done()]
        finally:
            for wanted in all_wanted:
                self._end(wanted, here)
        return [wanted.arrived.result() if wanted.arrived.done() else None for wanted in all_wanted]

    def _end(self, wanted: WantedSum, here: Collection[ArrivedSum]) -> None:
        wanted.over = True
        del self._wanted[wanted.number]
        if wanted.arriving is not None and wanted.arriving not in here:
            wanted.arriving.close()

    def revoked_only(self, clients: Iterable[str]) -> bool:
        """Whether the credentials of all these devices have been revoked."""
        return all(self._fleet.devices[client].revoked for client in clients)

    def revoked_of(self, clients: Iterable[str]) -> set[str]:
        """Those of the devices whose credentials have been revoked."""
        return {client for client in clients if self._fleet.devices[client].revoked}

    def _of_processes(self, held: Sequence[PendingUpdate], weights: Sequence[float]) -> list[Asked]:
        """What each process is asked for, to get the sum of held updates."""
        by_pack: dict[ConnectedPack | None, list[tuple[PendingUpdate, float]]] = {}
        for update, weight in zip(held, weights, strict=True):
            pack = self._fleet.devices[update.update.key.client].pack
            by_pack.setdefault(pack, []).append((update, weight))
        lengths = partial_sum_lengths(self._parameters)
        asked = []
        for parts in by_pack.values():
            updates, of_process = zip(*parts, strict=True)
            asked.append(Asked(updates, of_process, b"", lengths))
        return asked

    def _want(self, asked: Asked, again: bool) -> WantedSum:
        """Ask one process."""
        self._newest += 1
        wanted = WantedSum(self._newest, *asked)
        self._wanted[wanted.number] = wanted
        pack = self._fleet.devices[wanted.clients[0]].pack
        # Devices whose process has enrolled again without them have none.
        if pack is None or any(self._fleet.devices[c].revoked for c in wanted.clients):
            self._give_up(wanted)
        else:
            self._ask(pack, wanted, again)
        return wanted

    def _give_up(self, wanted: WantedSum) -> None:
        """Wait no longer for a sum: all of its updates are missing."""
        nothing = SumHeader(wanted.number, 0, b"", wanted.clients)
        wanted.arrived.set_result(ArrivedSum(self._files, wanted, nothing, self._parameters))

    async def _wait(
        self, sums: Sequence["asyncio.Future[ArrivedSum]"], patience_s: float, renewed: bool
    ) -> None:
        waiting = asyncio.ensure_future(asyncio.wait(sums))
        stopping = asyncio.ensure_future(self._stopping())
        self._patience.renew()
        began = self._patience.progress_at
        try:
            while not waiting.done():
                if stopping.done():
                    raise RunStops("the run is to stop, and sums have not arrived")
                until = (self._patience.progress_at if renewed else began) + patience_s
                if self._patience.monotonic() >= until:
                    return
                timer = asyncio.ensure_future(self._patience.sleep_until(until))
                try:
                    await asyncio.wait(
                        {waiting, stopping, timer}, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    timer.cancel()
        finally:
            waiting.cancel()
            stopping.cancel()

    def attended(self, pack: ConnectedPack) -> None:
        """Ask a pack that came back again for the sums that it has not sent."""
        for wanted in self._wanted.values():
            if not wanted.arrived.done() and pack.devices.keys() >= set(wanted.clients):
                self._ask(pack, wanted, True)

    def revoked(self, clients: Iterable[str]) -> None:
        """Wait no longer for the sums of a process whose credentials have been revoked."""
        gone = set(clients)
        for wanted in self._wanted.values():
            if not wanted.arrived.done() and not gone.isdisjoint(wanted.clients):
                self._give_up(wanted)

    def begin(self, pack: ConnectedPack, header: SumHeader) -> ArrivedSum | None:
        """Return the sum with the bytes that have arrived; the process sends the rest. None: it is
        not asked for any more.

        Raises:
            RemoteProtocolError: the sum is another process's, or its header is impossible.
        """
        wanted = self._wanted_of(pack, header)
        if wanted is None:
            return None
        if wanted.arriving is None or wanted.arriving.header != header:
            arriving = ArrivedSum(self._files, wanted, header, self._parameters)
            self._forget(wanted)
            wanted.arriving = arriving
        wanted.arriving.senders += 1
        return wanted.arriving

    def reply(self, pack: ConnectedPack, header: SumHeader, body: bytes) -> ArrivedSum | None:
        """Take the reply to a step of a secure sum that came in one message. None: nobody waits
        for it any more. `exchange` is responsible for closing it.

        Raises:
            RemoteProtocolError: it is another process's, impossible, or not the reply that its
                header states.
        """
        wanted = self._wanted_of(pack, header)
        if wanted is None:
            return None
        reply = ArrivedSum(self._files, wanted, header, self._parameters, body)
        if not wanted.step or not reply.complete or reply.damaged():
            raise RemoteProtocolError(
                f"{len(body)} bytes in reply to {header.number} are not those that were asked for"
            )
        self._forget(wanted)
        wanted.arrived.set_result(reply)
        self._patience.renew()
        return reply

    def _wanted_of(self, pack: ConnectedPack, header: SumHeader) -> WantedSum | None:
        """What a process sends; None: nobody waits for it.

        Raises:
            RemoteProtocolError: another process was asked for it.
        """
        wanted = self._wanted.get(header.number)
        if wanted is None or wanted.arrived.done():
            return None
        if not pack.devices.keys() >= set(wanted.clients):
            raise RemoteProtocolError(
                f"the sum {header.number} is not that of the devices of this session"
            )
        return wanted

    def expects(self, sum: ArrivedSum, sender: int) -> bool:
        """Whether a call may go on to send a sum.

        Args:
            sender: `sum.senders` when the call began.
        """
        wanted = sum.wanted
        current = wanted.arriving is sum and sum.senders == sender
        return current and not (wanted.over or wanted.arrived.done())

    def moved(self, sum: ArrivedSum) -> None:
        """Note that a part of a sum has come. Parts that have been here before are no progress."""
        if sum.received > sum.wanted.reached:
            sum.wanted.reached = sum.received
            self._patience.renew()

    def receive(self, sum: ArrivedSum) -> bool:
        """Take a sum that has arrived completely; False: it was damaged and must be sent again.

        From here on, `collect` is responsible for closing a sum that is wanted.

        Raises:
            RemoteProtocolError: the sum is impossible, or was damaged too often.
        """
        wanted = sum.wanted
        if sum.damaged():
            self._forget(wanted)
            wanted.damaged += 1
            if wanted.damaged >= _DAMAGED:
                raise RemoteProtocolError(
                    f"the sum {wanted.number} came {wanted.damaged} times with another checksum "
                    f"than its header states"
                )
            return False
        try:
            sum.require_possible()
        except RemoteProtocolError:
            self._forget(wanted)
            raise
        wanted.arrived.set_result(sum)
        return True

    @staticmethod
    def _forget(wanted: WantedSum) -> None:
        if wanted.arriving is not None:
            wanted.arriving.close()
            wanted.arriving = None
