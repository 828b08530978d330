"""Rounds that a strategy decides: whom they call, what devices are told, and which version they
make."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.scripted_strategy import Decide, Replies, ScriptedStrategy

from muster.common.errors import RunFailed
from muster.common.testing import ManualClock
from muster.server.strategy.pipe import Push, StrategyEnd
from muster.tasks.replies import Measured
from muster.v1 import fleet_pb2 as pb
from muster.wire.bodies import checksum

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import MakeWorld, World

    from muster.chaos.peer import Peer
    from muster.common.tensors import Vector

FLOWER = {"kind": "flower"}
BOTH = {0: b"for a", 1: b"for b"}


def model(value: float) -> Vector:
    return np.full(4, value, np.float32)


def sums(told: Sequence[Replies]) -> Vector:
    """The sum of all deltas so far, added round by round and device by device."""
    total = model(0)
    for replies in told:
        for reply in replies.values():
            if reply.delta is not None:
                total = total + reply.delta
    return total


def summing(rounds: int, told: dict[int, bytes] = BOTH, timeout_s: float | None = None) -> Decide:
    """A strategy that adds all updates up, for some rounds."""

    def decide(replies: Sequence[Replies]) -> Push | StrategyEnd:
        made = sums(replies)
        return StrategyEnd(made) if len(replies) == rounds else Push(made, told, timeout_s)

    return decide


async def train(peer: Peer, value: float, report: bytes = b"") -> pb.Call:
    call = await peer.called()
    await peer.send(peer.update(value, call.round, call.attempt, report=report))
    return call


def final(w: World) -> Vector:
    return load_file(w.folder / "model.safetensors")["w"]


async def test_devices_get_their_instructions_and_the_strategy_gets_their_reports(
    world: MakeWorld,
) -> None:
    strategy = ScriptedStrategy(summing(1))
    w = await world(aggregator=FLOWER, strategy=strategy)
    a, b = await w.both()
    assert (await train(a, 1.0, b"of a")).instruction == b"for a"
    assert (await train(b, 0.25, b"of b")).instruction == b"for b"
    assert await w.finish() == ("completed", "1 rounds")
    ((of_a, of_b),) = (replies.values() for replies in strategy.told)
    assert (of_a.examples, of_a.report, of_b.report) == (10, b"of a", b"of b")
    np.testing.assert_array_equal(of_a.delta, model(1.0))
    np.testing.assert_array_equal(final(w), model(1.25))
    assert {outcome for _, outcome, _ in w.outcomes()} == {"folded"}


async def test_a_round_calls_only_the_devices_that_the_strategy_names(world: MakeWorld) -> None:
    strategy = ScriptedStrategy(summing(2, {1: b"b alone"}))
    w = await world(rounds=2, aggregator=FLOWER, strategy=strategy)
    _, b = await w.both()
    await train(b, 1.0)
    await train(b, 2.0)
    await w.finish()
    assert [sorted(replies) for replies in strategy.told] == [[1], [1]]
    assert [client for client, _, _ in w.outcomes()] == ["b", "b"]
    np.testing.assert_array_equal(final(w), model(3.0))


async def test_a_device_that_declines_is_absent_for_the_strategy(world: MakeWorld) -> None:
    strategy = ScriptedStrategy(summing(1))
    w = await world(aggregator=FLOWER, strategy=strategy)
    a, b = await w.both()
    call = await a.called()
    answer = pb.Answer(
        client="a", round=1, attempt=call.attempt,
        decision=pb.DECISION_DECLINE, reason=pb.REASON_BATTERY,
    )  # fmt: skip
    await a.stream.write(pb.DeviceMessage(answers=[answer]))
    await train(b, 0.5)
    await w.finish()
    assert strategy.told[0][0].absence == "decline: battery"
    assert strategy.told[0][0].delta is None
    np.testing.assert_array_equal(final(w), model(0.5))


async def test_a_refused_update_is_absent_for_the_strategy(world: MakeWorld) -> None:
    strategy = ScriptedStrategy(summing(1))
    w = await world(aggregator=FLOWER, strategy=strategy)
    a, b = await w.both()
    await a.called()
    body = model(np.inf).tobytes()
    await a.send(a.update(body=body, checksum=checksum(body)))
    await train(b, 0.5)
    await w.finish()
    assert strategy.told[0][0].absence == "refused: not finite"


async def test_an_update_beyond_the_goal_is_absent_for_the_strategy(world: MakeWorld) -> None:
    strategy = ScriptedStrategy(summing(1))
    w = await world(aggregator=FLOWER, strategy=strategy, goal=1)
    a, b = await w.both()
    for peer, modelled_s in ((a, 2.0), (b, 1.0)):
        call = await peer.called()
        await peer.send(peer.update(1.0, attempt=call.attempt, modelled_s=modelled_s))
    await w.finish()
    assert [strategy.told[0][index].absence for index in (0, 1)] == ["goal reached", ""]


async def test_the_timeout_of_the_strategy_is_a_deadline(world: MakeWorld) -> None:
    strategy = ScriptedStrategy(summing(1, timeout_s=5.0))
    w = await world(aggregator=FLOWER, strategy=strategy, deadline_s=60.0)
    a, b = await w.both()
    assert (await a.called()).deadline_s == 5.0
    await a.send(a.update(1.0, modelled_s=5.5))
    await train(b, 0.5)
    await w.finish()
    assert strategy.told[0][0].absence == "deadline"
    assert ("a", "late", "deadline") in w.outcomes()
    np.testing.assert_array_equal(final(w), model(0.5))


async def test_the_time_that_the_strategy_takes_is_no_stall(world: MakeWorld) -> None:
    clock = ManualClock()
    decide = summing(2)

    def slowly(told: Sequence[Replies]) -> Push | StrategyEnd:
        clock.advance(50.0 * len(told))
        return decide(told)

    settings = {"rounds": 2, "heartbeat_s": 1e6, "stall_s": 60.0, "aggregator": FLOWER}
    w = await world(time=clock, strategy=ScriptedStrategy(slowly), **settings)
    a, b = await w.both()
    await train(a, 1.0)
    await train(b, 1.0)
    await w.until("round_opened", round=2)
    clock.advance(50.0)  # since the last answer 100 s have passed
    await train(a, 1.0)
    await train(b, 1.0)
    assert await w.finish() == ("completed", "2 rounds")


async def test_the_run_ends_with_the_strategy(world: MakeWorld) -> None:
    w = await world(rounds=9, aggregator=FLOWER, strategy=ScriptedStrategy(summing(1)))
    a, b = await w.both()
    await train(a, 1.0)
    await train(b, 1.0)
    assert await w.finish() == ("completed", "1 rounds")


async def test_a_strategy_that_shows_no_last_model_leaves_the_newest_version(
    world: MakeWorld,
) -> None:
    def decide(told: Sequence[Replies]) -> Push | StrategyEnd:
        return StrategyEnd() if told else Push(model(0), BOTH, None)

    w = await world(aggregator=FLOWER, strategy=ScriptedStrategy(decide))
    a, b = await w.both()
    await train(a, 1.0)
    await train(b, 1.0)
    assert await w.finish() == ("completed", "1 rounds")
    np.testing.assert_array_equal(final(w), model(0))
    assert "without showing the model" in (await w.until("warned"))["warning"]


async def test_a_model_that_is_not_finite_ends_the_run_as_diverged(world: MakeWorld) -> None:
    def decide(told: Sequence[Replies]) -> Push | StrategyEnd:
        return StrategyEnd(model(np.nan)) if told else Push(model(0), BOTH, None)

    w = await world(aggregator=FLOWER, strategy=ScriptedStrategy(decide))
    a, b = await w.both()
    await train(a, 1.0)
    await train(b, 1.0)
    reason = "the strategy made a model with entries that are not finite"
    assert await w.finish() == ("diverged", reason)


async def test_a_round_in_which_nobody_counts_is_empty_unless_the_strategy_moves_the_model(
    world: MakeWorld,
) -> None:
    def decide(told: Sequence[Replies]) -> Push | StrategyEnd:
        value = float(len(told) > 1)  # it moves the model after the second round alone
        return StrategyEnd(model(value)) if len(told) == 3 else Push(model(value), {}, None)

    w = await world(rounds=3, aggregator=FLOWER, strategy=ScriptedStrategy(decide))
    await w.both()
    await w.finish()
    with sqlite3.connect(w.folder / "ledger.sqlite") as db:
        rows = db.execute("SELECT outcome, version, folded FROM rounds ORDER BY round").fetchall()
    db.close()
    assert rows == [("empty", 0, 0), ("aggregated", 1, 0), ("empty", 1, 0)]


async def played(w: World, rounds: int) -> None:
    a, b = await w.both()
    for _ in range(rounds):
        await train(a, 1.0)
        await train(b, 2.0)


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_restarted_server_brings_the_strategy_to_where_it_was(
    world: MakeWorld, tmp_path: Path, ahead: bool
) -> None:
    first = ScriptedStrategy(summing(3))
    w = await world(tmp_path, calls_ahead=ahead, rounds=2, aggregator=FLOWER, strategy=first)
    await played(w, 2)
    await w.finish()
    again = ScriptedStrategy(summing(3))
    w = await world(tmp_path, rounds=3, aggregator=FLOWER, strategy=again)
    await played(w, 1)
    await w.finish()
    assert [r.keys() for r in again.told] == [{0, 1}] * 3
    for replies, before in zip(again.told, first.told, strict=False):
        for index, reply in replies.items():
            np.testing.assert_array_equal(reply.delta, before[index].delta)
    np.testing.assert_array_equal(final(w), model(9.0))


def measuring(rounds: int) -> Decide:
    """As `summing`, of an app that has measured how many rounds there were."""

    def decide(replies: Sequence[Replies]) -> Push | StrategyEnd:
        made = sums(replies)
        measured: Measured = {"server.rounds": len(replies), "train.loss": "nan"}
        if len(replies) == rounds:
            return StrategyEnd(made, measured=measured)
        return Push(made, BOTH, None, measured)

    return decide


@pytest.mark.parametrize("ahead", [False, True])
async def test_what_the_app_measures_is_recorded_once_with_the_round(
    world: MakeWorld, tmp_path: Path, ahead: bool
) -> None:
    told: list[dict[str, Any]] = []
    for strategy, rounds, plays in [(measuring(9), 2, 2), (measuring(3), 3, 1)]:
        w = await world(tmp_path, calls_ahead=ahead, rounds=rounds, aggregator=FLOWER,
                        strategy=ScriptedStrategy(strategy))  # fmt: skip
        await played(w, plays)
        await w.finish()
        told += [e for e in w.events if e["event"] in ("app_measured", "round_committed")]
    expected = [(n, {"server.rounds": n, "train.loss": "nan"}) for n in range(4)]
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as ledger:
        rows = ledger.execute("SELECT round, name, value FROM estimates ORDER BY round").fetchall()
    assert [(n, json.loads(value)) for n, _, value in rows] == expected
    assert {name for _, name, _ in rows} == {"app_measured"}
    assert [(e["round"], e["metrics"]) for e in told if e["event"] == "app_measured"] == expected
    assert [e["round"] for e in told] == [0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        (summing(3, {0: b"for a"}), r"it called the devices \[0, 1\], and now it calls \[0\]"),
        (summing(3, {**BOTH, 1: b"for c"}), r"it told device 1 … 'for b' …, and now … 'for c' …"),
        (summing(3, timeout_s=4.0), r"its timeout was None s, and now it is 4\.0 s"),
        (lambda told: Push(model(7), BOTH, None), "it sent another model"),
        (summing(0), "it has ended"),
        (lambda told: Push(sums(told) + len(told), BOTH, None), "it sends another model"),
    ],
)
async def test_a_strategy_that_does_something_else_than_before_ends_the_run(
    world: MakeWorld, tmp_path: Path, changed: Decide, difference: str
) -> None:
    w = await world(tmp_path, aggregator=FLOWER, strategy=ScriptedStrategy(summing(3)))
    await played(w, 1)
    await w.finish()
    strategy = ScriptedStrategy(changed)
    w = await world(tmp_path, rounds=2, aggregator=FLOWER, strategy=strategy)
    assert w.running is not None
    with pytest.raises(RunFailed, match=f"something else in round .*{difference}"):
        await w.running


@pytest.mark.parametrize("when", [{"dies_after": 1}, {"dies_idle": True}])
async def test_the_death_of_the_strategy_ends_the_run(
    world: MakeWorld, when: dict[str, Any]
) -> None:
    w = await world(aggregator=FLOWER, strategy=ScriptedStrategy(summing(2), **when))
    a, b = await w.both()
    await train(a, 1.0)
    await train(b, 1.0)
    assert w.running is not None
    with pytest.raises(RunFailed, match="the process of the strategy ended with status -9"):
        await w.running


async def test_an_app_that_fails_ends_the_run_with_its_message(world: MakeWorld) -> None:
    def decide(told: Sequence[Replies]) -> Push | StrategyEnd:
        return StrategyEnd(failure="task.app: it failed")

    w = await world(aggregator=FLOWER, strategy=ScriptedStrategy(decide))
    assert w.running is not None
    with pytest.raises(RunFailed, match=r"^task\.app: it failed$"):
        await w.running
