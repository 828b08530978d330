"""What a round gathers: answers and updates, from its opening to the pending."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.common.exchange import Decision, Reason, Update
from muster.server.account.pending_rows import PendingRows
from muster.server.account.rows import AnswerRow
from muster.server.aggregators import Contribution
from muster.server.rounds.lifecycle import Round
from muster.server.updates.uploads import InlineBody, TransferCost, Upload


@dataclass(slots=True)
class PendingUpdate:
    """An accepted update that waits for its round to close.

    Attributes:
        cost: what travelled for it, without the model inside its call.
        weight: once it is known.
    """

    update: Update
    contribution: Contribution
    body: InlineBody | Upload
    cost: TransferCost
    weight: float | None = None


@dataclass(slots=True)
class RoundUpdates:
    """The answers and updates of one round.

    Attributes:
        absent: on clocks on which devices go, who was not there to be called.
        accepted, answered_at: by client; UNIX seconds.
    """

    round: Round
    absent: Sequence[str] = ()
    accepted: dict[str, PendingUpdate] = field(default_factory=dict)
    answered_at: dict[str, float] = field(default_factory=dict)
    _rows: list[AnswerRow] | None = None

    def accepted_calls(self) -> int:
        """Devices that accepted the call, with those who then gave up."""
        answers = (member.answer for member in self.round.cohort.values())
        return sum(a is not None and a.decision is not Decision.DECLINE for a in answers)

    def answer_rows(self, pending: PendingRows, at: float) -> list[AnswerRow]:
        """What was said to the calls, and of whom nothing was heard; the first time decides."""
        if self._rows is None:
            self._rows = [
                *pending.answers(self.round, self.answered_at, at),
                *pending.unheard(self.round, "absent", self.absent, at),
                *pending.unheard(self.round, "silent", self._silent(), at),
            ]
        return self._rows

    def _silent(self) -> list[str]:
        """Who was called and has not answered, beside those who are entered as absent."""
        if self.round.rules.lockstep:
            return []
        absent, cohort = set(self.absent), self.round.cohort.items()
        unheard = (client for client, member in cohort if member.answer is None)
        return [client for client in unheard if client not in absent]

    def enter(self, pending: PendingRows, folded: Sequence[PendingUpdate], at: float) -> None:
        """Enter in the pending what became of the updates."""
        counted = {pending_update.update.key.client for pending_update in folded}
        overdue = set(self.round.overdue())
        why = Reason.GOAL_REACHED if self.round.rules.goal else None
        base_version = self.round.base_version
        for client, pending_update in self.accepted.items():
            outcome: tuple[str, Reason | None] = "dropped", why
            if client in counted:
                outcome = "folded", None
            elif client in overdue:
                outcome = "late", Reason.DEADLINE
            weight = pending_update.weight if client in counted else None
            update, cost, claimed = (
                pending_update.update,
                pending_update.cost,
                self.round.cohort[client].claim(),
            )
            pending.contribution(update, base_version, *outcome, at, cost, claimed, weight)
        pending.aborts(self.round, at)
