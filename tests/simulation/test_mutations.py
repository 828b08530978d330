"""Defects that the simulation must find again when their fixes are taken back.

Each test puts the defective code back, and searches the histories that one kind of fault makes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest

from muster.client.connection.link import ServerLink, _piece_bytes, _RetryPolicy
from muster.client.connection.transport_errors import error_of
from muster.client.device.opened import OpenedSums
from muster.common.errors import RemoteProtocolError
from muster.common.exact_sum import Term
from muster.common.exchange import Call, Commit
from muster.server.account.run_rows import MemoryRow
from muster.server.aggregation.versions import ModelVersions
from muster.server.coordination.closed_round import ClosedRound
from muster.server.coordination.coordinator import Coordinator
from muster.server.coordination.round_commit import RoundCommit
from muster.server.evaluation.evaluator import Evaluator
from muster.server.evaluation.messages import EvaluationResult
from muster.server.fleet.devices import ConnectedPack
from muster.server.rounds.round import Round
from muster.server.rpc.transfers import TransferQueue, Turn
from muster.server.updates.memory import UpdateMemory
from muster.server.updates.round_updates import PendingUpdate
from muster.simulation.faults import Break, DiskFull, Fault, Kill, Pause, PowerCut, Rogue
from muster.simulation.search import HistoryPlan, Simulator
from muster.v1 import fleet_pb2 as pb
from muster.wire import CHUNK_BYTES
from muster.wire.bodies import body_view, checksum, chunk_message, chunks


def violations(simulated: Simulator, plans: Iterable[HistoryPlan], most: int = 400) -> list[str]:
    """What the first of these histories violates that violates anything."""
    for number, plan in enumerate(plans):
        if number == most:
            break
        if found := simulated.play(plan).violations:
            return found
    return []


def breaks(scenario: str, frames: range) -> Callable[[], Iterable[HistoryPlan]]:
    """Histories with two connections that break, one after the other."""
    return lambda: (
        HistoryPlan(scenario, 0, (Break(frame), Break(frame + gap)))
        for frame in frames
        for gap in range(1, 25)
    )


# --- 1: a fetch past the end ---------------------------------------------------------------------


def old_chunks_from(
    self: ModelVersions, version: int, offset: int, chunk_bytes: int, part: None
) -> Iterable[bytes]:
    body = body_view(self.model)
    if version != self.number or offset > len(body):
        raise KeyError(version)
    if chunk_bytes < CHUNK_BYTES:
        return (chunk_message(chunk) for chunk in chunks(body, offset, chunk_bytes))
    first, rest = divmod(offset, CHUNK_BYTES)
    if rest and offset < len(body):
        raise KeyError(offset)
    return self._chunks[first:]


async def old_fetch(self: ServerLink, call: Call, length: int) -> tuple[memoryview, float] | None:
    if self._partial[0] != call.model_checksum:
        self._partial = call.model_checksum, bytearray()
    body, came_at = self._partial[1], None
    chunk_bytes = _piece_bytes(self._line.down_bps, CHUNK_BYTES)
    patience = _RetryPolicy(self._clock)
    while came_at is None or len(body) < length:
        request = pb.FetchRequest(
            version=call.base_version, offset=len(body), chunk_bytes=chunk_bytes
        )
        fetching = self._transfers.Fetch(request, metadata=self._session, wait_for_ready=True)
        try:
            await fetching.initial_metadata()
            turn = self._clock.monotonic()
            async for chunk in fetching:
                came_at = came_at or turn
                body += chunk.data
            break
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            await patience.wait_after(error_of(error), len(body))
        finally:
            fetching.cancel()
    self._partial = b"", bytearray()
    whole = memoryview(body)
    if len(whole) != length or checksum(whole) != call.model_checksum:
        raise RemoteProtocolError(f"{len(body)} bytes came with another checksum")
    return whole, came_at or self._clock.monotonic()


def test_a_fetch_past_the_end_is_found(
    simulated: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = breaks("large", range(20, 60))
    assert not violations(simulated, plans(), most=60), "the histories are fine as the code is"
    monkeypatch.setattr(ModelVersions, "chunks_from", old_chunks_from)
    monkeypatch.setattr(ServerLink, "fetch", old_fetch)
    found = violations(simulated, plans())
    assert found
    assert "another checksum" in found[0] or "stalled" in found[0]


# --- 3: half-open transfers ----------------------------------------------------------------------


@asynccontextmanager
async def old_turn(self: TransferQueue, pack: ConnectedPack, nbytes: int) -> AsyncIterator[Turn]:
    """No idle limit, and as many turns of a session as it asks for."""
    async with self._free:
        yield Turn(asyncio.timeout(None))


def test_half_open_uploads_that_block_everybody_are_found(
    simulated: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [HistoryPlan("large", seed, (Rogue("header"),)) for seed in range(3)]
    assert not violations(simulated, plans)
    monkeypatch.setattr(TransferQueue, "turn", old_turn)
    found = violations(simulated, plans)
    assert any("does not end" in line or "stalled" in line for line in found)


# --- 6: lost exceptions --------------------------------------------------------------------------


async def old_read(self: Evaluator, results: asyncio.StreamReader) -> None:
    """An exception of `done` ends the task, and nobody hears of it."""
    while line := await results.readline():
        measured = EvaluationResult.from_json(line)
        await self._done(measured)
        self._waiting.discard(measured.version)
        self._room.release()
        if not self._waiting:
            self._idle.set()


def full_ledgers() -> Iterable[HistoryPlan]:
    for write in range(2, 12):
        fault: Fault = DiskFull("ledger", write)
        yield HistoryPlan("inline", write, (fault,))


def test_an_exception_that_the_evaluator_loses_is_found(
    simulated: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not violations(simulated, full_ledgers())
    monkeypatch.setattr(Evaluator, "_read", old_read)
    found = violations(simulated, full_ledgers())
    assert any("does not end" in line or "nobody took" in line for line in found)


def test_a_failure_outside_the_rounds_that_ends_nothing_is_found(
    simulated: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [HistoryPlan("large", seed, (DiskFull("upload", 1),)) for seed in range(5)]
    assert not violations(simulated, plans)
    monkeypatch.setattr(Coordinator, "fail", lambda self, error: None)
    assert violations(simulated, plans)


# --- 7: remembered updates -----------------------------------------------------------------------


def power_cuts() -> Iterable[HistoryPlan]:
    steps, seeds = range(60, 380, 8), range(3)
    return (HistoryPlan("fedvarp", seed, (PowerCut(step),)) for step in steps for seed in seeds)


def test_updates_that_the_ledger_names_before_they_are_durable_are_found(
    simulated: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not violations(simulated, power_cuts(), most=30)

    def not_synced(self: UpdateMemory) -> list[MemoryRow]:
        rows, self._unnamed = self._unnamed, []
        return rows

    monkeypatch.setattr(UpdateMemory, "durable", not_synced)
    found = violations(simulated, power_cuts())
    assert any("is not what was committed" in line for line in found)


def test_updates_that_are_written_over_the_valid_ones_are_found(
    simulated: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [HistoryPlan("mifa", 0, (Kill("server", step),)) for step in range(150, 400)]
    assert not violations(simulated, plans, most=20)
    # One slot for each client: its old update is read before the new one is written.
    exchange = UpdateMemory._exchange

    def in_place(self: UpdateMemory, update: PendingUpdate, round: int) -> list[Term]:
        client = update.contribution.client
        terms = exchange(self, update, round)
        if len(terms) == 1:
            return terms
        old, new = (term.read(0, self._parameters) for term in reversed(terms))
        slot = 1 - self._last[client].slot
        self._last[client] = self._last[client]._replace(slot=slot)
        checksum, _ = self._write(client, slot, lambda start, stop: new[start:stop])
        self._unnamed[-1] = MemoryRow(client, round, slot, checksum)
        reads = (lambda start, stop: new[start:stop]), (lambda start, stop: old[start:stop])
        return [term._replace(read=read) for term, read in zip(terms, reads, strict=True)]

    monkeypatch.setattr(UpdateMemory, "_exchange", in_place)
    found = violations(simulated, plans)
    assert any("remembered (round, slot) are" in line for line in found)


# --- 8: a model that travels inside calls and is fetched -----------------------------------------


def test_a_fetch_that_is_answered_with_nothing_is_found(
    simulated: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaited = Pause("dev-0000..dev-0001", 10, 4.0)
    plans = [
        HistoryPlan("partial-sums", 0, (awaited, Kill("dev-0002..dev-0003", step)))
        for step in range(14, 32)
    ]
    simulated.reference("partial-sums")
    monkeypatch.setattr(ModelVersions, "chunks_from", lambda self, *asked: iter(()))
    found = violations(simulated, plans)
    assert any("came 5 times as 0 bytes" in line for line in found)


# --- secure sums ---------------------------------------------------------------------------------


def test_a_device_that_opens_two_sums_of_a_round_is_found(
    simulated: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device drops out, the others open their sum, and the server dies before it commits it."""
    drops_out = Kill("dev-0001", 25)
    plans = [
        HistoryPlan("wall-secure-sums", 0, (drops_out, Kill("server", step)))
        for step in range(150, 180, 2)
    ]
    assert not violations(simulated, plans)
    monkeypatch.setattr(OpenedSums, "may_open", lambda self, round, digest: True)
    found = violations(simulated, plans)
    assert any("helped to open two sums" in line for line in found)


