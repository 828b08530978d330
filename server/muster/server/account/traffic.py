"""The accounting of bodies that travel in chunks: bytes and times of each call of Fetch and Submit.

Every byte that travels is counted once, in the call in which it travelled. A transfer that broke
and was resumed is several calls, so bytes that were sent twice are counted twice. A chunk that
broke off in the middle is not counted, because neither end sees it.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

from muster.common.clock import Clock
from muster.common.exchange import Key, Update
from muster.server.account.rows import TransferRow
from muster.server.fleet.devices import ConnectedPack

Ending = Literal["complete", "cut off", "broken"]


@dataclass(slots=True, eq=False)
class Transfer:
    """The part of a model or an update that travels in one call of Fetch or Submit.

    Attributes:
        key: the call to train that it is for.
        direction: "down" is a model, "up" an update.
        began_at: UNIX seconds when the device began to wait for its turn.
        wait_s: wall seconds until its turn came.
        seconds: wall seconds from then until it ended; 0 while it is under way.
        bytes: bytes of the body that have travelled so far.
        ending: how it ended. It is "broken" unless another ending is known.
    """

    key: Key
    direction: Literal["down", "up"]
    began_at: float
    wait_s: float
    seconds: float = 0.0
    bytes: int = 0
    ending: Ending = "broken"

    def row(self) -> TransferRow:
        """Return the transfer as a row of the ledger."""
        timed = self.seconds > 0 and self.bytes > 0
        return TransferRow(
            round=self.key.round,
            client=self.key.client,
            attempt=self.key.attempt,
            direction=self.direction,
            bytes=self.bytes,
            began_at=self.began_at,
            wait_s=self.wait_s,
            seconds=self.seconds,
            rate_bps=8 * self.bytes / self.seconds if timed else None,
            ending=self.ending,
        )


class TransferCost(NamedTuple):
    """The cost of an update's transfers.

    Attributes:
        up: bytes of its body that arrived.
        down: bytes of the model that its device fetched for it.
        send_s: wall seconds in which the device waited for its turn and sent the update.
    """

    up: int = 0
    down: int = 0
    send_s: float = 0.0


@dataclass(slots=True)
class _Download:
    """The transfer of a model, the byte of the body at which it began, and the body's length."""

    transfer: Transfer
    offset: int
    length: int


