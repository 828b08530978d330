"""Policies of a pack's devices: decide which calls to accept, from simulated state and memory."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from muster.client.device.learner import Learner
from muster.client.device.memory import State
from muster.client.device.rational import ModelJudgement
from muster.client.device.training_config import DownloadTimes, TrainingConfig
from muster.client.life.effort import Effort, effort_of
from muster.client.life.settings import Life, PackMember
from muster.client.life.simulation import DeviceSimulation
from muster.client.life.states import Decided, Row
from muster.client.training.trainer import TrainingError
from muster.common.exchange import Call, Decision, DeviceState, Observation, Reason
from muster.common.seeds import IntArray


class Choice(NamedTuple):
    """A device's decision about a call.

    Attributes:
        reason: why it declines or gives up; None if it takes part.
        before: its state when it entered the round, to be remembered unless it declines.
        life: the row of its simulated state after the work.
        share: the share of the work that it does before it gives up; 1: all of it.
        seen: its state at the moment of the decision; None for a device without a simulated life.
        x: its covariates X at that moment.
        away: number of steps after this one at which it will decline for the same reason.
        foreseen: what it will report at these steps, if it reports anything.
        step: the step of its life at which it was called.
        slowdown: factor of its modelled seconds of training, from faults.
        metered: whether its network costs money.
        alone: the row of its simulated state if it trains its own model instead (rational devices).
        lost: whether it declines, and the training of its own model is lost.
        judgement: what a rational device thinks of the model; None for all others, and until it has
            judged the model.
        download: how it got the model, if it has judged it or it came with the call.
        failure: the error for which it gives up; empty without one.
    """

    decision: Decision
    reason: Reason | None
    before: State
    life: Row = ()
    share: float = 1.0
    seen: DeviceState | None = None
    x: tuple[float, ...] = ()
    away: int = 0
    step: int = 0
    slowdown: float = 1.0
    metered: bool = False
    alone: Row = ()
    lost: bool = False
    judgement: ModelJudgement | None = None
    download: DownloadTimes = DownloadTimes()
    foreseen: Sequence[Observation] = ()
    failure: str = ""

    def failed(self, error: TrainingError) -> "Choice":
        """The choice of a device whose training has failed: it gives up."""
        return self._replace(
            decision=Decision.ABORT, reason=Reason.TRAINING_FAILED, failure=str(error)
        )


_OFFLINE = Choice(Decision.DECLINE, Reason.OFFLINE, State())


def _denied(choice: Choice) -> Choice:
    return choice._replace(decision=Decision.DECLINE, reason=Reason.SLOT_TAKEN, share=1.0, life=())


def _declined(choice: Choice) -> Choice:
    lost = choice.decision is Decision.ABORT
    choice = choice._replace(decision=Decision.DECLINE, reason=Reason.NO_GAIN)
    return choice._replace(life=choice.alone, lost=lost)


class AlwaysAccept:
    """The policy of devices without a simulated life: they accept every call."""

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        self._learners = learners

    def choose(self, calls: Sequence[Call], step: int, work: TrainingConfig) -> list[Choice]:
        return [
            Choice(
                Decision.ACCEPT,
                None,
                self._learners[call.key.client].memory.before(call.key.round),
                step=step,
            )
            for call in calls
        ]

    def denied(self, call: Call, choice: Choice) -> Choice:
        """The choice of a device that got no channel slot: it declines."""
        return _denied(choice)

    def declined(self, call: Call, choice: Choice) -> Choice:
        """The choice of a device that the model does not serve: it declines."""
        return _declined(choice)

    def observe(self, step: int) -> list[Observation]:
        """The observations that heartbeats report: none."""
        return []

    def away(self, step: int) -> bool:
        """Whether the first device is unavailable: never."""
        return False


class DevicePolicy:
    """The policy of devices with a simulated life.

    Args:
        members: the devices, in the order of `learners`.
        lockstep: whether a round is always called at the same step. Then a repeated call is decided
            again, with the same result. Otherwise time has passed since the first call, and a
            device that holds an update for the call accepts it.
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
        self._clients = [member.client for member in members]
        self._places = {client: place for place, client in enumerate(self._clients)}
        self._lives = DeviceSimulation(life, seed, [member.being() for member in members])
        self._unsettled = set(self._places)
        # Round and row with which each device entered its newest round. Its memory has them only
        # when the work is done.
        self._entered: dict[str, tuple[int, Row]] = {}
        self._efforts: tuple[TrainingConfig, Effort] | None = None

    def choose(self, calls: Sequence[Call], step: int, work: TrainingConfig) -> list[Choice]:
        """Decide about calls for one round, at the beginning of a step.

        The simulated state of a device that takes part changes at once to that after its work.
        """
        lives, offline = self._lives, self._lives.unreachable(step)
        if offline is not None:
            called = [self._places[call.key.client] for call in calls]
            if offline[called].all():  # usual for an absent device, so it should be cheap
                away = self._away(step)[called]
                return [_OFFLINE._replace(away=int(rounds)) for rounds in away]
        held = [not self._lockstep and self._holds_update_for(call) for call in calls]
        befores = [
            State() if kept else self._state_before(call)
            for call, kept in zip(calls, held, strict=True)
        ]
        effort, slowdown = lives.effort_at(step, self._effort(work)), lives.slowdown(step)
        look, verdict = lives.look(step), lives.decide(step, effort)
        places = np.array([self._places[call.key.client] for call in calls])
        working = places[verdict.accepted[places] & ~np.array(held)]
        entered = {int(place): lives.row(place) for place in working}
        alone = self._rows_alone(verdict, effort, entered)
        lives.take_part(working, verdict, effort)
        for call, place in zip(calls, map(int, places), strict=True):
            if place in entered:
                self._entered[call.key.client] = call.key.round, entered[place]
        choices, nobody_away = [], look.available[places].all()
        away = np.zeros(len(self._places), np.int64) if nobody_away else self._away(step)
        for place, before, kept in zip(map(int, places), befores, held, strict=True):
            reason, seen, x = verdict.reason(place), look.state(place), look.covariates(place)
            if kept:
                choices.append(Choice(Decision.ACCEPT, None, before, seen=seen, x=x, step=step))
                continue
            if place not in entered:
                declines = Choice(Decision.DECLINE, reason, before, seen=seen, x=x)
                if reason is Reason.OFFLINE:
                    declines = self._announcing(declines, place, int(away[place]), step)
                choices.append(declines)
                continue
            decision = Decision.ACCEPT if reason is None else Decision.ABORT
            before = before._replace(life=entered[place])
            share = float(verdict.share[place])
            factor = 1.0 if slowdown is None else float(slowdown[place])
            row, metered = lives.row(place), not bool(look.unmetered[place])
            told = Choice(decision, reason, before, row, share, seen, x, 0, step, factor, metered)
            choices.append(told._replace(alone=alone.get(place, ())))
        return choices

    def _announcing(self, choice: Choice, place: int, away: int, step: int) -> Choice:
        """The choice of an offline device, with the steps after this one at which it will be
        offline too.

        A device that has a process for itself also announces what it will report then. In a pack
        the others are called, so that little would be saved.
        """
        if away or not self._lockstep or len(self._places) > 1:
            return choice._replace(away=away)
        client, reports = self._clients[place], self._lives.foresee(step)
        foreseen = [Observation(client, state, x) for state, x in reports]
        return choice._replace(away=len(foreseen), foreseen=foreseen)

    def denied(self, call: Call, choice: Choice) -> Choice:
        """The choice of a device that got no channel slot: it declines. Restores its state."""
        if choice.before.life:
            self._lives.settle(self._places[call.key.client], choice.before.life)
        return _denied(choice)

    def declined(self, call: Call, choice: Choice) -> Choice:
        """The choice of a device that the model does not serve: it declines, and works for itself,
        which its state tells."""
        if choice.alone:
            self._lives.settle(self._places[call.key.client], choice.alone)
        return _declined(choice)

    def _rows_alone(
        self, verdict: Decided, effort: Effort, entered: Mapping[int, Row]
    ) -> Mapping[int, Row]:
        """The rows of rational devices after their work if they do it for themselves, by place.

        Args:
            entered: the rows before the work, in which the devices are left.
        """
        if self._lives.life.participation.rational is None:
            return {}
        self._lives.take_part(
            np.array(list(entered), np.int64), verdict.unwilling(), effort.alone()
        )
        alone = {place: self._lives.row(place) for place in entered}
        for place, row in entered.items():
            self._lives.settle(place, row)
        return alone

    def _away(self, step: int) -> IntArray:
        """Number of rounds after this one in which each offline device will be offline too."""
        steps = self._lives.away_steps(step) if self._lockstep else None
        return np.zeros(len(self._places), dtype=np.int64) if steps is None else steps

    def _holds_update_for(self, call: Call) -> bool:
        return self._learners[call.key.client].memory.update_for(call) is not None

    def _effort(self, work: TrainingConfig) -> Effort:
        """The effort of a round's work for every device."""
        if self._efforts is None or self._efforts[0] is not work:
            learners = list(self._learners.values())
            train_s = np.array([learner.train_s(work) for learner in learners])
            lines = [learner.line for learner in learners]
            self._efforts = work, effort_of(train_s, lines, *learners[0].body_sizes(work))
        return self._efforts[1]

    def _state_before(self, call: Call) -> State:
        """The state in which a device enters a round.

        Puts the device's simulated state back to it if the round is repeated or the process is new.
        """
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
        """Observations of all devices at the beginning of a step."""
        look = self._lives.look(step)
        return [
            Observation(client, look.state(place), look.covariates(place))
            for client, place in self._places.items()
        ]

    def away(self, step: int) -> bool:
        """Whether the first device is unavailable."""
        return not self._lives.look(step).available[0]
