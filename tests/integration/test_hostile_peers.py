"""Hostile peers of every kind attack a server, and two devices run their rounds undisturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.integration.conftest import FLEET, OPERATOR

from muster.chaos.hostile_peers import ATTACKS, HostileDevice
from muster.client.connection.link import ServerLink
from muster.common.clock import WallClock
from muster.common.exchange import Answer, Decision, Fingerprint, Identity, Outcome, Update
from muster.common.lines import LinkModel
from muster.common.testing import made_credentials
from muster.wire import CHUNK_BYTES
from muster.wire.bodies import checksum

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

PARAMETERS = 2 * CHUNK_BYTES // 4
ROUNDS = 5
REFUSALS = {
    "half-open uploads": {"open", "UNAVAILABLE"},
    "unread downloads": {"open", "UNAVAILABLE"},
    "body after body": {"OUTCOME_RESUME"},
    "chunks out of order": {"OUTCOME_REFUSED"},
    "false lengths": {"OUTCOME_REFUSED"},
    "replays": {"OUTCOME_LATE", "OUTCOME_REFUSED"},
    "refusals without end": {"INVALID_ARGUMENT"},
    "impossible numbers": {"INVALID_ARGUMENT"},
    "other names": {"OUTCOME_REFUSED"},
    "garbage messages": {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"},
    "large requests without a token": {"UNAUTHENTICATED"},
    "enrollments without end": {"OK", "RESOURCE_EXHAUSTED"},
    "too many calls": {"RESOURCE_EXHAUSTED"},
    "compression bombs": {"RESOURCE_EXHAUSTED"},
}
"""How calls of each kind end; some of each kind must."""


async def device(w: World, client: str, struck: Collection[asyncio.Event]) -> None:
    """A device that does as it should, with the client's own link, until the goodbye. It is there
    for the last round when all attackers have struck."""
    clock = WallClock()
    link = ServerLink(f"127.0.0.1:{w.port}", FLEET.shown, clock, LinkModel())
    await link.enroll([Identity(client, 10)], Fingerprint("test", "test", "cpu", 1))
    attendance = link.attend()
    while (message := await attendance.read()).goodbye is None:
        for call in message.calls:
            if call.key.round == ROUNDS:
                await asyncio.gather(*(attack.wait() for attack in struck))
            fetched = await link.fetch(call, w.coordinator.schema.body_bytes)
            assert fetched is not None
            model = np.frombuffer(fetched[0], "<f4")
            body = (ord(client) - model / 2).astype("<f4").tobytes()
            await attendance.answer([(Answer(call.key, Decision.ACCEPT), b"")])
            update = Update(call.key, 10, checksum(body), len(body), 0.0, 0.0, 0.5)
            receipt = await link.submit(update, body)
            assert receipt.outcome is Outcome.ACCEPTED
    await attendance.leave()
    await link.close()


async def model_of_run(world: MakeWorld, folder: Path, kinds: Sequence[str], clock: str) -> bytes:
    """The model with which a run of devices a and b ends, beside a hostile device of each kind."""
    (folder / "models").mkdir(parents=True)
    names = dict(zip(kinds, ascii_lowercase[2:], strict=False))
    credentials = {
        name: made_credentials(f"device/{name}", byte=ord(name)) for name in names.values()
    }
    clients = "ab" + "".join(names.values())
    w = await world(
        parameters=PARAMETERS,
        clients=clients,
        clock=clock,
        folder=folder,
        credentials=made_credentials("server", [FLEET, OPERATOR, *credentials.values()], clients),
        rounds=ROUNDS,
        goal=None if clock == "rounds" else 2,
        transfers=4,
        heartbeat_s=3600,
    )
    hostile = [
        HostileDevice(kind, name, credentials[name].shown, w.channel, WallClock(), others="ab")
        for kind, name in names.items()
    ]
    attacks = [asyncio.create_task(each.play()) for each in hostile]
    devices = [
        asyncio.create_task(device(w, client, [each.struck for each in hostile])) for client in "ab"
    ]
    assert await w.finish() == ("completed", f"{ROUNDS} rounds")
    await asyncio.gather(*devices)
    for task in attacks:
        task.cancel()
    await asyncio.gather(*attacks, return_exceptions=True)
    folded = [client for client, outcome, _ in w.outcomes() if outcome == "folded"]
    assert sorted(folded) == sorted("ab" * ROUNDS)
    if clock == "rounds":  # otherwise a round may close before an attack is over
        for each in hostile:
            assert REFUSALS[each.kind] & each.answers.keys(), (each.kind, each.answers)
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("clock", ["rounds", "wall"])
async def test_a_run_beside_hostile_peers_gives_the_model_of_a_run_without(
    world: MakeWorld, tmp_path: Path, clock: str
) -> None:
    alone = await model_of_run(world, tmp_path / "alone", [], clock)
    assert await model_of_run(world, tmp_path / "beside", list(ATTACKS), clock) == alone
