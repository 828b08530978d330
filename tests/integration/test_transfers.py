"""Transfers over links that break: a real server, a real gateway, a real device's link."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
from tests.integration.conftest import FLEET

from muster.client.connection.attendance import Attendance
from muster.client.connection.link import ServerLink
from muster.common.clock import WallClock
from muster.common.errors import TransportError
from muster.common.exchange import Call, Fingerprint, Identity, Observation, Outcome, Reason, Update
from muster.common.lines import LinkModel
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess
from muster.emulator.gateway.faults import Fault
from muster.emulator.gateway.gateway import Gateway
from muster.emulator.gateway.rates import model_of
from muster.emulator.links.shape import Shape
from muster.wire import UPLOAD_BYTES
from muster.wire.bodies import checksum

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

MEBI = 1 << 20
FIVE_MEBI = 5 * MEBI // 4
"""Parameters of a body of 5 MiB."""


@asynccontextmanager
async def gateway(port: int, shape: Shape | None = None) -> AsyncIterator[Gateway]:
    config = GatewayProcess(
        group="g",
        seed=7,
        devices=[GatewayDevice(client=client, shape=shape or Shape()) for client in "ab"],
        upstream=f"127.0.0.1:{port}",
        ready="",
        credentials="",
    )
    found = Gateway(config, WallClock())
    try:
        yield found
    finally:
        found.close()


@asynccontextmanager
async def linked(
    port: int, client: str, line: LinkModel | None = None
) -> AsyncIterator[ServerLink]:
    link = ServerLink(f"127.0.0.1:{port}", FLEET.shown, WallClock(), line or LinkModel())
    await link.enroll([Identity(client, 10)], Fingerprint("test", "test", "cpu", 1))
    try:
        yield link
    finally:
        await link.close()


async def called(world: World, link: ServerLink) -> tuple[Attendance, Call]:
    """The call of a device's first round, and the stream over which it came."""
    attendance = link.attend()
    await world.attend("b")  # a round waits until the fleet is there
    while not (message := await attendance.read()).calls:
        pass
    return attendance, message.calls[0]


def an_update(call: Call, parameters: int) -> tuple[Update, bytes]:
    body = np.arange(parameters, dtype="<f4").tobytes()
    return Update(call.key, 10, checksum(body), len(body), 0.0, 0.0, 0.5), body


def cut_every(nbytes: int, direction: Literal["up", "down"]) -> Fault:
    return Fault(fault="limit", direction=direction, bytes=nbytes)


async def test_an_update_over_a_link_that_is_cut_again_and_again_arrives_once(
    world: MakeWorld,
) -> None:
    w = await world(parameters=FIVE_MEBI)
    async with gateway(w.port) as way:
        ports = way.listen()
        async with linked(ports["a"], "a") as link:
            _stream, call = await called(w, link)
            way.fault(way.select_devices(["a"]), cut_every(MEBI, "up"))
            before = way.stats()["devices"]["a"]["up"]["bytes"]
            update, body = an_update(call, FIVE_MEBI)
            receipt = await link.submit(update, body)
            assert receipt.outcome is Outcome.ACCEPTED
            sent = way.stats()["devices"]["a"]["up"]["bytes"] - before
            assert [event["client"] for event in w.events if event["event"] == "received"] == ["a"]
            # A connection carries 1 MiB of the 5 MiB, so an upload that began anew after a cut
            # would never end. How much is sent twice depends on how fast the server reads.
            assert sent // MEBI >= 5
            again = await link.submit(update, body)
            assert again.outcome is Outcome.ACCEPTED, "the same body gets the same receipt"


async def test_an_upload_goes_on_in_the_devices_next_session(world: MakeWorld) -> None:
    w = await world(parameters=FIVE_MEBI)
    async with gateway(w.port, Shape(up_bps=40e6)) as way:
        ports = way.listen()

        def up() -> int:
            return int(way.stats()["devices"]["a"]["up"]["bytes"])

        async with linked(ports["a"], "a") as link:
            _stream, call = await called(w, link)
            sending = asyncio.create_task(link.submit(*an_update(call, FIVE_MEBI)))
            clock = WallClock()
            while up() < 3 * MEBI:
                await clock.sleep_until(clock.monotonic() + 0.002)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            before = up()
            # It comes back as after a reset of everything: another session, another attempt.
            await link.enroll([Identity("a", 10)], Fingerprint("test", "test", "cpu", 1))
            again = link.attend()
            while not (message := await again.read()).calls:
                pass
            (second,) = message.calls
            assert second.key.attempt == 2
            receipt = await link.submit(*an_update(second, FIVE_MEBI))
            assert receipt.outcome is Outcome.ACCEPTED
            assert up() - before < 3 * MEBI