class TrafficAccount:
    """The transfers of a run that have not been taken for the ledger yet.

    The server cannot see when the last byte of a model reaches a device; the device reports it with
    its update. The rows of a download therefore wait for the update, at most until the pack fetches
    another model or the next round has been committed.

    Attributes:
        ended: whether the run's transfers have been ended; no other may begin.
    """

    def __init__(self, clock: Clock) -> None:
        self.ended = False
        self._clock = clock
        self._entered: list[Transfer] = []
        self._under_way: dict[Transfer, float] = {}  # value: monotonic seconds when its turn came
        self._downloads: dict[str, list[_Download]] = {}  # by the pack's first device
        self._nothing_moves = asyncio.Event()
        self._nothing_moves.set()

    @contextmanager
    def upload(self, key: Key, asked_at: float) -> Iterator[Transfer]:
        """Record the transfer of an update whose turn has come; it ends with the context.

        Args:
            asked_at: UNIX seconds when the device began to wait.
        """
        transfer = Transfer(key, "up", asked_at, max(0.0, self._clock.now() - asked_at))
        self._entered.append(transfer)
        with self._moving(transfer):
            yield transfer

    def upload_in_vain(self, key: Key, asked_at: float) -> None:
        """Enter the transfer of an update whose round was closed before its turn came."""
        waited_s = max(0.0, self._clock.now() - asked_at)
        self._entered.append(Transfer(key, "up", asked_at, waited_s, ending="cut off"))

    @contextmanager
    def download(
        self, pack: ConnectedPack, key: Key, offset: int, length: int, asked_at: float
    ) -> Iterator[Transfer]:
        """Record the transfer of a model to a pack whose turn has come; it ends with the context.

        Args:
            key: the newest call of a device of the pack.
            offset: the byte of the body at which the transfer begins.
            length: bytes of the whole body.
            asked_at: UNIX seconds when the pack began to wait.
        """
        transfer = Transfer(key, "down", asked_at, max(0.0, self._clock.now() - asked_at))
        name = _name(pack)
        if offset == 0:
            self._enter_downloads(name)
        downloads = self._downloads.setdefault(name, [])
        if downloads:  # the last one broke; the pack has received its bytes up to `offset`
            broken = downloads[-1]
            received = max(0, offset - broken.offset)
            self._end(broken.transfer, "broken")
            broken.transfer.ending = "broken"  # also if its last byte was sent, and lost
            broken.transfer.bytes = min(broken.transfer.bytes, received)
        downloads.append(_Download(transfer, offset, length))
        with self._moving(transfer):
            yield transfer

    @contextmanager
    def _moving(self, transfer: Transfer) -> Iterator[None]:
        self._under_way[transfer] = self._clock.monotonic()
        self._nothing_moves.clear()
        try:
            yield
        finally:
            self._end(transfer, transfer.ending)

    def _end(self, transfer: Transfer, ending: Ending) -> None:
        """End a transfer, unless it has ended already."""
        if (began := self._under_way.pop(transfer, None)) is not None:
            transfer.seconds, transfer.ending = self._clock.monotonic() - began, ending
        if not self._under_way:
            self._nothing_moves.set()

    def moving(self, transfers: Iterable[Transfer]) -> bool:
        """Whether any of the transfers is under way."""
        return any(transfer in self._under_way for transfer in transfers)

    def fetched(self, pack: ConnectedPack, update: Update, key: Key | None) -> int:
        """Complete the pack's downloads with the times that a device reports in its update.

        Args:
            update: its fetch times describe how the device received the model.
            key: the update's key, if it belongs to one of the server's calls.

        Returns:
            The bytes of the model that travelled for the update; 0 if they were counted before.
        """
        if not (self._downloads and update.fetched_at):
            return 0
        downloads = self._downloads.get(_name(pack))
        if not downloads:
            return 0
        first, last = downloads[0].transfer, downloads[-1].transfer
        came_at = last.began_at + last.wait_s
        if first is last:
            first.wait_s = update.fetch_wait_s
            came_at = update.fetched_at + update.fetch_wait_s
        else:
            first.wait_s = max(0.0, first.began_at + first.wait_s - update.fetched_at)
        first.began_at = update.fetched_at
        self._end(last, "complete")
        last.seconds = max(0.0, update.fetched_at + update.fetch_s - came_at)
        last.bytes = downloads[-1].length - downloads[-1].offset
        if key is not None:
            last.key = key
            for download in downloads:
                download.transfer.key = download.transfer.key._replace(client=key.client)
        self._enter_downloads(_name(pack))
        return sum(download.transfer.bytes for download in downloads)

    def _enter_downloads(self, name: str) -> None:
        for download in self._downloads.pop(name, ()):
            self._entered.append(download.transfer)

    def take(self, round: int) -> list[TransferRow]:
        """Return the rows of the transfers that have ended since the last call.

        Args:
            round: the newest round.
        """
        if not (self._entered or self._downloads):
            return []
        for name, downloads in list(self._downloads.items()):
            if downloads[-1].transfer.key.round < round:
                self._enter_downloads(name)
        ended = [transfer for transfer in self._entered if transfer not in self._under_way]
        self._entered = [transfer for transfer in self._entered if transfer in self._under_way]
        return [transfer.row() for transfer in ended]

    async def end(self, limit: float) -> None:
        """End all transfers of the run.

        Uploads, and chunks of downloads that are being written, may go on until `limit` (monotonic
        seconds). A transfer that has not ended by then is entered as cut off, with the bytes that
        have travelled.
        """
        self.ended = True  # downloads stop after the chunk that is being written
        if not self._nothing_moves.is_set():
            ended = asyncio.ensure_future(self._nothing_moves.wait())
            timer = asyncio.ensure_future(self._clock.sleep_until(limit))
            try:
                await asyncio.wait({ended, timer}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended.cancel()
                timer.cancel()
        for transfer in list(self._under_way):
            self._end(transfer, "cut off")
        for name in list(self._downloads):
            self._enter_downloads(name)


def _name(pack: ConnectedPack) -> str:
    """The pack's name, which is the same in all its sessions: its first device."""
    return next(iter(pack.devices))
