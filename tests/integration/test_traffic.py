"""The account of bytes: what the ledger says has travelled is what the gateway has passed on."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from tests.integration.conftest import FLEET

from muster.client.connection.attendance import Attendance
from muster.client.connection.link import ServerLink
from muster.common.clock import WallClock
from muster.common.errors import TransportError
from muster.common.exchange import Answer, Call, Decision, Fingerprint, Identity, Update
from muster.common.lines import LinkModel
from muster.common.masks import Width
from muster.common.shared_lines import SharedLine
from muster.emulator.following.run_progress import RunProgress
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess
from muster.emulator.gateway.faults import Fault
from muster.emulator.gateway.gateway import Gateway
from muster.emulator.links.shape import Shape
from muster.server.settings.process import GroupMask
from muster.v1 import fleet_pb2 as pb
from muster.wire import UPLOAD_BYTES
from muster.wire.bodies import checksum

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

LARGE = 20_000
"""Parameters of a body of 80,000 bytes, which travels in chunks."""

SMALL = 1_000
"""Parameters of a body that travels inside other messages."""

MEBI = 1 << 20

# What HTTP/2 and gRPC add to bodies in one direction, at most, by its causes.
CONNECTION_BYTES = 1024
"""Preface, settings and window of a connection, and the call Enroll or Attend over it."""

CALL_BYTES = 512
"""Headers or trailers of Fetch or Submit, and the message that is no chunk."""

CHUNK_BYTES = 64
"""Of a chunk: the frame's 9 bytes, gRPC's 5 and protobuf's 8; in the other direction two window
updates of 13 bytes and a ping of 17."""

BREAK_BYTES = 2 * UPLOAD_BYTES
"""Where a connection breaks: the chunk that breaks off, of which neither end knows anything, and a
window of what had come and was not read yet."""

LEAST_CHUNK_BYTES = 16 << 10
"""Devices send no smaller chunks but the last."""

MESSAGE_BYTES = 256
"""A message of Attend: calls, answers, receipts, heartbeats, and what acknowledges it."""


@dataclass
class Device:
    """A device that obeys: it fetches the model and sends an update, as the program of one does.

    Attributes:
        update: makes the update of a call, and its body.
    """

    link: ServerLink
    update: Callable[[Call], tuple[Update, bytes] | None]
    model_bytes: int
    messages: int = 0
    fetched: list[Call] = field(default_factory=list)
    calls: asyncio.Queue[Call] = field(default_factory=asyncio.Queue)

    async def live(self) -> None:
        attendance = self.link.attend()
        working = asyncio.create_task(self.work(attendance))
        try:
            while (message := await attendance.read()).goodbye is None:
                self.messages += 1
                for receipt in message.receipts:
                    self.link.judged(receipt)
                for call in message.calls:
                    self.calls.put_nowait(call)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        with suppress(TransportError):
            await attendance.leave()

    async def work(self, attendance: Attendance) -> None:
        while True:
            call = await self.calls.get()
            if self.model_bytes == 4 * SMALL:
                if made := self.update(call):
                    await attendance.answer(
                        [(Answer(call.key, Decision.ACCEPT, update=made[0]), made[1])]
                    )
                else:
                    await attendance.answer([(Answer(call.key, Decision.DECLINE), b"")])
                continue
            clock = WallClock()
            at, asked = clock.now(), clock.monotonic()
            if (fetched := await self.link.fetch(call, self.model_bytes)) is None:
                continue
            wait_s, seconds = fetched[1] - asked, clock.monotonic() - asked
            self.fetched.append(call)
            if made := self.update(call):
                update = made[0]._replace(fetched_at=at, fetch_wait_s=wait_s, fetch_s=seconds)
                await self.link.submit(update, made[1])


def right(parameters: int) -> Callable[[Call], tuple[Update, bytes]]:
    body = np.arange(parameters, dtype="<f4").tobytes()
    return lambda call: (Update(call.key, 10, checksum(body), len(body), 0.0, 0.0, 0.5), body)


def none(call: Call) -> None:
    """A device that leaves before it has trained."""


@dataclass
class Run:
    """A run of devices a and b behind a gateway, and what is left of it."""

    world: World
    gateway: Gateway
    devices: dict[str, Device]

    def query(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.world.folder / "ledger.sqlite")) as ledger:
            return ledger.execute(sql).fetchall()

    def traffic(self) -> dict[str, int]:
        """Bytes that the ledger says have travelled."""
        totals = "(SELECT sum({0}) FROM rounds) + (SELECT {0} FROM run)"
        up, down = (totals.format(name) for name in ("bytes_up", "bytes_down"))
        return dict(zip(("up", "down"), self.query(f"SELECT {up}, {down}")[0], strict=True))

    def transferred(self) -> dict[str, int]:
        """Bytes of all transfers."""
        rows = self.query("SELECT direction, sum(bytes) FROM transfers GROUP BY direction")
        return {"up": 0, "down": 0} | dict(rows)

    def passed(self) -> dict[str, int]:
        """Bytes that the gateway has passed on."""
        devices = self.gateway.stats()["devices"].values()
        return {way: sum(device[way]["bytes"] for device in devices) for way in ("up", "down")}

    def overhead(self) -> int:
        """Bytes that the protocol adds in one direction, at most."""
        connections = self.gateway.opened
        transfers: int
        updates: int
        [[transfers]] = self.query("SELECT count(*) FROM transfers")
        [[updates]] = self.query("SELECT count(*) FROM contributions")
        chunks = math.ceil(sum(self.transferred().values()) / LEAST_CHUNK_BYTES) + transfers
        messages = 2 * sum(device.messages for device in self.devices.values())
        calls = 2 * (transfers + updates)  # each may be asked for once more, to learn the offset
        return (
            connections * CONNECTION_BYTES
            + calls * CALL_BYTES
            + chunks * CHUNK_BYTES
            + messages * MESSAGE_BYTES
        )

    def breaks(self) -> dict[str, int]:
        """Transfers that broke."""
        broken = "SELECT direction, count(*) FROM transfers WHERE ending = 'broken'"
        return {"up": 0, "down": 0} | dict(self.query(f"{broken} GROUP BY direction"))

    def check(self) -> None:
        """Whoever counts comes to the same totals."""
        traffic, passed, breaks = self.traffic(), self.passed(), self.breaks()
        for way in ("up", "down"):
            lost_bytes = breaks[way] * BREAK_BYTES
            assert 0 <= passed[way] - traffic[way] <= self.overhead() + lost_bytes
        told = RunProgress()
        for event in self.world.events:
            told.happen({"at": 0.0, **event})
        assert {"up": told.bytes_up, "down": told.bytes_down} == traffic


@asynccontextmanager
async def fleet(
    world: World,
    parameters: int = LARGE,
    shape: Shape | None = None,
    shared: SharedLine | None = None,
    line: LinkModel | None = None,
    **updates: Callable[[Call], tuple[Update, bytes] | None],
) -> AsyncIterator[Run]:
    """Devices a and b behind a gateway, until the server says goodbye.

    Args:
        line: what the devices expect of their links.
        updates: what a device makes of a call, by its name.
    """
    config = GatewayProcess(
        group="g",
        seed=7,
        devices=[GatewayDevice(client=client, shape=shape or Shape()) for client in "ab"],
        shared=shared or SharedLine(),
        upstream=f"127.0.0.1:{world.port}",
        ready="",
        credentials="",
    )
    gateway = Gateway(config, WallClock())
    async with AsyncExitStack() as stack:
        stack.callback(gateway.close)
        ports, devices = gateway.listen(), {}
        for client in "ab":
            link = ServerLink(
                f"127.0.0.1:{ports[client]}", FLEET.shown, WallClock(), line or LinkModel()
            )
            stack.push_async_callback(link.close)
            await link.enroll([Identity(client, 10)], Fingerprint("test", "test", "cpu", 1))
            update = updates.get(client, right(parameters))
            devices[client] = Device(link, update, 4 * parameters)
        lives = [asyncio.create_task(device.live()) for device in devices.values()]
        yield Run(world, gateway, devices)
        await asyncio.gather(*lives)


async def test_uploads_that_their_rounds_cut_off_are_counted_as_far_as_they_came(
    world: MakeWorld,
) -> None:
    # Alone an update takes 1.3 s, and the deadline is 1: whatever the machine, all are late.
    w = await world(parameters=LARGE, clock="wall", deadline_s=1.0, rounds=3)
    shared = SharedLine(up_bps=4.8e5)
    async with fleet(w, shared=shared, line=LinkModel(up_bps=2.4e5)) as run:
        assert (await w.finish())[0] == "completed"
    run.check()
    assert run.traffic() == run.transferred()
    cut_off = run.query("SELECT round, client, bytes FROM transfers WHERE ending = 'cut off'")
    assert {client for _, client, _ in cut_off} == {"a", "b"}
    assert all(nbytes > 0 for _, _, nbytes in cut_off)
    # An update and its transfers say the same. Others were judged before any of them was sent.
    for round, client, nbytes in cut_off:
        of_it = f"WHERE round = {round} AND client = '{client}'"
        assert run.query(f"SELECT sum(bytes_up) FROM contributions {of_it}") == [(nbytes,)]
    assert {outcome for _, outcome, _ in w.outcomes()} == {"late"}
    up, down = run.query("SELECT sum(bytes_up), sum(bytes_down) FROM contributions")[0]
    assert up == run.transferred()["up"]
    # A busy machine may have fetched a model and not begun to send the update of its round.
    assert down <= run.transferred()["down"]


async def test_updates_that_the_goal_left_out_are_counted_with_those_that_count(
    world: MakeWorld,
) -> None:
    w = await world(parameters=LARGE, clock="wall", deadline_s=60.0, goal=1, rounds=6)
    shared = SharedLine(up_bps=4e6)
    async with fleet(w, shared=shared, line=LinkModel(up_bps=2e6)) as run:
        assert (await w.finish())[0] == "completed"
    run.check()
    assert run.traffic() == run.transferred()
    [[folded]] = run.query("SELECT count(*) FROM contributions WHERE outcome = 'folded'")
    assert folded == 6
    [[useful]] = run.query("SELECT sum(bytes_up) FROM contributions WHERE outcome = 'folded'")
    assert useful == folded * 4 * LARGE


async def test_what_was_sent_again_is_counted_where_it_was_sent(world: MakeWorld) -> None:
    parameters = 5 * MEBI // 4
    w = await world(parameters=parameters)
    # What they expect of their links makes them ask for small chunks.
    slow = LinkModel(down_bps=1e6)
    async with fleet(w, parameters, line=slow) as run:
        cut = [Fault(fault="limit", direction=way, bytes=MEBI) for way in ("up", "down")]
        for fault in cut:
            run.gateway.fault(run.gateway.select_devices(["a"]), fault)
        assert (await w.finish())[0] == "completed"
    assert min(run.breaks().values()) >= 4  # a connection carries one mebibyte of five
    run.check()
    assert run.traffic() == run.transferred()
    sent = "SELECT client, direction, sum(bytes) FROM transfers GROUP BY client, direction"
    for client, _, nbytes in run.query(sent):
        assert (nbytes == 4 * parameters) if client == "b" else (nbytes >= 4 * parameters)
    assert run.query("SELECT bytes_up, bytes_down FROM contributions WHERE client = 'b'") == [
        (4 * parameters, 4 * parameters)
    ]


SLICES = {"g": GroupMask(masking=Width(kind="width"), capacity=0.5)}
"""Devices download and train the first half of the model."""


async def test_slices_that_break_are_resumed_and_counted(world: MakeWorld) -> None:
    half = 5 * MEBI // 4
    w = await world(parameters=2 * half, masks=SLICES, aggregator="fedplt", rounds=2)
    slow = LinkModel(down_bps=1e6)
    async with fleet(w, half, line=slow) as run:
        cut = [Fault(fault="limit", direction=way, bytes=MEBI) for way in ("up", "down")]
        for fault in cut:
            run.gateway.fault(run.gateway.select_devices(["a"]), fault)
        assert (await w.finish())[0] == "completed"
    assert min(run.breaks().values()) >= 4
    run.check()
    assert run.traffic() == run.transferred()
    assert run.query("SELECT bytes_up, bytes_down FROM contributions WHERE client = 'b'") == [
        (4 * half, 4 * half), (4 * half, 4 * half),
    ]  # fmt: skip
    model = w.coordinator.versions.model
    assert np.count_nonzero(model[:half]) == half - 1, "the first entry of updates is 0"
    assert not model[half:].any()


async def test_small_slices_are_counted(world: MakeWorld) -> None:
    w = await world(parameters=2 * SMALL, masks=SLICES, aggregator="fedplt", rounds=3)
    async with fleet(w, SMALL) as run:
        assert (await w.finish())[0] == "completed"
    run.check()
    assert run.traffic() == {"up": 6 * 4 * SMALL, "down": 6 * 4 * SMALL}


async def test_a_slice_is_sent_only_for_an_open_call_of_the_same_process(world: MakeWorld) -> None:
    w = await world(parameters=2 * LARGE, masks=SLICES, aggregator="fedplt")
    a, _ = await w.both()
    for client, round in (("", 0), ("a", 2), ("b", 1), ("nobody", 1)):
        request = pb.FetchRequest(version=0, client=client, round=round)
        call = a.stub.Fetch(request, metadata=a.metadata)
        assert await call.code() is grpc.StatusCode.NOT_FOUND
    call = a.stub.Fetch(pb.FetchRequest(client="a", round=1), metadata=a.metadata)
    assert sum([len(chunk.data) async for chunk in call]) == 4 * LARGE
    beyond = pb.FetchRequest(client="a", round=1, offset=4 * LARGE + 4, chunk_bytes=4096)
    call = a.stub.Fetch(beyond, metadata=a.metadata)
    assert await call.code() is grpc.StatusCode.OUT_OF_RANGE


async def test_models_that_no_update_came_of_are_counted(world: MakeWorld) -> None:
    w = await world(parameters=LARGE, clock="wall", deadline_s=0.5, rounds=2)
    async with fleet(w, a=none) as run:
        assert (await w.finish())[0] == "completed"
    run.check()
    assert run.traffic() == run.transferred()
    assert run.transferred()["down"] == 4 * 4 * LARGE
    assert run.transferred()["up"] == 2 * 4 * LARGE
    assert run.query("SELECT DISTINCT client FROM contributions") == [("b",)]
    [[seconds]] = run.query("SELECT min(seconds) FROM transfers WHERE client = 'a'")
    assert seconds > 0  # as the server saw it


@pytest.mark.parametrize("clock", ["rounds", "wall"])
async def test_small_models_and_updates_are_counted_too(world: MakeWorld, clock: str) -> None:
    w = await world(parameters=SMALL, clock=clock, rounds=3)
    async with fleet(w, SMALL, a=lambda call: None) as run:
        assert (await w.finish())[0] == "completed"
    run.check()
    body = 4 * SMALL
    assert run.traffic() == {"up": 3 * body, "down": 6 * body}
    assert run.transferred() == {"up": 0, "down": 0}
    assert run.query("SELECT client, bytes_down FROM answers WHERE round = 1 ORDER BY client") == [
        ("a", body), ("b", body),
    ]  # fmt: skip
    assert run.query("SELECT DISTINCT client, bytes_up, bytes_down FROM contributions") == [
        ("b", body, body)
    ]


async def test_updates_that_were_refused_or_came_twice_are_counted(world: MakeWorld) -> None:
    def refused(call: Call) -> tuple[Update, bytes]:
        body = np.full(LARGE, np.nan, "<f4").tobytes()
        return Update(call.key, 10, checksum(body), len(body), 0.0, 0.0, 0.5), body

    w = await world(parameters=LARGE)
    async with fleet(w, a=refused) as run:
        assert (await w.finish())[0] == "completed"
    run.check()
    assert run.traffic() == run.transferred() == {"up": 2 * 4 * LARGE, "down": 2 * 4 * LARGE}
    rows = run.query("SELECT client, outcome, bytes_up, bytes_down FROM contributions")
    assert sorted(rows) == [
        ("a", "refused", 4 * LARGE, 4 * LARGE),
        ("b", "folded", 4 * LARGE, 4 * LARGE),
    ]


async def test_when_the_account_is_closed_no_model_is_sent_that_would_not_be_counted(
    world: MakeWorld,
) -> None:
    w = await world(parameters=LARGE)
    a, _ = await w.both()
    await w.coordinator.receiver.pending.traffic.end(limit=0.0)
    call = a.stub.Fetch(pb.FetchRequest(version=0), metadata=a.metadata)
    assert await call.code() is grpc.StatusCode.UNAVAILABLE
    assert "the run has ended" in await call.details()
