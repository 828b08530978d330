"""What the devices of a pack make of calls, from the lives they lead and what they remember."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from muster.client.config import PackMember
from muster.client.learner import Learner, TrainingConfig
from muster.client.life import Effort, Life, Row, effort_of
from muster.client.lives import DeviceSimulation
from muster.client.memory import State
from muster.common.exchange import Call, Decision, DeviceState, Observation, Reason
from muster.common.seeds import IntArray


class Choice(NamedTuple):
    """What a device makes of a call.

    Attributes:
        reason: why it declines or gives up.
        before: its state when it entered the round, to be remembered unless it declines.
        life: its own state after the work.
        share: of the work that it does before it gives up; 1: all of it.
        seen: its state at the moment of the decision; None for a device without a life.
        x: its covariates X at that moment.
        away: rounds after this one for which it will say the same.
    """

    decision: Decision
    reason: Reason | None
    before: State
    life: Row = ()
    share: float = 1.0
    seen: DeviceState | None = None
    x: tuple[float, ...] = ()
    away: int = 0


_OFFLINE = Choice(Decision.DECLINE, Reason.OFFLINE, State())


def _denied(choice: Choice) -> Choice:
    return choice._replace(decision=Decision.DECLINE, reason=Reason.SLOT_TAKEN, share=1.0, life=())


class AlwaysAccept:
    """Devices without a life: they accept every call."""

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        self._learners = learners

    def choose(self, calls: Sequence[Call], step: int, work: TrainingConfig) -> list[Choice]:
        return [
            Choice(
                Decision.ACCEPT,
                None,
                self._learners[call.key.client].memory.before(call.key.round),
            )
            for call in calls
        ]

    def denied(self, call: Call, choice: Choice) -> Choice:
        """What a device says that got no channel slot."""
        return _denied(choice)

    def observe(self, step: int) -> list[Observation]:
        """What there is to tell without a call: nothing."""
        return []

    def away(self, step: int) -> bool:
        """Whether the first device cannot be reached: never."""
        return False


class DevicePolicy:
    """Devices that live.

    Args:
        members: the devices, in the order of `learners`.
        lockstep: a round is always called at the same step, so a call for it that comes again is
            decided again, and alike. Elsewhere time has passed; a device stands by its update.
    """

    def __init__(
        self,
        life: Life,
        seed: int,
        members: Sequence[PackMember],
        learners: Mapping[str, Learner],
        lockstep: bool,
    ) -> None:
        self._lockstep = lockstep
        self._learners = learners
        self._places = {member.client: place for place, member in enumerate(members)}
        self._lives = DeviceSimulation(life, seed, [member.being() for member in members])
        self._unsettled = set(self._places)
        # What a device remembers of a round is written when its work is done; until then, this.
        self._entered: dict[str, tuple[int, Row]] = {}
        self._efforts: tuple[TrainingConfig, Effort] | None = None

    def choose(self, calls: Sequence[Call], step: int, work: TrainingConfig) -> list[Choice]:
        """What becomes of calls for one round, at the beginning of a step; a device that takes part
        is as it will be after its work."""
        lives, offline = self._lives, self._lives.unreachable(step)
        if offline is not None:
            called = [self._places[call.key.client] for call in calls]
            if offline[called].all():  # the usual case of an absent device, and it should be cheap
                away = self._away(step)[called]
                return [_OFFLINE._replace(away=int(rounds)) for rounds in away]
        stands = [not self._lockstep and self._holds_update_for(call) for call in calls]
        befores = [
            State() if kept else self._settled(call)
            for call, kept in zip(calls, stands, strict=True)
        ]
        effort = self._effort(work)
        look, verdict = lives.look(step), lives.decide(step, effort)
        places = np.array([self._places[call.key.client] for call in calls])
        working = places[verdict.accepted[places] & ~np.array(stands)]
        entered = {int(place): lives.row(place) for place in working}
        lives.take_part(working, verdict, effort)
        for call, place in zip(calls, map(int, places), strict=True):
            if place in entered:
                self._entered[call.key.client] = call.key.round, entered[place]
        choices, away = [], self._away(step)
        for place, before, kept in zip(map(int, places), befores, stands, strict=True):
            reason, seen, x = verdict.reason(place), look.state(place), look.covariates(place)
            if kept:
                choices.append(Choice(Decision.ACCEPT, None, before, seen=seen, x=x))
                continue
            if place not in entered:
                rounds = int(away[place]) if reason is Reason.OFFLINE else 0
                declines = Choice(Decision.DECLINE, reason, before, seen=seen, x=x, away=rounds)
                choices.append(declines)
                continue
            decision = Decision.ACCEPT if reason is None else Decision.ABORT
            before = before._replace(life=entered[place])
            share = float(verdict.share[place])
            choices.append(Choice(decision, reason, before, lives.row(place), share, seen, x))
        return choices

    def denied(self, call: Call, choice: Choice) -> Choice:
        """What a device says that wanted to take part, and got no channel slot: it is as it was."""
        if choice.before.life:
            self._lives.settle(self._places[call.key.client], choice.before.life)
        return _denied(choice)

    def _away(self, step: int) -> IntArray:
        """Rounds after this one for which offline devices will say the same."""
        steps = self._lives.away_steps(step) if self._lockstep else None
        return np.zeros(len(self._places), dtype=np.int64) if steps is None else steps

    def _holds_update_for(self, call: Call) -> bool:
        return self._learners[call.key.client].held_for(call) is not None

    def _effort(self, work: TrainingConfig) -> Effort:
        """What a round's work asks of every device."""
        if self._efforts is None or self._efforts[0] is not work:
            learners = list(self._learners.values())
            train_s = np.array([learner.train_s(work) for learner in learners])
            lines = [learner.line for learner in learners]
            bytes_up = learners[0].update_bytes(work)
            self._efforts = work, effort_of(train_s, lines, work.schema.body_bytes, bytes_up)
        return self._efforts[1]

    def _settled(self, call: Call) -> State:
        """The state in which a device enters a round; its life is put back to it where need be."""
        client, round = call.key.client, call.key.round
        memory = self._learners[client].memory
        before = memory.before(round)
        undone = any(before is held.before for held in memory.held)
        row = before.life if undone or client in self._unsettled else ()
        newest, entered = self._entered.get(client, (0, ()))
        if newest == round:
            row = entered
        if row:
            self._lives.settle(self._places[client], row)
        self._unsettled.discard(client)
        return before

    def observe(self, step: int) -> list[Observation]:
        """All devices at the beginning of a step."""
        look = self._lives.look(step)
        return [
            Observation(client, look.state(place), look.covariates(place))
            for client, place in self._places.items()
        ]

    def away(self, step: int) -> bool:
        """Whether the first device cannot be reached."""
        return not self._lives.look(step).available[0]
