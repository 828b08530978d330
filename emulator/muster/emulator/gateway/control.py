"""The control port of a gateway: requests and replies are JSON lines.

The first line of a connection has the caller's token and name, {"token": hex}. The gateway replies
{"ok": ...}, or {"error": ...} and closes the connection. With TLS, the caller's certificate must
have the same name. The supervisor may send any request in REQUESTS. The gateway replies to each in
order, {"ok": ...} or {"error": a sentence}. A refused request changes nothing.

A process of devices may ask for slots for its own devices (`slots` has the rules):

    {"do": "contend", "client", "round", "active", "of"}  ->  {"round", "client", "granted"}
    {"do": "take", "client", "round"}                     ->  {"round", "client", "taken": true}
    {"do": "give", "client", "round"}                     ->  {"round", "client", "given": true}

The gateway sends these replies once they are decided, so not always in order. If a connection
breaks, the slots that were taken over it are given back. A device that takes a slot for another
round gives back the one that it has. `muster.wire.connections.ports` limits connections.

If no controller sends a request for the time of a lease, the gateway heals itself, because a
controller that died must not leave a fleet cut off. It then ends the connections of controllers.
One that is alive after all connects again, and knows that nothing holds any more.
"""

import asyncio
import json
import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from muster.common.clock import Clock
from muster.common.config import Section
from muster.common.credentials import SUPERVISOR, Caller, Callers, CredentialsSource
from muster.common.errors import ConfigError
from muster.emulator.gateway.gateway import Gateway
from muster.emulator.gateway.requests import (
    DEVICE_REQUESTS,
    REQUESTS,
    BeginFault,
    Contend,
    Give,
    Heal,
    Hello,
    Ping,
    SetShape,
    SetShared,
    Stats,
    Take,
    Upstream,
    parse_request,
)
from muster.emulator.gateway.slots import DeviceRound, SlotAllocator
from muster.emulator.gateway.words import Word, Words
from muster.emulator.links.shape import Shape, SharedState
from muster.wire.connections.encryption import require_peer
from muster.wire.connections.ports import LinePort, Talk, listen, read_line, sentence

log = logging.getLogger("muster.gateway")

_HELLO_BYTES = 4096
_DEVICE_BYTES = 4096
_CONTROLLER_BYTES = 4 * 1024 * 1024
"""The longest first line, the longest request of a device, and that of a controller, which may name
all devices of the group."""

_SAME_S = 0.001
"""Requests for a slot within the same millisecond count as sent at the same instant."""

Say = Callable[[Mapping[str, Any]], None]


