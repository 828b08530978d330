"""Updates that arrive in chunks: uploads of the open round, and those that its close cut off."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from muster.common.exchange import Outcome, Receipt, Update
from muster.server.account.pending_rows import PendingRows
from muster.server.account.traffic import Transfer, TransferCost
from muster.server.fleet.devices import ConnectedPack
from muster.server.updates.admission import Admission
from muster.server.updates.uncounted import UncountedUpdates
from muster.server.updates.uploads import Upload, UploadFiles

_UploadKey = tuple[str, int, bytes]
"""Client, round and checksum. Two attempts that send the same body have the same key."""


class OpenUploads:
    """The updates of which a part has arrived.

    Args:
        files: where the bodies are kept while they arrive.
    """

    def __init__(
        self,
        admission: Admission,
        uncounted: UncountedUpdates,
        pending: PendingRows,
        files: UploadFiles,
    ) -> None:
        self._admission = admission
        self._uncounted = uncounted
        self._pending = pending
        self._files = files
        self._open: dict[str, Upload] = {}  # of the open round, by client
        self._cut_off: dict[_UploadKey, Upload] = {}

    def begin(self, pack: ConnectedPack, update: Update, asked_at: float) -> Upload:
        """Return the upload of an update with the bytes that have arrived; the device sends the
        rest. An unfinished upload stays until its round closes or the device sends another body.

        Args:
            asked_at: UNIX seconds when the device began to wait for its turn.
        """
        client, model_bytes = update.key.client, 0
        upload = self._open.get(client)
        if upload is not None and _key(upload.update) != _key(update):
            upload.verdict = Receipt(upload.update.key, Outcome.RESUME)
            upload.close()
            model_bytes, upload = upload.model_bytes, None
        if upload is None:
            round = self._admission.round
            assert round is not None  # otherwise the update would have got the receipt LATE
            format = self._admission.formats.of(update.key)
            member = self._admission.member_of(update.key)
            base_version = round.base_version if member is None else member.base_version
            upload = self._files.open(update, format, base_version)
            upload.model_bytes = model_bytes
            self._open[client] = upload
        upload.ask(update, asked_at)
        upload.model_bytes += self._fetched(pack, update)
        return upload

    @contextmanager
    def sending(self, upload: Upload) -> Iterator[Transfer]:
        """Record the transfer of a part of an update whose turn has come. The transfer ends with
        the context."""
        assert upload.asked_at is not None
        asked_at, upload.asked_at = upload.asked_at, None
        upload.senders += 1
        try:
            with self._pending.traffic.upload(upload.update.key, asked_at) as transfer:
                upload.transfers.append(transfer)
                yield transfer
        finally:
            if upload.verdict is not None:
                self._enter_cut_off(upload)

    def complete(self, client: str, upload: Upload) -> None:
        """Remove an upload that has arrived completely."""
        if self._open.get(client) is upload:
            del self._open[client]

    def cost_of_judged(self, pack: ConnectedPack, update: Update) -> TransferCost:
        """The bytes that travelled for an update that was judged by its header: those of the model,
        and those of its body that had arrived when its round was closed."""
        cost = TransferCost(down=self._fetched(pack, update))
        if update.key.client not in pack.devices:
            return cost
        upload = self._cut_off.pop(_key(update), None)
        if upload is None:
            return cost
        return TransferCost(upload.arrived, cost.down + upload.model_bytes, upload.send_s)

    def cut_off(self, carried: Collection[str] = ()) -> list[Receipt]:
        """Give verdicts to the updates of the open round that have not arrived completely.

        Args:
            carried: clients whose updates may count in a later round; they continue.

        Returns:
            The receipts of updates that are still being sent, so that their devices can stop.
        """
        stop: list[Receipt] = []
        if not (self._open or self._cut_off):
            return stop
        moving, round = self._pending.traffic.moving, self._admission.round
        kept = {key: upload for key, upload in self._cut_off.items() if moving(upload.transfers)}
        going_on = {c: upload for c, upload in self._open.items() if c in carried}
        for client, upload in self._open.items():
            if client in going_on:
                continue
            assert round is not None  # there are open uploads only while a round is open
            upload.verdict = round.receive(upload.update)
            kept[_key(upload.update)] = upload
            upload.close()
            if moving(upload.transfers):
                stop.append(upload.verdict)
        self._open, self._cut_off = going_on, kept
        return stop

    async def end(self, limit: float) -> None:
        """End all transfers of the run, and enter the uploads that were cut off.

        Args:
            limit: monotonic seconds until which uploads that are under way may arrive.
        """
        traffic = self._pending.traffic
        sending = [upload for upload in self._cut_off.values() if traffic.moving(upload.transfers)]
        await traffic.end(limit)
        for upload in sending:
            self._enter_cut_off(upload)

    def _enter_cut_off(self, upload: Upload) -> None:
        """Enter an update whose round was closed while it was being sent, if it is not entered
        yet."""
        if self._cut_off.pop(_key(upload.update), None) is not None:
            assert upload.verdict is not None
            cost = TransferCost(upload.arrived, upload.model_bytes, upload.send_s)
            self._uncounted.record(None, upload.update, upload.verdict, cost, upload.base_version)

    def _fetched(self, pack: ConnectedPack, update: Update) -> int:
        """Bytes of the model that a device fetched for an update; 0 if they were counted before."""
        if update.key.client not in pack.devices:
            return 0
        key = update.key if self._admission.member_of(update.key) else None
        return self._pending.traffic.fetched(pack, update, key)


def _key(update: Update) -> _UploadKey:
    return update.key.client, update.key.round, update.checksum
