"""Devices that state impossible durations of their work in lockstep: scenario time, which is that
of all devices, stays what the scenario makes it."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from muster.v1 import fleet_pb2 as pb

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

    from muster.chaos.peer import Peer

LARGE = 1 << 16
"""Parameters of a model that does not travel inline."""

MODES: dict[str, dict[str, Any]] = {
    "synchronous": {"kind": "synchronous"},
    "opportunistic": {"kind": "opportunistic"},
    "buffered": {"kind": "buffered", "k": 3, "concurrency": 3},
    "by finish": {"kind": "buffered", "k": 3, "concurrency": 3, "calls_at": "finish"},
}


def opened_at(w: World) -> list[float]:
    with sqlite3.connect(w.folder / "ledger.sqlite") as db:
        found = db.execute("SELECT scenario_s FROM rounds ORDER BY round").fetchall()
    db.close()
    return [second for (second,) in found]


async def work(peer: Peer, modelled_s: float, large: bool) -> None:
    """Answer the next call with an update that states a duration."""
    call = await peer.called()
    update, body = peer.update(round=call.round, attempt=call.attempt, modelled_s=modelled_s)
    if large:
        accepts = pb.Answer(
            client=peer.client,
            round=call.round,
            attempt=call.attempt,
            decision=pb.DECISION_ACCEPT,
            modelled_s=modelled_s,
        )
        await peer.stream.write(pb.DeviceMessage(answers=[accepts]))
        receipt = await peer.upload(update, [body])
        assert receipt.outcome == pb.OUTCOME_ACCEPTED
        return
    await peer.send((update, body))


@pytest.mark.parametrize("large", [False, True], ids=["inline", "in chunks"])
@pytest.mark.parametrize("stated_s", [0.0, 1e12])
@pytest.mark.parametrize("mode", MODES)
async def test_time_is_not_moved_by_what_a_device_states(
    world: MakeWorld, mode: str, stated_s: float, large: bool
) -> None:
    """The work of each of three devices takes 40 s. With `calls_at = "finish"`, all three finish at
    the same moment."""
    parameters: dict[str, Any] = {"parameters": LARGE} if large else {}
    w = await world(
        clients="abc", rounds=3, mode=MODES[mode], training_s=(40.0, 40.0), **parameters
    )
    peers = [await w.attend(client) for client in "abc"]
    for _ in range(3):
        for peer in peers:
            await work(peer, stated_s if peer.client == "a" else 40.0, large)
    assert (await w.finish())[0] == "completed"
    every_s = 40.0 if MODES[mode]["kind"] == "buffered" else 60.0
    assert opened_at(w) == [0.0, every_s, 2 * every_s]
    assert [outcome for _, outcome, _ in w.outcomes()] == ["folded"] * 9
