"""Runs the server of one run, from the opening of its ledger until the devices have left."""

import asyncio
import json
import logging
import math
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from muster.common.causes import outer_cause
from muster.common.clock import Clock
from muster.common.credentials import CredentialsFile, CredentialsSource
from muster.common.errors import ConfigError, MusterError, reason_of
from muster.common.events import Event, Revoked
from muster.common.files import write_atomic
from muster.common.full_disk import is_full
from muster.common.journal import Journal
from muster.common.lines import LinkModel
from muster.server.account.journal_recovery import missing_events
from muster.server.account.ledger import Connect, Ledger
from muster.server.account.run_rows import InputRow, MemberRow
from muster.server.account.store import Store
from muster.server.coordination.coordinator import Coordinator
from muster.server.coordination.shared_links import least_lines
from muster.server.evaluation.evaluator import Evaluator
from muster.server.evaluation.schedule import setup_of
from muster.server.fleet.devices import EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.metrics.opening import metrics_of, open_port
from muster.server.rpc.authentication import Authentication
from muster.server.rpc.endpoint import add_services
from muster.server.rpc.limits import CallLimits, most_connections
from muster.server.rpc.operator import OperatorService, Watchers
from muster.server.rpc.revocations import REVOKED, Revocations
from muster.server.rpc.service import FleetService
from muster.server.runtime.beside import ProcessBeside
from muster.server.settings.population import PopulationMember
from muster.server.settings.process import ServerProcess
from muster.server.strategy.driver import StrategyDriver, setup_of_strategy
from muster.server.strategy.history import STRATEGY, StrategyHistory
from muster.wire.channels import server_options
from muster.wire.transport import Transport

log = logging.getLogger("muster.server")

_FLUSH_S = 0.02
"""Seconds for which a line of the journal may wait to be written. A system call for every answer
would take 4 % of a round."""

_GOODBYE_S = 5.0
"""Seconds that devices have to end their streams after the goodbye."""


@dataclass(frozen=True)
class ServerEnvironment:
    """The environment of a server: a real machine or a simulation.

    Attributes:
        transport: returns the transport of a program with these credentials.
        connect: opens the ledger's file.
        evaluation: returns the evaluation process of a run, given the server's configuration and
            the run folder.
        on_stop_request: registers a function that is called when the server is asked to stop.
        descriptors: how many files the server may have open.
        strategy: returns the process of a run's strategy, given the run folder; None: no run has
            one.
    """

    clock: Clock
    transport: Callable[[CredentialsSource], Transport]
    connect: Connect
    evaluation: Callable[[ServerProcess, Path], ProcessBeside]
    on_stop_request: Callable[[Callable[[], None]], None]
    descriptors: int = 1 << 20
    strategy: Callable[[Path], ProcessBeside] | None = None


async def serve(folder: Path, environment: ServerEnvironment) -> int:
    """Run the server in `folder` and return its exit status.

    Args:
        folder: the run folder.

    Raises:
        MusterError, OSError, sqlite3.Error: the run could not begin.
    """
    config = ServerProcess.from_json((folder / "setup/server.json").read_bytes())
    ledger = Ledger(folder / "ledger.sqlite", environment.connect)
    try:
        return await _serve(folder, config, ledger, environment)
    except Exception:
        # Otherwise SQLite copies the log when it is released, and the checksums do not follow.
        with suppress(sqlite3.Error):
            ledger.close()
        raise


