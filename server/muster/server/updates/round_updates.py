"""The answers and updates of a round, from its opening until they are entered as pending rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.common.exchange import Reason, Update
from muster.server.account.pending_rows import PendingRows
from muster.server.account.rows import AnswerRow
from muster.server.account.traffic import TransferCost
from muster.server.aggregators import Contribution
from muster.server.rounds.round import Round
from muster.server.rounds.staleness import staleness
from muster.server.updates.uploads import ReceivedBody


@dataclass(slots=True)
class PendingUpdate:
    """An accepted update that waits for its round to close.

    Attributes:
        cost: its transfers, without the model inside its call.
        held: whether its process holds it back, so that only a sum with it can be had.
        weight: the aggregator's weight; None until it is known.
    """

    update: Update
    contribution: Contribution
    body: ReceivedBody
    cost: TransferCost
    weight: float | None = None
    held: bool = False


@dataclass(slots=True)
class RoundUpdates:
    """The answers and updates of one round.

    Attributes:
        absent: on clocks on which devices go away, the clients that were not connected when the
            round opened.
        accepted: the accepted updates, by client.
        answered_at: UNIX seconds when each device answered, by client.
        left_out: the clients whose updates do not count although they arrived in time, with the
            reason: their process has not sent the sum with a held one, or its weight makes it too
            large for an exact sum.
        beyond_range: the last update that was refused because it is too large for an exact sum, a
            sentence; empty: none was.
    """

    round: Round
    absent: Sequence[str] = ()
    accepted: dict[str, PendingUpdate] = field(default_factory=dict)
    answered_at: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, Reason] = field(default_factory=dict)
    beyond_range: str = ""
    _rows: list[AnswerRow] | None = None

    def successor(
        self, pending: PendingRows, folded: Sequence[PendingUpdate], base_version: int, at: float
    ) -> "RoundUpdates":
        """The updates of the next round, which takes over the assignments that are still open.
        Those whose update would be too old by then end here, and are entered in `pending`.

        Args:
            folded: the updates that counted in this round.
            base_version: the newest version when the next round opens.
            at: UNIX seconds.
        """
        counted = {update.update.key.client for update in folded}
        next, stale = self.round.successor(counted, base_version)
        for client, member in stale.items():
            behind = staleness(base_version, member.base_version)
            self._end(client, "late", Reason.STALE, pending, at, behind)
        accepted = {c: u for c, u in self.accepted.items() if c in next.cohort}
        answered = {c: at for c, at in self.answered_at.items() if c in next.cohort}
        return RoundUpdates(next, (), accepted, answered)

    def drop_open(self, pending: PendingRows, at: float) -> None:
        """Enter the assignments that are open when the run is complete, as dropped."""
        for client in self.round.cohort:
            self._end(client, "dropped", Reason.ROUND_CLOSED, pending, at)

    def _end(
        self,
        client: str,
        outcome: str,
        reason: Reason,
        pending: PendingRows,
        at: float,
        behind: int = 0,
    ) -> None:
        """Enter an assignment that ends without counting, with its update if that has arrived."""
        member, accepted = self.round.cohort[client], self.accepted.pop(client, None)
        member.ended, member.accepted = True, None
        if accepted is None:
            pending.without_update(client, member, reason, at)
            return
        accepted.body.close()
        fate = outcome, reason, at, accepted.cost, member.claim()
        pending.contribution(accepted.update, member.base_version, *fate, staleness=behind)

    def answer_rows(self, pending: PendingRows, at: float) -> list[AnswerRow]:
        """The rows of the round's answers, and of its absent and silent devices. They are made in
        the first call; later calls return the same rows, and enter what was sent again since then.

        Args:
            at: UNIX seconds of answers whose own time is not known.
        """
        if self._rows is None:
            self._rows = [
                *pending.answers(self.round, self.answered_at, at),
                *pending.unheard(self.round, "absent", self.absent, at),
                *pending.unheard(self.round, "silent", self._silent(), at),
            ]
        else:
            pending.enter_resent(self.round)
        return self._rows

    def _silent(self) -> list[str]:
        """The clients that were called and have not answered, without those entered as absent. In
        lockstep there are none."""
        if self.round.rules.lockstep:
            return []
        if self.round.rules.outlives_round:  # it may still work, and answer in a later round
            return []
        absent, cohort = set(self.absent), self.round.cohort.items()
        unheard = (client for client, member in cohort if member.answer is None)
        return [client for client in unheard if client not in absent]

    def enter(self, pending: PendingRows, folded: Sequence[PendingUpdate], at: float) -> None:
        """Enter the outcomes of the accepted updates, and of devices that gave up, in `pending`.

        Updates that may count in a later round are not entered."""
        counted = {pending_update.update.key.client for pending_update in folded}
        overdue = set(self.round.overdue())
        why = Reason.GOAL_REACHED if self.round.rules.goal else None
        for client, accepted in self.accepted.items():
            outcome: tuple[str, Reason | None] = "dropped", why
            if client in counted:
                outcome = "folded", None
            elif client in overdue:
                outcome = "late", Reason.DEADLINE
            elif client in self.left_out:
                outcome = "dropped", self.left_out[client]
            elif self.round.rules.outlives_round:
                continue
            update, cost = accepted.update, accepted.cost
            member = self.round.cohort[client]
            weight, number, behind = None, member.round, 0
            if client in counted:
                weight, number = accepted.weight, self.round.number
                behind = accepted.contribution.staleness
            fate = *outcome, at, cost, member.claim(), weight
            pending.contribution(update, member.base_version, *fate, round=number, staleness=behind)
        pending.aborts(self.round, at)