# --- what the search itself is for ---------------------------------------------------------------


def test_a_device_that_counts_twice_is_found(
    simulated: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger's index refuses a second contribution of a device in a round."""
    monkeypatch.setattr(Round, "counted", lambda self: [*self.cohort, *list(self.cohort)[:1]])
    assert simulated.play(HistoryPlan("inline", 0, ())).violations


def test_a_shrunk_history_keeps_only_what_it_needs(
    simulated: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evaluator, "_read", old_read)
    plan = next(
        plan
        for short in full_ledgers()
        for plan in [replace(short, faults=(Break(3), *short.faults, Break(30, "after")))]
        if simulated.play(plan).violations
    )
    assert [type(fault) for fault in simulated.shortest(plan).faults] == [DiskFull]


def test_a_round_that_devices_hear_of_before_it_is_durable_is_found(
    simulated: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = RoundCommit.close

    async def tells_first(
        self: RoundCommit, round: Round, opened_at: float, began: float
    ) -> ClosedRound:
        closed = await close(self, round, opened_at, began)
        self._versions.committed = Commit(round.number, closed.version)
        for pack in self._receiver._fleet.packs():
            pack.send(self._versions.committed)
        return closed

    monkeypatch.setattr(RoundCommit, "close", tells_first)
    plans = [HistoryPlan("large", 0, (Kill("server", step),)) for step in range(100, 240)]
    assert any("were told" in line for line in violations(simulated, plans))
