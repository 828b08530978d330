"""What devices make of calls that come again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from muster.client.device.learner import Learner
from muster.client.device.memory import Memory, RoundRecord
from muster.client.device.policy import Choice, DevicePolicy
from muster.client.life.settings import Life, PackMember
from muster.common.body_sizes import BodySizes
from muster.common.exchange import Call, Decision, Key, Reason
from muster.common.lines import LinkModel

CLIENT = "g-0000"
WORK: Any = object()


@dataclass
class Stub:
    """A learner that does not learn."""

    memory: Memory

    line = LinkModel(up_bps=8 * 40_000 / 100)  # an update takes 100 s

    def train_s(self, work: object) -> float:
        return 1800.0

    def body_sizes(self, work: object) -> BodySizes:
        return BodySizes(40_000, 40_000)


def conduct(folder: Path, kind: str = "compliant") -> tuple[DevicePolicy, Memory]:
    rules = {"kind": kind, "drop_out": 0.1}
    phone = {"device": {"profile": "phone"}, "participation": rules}
    life = Life.model_validate({"group": "g", "size": 1, "step_s": 3600.0, **phone})
    member = PackMember.model_validate({"client": CLIENT, "index": 0, "position": 0})
    memory = Memory(folder)
    learners: dict[str, Learner] = {CLIENT: Stub(memory)}  # type: ignore[dict-item]
    return DevicePolicy(life, 7, [member], learners, lockstep=True), memory


def called(conduct: DevicePolicy, round: int, attempt: int = 1) -> Choice:
    call = Call(Key(CLIENT, round, attempt), round - 1, 0.0, b"")
    (choice,) = conduct.choose([call], round - 1, WORK)
    return choice


def remember(memory: Memory, round: int, choice: Choice) -> None:
    after = choice.before._replace(life=choice.life)
    memory.hold(RoundRecord(round, b"", choice.before, after))


def test_work_that_was_cut_short_drains_nothing_the_second_time(tmp_path: Path) -> None:
    smooth, memory = conduct(tmp_path / "smooth")
    broken, broken_memory = conduct(tmp_path / "broken")
    worked = 0
    for round in range(1, 40):
        expected = called(smooth, round)
        # The connection breaks before the work is done and remembered, twice.
        choices = [called(broken, round, attempt) for attempt in (1, 2, 3)]
        assert choices == [expected] * 3
        if expected.decision is not Decision.DECLINE:
            worked += 1
            remember(memory, round, expected)
            remember(broken_memory, round, choices[-1])
    assert worked > 10


def test_who_gets_no_slot_is_as_it_was(tmp_path: Path) -> None:
    denied, _ = conduct(tmp_path / "denied")
    spared, _ = conduct(tmp_path / "spared")
    charges = []
    for round in range(1, 40):
        choice = called(denied, round)
        if choice.decision is not Decision.DECLINE:
            call = Call(Key(CLIENT, round, 1), round - 1, 0.0, b"")
            assert denied.denied(call, choice).reason is Reason.SLOT_TAKEN
        # What it would do has no trace in what it is: it drains as one that is never called.
        seen, calm = denied.observe(round)[0].state, spared.observe(round)[0].state
        assert seen == calm
        assert seen is not None
        charges.append(seen.battery)
    assert len(set(charges)) > 10


SENDING_MA = {"wifi": 470.0, "cellular": 292.0}
"""Currents of the radio while it sends, in the power profile of `Battery`."""


def test_a_device_that_works_for_itself_sends_nothing_and_takes_no_part(tmp_path: Path) -> None:
    policy, memory = conduct(tmp_path, "rational")
    restarted = 0
    for round in range(1, 40):
        choice = called(policy, round)
        if choice.decision is Decision.DECLINE:
            continue
        assert choice.seen is not None
        _, charge, *_, recent = choice.alone
        spared = SENDING_MA[choice.seen.network] * 100 / (3600 * 4400) * choice.share
        assert charge - choice.life[1] == pytest.approx(spared)
        assert recent == choice.before.life[-1]
        call = Call(Key(CLIENT, round, 1), round - 1, 0.0, b"")
        declined = policy.declined(call, choice)
        assert (declined.decision, declined.reason) == (Decision.DECLINE, Reason.NO_GAIN)
        assert declined.lost == (choice.decision is Decision.ABORT)
        remember(memory, round, declined)
        # A device that starts again from its memory is in the same state in the next round.
        again, _ = conduct(tmp_path, "rational")
        assert called(again, round + 1) == called(policy, round + 1)
        restarted += 1
    assert restarted > 10
