"""Answers: enters what devices say to the calls of the open round, and what they report of
themselves."""

import logging
import math
from collections import Counter
from collections.abc import Sequence

from muster.common.clock import Clock
from muster.common.events import Answered, Declined, Tell, TrainingFailed
from muster.common.exchange import Answer, Decision, Observation, Reason, Valuation
from muster.server.account.pending_rows import PendingRows
from muster.server.fleet.devices import ConnectedPack
from muster.server.fleet.fleet import Fleet
from muster.server.rounds.candidates import note_answer
from muster.server.rounds.round import Round
from muster.server.updates.round_updates import RoundUpdates
from muster.wire.messages import FromDevice

log = logging.getLogger(__name__)


class Answers:
    """Enters answers and reports of devices.

    Attributes:
        declined: the reasons of the devices that declined since `tell_declined`.

    Args:
        max_loss: the largest loss that a valuation may have.
    """

    def __init__(
        self,
        pending: PendingRows,
        fleet: Fleet,
        clock: Clock,
        tell: Tell,
        max_loss: float = math.inf,
    ) -> None:
        self._max_loss = max_loss
        self._pending = pending
        self._fleet = fleet
        self._clock = clock
        self._tell = tell
        self.declined: list[str] = []

    def check(self, pack: ConnectedPack, message: FromDevice) -> None:
        """Check a message of a session before any of it is entered.

        Raises:
            RemoteProtocolError: a device has other covariates X than the scenario gives its group.
        """
        for answer, _ in message.answers:
            if answer.x or answer.state is not None:
                self._check_x(pack, answer.key.client, answer.x)
            for later in answer.foreseen:
                self._check_x(pack, later.client, later.x)
        for seen in message.seen:
            self._check_x(pack, seen.client, seen.x)

    def _check_x(self, pack: ConnectedPack, client: str, x: Sequence[float]) -> None:
        if (device := pack.devices.get(client)) is not None:
            self._pending.check(device, x)

    def enter(self, pack: ConnectedPack, answer: Answer, updates: RoundUpdates | None) -> bool:
        """Enter a device's answer if the device was called; return whether it is progress.

        The state and covariates in it are kept in any case. A device whose valuation of the model
        is refused counts as one that declines.

        Args:
            updates: the updates of the open round; None between two rounds.
        """
        client = answer.key.client
        device = pack.devices.get(client)
        if device is None:
            return False
        fault = answer.fault if answer.valuation is None else self._fault_of(answer.valuation)
        if fault:
            log.warning("the valuation of %s is refused: %s", client, fault)
            answer = answer._replace(
                decision=Decision.DECLINE, reason=Reason.VALUATION, valuation=None, fault=fault
            )
        if answer.state is not None or answer.x:
            self.see(pack, Observation(client, answer.state, answer.x))
        if updates is None:
            return False
        round = updates.round
        if round.rules.outlives_round and answer.foreseen:
            # A device that has declined may be called again at the next step, which plans know too.
            answer = answer._replace(away_steps=0, foreseen=())
        member, again = round.cohort.get(client), False
        before = None if member is None else member.answer
        if before is not None and member is not None and not member.overtaken:
            again = before.key == answer.key and before.decision is answer.decision
        if round.answer(answer) is not None or again:
            return False
        updates.answered_at[client] = self._clock.now()
        if answer.decision is Decision.DECLINE or round.rules.outlives_round:
            note_answer(device, answer, round)
        if answer.decision is Decision.DECLINE:
            self.declined.append(answer.reason.value if answer.reason else "")
        elif answer.update is None:  # else the event about the update is enough
            self._tell(Answered(round.number, client, answer.decision, answer.reason))
            if answer.reason is Reason.TRAINING_FAILED:
                self._tell(TrainingFailed(round.number, client, answer.detail))
        # If a device comes back and accepts again, that is no progress.
        return before is None or answer.decision is not Decision.ACCEPT

    def _fault_of(self, valuation: Valuation) -> str:
        """What is wrong with the losses of a valuation; empty: nothing."""
        losses = valuation.received_loss, valuation.own_loss
        wrong = [loss for loss in losses if loss is not None and abs(loss) > self._max_loss]
        limit = f"expected at most {self._max_loss:g} (server.guard.max_loss)"
        return f"a loss of {wrong[0]:g}; {limit}" if wrong else ""

    def tell_declined(self, round: Round | None) -> None:
        """Tell of the devices that declined. One event has all of them, because there may be
        thousands, and the ledger names them."""
        assert round is not None
        self._tell(Declined(round.number, Counter(self.declined)))
        self.declined.clear()

    def see(self, pack: ConnectedPack, seen: Observation) -> None:
        """Keep the newest state and covariates that a device reported."""
        device = pack.devices.get(seen.client)
        if device is not None:
            device.see(seen, self._clock.monotonic())

    def decline_known_away(self, clients: Sequence[str], round: Round) -> None:
        """Enter answers for devices that have already said that they are offline in this round."""
        for client in clients:
            device = self._fleet.devices[client]
            left = 0 if device.revoked else device.away_until - round.step
            answer = Answer(
                round.call(client), Decision.DECLINE, reason=Reason.OFFLINE, away_steps=left
            )
            if (seen := device.foreseen.get(round.step)) is not None:
                device.see(seen, self._clock.monotonic())
                answer = answer._replace(state=seen.state, x=seen.x)
            round.answer(answer)
        if clients:
            self._tell(Declined(round.number, {Reason.OFFLINE.value: len(clients)}))
