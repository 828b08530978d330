"""What passes between the server and the process of a strategy, and what is stored of it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from muster.common.errors import ConfigError, LedgerError
from muster.common.exchange import Answer, Decision, Reason
from muster.common.tensors import Vector
from muster.server.aggregation.strategy_rounds import replies_of
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Rules
from muster.server.strategy.history import StrategyHistory
from muster.server.strategy.pipe import (
    LENGTHS,
    PipeMessage,
    Push,
    StrategyEnd,
    message_of,
    replies_in,
    replies_parts,
    said_in,
)
from muster.server.strategy.process import ServerRounds
from muster.tasks.replies import DeviceReply, Measured

MODEL: Vector = np.array([1.5, -2.0, np.pi], np.float32)
MEASURED: Measured = {"train.loss": 0.1, "server.loss": "nan"}
PUSH = Push(MODEL, {3: b"\x00\xff", 7: b"text"}, 12.5, MEASURED)
REPLIES = {
    3: DeviceReply(MODEL * 2, 40, b"\xfe report"),
    5: DeviceReply(absence="decline: battery"),
    7: DeviceReply(MODEL * 3, 1, b""),
}


def read(data: bytes) -> PipeMessage:
    header, body = LENGTHS.unpack_from(data)
    rest = data[LENGTHS.size :]
    assert len(rest) == header + body
    return message_of(rest[:header], rest[header:])


def same(found: dict[int, DeviceReply]) -> None:
    assert found.keys() == REPLIES.keys()
    for index, reply in REPLIES.items():
        facts = found[index].examples, found[index].report, found[index].absence
        assert facts == (reply.examples, reply.report, reply.absence)
        if reply.delta is None:
            assert found[index].delta is None
        else:
            np.testing.assert_array_equal(found[index].delta, reply.delta)


def test_a_push_arrives_as_it_was_sent() -> None:
    found = said_in(read(b"".join(PUSH.parts())))
    assert isinstance(found, Push)
    np.testing.assert_array_equal(found.model, MODEL)
    assert (found.instructions, found.timeout_s) == (PUSH.instructions, 12.5)
    assert found.measured == MEASURED


@pytest.mark.parametrize(
    "end", [StrategyEnd(MODEL, measured=MEASURED), StrategyEnd(), StrategyEnd(failure="no")]
)
def test_an_end_arrives_as_it_was_sent(end: StrategyEnd) -> None:
    found = said_in(read(b"".join(end.parts())))
    assert isinstance(found, StrategyEnd)
    assert (found.failure, found.measured) == (end.failure, end.measured)
    assert (found.model is None) == (end.model is None)
    if found.model is not None:
        np.testing.assert_array_equal(found.model, MODEL)


def test_replies_arrive_as_they_were_sent() -> None:
    same(replies_in(read(b"".join(replies_parts(REPLIES)))))


def test_the_process_of_a_strategy_asks_and_is_answered() -> None:
    answers, said = io.BytesIO(b"".join(replies_parts(REPLIES))), io.BytesIO()
    rounds = ServerRounds(answers, said)
    rounds.measured(MEASURED)
    same(dict(rounds.train(MODEL, PUSH.instructions, 12.5)))
    rounds.measured({})
    rounds.end(MODEL)
    assert said.getvalue() == b"".join([*PUSH.parts(), *StrategyEnd(MODEL).parts()])
    with pytest.raises(ConfigError, match="the server has gone"):
        ServerRounds(answers, said).train(MODEL, {}, None)


@pytest.fixture
def history(tmp_path: Path) -> StrategyHistory:
    found = StrategyHistory(tmp_path / "strategy")
    found.load(0)
    return found


def test_a_round_is_stored_with_its_replies(history: StrategyHistory) -> None:
    history.write(4, PUSH, REPLIES)
    stored = history.read(4)
    same(dict(stored.replies))
    assert stored.difference(PUSH) == ""


@pytest.mark.parametrize(
    ("push", "expected"),
    [
        (Push(MODEL + 1, PUSH.instructions, 12.5), "it sent another model"),
        (Push(MODEL, PUSH.instructions, None), "its timeout was 12.5 s, and now it is None s"),
        (Push(MODEL, {3: b"\x00\xff"}, 12.5), "it called the devices [3, 7], and now it calls [3]"),
        (Push(MODEL, {**PUSH.instructions, 7: b"test"}, 12.5), "it told device 7 … 'text' …, and"),
        (Push(MODEL, {**PUSH.instructions, 7: b"texts"}, 12.5), "and now … 'texts' …"),
    ],
)
def test_a_difference_is_named(history: StrategyHistory, push: Push, expected: str) -> None:
    history.write(1, PUSH, REPLIES)
    assert expected in history.read(1).difference(push)


def test_a_long_difference_is_shown_where_it_is(history: StrategyHistory) -> None:
    before, now = b"a" * 500 + b"0.1" + b"b" * 500, b"a" * 500 + b"0.2" + b"b" * 500
    history.write(1, Push(MODEL, {0: before}, None), {})
    found = history.read(1).difference(Push(MODEL, {0: now}, None))
    assert "a0.1b" in found
    assert "a0.2b" in found
    assert len(found) < 400


def test_rounds_that_were_not_committed_are_forgotten(history: StrategyHistory) -> None:
    for number in (1, 2, 3):
        history.write(number, PUSH, REPLIES)
    history.load(2)
    same(dict(history.read(2).replies))
    with pytest.raises(LedgerError, match=r"000003\.replies is missing; without it the strategy"):
        history.read(3)


@pytest.mark.parametrize("place", [3, 16, 40, -1])
def test_a_damaged_round_is_refused_by_its_name(
    history: StrategyHistory, tmp_path: Path, place: int
) -> None:
    history.write(1, PUSH, REPLIES)
    path = tmp_path / "strategy/000001.replies"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(LedgerError, match=r"000001\.replies is damaged"):
        history.read(1)


def test_a_device_that_was_not_there_is_absent_with_the_reason() -> None:
    round = Round(1, 0, Rules(lockstep=False))
    round.select(["b", "c"])
    round.answer(Answer(round.call("c"), Decision.ABORT, reason=Reason.DROP_OUT))
    push = Push(MODEL, {2: b"", 0: b"", 1: b""}, None)
    replies = replies_of(push, ["a", "b", "c"], round, [], 3)
    reasons = ["not connected", "no answer", "abort: drop-out"]
    assert [(i, reply.absence) for i, reply in replies.items()] == list(enumerate(reasons))


def test_a_timeout_only_shortens_a_deadline() -> None:
    rules = Rules(lockstep=True, deadline_s=60.0)
    assert [rules.within(limit).deadline_s for limit in (5.0, 90.0, None)] == [5.0, 60.0, 60.0]
    assert Rules(lockstep=True).within(5.0).deadline_s == 5.0
    assert Rules(lockstep=True).within(None).deadline_s is None
