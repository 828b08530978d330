"""The queue of transfers: whose turn it is, and what ends a turn."""

import asyncio
from collections.abc import Mapping

import pytest

from muster.common.errors import Interrupted
from muster.common.exchange import Fingerprint, Identity
from muster.common.lines import LinkModel
from muster.common.testing import ManualClock
from muster.server.fleet.devices import ConnectedPack, EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.rpc.transfers import TransferQueue, Turn
from muster.wire.channels import IN_FLIGHT_BYTES

IDLE_S = 30.0
MEBI = 1 << 20
SLOW = LinkModel(up_bps=1e6, rtt_s=0.5)


class World:
    """A queue for devices a, b and c, each with a session of its own."""

    def __init__(self, at_once: int = 1, lines: Mapping[str, LinkModel] | None = None) -> None:
        self.clock = ManualClock()
        fleet = Fleet(EnrolledDevice(client, "g", i, 10) for i, client in enumerate("abc"))
        fingerprint = Fingerprint("test", "test", "cpu", 1)
        self.packs = {client: fleet.enroll([Identity(client, 10)], fingerprint) for client in "abc"}
        self.queue = TransferQueue(
            at_once, IDLE_S, {client: (lines or {}).get(client, LinkModel()) for client in "abc"},
            self.clock,
        )  # fmt: skip

    async def begin(self, client: str, nbytes: int = MEBI) -> "Transfer":
        """Join the queue; when this returns the turn has begun, or the transfer waits."""
        transfer = Transfer(self.queue, self.packs[client], nbytes)
        await pause()
        return transfer

    async def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await pause()


class Transfer:
    """A transfer that goes on until it is told to stop.

    Attributes:
        turn: once it has come.
    """

    def __init__(self, queue: TransferQueue, pack: ConnectedPack, nbytes: int) -> None:
        self.turn: Turn | None = None
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self._run(queue, pack, nbytes))

    async def _run(self, queue: TransferQueue, pack: ConnectedPack, nbytes: int) -> None:
        async with queue.turn(pack, nbytes) as self.turn:
            await self.stop.wait()

    def move(self, clock: ManualClock) -> None:
        assert self.turn is not None
        self.turn.moved_at = clock.monotonic()

    async def ended(self) -> str:
        """Why the queue ended it."""
        with pytest.raises(Interrupted) as error:
            await self.task
        return str(error.value)


async def pause() -> None:
    """Let every task go as far as it can without the clock."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    w = World()
    a, b, c = [await w.begin(client) for client in "abc"]
    assert a.turn
    assert not b.turn
    assert not c.turn
    a.stop.set()
    await a.task
    await pause()
    assert b.turn
    assert not c.turn
    b.stop.set()
    c.stop.set()
    await asyncio.gather(b.task, c.task)


async def test_a_turn_without_new_bytes_ends_and_the_next_begins() -> None:
    w = World()
    a, b = await w.begin("a"), await w.begin("b")
    await w.wait(IDLE_S - 1)
    assert not a.task.done()
    await w.wait(1)
    assert "no new bytes for 30 s" in await a.ended()
    assert b.turn
    await w.wait(IDLE_S - 1)
    assert not b.task.done(), "its own time begins with its turn"
    b.stop.set()
    await b.task


async def test_a_turn_over_a_slow_link_may_be_idle_for_as_long_as_the_link_asks_for() -> None:
    w = World(lines={"a": SLOW})
    a = await w.begin("a")
    idle_s = IDLE_S + SLOW.patience_s(IN_FLIGHT_BYTES)
    assert idle_s > 2 * IDLE_S
    await w.wait(idle_s - 1)
    assert not a.task.done()
    await w.wait(1)
    assert "no new bytes" in await a.ended()


async def test_a_turn_in_which_bytes_move_goes_on_as_long_as_the_link_needs_for_them() -> None:
    w = World(lines={"a": SLOW})
    a = await w.begin("a", 50 * MEBI)
    most_s = IDLE_S + SLOW.patience_s(IN_FLIGHT_BYTES) + SLOW.patience_s(50 * MEBI)
    assert most_s > 10 * IDLE_S
    elapsed_s = 0.0
    while elapsed_s + IDLE_S < most_s:
        elapsed_s += IDLE_S
        await w.wait(IDLE_S)
        a.move(w.clock)
        assert not a.task.done()
    await w.wait(most_s - elapsed_s)
    assert "it took" in await a.ended(), "a byte now and then does not hold the turn for ever"


async def test_a_newer_transfer_of_a_session_ends_the_older_whether_it_waits_or_not() -> None:
    w = World()
    first, waiting = await w.begin("a"), await w.begin("b")
    newer, newest = await w.begin("b"), await w.begin("a")
    assert "a newer transfer of its session" in await waiting.ended()
    assert "a newer transfer of its session" in await first.ended()
    await pause()
    assert newer.turn
    assert not newest.turn
    newer.stop.set()
    newest.stop.set()
    await asyncio.gather(newer.task, newest.task)


async def test_a_session_that_ends_takes_its_transfer_with_it() -> None:
    w = World()
    a = await w.begin("a")
    w.queue.end(w.packs["a"], "its device enrolled again")
    w.queue.end(w.packs["a"], "a second reason")
    w.queue.end(w.packs["b"], "it has no transfer")
    assert "its device enrolled again" in await a.ended()
    b = await w.begin("b")
    assert b.turn
    b.stop.set()
    await b.task


async def test_a_call_that_is_cancelled_gives_its_turn_back() -> None:
    w = World()
    a, b = await w.begin("a"), await w.begin("b")
    a.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await a.task
    await pause()
    assert b.turn
    await w.wait(IDLE_S)
    assert "no new bytes" in await b.ended()


async def test_a_time_limit_of_the_caller_stays_its_own() -> None:
    w = World()
    with pytest.raises(TimeoutError, match="the caller's"):
        async with w.queue.turn(w.packs["a"], MEBI):
            raise TimeoutError("the caller's")
