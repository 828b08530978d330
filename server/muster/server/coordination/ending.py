"""The end of a run: writes the result, ends the account, and says goodbye to the devices."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from muster.common.causes import outer_cause
from muster.common.clock import Clock
from muster.common.errors import reason_of
from muster.common.events import Ended, Tell
from muster.common.files import write_atomic
from muster.server.account.ledger import Ledger
from muster.server.account.store import Store
from muster.server.account.transaction import PendingTransaction
from muster.server.aggregation.versions import ModelVersions
from muster.server.evaluation.best import BEST
from muster.server.evaluation.schedule import EvaluationSchedule
from muster.server.fleet.fleet import Fleet
from muster.server.runtime.room_on_disk import RoomOnDisk
from muster.server.runtime.worker import WorkerThread
from muster.server.updates.receiver import UpdateReceiver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

_LAST_TRANSFERS_S = 5.0
"""Seconds after the end of the run in which the rest of an upload that it cut off may still arrive,
and a chunk of a download may still leave, and both are counted."""


class RunEnding:
    """Ends a run. Each part is done even if another part fails, for example on a full disk.

    Attributes:
        evaluations: the schedule of the evaluations of versions; set before the first round.

    Args:
        outlives_round: whether assignments may outlive the round of their call.
    """

    evaluations: EvaluationSchedule

    def __init__(
        self,
        run_folder: Path,
        ledger: Ledger,
        store: Store,
        versions: ModelVersions,
        receiver: UpdateReceiver,
        fleet: Fleet,
        worker: WorkerThread,
        room: RoomOnDisk,
        clock: Clock,
        tell: Tell,
        outlives_round: bool,
    ) -> None:
        self._outlives_round = outlives_round
        self._run_folder = run_folder
        self._ledger = ledger
        self._store = store
        self._versions = versions
        self._receiver = receiver
        self._fleet = fleet
        self._worker = worker
        self._room = room
        self._clock = clock
        self._tell = tell
        # The rows after the newest commit; empty until the ledger has them.
        self._last = PendingTransaction()

    async def finish(
        self,
        status: str,
        detail: str,
        peak_rss_mib: float,
        flush: "Callable[[], None]" = lambda: None,
    ) -> tuple[str, str]:
        """Write the result, close the account, and say goodbye.

        Args:
            flush: writes the journal to its file.

        Returns:
            The status and detail of the run. If a part of the end fails, the run has failed.
        """
        parts: list[Callable[[], Awaitable[None]]] = [
            self._commit_ended,
            self._write_result,
            lambda: self._end_account(status, detail),
        ]
        for part in parts:
            try:
                await part()
            except Exception as error:
                outside = None if outer_cause(error) else error
                log.error("the end of the run: %s", reason_of(error), exc_info=outside)
                if status != "failed":
                    status, detail = "failed", reason_of(error)
        traffic = self._last.bytes_up, self._last.bytes_down
        self._tell(Ended(status, detail, *traffic, peak_rss_mib))

        async def write() -> None:
            flush()

        try:  # before any device hears of it and ends
            await self._room.write("the journal", write)
        except Exception as error:
            log.error("the journal: %s", reason_of(error))
            status = "failed"
        for pack in self._fleet.packs():
            pack.send(self._versions.committed, goodbye=status)
        return status, detail

    async def _commit_ended(self) -> None:
        """Wait for a commit that is under way; only then is the committed round known."""
        await self._worker.run(lambda: None)

    async def _write_result(self) -> None:
        version = self._versions.committed.version
        await self._write_model("model.safetensors", version, "the result")

    async def write_best(self, version: int) -> None:
        """Write a version as the best of the run so far."""
        await self._write_model(BEST, version, "the best version")

    async def _write_model(self, name: str, version: int, what: str) -> None:
        path = self._run_folder / name
        parts = self._store.model_file(self._versions.offered(version))

        async def write() -> None:
            write_atomic(path, *parts)

        await self._room.write(what, write)

    async def _end_account(self, status: str, detail: str) -> None:
        last = await self._receiver.last_rows(self._clock.monotonic() + _LAST_TRANSFERS_S)
        await self._room.write("the account", lambda: self._worker.run(self._ledger.note, last))
        self._last = last
        needed = {self._versions.committed.version}
        if status != "completed":  # it may be resumed
            needed |= self.evaluations.missing(self._versions.kept)
            if self._outlives_round:  # with the assignments that are open
                needed |= await self._worker.run(self._ledger.open_bases)
        forget = self._versions.superseded(needed)
        ending = self._ledger.end, status, detail, self._clock.now(), forget
        await self._room.write("the end", lambda: self._worker.run(*ending))
        self._versions.remove(forget)
