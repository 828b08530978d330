"""Verification of gateways that run in the test's own loop, over real sockets.

Links are slow and tolerances wide: what is tested is that measurements find what is there, not how
well this machine keeps time.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from muster.common.clock import WallClock
from muster.common.credentials import GivenCredentials
from muster.common.errors import RemoteProtocolError
from muster.common.lines import LineTrace
from muster.common.rates.cross_traffic import TrafficLoad
from muster.common.rates.recording import Direction
from muster.common.shared_lines import Cell, SharedLine
from muster.common.testing import ManualClock, made_credentials
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess, Ports
from muster.emulator.gateway.control import ControlService
from muster.emulator.gateway.gateway import Gateway as Emulated
from muster.emulator.link_control.controller import Controller
from muster.emulator.link_control.running_gateway import RunningGateway
from muster.emulator.links.shape import Shape, SharedState
from muster.emulator.verification import Tolerances, verify_gateways
from muster.emulator.verification.grpc_probe import (
    GrpcBulk,
    GrpcEcho,
    ProbeIdentities,
    ProbeServer,
)
from muster.emulator.verification.measuring import (
    MeasuredLink,
    MeasuredTransfer,
    lines_of,
    measure,
)
from muster.emulator.verification.result import Row, Verification
from muster.server.rpc.probe import probe
from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc
from muster.wire import CHUNK_BYTES, TOKEN
from muster.wire.connections.calls import open_channel

HOST = "127.0.0.1"
UPSTREAM = "127.0.0.1:9"
SUPERVISOR = made_credentials("supervisor")
GATEWAY = GivenCredentials(made_credentials("gateway/g", [SUPERVISOR]))
WIDE = Tolerances(rate=0.3, rtt=0.3, rtt_s=0.1, fairness=0.7)
SHORT_S = 0.6


@dataclass
class Running:
    """A gateway as it is, and as it is told to be."""

    emulated: Emulated
    gateway: RunningGateway


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts gateways; `really` is how their links are, where that is not what is asked."""
    closing: list[Callable[[], object]] = []
    controllers: list[Controller] = []

    async def begin(
        *shapes: Shape, shared: SharedLine | None = None, really: Shape | None = None
    ) -> Running:
        def config(shapes: tuple[Shape, ...]) -> GatewayProcess:
            devices = [GatewayDevice(client=f"g-{i}", shape=s) for i, s in enumerate(shapes)]
            return GatewayProcess(
                group="g",
                seed=7,
                devices=devices,
                shared=shared or SharedLine(),
                upstream=UPSTREAM,
                ready="",
                credentials="",
            )

        clock = WallClock()
        emulated = Emulated(config((really,) * len(shapes) if really else shapes), clock)
        devices = emulated.listen()
        control = await ControlService(emulated, clock, GATEWAY).listen()
        closing.extend([control.close, emulated.close])
        ports = Ports(host=HOST, control=control.number, devices=devices)
        controllers.append(await Controller.connect(ports, SUPERVISOR, clock))
        return Running(emulated, RunningGateway(config(shapes), ports, controllers[-1]))

    yield begin
    for controller in controllers:
        await controller.close()
    for close in closing:
        close()


async def verified(*running: Running, **options: Any) -> Verification:
    options = {"seconds": SHORT_S, "tolerances": WIDE, "grpc": False, **options}
    return await verify_gateways([each.gateway for each in running], WallClock(), **options)


def rows(found: Verification) -> dict[tuple[str, str], Row]:
    return {(row.link, row.quantity): row for row in found.rows}


def wrong(found: Verification) -> list[Row]:
    """The rows that are not as asked, also those that a loaded machine leaves unjudged."""
    return [row for row in found.rows if row.ok is False]


# --- verify_gateways -----------------------------------------------------------------------------