async def test_an_upload_that_its_round_cut_off_is_late(world: MakeWorld) -> None:
    w = await world(parameters=FIVE_MEBI, clock="wall", deadline_s=1.0, rounds=2)
    async with gateway(w.port, Shape(up_bps=4e6)) as way:
        ports = way.listen()
        async with linked(ports["a"], "a") as link:
            stream, call = await called(w, link)
            sending = asyncio.create_task(link.submit(*an_update(call, FIVE_MEBI)))
            while not (message := await stream.read()).receipts:
                pass
            link.judged(message.receipts[0])  # otherwise it would send all of it
            receipt = await sending
            assert (receipt.outcome, receipt.reason) == (Outcome.LATE, Reason.DEADLINE)
        w.coordinator.stop("stopped", "enough")
        await w.finish()
    assert w.outcomes() == [("a", "late", "deadline")]
    with sqlite3.connect(w.folder / "ledger.sqlite") as ledger:
        [(ending, nbytes)] = ledger.execute("SELECT ending, bytes FROM transfers").fetchall()
        assert ledger.execute("SELECT bytes_up FROM contributions").fetchall() == [(nbytes,)]
    ledger.close()
    assert ending == "cut off"
    assert 0 < nbytes < FIVE_MEBI * 4


async def test_an_upload_that_outlasts_several_rounds_is_late_in_its_own(world: MakeWorld) -> None:
    # Its first chunk has come after half a second, and three rounds. On a busy machine it takes
    # longer, so there are more rounds than will be played.
    w = await world(parameters=100_000, clock="wall", deadline_s=0.15, rounds=100_000)
    async with gateway(w.port, Shape(up_bps=4e6)) as way:
        ports = way.listen()
        async with linked(ports["a"], "a") as link:
            _stream, call = await called(w, link)
            receipt = await link.submit(*an_update(call, 100_000))
            assert (receipt.outcome, receipt.reason) == (Outcome.LATE, Reason.DEADLINE)
            assert w.coordinator.receiver.round is not None
            assert w.coordinator.receiver.round.number > 2
        w.coordinator.stop("stopped", "enough")
        assert await w.finish() == ("stopped", "enough")
    with sqlite3.connect(w.folder / "ledger.sqlite") as ledger:
        rows = ledger.execute("SELECT round, base_version, outcome FROM contributions").fetchall()
    ledger.close()
    assert rows == [(1, 0, "late")]


async def test_a_model_over_a_link_that_is_cut_again_and_again_arrives_whole(
    world: MakeWorld,
) -> None:
    w = await world(parameters=FIVE_MEBI)
    # What it expects of its link makes a device ask for small chunks; the link itself is quick.
    slow = LinkModel(down_bps=1e6)
    async with gateway(w.port) as way:
        ports = way.listen()
        async with linked(ports["a"], "a", slow) as link:
            _stream, call = await called(w, link)
            way.fault(way.select_devices(["a"]), cut_every(MEBI, "down"))
            fetched = await link.fetch(call, FIVE_MEBI * 4)
            assert fetched is not None
            body, _ = fetched
            assert checksum(body) == call.model_checksum


async def test_a_transfer_that_gets_no_further_is_given_up(world: MakeWorld) -> None:
    w = await world(parameters=FIVE_MEBI)
    async with gateway(w.port) as way:
        ports = way.listen()
        async with linked(ports["a"], "a") as link:
            _stream, call = await called(w, link)
            # Less than a chunk: nothing ever arrives whole.
            way.fault(way.select_devices(["a"]), cut_every(UPLOAD_BYTES // 2, "up"))
            with pytest.raises(TransportError):
                await link.submit(*an_update(call, FIVE_MEBI))


async def test_an_update_whose_receipt_was_lost_is_sent_again_and_counts_once(
    world: MakeWorld,
) -> None:
    # It fits into a window, since no word that would widen it comes back.
    parameters = MEBI // 32
    w = await world(parameters=parameters)
    async with gateway(w.port, Shape(up_bps=4e6)) as way:
        ports = way.listen()
        async with linked(ports["a"], "a") as link:
            _stream, call = await called(w, link)
            before = way.stats()["devices"]["a"]["up"]["bytes"]
            sending = asyncio.create_task(link.submit(*an_update(call, parameters)))
            clock = WallClock()
            # Once some of it went up the device has been told that it is its turn.
            while way.stats()["devices"]["a"]["up"]["bytes"] < before + parameters:
                await clock.sleep_until(clock.monotonic() + 0.002)
            way.fault(way.select_devices(["a"]), Fault(fault="cut", direction="down"))
            await w.until("received", client="a")
            assert not sending.done(), "the receipt cannot have come"
            way.heal(way.select_devices(["a"]), None)
            assert (await sending).outcome is Outcome.ACCEPTED
            assert len([event for event in w.events if event["event"] == "received"]) == 1


async def test_a_heartbeat_passes_a_saturating_upload(world: MakeWorld) -> None:
    w = await world(parameters=MEBI // 8)
    # Half a mebibyte takes four seconds; the heartbeat waits for a slice of it, not for its end.
    shape = Shape(up_bps=1e6)
    async with gateway(w.port, shape) as way:
        ports = way.listen()
        async with linked(ports["a"], "a", model_of(shape)) as link:
            attendance, call = await called(w, link)
            before = way.stats()["devices"]["a"]["up"]["bytes"]
            sending = asyncio.create_task(link.submit(*an_update(call, MEBI // 8)))
            clock, device = WallClock(), w.coordinator.fleet.devices["a"]
            while way.stats()["devices"]["a"]["up"]["bytes"] < before + MEBI // 32:
                await clock.sleep_until(clock.monotonic() + 0.002)
            await attendance.heartbeat([Observation("a", None, ())])
            while device.seen is None:
                await clock.sleep_until(clock.monotonic() + 0.002)
            assert not sending.done()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