async def _serve(
    folder: Path, config: ServerProcess, ledger: Ledger, environment: ServerEnvironment
) -> int:
    clock = environment.clock
    schema = config.tensors
    incarnation = ledger.begin(
        config.run,
        members_of(config),
        clock.now(),
        len(config.population),
        config.moments,
        [InputRow(each.kind, each.name, each.sha256) for each in config.inputs],
    )
    journal = Journal(folder / "journal.jsonl", "server", incarnation, clock)
    loop = asyncio.get_running_loop()

    flushing: list[asyncio.Task[None]] = []

    def flush() -> None:
        try:
            journal.flush()
        except OSError as error:
            if not is_full(error):
                coordinator.fail(error)
            elif not flushing:
                flushing.append(loop.create_task(flush_later()))

    async def flush_later() -> None:
        async def flush_again() -> None:
            journal.flush()

        try:
            await coordinator.room.write("the journal", flush_again)
        except Exception as error:
            coordinator.fail(error)
        flushing.clear()

    watchers = Watchers(flush)
    fleet = Fleet(
        EnrolledDevice(
            member.client,
            member.group,
            index,
            member.examples,
            most_steps=math.inf if member.most_steps is None else member.most_steps,
            training_s=training_of(member),
            line=member.line or LinkModel(),
        )
        for index, member in enumerate(config.population)
        if member.enrolled
    )
    metrics = metrics_of(config, fleet.devices.values(), clock)

    def tell(event: Event, at: float | None = None) -> None:
        if not journal.waiting:
            loop.call_later(_FLUSH_S, flush)
        line = journal.add(event, at)
        if watchers.queues:
            watchers.show(line)
        if metrics is not None and at is None:  # else it happened before this server began
            metrics.show(event)
        if isinstance(event, Revoked):
            flush()

    store = Store(folder / "models", ledger, schema)
    strategy = strategy_of(config, folder, environment)
    coordinator = Coordinator(config, schema, fleet, ledger, store, folder, clock, tell, strategy)
    if incarnation > 1:
        for at, event in missing_events(folder / "journal.jsonl", ledger):
            tell(event, at)
    coordinator.load(schema.flatten(load_file(folder / "setup/initial.safetensors")))
    evaluator = Evaluator(
        setup_of(config), coordinator.evaluations.done, environment.evaluation(config, folder)
    )
    await evaluator.start()
    lines = least_lines(config.shared, fleet, config.server.transfers)
    source = CredentialsFile(folder / config.credentials)
    transport = environment.transport(source)
    connections = most_connections(len(source.current().callers), environment.descriptors)
    server = transport.server(server_options(lines.values(), connections))
    authentication = Authentication(source, fleet, Revocations(folder / REVOKED))
    fleet.revoke(authentication.revoked_clients())
    service = FleetService(coordinator, clock, authentication)
    looking = asyncio.create_task(coordinator.patience.watch())
    operator = OperatorService(coordinator, service, authentication, watchers, incarnation, clock)
    add_services(server, service, operator, authentication, CallLimits(clock))
    port = listen(transport, server, config)
    scraped = None if metrics is None else await open_port(config, metrics, source, clock)
    environment.on_stop_request(lambda: coordinator.stop("stopped", "asked by a signal"))
    await server.start()
    # Processes that wait for the server read this file. It is written only when the port answers.
    host, _, seen_port = (config.outside or f"{config.host}:{port}").rpartition(":")
    address = {"host": host, "port": int(seen_port), "pid": os.getpid()}
    write_atomic(folder / "address.json", json.dumps(address).encode())
    try:
        status, detail = await coordinator.run(evaluator)
    except Exception as error:
        expected = isinstance(error, MusterError) or outer_cause(error)
        log.error("%s", reason_of(error), exc_info=None if expected else error)
        status, detail = "failed", reason_of(error)
    status, _ = await coordinator.finish(status, detail, _peak_rss_mib(), journal.flush)
    watchers.ended.set()
    await _wait_until_all_left(fleet, clock)
    await server.stop(grace=1.0)
    if scraped is not None:
        scraped.close()
        await scraped.wait_closed()
    await evaluator.close()
    if strategy is not None:
        await strategy.close()
    for task in (looking, *flushing):
        task.cancel()
    coordinator.close()
    with suppress(OSError):  # a full disk; `finish` has reported it
        journal.close()
    ledger.close()
    return 1 if status == "failed" else 0


def training_of(member: PopulationMember) -> tuple[float, float] | None:
    """The least and the most modelled seconds of a device's training; None: not known."""
    time = member.training_time
    return None if time is None else (time.least_s, time.most_s)


def strategy_of(
    config: ServerProcess, folder: Path, environment: ServerEnvironment
) -> StrategyDriver | None:
    """Return the driver of the run's strategy; None if a rule makes the versions."""
    if not config.server.aggregator.runs_strategy():
        return None
    if environment.strategy is None:
        raise ConfigError("server.aggregator: a strategy needs a process beside the server")
    history = StrategyHistory(folder / STRATEGY)
    return StrategyDriver(setup_of_strategy(config), environment.strategy(folder), history)


def members_of(config: ServerProcess) -> Iterator[MemberRow]:
    """Yield the ledger's rows of the devices that the server knows before they enroll."""
    for position, member in enumerate(config.population):
        if member.enrolled or config.server.information == "full":
            yield MemberRow(
                member.client,
                member.group,
                position,
                member.examples,
                member.enrolled,
                None if member.z is None else json.dumps(member.z, sort_keys=True),
            )


def listen(transport: Transport, server: Any, config: ServerProcess) -> int:
    """Bind the port of the run.

    Raises:
        ConfigError: the port is taken, the host is not an address of this machine, or it may not be
            listened at without TLS.
    """
    address = f"{config.host}:{config.port}"
    try:
        port = transport.listen(server, address)
    except RuntimeError:
        port = 0
    if not port:
        raise ConfigError(
            f"{address} is in use or not an address of this machine; choose another "
            f"server.port, or 0 for any free one"
        )
    return port


async def _wait_until_all_left(fleet: Fleet, clock: Clock) -> None:
    limit = clock.monotonic() + _GOODBYE_S
    while fleet.present and clock.monotonic() < limit:
        await clock.sleep_until(clock.monotonic() + 0.01)


def _peak_rss_mib() -> float:
    """Return the peak memory of this process in MiB.

    getrusage is not used, because its value survives exec and so includes the parent's memory.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
