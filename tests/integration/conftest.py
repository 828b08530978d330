"""A server in the test's own process that listens with real gRPC on 127.0.0.1."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import grpc
import numpy as np
import pytest
from tests.scripted_strategy import ScriptedStrategy

from muster.chaos.peer import Peer, enroll_request, open_channel
from muster.common.clock import Clock, WallClock
from muster.common.credentials import Credentials, CredentialsSource, GivenCredentials
from muster.common.events import Event
from muster.common.masks import UnitAxis, UnitLayer
from muster.common.shared_lines import SharedLine
from muster.common.tensors import schema_of
from muster.common.testing import made_credentials
from muster.server.account.ledger import Ledger
from muster.server.account.store import Store
from muster.server.coordination.coordinator import Coordinator
from muster.server.fleet.devices import EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.program import listen, members_of
from muster.server.rpc.authentication import Authentication
from muster.server.rpc.endpoint import add_services
from muster.server.rpc.limits import CallLimits
from muster.server.rpc.operator import OperatorService, Watchers
from muster.server.rpc.revocations import Revocations
from muster.server.rpc.service import FleetService
from muster.server.settings.population import PopulationMember
from muster.server.settings.process import GroupMask, ServerProcess, TensorShape
from muster.server.settings.server import ServerSettings
from muster.server.strategy.driver import StrategyDriver, setup_of_strategy
from muster.server.strategy.history import StrategyHistory
from muster.server.testing import NoEvaluation
from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc, operator_pb2_grpc
from muster.wire import TOKEN
from muster.wire.channels import server_options
from muster.wire.transport import GrpcTransport


def halves(parameters: int) -> list[UnitLayer]:
    """The hidden units of a model of one vector: its two halves."""
    axis = UnitAxis(tensor="w", axis=0, width=parameters // 2)
    return [UnitLayer(name="halves", units=2, axes=[axis])]


FLEET, OPERATOR = made_credentials("device/all"), made_credentials("operator", byte=1)
"""The devices of a world share their credentials, in whatever process they are."""

OPERATOR_METADATA = ((TOKEN, OPERATOR.shown),)


@dataclass
class World:
    """A running server and its parts, for a test to use and inspect."""

    coordinator: Coordinator
    server: grpc.aio.Server
    port: int
    folder: Path
    events: list[dict[str, Any]] = field(default_factory=list)
    running: asyncio.Task[tuple[str, str]] | None = None
    channels: list[grpc.aio.Channel] = field(default_factory=list)
    happened: asyncio.Condition = field(default_factory=asyncio.Condition)

    def channel(self) -> grpc.aio.Channel:
        """A new connection to the server, which is closed with the world."""
        channel = open_channel(f"127.0.0.1:{self.port}")
        self.channels.append(channel)
        return channel

    def stub(self) -> fleet_pb2_grpc.FleetAsyncStub:
        return fleet_pb2_grpc.FleetStub(self.channel())

    def operator(self) -> operator_pb2_grpc.OperatorAsyncStub:
        return operator_pb2_grpc.OperatorStub(self.channel())

    async def enroll(self, *clients: str, **changes: Any) -> pb.EnrollReply:
        """Enroll devices as one process."""
        request = enroll_request(clients, **changes)
        return await self.stub().Enroll(request, metadata=((TOKEN, FLEET.shown),))

    async def attend(self, *clients: str) -> Peer:
        """Enroll devices and open their stream. The returned peer speaks for the first of them."""
        enrolled = (await self.enroll(*clients)).enrolled
        return await Peer.attend(clients[0], enrolled, self.stub())

    async def both(self) -> tuple[Peer, Peer]:
        return await self.attend("a"), await self.attend("b")

    async def until(self, event: str, **fields: Any) -> dict[str, Any]:
        """Wait for an event of the journal with these fields; it may be past or still to come."""

        def found() -> dict[str, Any] | None:
            for line in self.events:
                if line["event"] == event and fields.items() <= line.items():
                    return line
            return None

        async with self.happened:
            await self.happened.wait_for(lambda: found() is not None)
        line = found()
        assert line is not None
        return line

    async def finish(self) -> tuple[str, str]:
        assert self.running is not None
        status = await self.running
        await self.coordinator.finish(*status, peak_rss_mib=0.0)
        return status

    def outcomes(self) -> list[tuple[str, str, str | None]]:
        """Return (client, outcome, reason) of every contribution in the ledger."""
        with sqlite3.connect(self.folder / "ledger.sqlite") as db:
            rows = db.execute("SELECT client, outcome, reason FROM contributions ORDER BY rowid")
            found = rows.fetchall()
        db.close()
        return found


MakeWorld = Callable[..., Awaitable[World]]


async def make_world(
    folder: Path,
    parameters: int = 4,
    clock: Literal["rounds", "wall"] = "rounds",
    calls_ahead: bool = False,
    training: str = "{}",
    clients: str = "ab",
    time: Clock | None = None,
    masks: Mapping[str, GroupMask] | None = None,
    credentials: Credentials | CredentialsSource | None = None,
    strategy: ScriptedStrategy | None = None,
    partial_sums: bool = False,
    limits: CallLimits | None = None,
    training_s: tuple[float, float] | None = None,
    shared: SharedLine | None = None,
    **server: Any,
) -> World:
    """Make a server for some clients, with a round under way. Keyword arguments that are not listed
    are settings of [server].

    Args:
        folder: where its ledger and models are.
        clients: the names of the clients, one letter each.
        time: the server's clock.
        masks: the masks of the group g. Its hidden units are the two halves of the model.
        strategy: makes the versions; None: a rule does.
        partial_sums: whether processes may hold updates back and send sums.
        limits: of the calls of a process; None: those of the server.
        training_s: the least and the most modelled seconds of training; None: not known.
        shared: the link that the clients share; None: they share none.
    """
    time = time or WallClock()
    schema = schema_of({"w": (parameters,)})
    settings = ServerSettings.model_validate({"rounds": 1, **server})
    config = ServerProcess(
        run="run",
        seed=1,
        clock=clock,
        server=settings,
        task="{}",
        training=training,
        population=[PopulationMember(client=client, group="g", examples=10) for client in clients],
        calls_ahead=calls_ahead,
        masks=dict(masks or {}),
        partial_sums=["g"] if partial_sums else [],
        sum_format=None
        if settings.secure is None
        else settings.secure.format(len(clients), examples=10),
        units=halves(parameters) if masks else [],
        shared={} if shared is None else {"g": shared},
        schema_=[TensorShape(name="w", shape=[parameters])],
    )
    fleet = Fleet(
        EnrolledDevice(m.client, m.group, i, m.examples, training_s=training_s)
        for i, m in enumerate(config.population)
    )
    ledger = Ledger(folder / "ledger.sqlite")
    ledger.begin("run", members_of(config), at=0.0, population=len(clients), moments={})
    store = Store(folder / "models", ledger, schema)
    watchers = Watchers()
    waking: set[asyncio.Future[None]] = set()

    def tell(event: Event) -> None:
        found.events.append({"event": event.name, **event.fields()})
        watchers.show(json.dumps(found.events[-1]).encode())
        task = asyncio.ensure_future(wake())
        waking.add(task)
        task.add_done_callback(waking.discard)

    async def wake() -> None:
        async with found.happened:
            found.happened.notify_all()

    driver = None
    if strategy is not None:
        history = StrategyHistory(folder / "strategy")
        driver = StrategyDriver(setup_of_strategy(config), strategy, history)
    coordinator = Coordinator(config, schema, fleet, ledger, store, folder, time, tell, driver)
    coordinator.load(np.zeros(parameters, np.float32))
    grpc_server = grpc.aio.server(options=server_options())
    known = credentials or made_credentials("server", [FLEET, OPERATOR], clients)
    source = GivenCredentials(known) if isinstance(known, Credentials) else known
    authentication = Authentication(source, fleet, Revocations(folder / "revoked.json"))
    service = FleetService(coordinator, time, authentication)
    operator = OperatorService(coordinator, service, authentication, watchers, 1, time)
    add_services(grpc_server, service, operator, authentication, limits or CallLimits(time))
    found = World(
        coordinator, grpc_server, listen(GrpcTransport(source), grpc_server, config), folder
    )
    await grpc_server.start()
    found.running = asyncio.create_task(coordinator.run(NoEvaluation()))  # type: ignore[arg-type]
    return found


async def end_world(found: World) -> None:
    """Stop a server."""
    assert found.running is not None
    found.coordinator.stop("stopped", "the test is over")
    await asyncio.gather(found.running, return_exceptions=True)
    for channel in found.channels:
        await channel.close()
    await found.server.stop(None)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[MakeWorld]:
    """Make servers, as `make_world` does; the default of `folder` is the test's own."""
    made: list[World] = []

    async def make(folder: Path = tmp_path, **settings: Any) -> World:
        made.append(await make_world(folder, **settings))
        return made[-1]

    yield make
    for found in made:
        await end_world(found)