async def test_links_that_are_what_was_asked_for_are_inside(start: Start) -> None:
    shape = Shape(up_bps=1e6, down_bps=2e6, rtt_s=0.06)
    running = await start(shape, shape, shared=SharedLine(up_bps=0.8e6))
    found = await verified(running)
    assert found.ok, found.outside
    assert [(row.link, row.quantity) for row in found.rows] == [
        ("g-0", "rtt"),
        ("g-0", "rate up"),
        ("g-0", "rate down"),
        ("g-1", "rtt"),
        ("g-1", "rate up"),
        ("g-1", "rate down"),
        ("shared", "rate up"),
        ("shared", "fairness up"),
    ]
    # Own rates are measured without the shared limit, the shared rate with it.
    told = rows(found)
    assert told["g-0", "rate up"].asked == 1e6
    assert told["shared", "rate up"].asked == pytest.approx(0.8e6)


async def test_links_that_deliver_less_are_outside(start: Start) -> None:
    asked = Shape(up_bps=2e6, down_bps=2e6, rtt_s=0.02)
    running = await start(asked, really=Shape(up_bps=2e6, down_bps=0.8e6, rtt_s=0.2))
    found = await verified(running)
    assert not found.ok
    assert {row.quantity for row in wrong(found)} == {"rtt", "rate down"}
    told = rows(found)["g-0", "rate down"]
    assert told.deviation == pytest.approx(-0.6, abs=0.1)


async def test_links_that_deliver_more_are_outside(start: Start) -> None:
    running = await start(Shape(up_bps=0.5e6), really=Shape(up_bps=2e6))
    found = await verified(running)
    assert [row.quantity for row in wrong(found)] == ["rate up"]