class ControlService:
    """Serves the control port of a gateway for controllers and devices.

    Args:
        source: the gateway's credentials, with the callers that it knows.
    """

    def __init__(self, gateway: Gateway, clock: Clock, source: CredentialsSource) -> None:
        self._source, self._callers = source, Callers(source)
        self._gateway, self._clock, self._config = gateway, clock, gateway.config
        self._slots = SlotAllocator(self._config.shared, self._config.seed, self._config.group)
        self._words = Words(Path(self._config.words)) if self._config.words else None
        for word in self._words.all() if self._words is not None else ():
            self._slots.contend(*word)
        self._asked: dict[tuple[str, DeviceRound], list[Say]] = {}
        self._taken: dict[DeviceRound, Say] = {}
        self._controllers: set[asyncio.StreamWriter] = set()
        self._heard = clock.monotonic()

    async def listen(self) -> LinePort:
        """Open the control port.

        Raises:
            ConfigError: it may not be opened without TLS.
            OSError: it cannot be opened.
        """
        again, host, port = self._config.again, self._config.host, self._config.first_port
        port = again.control if again else port
        return await listen(self._begin, host, port, self._source, self._clock)

    async def keep_lease(self) -> None:
        """Heal the gateway whenever no controller sends a request for a lease; never returns."""
        lease_s = self._config.lease_s
        while True:
            await self._clock.sleep_until(self._heard + lease_s)
            if self._clock.monotonic() - self._heard >= lease_s:
                self._heard = self._clock.monotonic()
                for controller in self._controllers:
                    controller.close()
                if self._gateway.restore():
                    log.warning(
                        "no controller sent a request for %g s: all faults are healed, and links "
                        "are as they were at the start",
                        lease_s,
                    )

    # -- lines ----------------------------------------------------------------------------------

    async def _begin(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, Talk]:
        """Find out by its first line who has made a connection."""
        if not (line := await read_line(reader, _HELLO_BYTES)):
            raise ConnectionResetError("the connection has ended")
        caller = self._recognise(line, writer)
        return caller.name, partial(self._talk, caller, reader, writer)

    async def _talk(
        self, caller: Caller, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        def say(reply: Mapping[str, Any]) -> None:
            if not writer.is_closing():
                writer.write(json.dumps(reply).encode() + b"\n")

        trusted = caller.name == SUPERVISOR
        answer = self._answer_controller if trusted else partial(self._answer, caller)
        most = _CONTROLLER_BYTES if trusted else _DEVICE_BYTES
        if trusted:
            self._controllers.add(writer)
        try:
            say({"ok": {"group": self._config.group}})
            while line := await read_line(reader, most):
                try:
                    answer(line, say)
                except ConfigError as error:
                    say({"error": sentence(error)})
                await writer.drain()
                await asyncio.sleep(0)  # a caller with many requests must not keep others waiting
        finally:
            self._forget(say)
            self._controllers.discard(writer)

    def _recognise(self, line: bytes, writer: asyncio.StreamWriter) -> Caller:
        """The caller of a connection, by its first line and its certificate.

        Raises:
            ConfigError: the line is not a Hello.
            Unauthenticated: the token is nobody's, or the certificate is somebody else's.
        """
        token = Hello.from_json(line).token
        try:
            shown = bytes.fromhex(token)
        except ValueError:
            raise ConfigError("token: expected hexadecimal digits, found others") from None
        caller, credentials = self._callers.recognise(shown), self._source.current()
        if credentials.tls is not None:
            require_peer(writer.get_extra_info("ssl_object"), credentials.run, caller.name)
        return caller

    # -- controllers ----------------------------------------------------------------------------

    def _answer_controller(self, line: bytes, say: Say) -> None:
        self._heard = self._clock.monotonic()
        say({"ok": self._done(parse_request(line, REQUESTS))})

    def _done(self, request: Section) -> Any:
        gateway = self._gateway
        match request:
            case Ping():
                return {"lease_s": self._config.lease_s}
            case Stats():
                return gateway.stats(request.clients)
            case SetShape():
                self._set_shape(request)
            case SetShared():
                gateway.set_shared(SharedState(**request.model_dump(exclude={"do"})))
            case BeginFault():
                gateway.fault(gateway.select_devices(request.clients), request)
            case Heal():
                devices = gateway.select_devices(request.clients)
                gateway.heal(devices, request.fault, request.direction)
            case Upstream():
                gateway.set_upstream(request.address)
        return {}

    def _set_shape(self, request: SetShape) -> None:
        devices = self._gateway.select_devices(request.clients)
        if request.shape is None:
            self._gateway.set_shapes({each.client: each.initial_shape for each in devices})
            return
        change = request.shape.model_dump(exclude_unset=True)
        if "cell" in change:
            raise ConfigError("shape.cell: a device stays in its cell; leave it out")
        self._gateway.set_shapes(
            {each.client: Shape(**{**each.shape.model_dump(), **change}) for each in devices}
        )

    # -- devices --------------------------------------------------------------------------------

    def _answer(self, caller: Caller, line: bytes, say: Say) -> None:
        request = parse_request(line, DEVICE_REQUESTS)
        if not caller.may_speak_for(request.client):
            raise ConfigError(
                f"client: {caller.name} asks for its own devices only, found {request.client!r}"
            )
        match request:
            case Contend(client=client, round=round, active=active, of=of):
                self._gateway.select_devices([client])
                if of > len(self._gateway.devices):
                    raise ConfigError(
                        f"{of} devices cannot be called: group {self._config.group!r} has "
                        f"{len(self._gateway.devices)}"
                    )
                if self._words is not None:
                    self._words.add(Word(round, client, active, of))
                listening = self._asked.setdefault(("contend", (round, client)), [])
                if say not in listening:
                    listening.append(say)
                for device_round, granted in self._slots.contend(round, client, active, of).items():
                    self._tell("contend", device_round, granted=granted)
            case Take(client=client, round=round):
                self._gateway.select_devices([client])
                self._drop_takes(client)
                self._asked[("take", (round, client))] = [say]
                self._taken[round, client] = say
                at = math.floor(self._clock.monotonic() / _SAME_S) * _SAME_S
                self._now_hold(self._slots.take(round, client, at))
            case Give(client=client, round=round):
                self._gateway.select_devices([client])
                self._taken.pop((round, client), None)
                self._asked.pop(("take", (round, client)), None)
                say({"round": round, "client": client, "given": True})
                self._now_hold(self._slots.give(round, client))

    def _drop_takes(self, client: str) -> None:
        """Forget over which connections a device has taken slots, or waits for one."""
        for device_round in [each for each in self._taken if each[1] == client]:
            del self._taken[device_round]
            self._asked.pop(("take", device_round), None)

    def _now_hold(self, holders: list[DeviceRound]) -> None:
        for device_round in holders:
            self._tell("take", device_round, taken=True)

    def _tell(self, asked: str, device_round: DeviceRound, **answer: bool) -> None:
        round, client = device_round
        for say in self._asked.pop((asked, device_round), []):
            say({"round": round, "client": client, **answer})

    def _forget(self, say: Say) -> None:
        """Remove a connection's requests, and give back the slots that were taken over it."""
        for key, listening in list(self._asked.items()):
            if say in listening:
                listening.remove(say)
            if not listening:
                del self._asked[key]
        for device_round in [device_round for device_round, by in self._taken.items() if by is say]:
            del self._taken[device_round]
            self._now_hold(self._slots.give(*device_round))
