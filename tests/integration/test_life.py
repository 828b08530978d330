"""What the server makes of devices that decline, give up, are away, or say so beforehand."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import grpc
import numpy as np
import pytest

from muster.server.aggregators import Aggregator, Cohort, Need, State, Weighing
from muster.server.knowledge.participation import ParticipationHistory
from muster.v1 import fleet_pb2 as pb

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

    from muster.chaos.peer import Peer

STATE = pb.DeviceState(
    battery=0.25, charging=False, idle=True, network="cellular", unmetered=False, hour=13.5
)


async def say(peer: Peer, round: int, decision: Any, reason: Any = 0, **fields: Any) -> None:
    answer = pb.Answer(
        client=peer.client, round=round, attempt=1, decision=decision, reason=reason, **fields
    )
    await peer.stream.write(pb.DeviceMessage(answers=[answer]))


def answers(w: World) -> list[tuple[Any, ...]]:
    with sqlite3.connect(w.folder / "ledger.sqlite") as db:
        query = "SELECT round, client, decision, reason FROM answers ORDER BY round, client"
        found = db.execute(query).fetchall()
    db.close()
    return found


async def test_a_device_that_said_it_would_be_offline_is_not_called_again(world: MakeWorld) -> None:
    w = await world(rounds=3)
    a, b = await w.both()
    await a.called()
    await say(a, 1, pb.DECISION_DECLINE, pb.REASON_OFFLINE, away_steps=1)
    for round in (1, 2):
        assert (await b.called()).round == round
        await b.send(b.update(round=round))
    assert (await a.called()).round == 3, "it said nothing of this round"
    await say(a, 3, pb.DECISION_DECLINE, pb.REASON_OFFLINE)
    await b.called()
    await b.send(b.update(round=3))
    assert await w.finish() == ("completed", "3 rounds")
    offline = [(n, "a", "decline", "offline") for n in (1, 2, 3)]
    assert [row for row in answers(w) if row[1] == "a"] == offline


async def test_rounds_in_which_all_said_they_would_be_offline_are_empty(world: MakeWorld) -> None:
    w = await world(rounds=4)
    for peer in await w.both():
        await peer.called()
        await say(peer, 1, pb.DECISION_DECLINE, pb.REASON_OFFLINE, away_steps=9)
    assert await w.finish() == ("completed", "4 rounds")
    assert len(answers(w)) == 8


async def test_one_who_gives_up_has_accepted_and_its_loss_is_in_the_books(world: MakeWorld) -> None:
    w = await world()
    a, b = await w.both()
    await a.called()
    await say(a, 1, pb.DECISION_ABORT, pb.REASON_DROP_OUT, state=STATE, modelled_s=3.0)
    await b.called()
    await b.send(b.update())
    await w.finish()
    assert answers(w) == [(1, "a", "abort", "drop-out"), (1, "b", "accept", None)]
    assert set(w.outcomes()) == {("a", "dropped", "drop-out"), ("b", "folded", None)}
    with sqlite3.connect(w.folder / "ledger.sqlite") as db:
        state, age_s = db.execute("SELECT state, x_age_s FROM answers WHERE client='a'").fetchone()
        assert db.execute("SELECT accepted, folded FROM rounds").fetchone() == (2, 1)
    db.close()
    assert age_s == 0.0
    assert json.loads(state) == {
        "battery": 0.25, "charging": False, "idle": True, "network": "cellular",
        "unmetered": False, "hour": 13.5,
    }  # fmt: skip


async def test_who_is_away_when_a_round_opens_is_in_the_books_as_it_was_last_known(
    world: MakeWorld,
) -> None:
    w = await world(clock="wall", rounds=2, deadline_s=30.0)
    a, b = await w.both()
    seen = pb.Heartbeat(devices=[pb.Observation(client="a", state=STATE)])
    await a.stream.write(pb.DeviceMessage(heartbeat=seen))
    await a.called()
    await say(a, 1, pb.DECISION_DECLINE, pb.REASON_BATTERY)
    await b.called()
    await a.stream.done_writing()
    await w.until("left", client="a")
    await b.send(b.update())
    assert (await b.called()).round == 2
    await b.send(b.update(round=2))
    assert await w.finish() == ("completed", "2 rounds")
    assert answers(w) == [
        (1, "a", "decline", "battery"),
        (1, "b", "accept", None),
        (2, "a", "absent", None),
        (2, "b", "accept", None),
    ]
    with sqlite3.connect(w.folder / "ledger.sqlite") as db:
        query = "SELECT state, x_age_s FROM answers WHERE round = 2 AND client = 'a'"
        state, age_s = db.execute(query).fetchone()
    db.close()
    assert json.loads(state)["battery"] == 0.25
    assert age_s >= 0


async def test_a_server_that_comes_back_knows_those_who_are_not_back(world: MakeWorld) -> None:
    w = await world(clock="wall", rounds=1, deadline_s=30.0)
    a, b = await w.both()
    await a.called()
    await say(a, 1, pb.DECISION_DECLINE, pb.REASON_BATTERY, state=STATE)
    await b.called()
    await b.send(b.update())
    assert await w.finish() == ("completed", "1 rounds")
    w = await world(clock="wall", rounds=2, deadline_s=30.0)
    assert w.coordinator.fleet.devices["a"].z == {}
    b = await w.attend("b")
    assert (await b.called()).round == 2
    await b.send(b.update(round=2))
    assert await w.finish() == ("completed", "2 rounds")
    with sqlite3.connect(w.folder / "ledger.sqlite") as db:
        query = "SELECT decision, state, x_age_s FROM answers WHERE round = 2 AND client = 'a'"
        decision, state, age_s = db.execute(query).fetchone()
    db.close()
    assert decision == "absent"
    assert json.loads(state)["battery"] == 0.25
    assert age_s > 2.0, "it waited for that long whether they come"


async def test_covariates_that_the_scenario_does_not_have_end_the_stream_and_no_other(
    world: MakeWorld,
) -> None:
    w = await world()
    a, b = await w.both()
    await a.called()
    await say(a, 1, pb.DECISION_DECLINE, pb.REASON_BATTERY, state=STATE, x=[1.0])
    with pytest.raises(grpc.aio.AioRpcError, match="1 covariates X of a; expected 0: none"):
        await a.rest()
    await b.called()
    await b.send(b.update())
    again = await w.attend("a")
    await again.called()
    await again.send(again.update(attempt=2))
    assert await w.finish() == ("completed", "1 rounds")
    assert {row[0] for row in w.outcomes()} == {"a", "b"}


class Weightless(Aggregator):
    """Learns who takes part, and gives no update of the first round any weight."""

    weights: ClassVar[Literal["on-arrival", "at-close"]] = "at-close"
    seen: ClassVar[list[ParticipationHistory]] = []
    """The history that it was given in each round."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        self.seen.append(cohort.participation)
        weights = [float(cohort.round > 1)] * len(cohort.contributions)
        return Weighing(weights, sum(weights), state)

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.PARTICIPATION})


async def test_who_took_part_is_the_same_for_a_server_that_reads_it_in_the_ledger(
    world: MakeWorld,
) -> None:
    rule = Weightless(kind="weightless")
    rule.seen.clear()
    w = await world(rounds=2, aggregator=rule)
    for peer in (peers := await w.both()):
        await peer.called()
        await peer.send(peer.update())
    for peer in peers:
        await peer.called()
        await peer.send(peer.update(round=2))
    assert await w.finish() == ("completed", "2 rounds")
    assert [outcome for _, outcome, _ in w.outcomes()] == ["dropped"] * 2 + ["folded"] * 2
    here = rule.seen[-1].pooled()
    np.testing.assert_array_equal(here.took_part, [False, False, True, True])
    w = await world(rounds=3, aggregator=rule)
    for peer in await w.both():
        await peer.called()
        await peer.send(peer.update(round=3))
    assert await w.finish() == ("completed", "3 rounds")
    assert rule.seen[-1] is not rule.seen[0]
    again = rule.seen[-1].pooled()
    np.testing.assert_array_equal(again.took_part, [False, False, True, True, True, True])
    for mine, theirs in zip(here, again, strict=True):
        np.testing.assert_array_equal(mine, theirs[:4])