async def test_a_shared_limit_that_does_not_bind_is_outside(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = Shape(up_bps=1e6)
    running = await start(shape, shape, shared=SharedLine(up_bps=1e6))
    controller = running.gateway.controller
    truth = controller.set_shared

    async def twice_as_much(state: SharedState) -> None:
        await truth(state.model_copy(update={"up_factor": 2.0}))

    monkeypatch.setattr(controller, "set_shared", twice_as_much)
    found = await verified(running)
    assert [(row.link, row.quantity) for row in wrong(found)] == [("shared", "rate up")]


async def test_a_shared_link_with_bursts_and_one_queue_is_as_asked(start: Start) -> None:
    bursts = TrafficLoad(bps=2e6, on_s=0.5, off_s=0.5, seed=3)
    trace = LineTrace(direction="up", bps=4e6, loads=(bursts,))
    shared = SharedLine(
        up_bps=trace.whole().mean_bps,
        up_traces=(trace,),
        down_bps=2e6,
        queue_down_bytes=64_000,
    )
    found = await verified(await start(Shape(), Shape(), Shape(), shared=shared))
    assert found.ok, found.outside
    told = rows(found)
    assert "varies" in told["shared", "rate up"].note
    assert told["shared", "cross up"].asked is not None
    assert told["shared", "queue down"].asked == pytest.approx(0.256)


async def test_cells_limit_their_devices_and_are_lifted_while_each_is_measured(
    start: Start,
) -> None:
    cells = {"all": Cell(up_bps=3e6), "few": Cell(up_bps=1e6, within="all")}
    shapes = [Shape(up_bps=2e6, cell=cell) for cell in ("few", "few", "all", None)]
    running = await start(*shapes, shared=SharedLine(cells=cells))
    found = await verified(running)
    assert found.ok, found.outside
    assert rows(found)["g-0", "rate up"].asked == 2e6
    shared = rows(found)["shared", "rate up"]
    assert shared.asked == pytest.approx(2 * 0.5e6 + 2e6)
    assert shared.note == "3 of 4 devices at once"
    cells["few"] = Cell(up_bps=2e6, within="all")
    asked = running.gateway.config.model_copy(update={"shared": SharedLine(cells=cells)})
    other = replace(running, gateway=replace(running.gateway, config=asked))
    strict = Tolerances(rate=0.3, fairness=0.9)
    found = await verified(other, tolerances=strict)
    assert ("shared", "fairness up") in [(row.link, row.quantity) for row in wrong(found)]


async def test_a_link_that_varies_is_compared_with_what_it_allowed(start: Start) -> None:
    running = await start(Shape(up_bps=1e6, fading=1.0, fading_time_s=20.0))
    found = await verified(running)
    row = rows(found)["g-0", "rate up"]
    assert row.ok, row
    assert row.note.startswith("varies")
    assert row.asked != 1e6


async def test_a_device_that_is_offline_is_outside_and_says_why(start: Start) -> None:
    running = await start(Shape(up_bps=1e6), Shape(up_bps=1e6))
    controller = running.gateway.controller
    assert isinstance(controller, Controller)
    await controller.fault(["g-1"], "offline")
    found = await verified(running)
    assert {row.link for row in wrong(found)} == {"g-1"}
    told = rows(found)
    assert (told["g-1", "rtt"].measured, told["g-1", "rtt"].note) == (None, "the connection broke")
    assert told["g-1", "rate up"].measured == 0
    assert "the connection broke" in told["g-1", "rate up"].note


async def test_afterwards_a_gateway_is_as_it_was(start: Start) -> None:
    shape = Shape(up_bps=2e6, down_bps=2e6)
    running = await start(shape, shape, shared=SharedLine(down_bps=3e6))
    await verified(running)
    assert running.emulated.upstream == (HOST, 9)
    assert running.emulated.shapers["down"].shared.mean == 3e6 / 8
    emulated = running.emulated
    assert not any(emulated.connections_of(device) for device in emulated.devices.values())


async def test_also_when_it_was_ended_in_the_middle(start: Start) -> None:
    running = await start(Shape(up_bps=2e6), shared=SharedLine(down_bps=3e6))
    measuring = asyncio.Event()

    def show(step: str) -> None:
        if step.startswith("rates"):
            measuring.set()

    task = asyncio.create_task(verified(running, show=show))
    await measuring.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running.emulated.upstream == (HOST, 9)
    assert running.emulated.shapers["down"].shared.mean == 3e6 / 8


async def test_an_unshaped_link_is_reported_and_never_outside(start: Start) -> None:
    running = await start(Shape(), Shape())
    found = await verified(running)
    assert found.ok
    assert all(row.asked is None and row.ok is None for row in found.rows)
    # Of links without a limit, the rate of one is enough.
    assert [row.link for row in found.rows if row.quantity == "rate up"] == ["g-0"]


async def test_of_many_devices_the_same_few_are_measured_each_time(start: Start) -> None:
    running = await start(*[Shape(rtt_s=0.01)] * 20)
    first, again = await verified(running, devices=3), await verified(running, devices=3)
    links = [{row.link for row in found.rows if row.quantity == "rtt"} for found in (first, again)]
    assert links[0] == links[1]
    assert len(links[0]) == 3
    everybody = await verified(running, devices=0)
    assert sum(row.quantity == "rtt" for row in everybody.rows) == 20


@pytest.mark.soak
async def test_what_grpc_achieves_is_told_and_not_judged(start: Start) -> None:
    running = await start(Shape(up_bps=2e6, down_bps=2e6, rtt_s=0.02))
    found = await verified(running, grpc=True)
    told = rows(found)
    for quantity in ("grpc rtt", "grpc up", "grpc down"):
        row = told["g-0", quantity]
        assert row.ok is None
        assert row.tolerance is None
        assert row.measured is not None
        assert row.measured > 0


# --- Probe ---------------------------------------------------------------------------------------


async def replies(*messages: pb.ProbeMessage) -> list[pb.ProbeReply]:
    clock = ManualClock()

    async def requests() -> AsyncIterator[pb.ProbeMessage]:
        for message in messages:
            clock.advance(1.0)
            yield message

    return [reply async for reply in probe(requests(), clock)]


async def test_every_message_is_answered_in_order_with_what_has_come_so_far() -> None:
    found = await replies(
        pb.ProbeMessage(payload=b"abc"),
        pb.ProbeMessage(wanted_bytes=5),
        pb.ProbeMessage(payload=b"de", wanted_bytes=1),
    )
    assert [(r.received, r.at, len(r.payload)) for r in found] == [(3, 1, 0), (3, 2, 5), (5, 3, 1)]


async def test_nobody_gets_more_than_a_chunk_at_once() -> None:
    assert len((await replies(pb.ProbeMessage(wanted_bytes=CHUNK_BYTES)))[0].payload) == CHUNK_BYTES
    with pytest.raises(RemoteProtocolError, match=f"at most {CHUNK_BYTES} bytes"):
        await replies(pb.ProbeMessage(wanted_bytes=CHUNK_BYTES + 1))


@pytest.mark.parametrize("token", [None, b"wrong"])
async def test_who_does_not_show_the_fleets_token_is_refused(token: bytes | None) -> None:
    server = ProbeServer(ProbeIdentities.drawn(), WallClock())
    async with open_channel(await server.start(), [], None) as channel:
        metadata = () if token is None else ((TOKEN, token),)
        stub: fleet_pb2_grpc.FleetAsyncStub = fleet_pb2_grpc.FleetStub(channel)
        stream = stub.Probe(metadata=metadata)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    await server.close()


def straight_to(address: str) -> MeasuredLink:
    """A line without a gateway."""
    host, _, port = address.rpartition(":")
    ports = SimpleNamespace(host=host, devices={"a": int(port)})
    gateway: Any = SimpleNamespace(ports=ports, group="g", controller=Nothing())
    return MeasuredLink(gateway, "a", Shape())


class Nothing:
    """A controller of links of which nothing is known."""

    async def stats(self) -> dict[str, Any]:
        return {"at": 0.0, "devices": {"a": {each: {"capacity": None} for each in ("up", "down")}}}


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_transfer_over_grpc_counts_at_the_receiver(direction: Direction) -> None:
    clock, identities = WallClock(), ProbeIdentities.drawn()
    server = ProbeServer(identities, clock)
    line = straight_to(await server.start())
    flow = GrpcBulk(line, identities.device, direction, clock)
    (found,) = await measure([MeasuredTransfer(line, direction, flow, None)], 0.2, 0.1, clock)
    await server.close()
    assert not found.broken
    assert found.received_bps > 0
    assert found.allowed_bps is None


async def test_a_small_message_over_grpc_is_there_and_back() -> None:
    clock, identities = WallClock(), ProbeIdentities.drawn()
    server = ProbeServer(identities, clock)
    echo = GrpcEcho(straight_to(await server.start()), identities.device, clock)
    assert 0 < await echo.round_trip_s(patience_s=30.0) < 30.0
    await echo.close()
    await server.close()


def test_a_verification_measures_the_devices_of_its_gateway() -> None:
    config = GatewayProcess(
        group="g",
        seed=1,
        devices=[GatewayDevice(client="a"), GatewayDevice(client="b")],
        upstream=UPSTREAM,
        ready="",
        credentials="",
    )
    nobody: Any = None
    gateway = RunningGateway(config, Ports(host=HOST, control=1, devices={"a": 5, "b": 6}), nobody)
    assert [(line.client, line.host, line.port) for line in lines_of(gateway)] == [
        ("a", HOST, 5),
        ("b", HOST, 6),
    ]


async def test_packets_lost_in_one_direction_make_echoes_late_half_as_often(start: Start) -> None:
    running = await start(Shape(rtt_s=0.002, loss_up=0.2))
    found = await verified(running, seconds=3.0)  # so that a busy machine has enough echoes too
    assert found.ok, found.outside
    late = rows(found)["g-0", "late echoes"]
    assert late.asked == pytest.approx(0.2, abs=0.01)
    assert "lost up with 0.2, down 0" in late.note
