"""The state machine of one round, without I/O and without a clock.

Rule 1: every change of phase is a row of `rounds.phases.TRANSITIONS`. Code elsewhere reports what
happened; only this table says what it means.

Rule 2: time arrives as an event (`DEADLINE_PASSED`). Nothing here looks at a clock, so a test can
play any history in microseconds.

A device has spoken when the round expects nothing more of it: it declined, gave up, or its update
was judged. In lockstep only ALL_SPOKE closes a round. The updates that count are then chosen by
modelled durations, never by real arrival.

In some modes an assignment may outlive the round of its call (`Rules.outlives_round`). The next
round then takes over the device with its answer and its update, if that has arrived, and takes its
update from the moment at which the round before has closed.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from muster.common.exchange import Answer, Decision, Key, Outcome, Reason, Receipt, Update
from muster.common.tables import impossible
from muster.server.rounds.cohort import CohortMember, WorkTime, times_alone
from muster.server.rounds.modes.contract import RoundEnd
from muster.server.rounds.phases import TRANSITIONS, RoundEvent, RoundPhase
from muster.server.rounds.round_length import closes_s
from muster.server.rounds.rules import Rules
from muster.server.rounds.staleness import is_too_stale, staleness


@dataclass(slots=True)
class Round:
    """One round: its phase, its cohort, and the judgement of every answer and update.

    Attributes:
        base_version: the newest version when it opens, from which the devices that it calls train.
        step: in lockstep, the step of device life at which it opens.
        scenario_s: scenario seconds at which it opens; None before scenario time began.
        next_s: if updates may outlive their round, in lockstep, scenario seconds at which the next
            one opens; infinite as long as that is not known.
        receipts: by key, the checksum of the judged body and its receipt, so that the same body
            gets the same receipt.
        takes_updates: whether updates of the cohort can still be accepted. If they may count in a
            later round, they are accepted until that round has taken them over.
        sent_bytes: bytes of the models inside the messages that called its cohort.
        untried: whether it called some devices and could have called more.
    """

    number: int
    base_version: int
    rules: Rules
    step: int = 0
    scenario_s: float | None = None
    next_s: float = math.inf
    phase: RoundPhase = RoundPhase.SELECTING
    cohort: dict[str, CohortMember] = field(default_factory=dict)
    receipts: dict[Key, tuple[bytes, Receipt]] = field(default_factory=dict)
    takes_updates: bool = field(init=False)
    sent_bytes: int = 0
    untried: bool = False
    _unspoken: int = 0
    _brought: int = 0
    _arrived: dict[str, None] = field(default_factory=dict)
    """The clients whose updates were accepted before the round closed, in the order of arrival."""

    def __post_init__(self) -> None:
        self.takes_updates = self.rules.outlives_round

    def happen(self, event: RoundEvent) -> RoundPhase:
        """Move to the phase that `event` leads to and return it.

        Raises:
            LocalProtocolError: `event` has no row for this phase; the phase is unchanged.
        """
        try:
            self.phase = TRANSITIONS[self.phase, event]
        except KeyError:
            raise impossible(f"round {self.number}", self.phase, event) from None
        self.takes_updates = self.phase is RoundPhase.COLLECTING or (
            self.rules.outlives_round and self.phase is not RoundPhase.DROPPED
        )
        return self.phase

    def take_over(self, members: Mapping[str, CohortMember]) -> None:
        """Take the open assignments of the round before into the cohort."""
        self.cohort = dict(members)

    def select(self, clients: Sequence[str]) -> None:
        """Add these clients to the cohort, and begin to collect."""
        for client in clients:
            self.cohort[client] = CohortMember(
                self.number, self.base_version, self.scenario_s or 0.0, self.step
            )
        self._unspoken = sum([not member.spoke for member in self.cohort.values()])
        self._arrived |= {c: None for c, m in self.cohort.items() if m.accepted is not None}
        self._brought = len(self._arrived)
        if not self.cohort:
            self.happen(RoundEvent.NOBODY_SELECTED)
            return
        self.happen(RoundEvent.CALLED)
        if self._unspoken == 0:
            self.happen(RoundEvent.ALL_SPOKE)
        elif not self.rules.lockstep and self._goal_reached():
            self.happen(RoundEvent.GOAL_REACHED)

    def call(self, client: str) -> Key:
        """Count a further call to a member of the cohort, and return the call's key."""
        member = self.cohort[client]
        member.attempt += 1
        return Key(client, member.round, member.attempt)

    def sent(self, client: str, size: int) -> None:
        """Count the bytes of a model inside a message whose first call is that of `client`."""
        self.cohort[client].model_bytes += size
        self.sent_bytes += size

    def own(self) -> Mapping[str, CohortMember]:
        """The members that this round has called, without those that it has taken over."""
        if not self.rules.outlives_round:
            return self.cohort
        return {c: member for c, member in self.cohort.items() if member.round == self.number}

    def called(self) -> int:
        """How many devices the round has called, or the recorded one that it repeats."""
        return self.rules.life.called(self.number, len(self.own()))

    def accepted(self) -> int:
        """How many devices have accepted the call, including those that then gave up, or the
        recorded number."""
        answers = [member.answer for member in self.own().values()]
        accepted = sum([a is not None and a.decision is not Decision.DECLINE for a in answers])
        return self.rules.life.accepted(self.number, accepted)

    def uncalled(self) -> list[str]:
        """The members that have not been called by this incarnation of the server."""
        return [client for client, member in self.cohort.items() if member.attempt == 0]

    def is_stale(self, member: CohortMember) -> bool:
        """Whether the update of a member could no longer count in this round, or nothing was heard
        of it for so many rounds that its device counts as silent."""
        behind = staleness(self.base_version, member.base_version)
        silent = member.accepted is None and self.number - member.round > self.rules.most_rounds
        return silent or is_too_stale(behind, self.rules.max_staleness)

    def staleness_of(self, client: str) -> int:
        """The staleness with which the update of a member counts in this round."""
        return staleness(self.base_version, self.cohort[client].base_version)

    def has_call(self, key: Key) -> bool:
        """Whether a key is that of a member's assignment, whichever attempt."""
        member = self.cohort.get(key.client)
        return member is not None and member.round == key.round

    def expects(self, client: str) -> bool:
        """Whether the round still waits for the device."""
        member = self.cohort.get(client)
        return self.phase is RoundPhase.COLLECTING and member is not None and not member.spoke

    def has_work(self) -> bool:
        """Whether a device of the cohort is still expected, or enough updates for a version have
        come."""
        members = self.cohort.values()
        accepted = sum(member.accepted is not None for member in members)
        return accepted >= max(1, self.rules.least) or any(not m.spoke for m in members)

    def failed_trainings(self) -> list[Answer]:
        """The answers of the cohort that say that training failed."""
        answers = (member.answer for member in self.cohort.values())
        return [a for a in answers if a is not None and a.reason is Reason.TRAINING_FAILED]

    def training_failed(self) -> Answer | None:
        """The first answer of the cohort, if training has failed on all of its devices."""
        failed = self.failed_trainings()
        return failed[0] if failed and len(failed) == len(self.cohort) else None

    def answer(self, answer: Answer) -> Reason | None:
        """Record a device's answer; return why it does not belong to this round, or None.

        If a device that came back repeats its answer, the new answer replaces the first. An answer
        that arrives after its update replaces the placeholder.
        """
        if reason := self._why_foreign(answer.key):
            return reason
        if not self.takes_updates:
            return Reason.ROUND_CLOSED
        member = self.cohort[answer.key.client]
        if member.overtaken:  # its update is here, so it accepted, whatever the answer says
            member.answer = answer._replace(decision=Decision.ACCEPT, reason=None)
            member.overtaken = False
            self._mark_spoken(member)
        elif not member.spoke:
            member.answer = answer
            if answer.decision is not Decision.ACCEPT:
                self._mark_spoken(member)
        return None

    def judge(self, update: Update) -> Receipt | None:
        """Return the receipt of an update if it is known without its body, or None.

        It is known if the update's key is from another round, if the device was not called, if the
        key was judged before, or if the same body was accepted from an earlier attempt.
        """
        key = update.key
        if known := self.receipts.get(key):
            checksum, receipt = known
            if checksum == update.checksum:
                return receipt
            return Receipt(key, Outcome.REFUSED, Reason.OTHER_BODY, _OTHER_BODY)
        reason = self._why_foreign(key)
        if reason is Reason.ROUND_CLOSED:
            return Receipt(key, Outcome.LATE, reason)
        if reason:
            return Receipt(key, Outcome.REFUSED, reason, self._describe_foreign(key))
        accepted = self.cohort[key.client].accepted
        if accepted is not None and accepted.checksum == update.checksum:
            return Receipt(key, Outcome.ACCEPTED)
        return None

    def refuse(self, update: Update, reason: Reason, detail: str) -> Receipt:
        """Refuse an update of this round because of its body.

        After damage in transit (a wrong checksum) the device may send the right body under the same
        key. After any other fault it has spoken, because training would give the same body again.
        """
        receipt = Receipt(update.key, Outcome.REFUSED, reason, detail)
        if reason is not Reason.CHECKSUM:
            self.receipts[update.key] = (update.checksum, receipt)
            self._mark_judged(self.cohort[update.key.client], update)
        return receipt

    def receive(self, update: Update) -> Receipt:
        """Judge a complete, well-formed update and record it. The phase changes if this closes the
        round.

        Only an update whose receipt says ACCEPTED may be folded, and each is accepted once.
        """
        return self.judge(update) or self.admit(update)

    def admit(self, update: Update) -> Receipt:
        """Like `receive`, for an update for which `judge` returned None."""
        receipt = self._admit(update)
        self.receipts[update.key] = (update.checksum, receipt)
        return receipt

    def _admit(self, update: Update) -> Receipt:
        member = self.cohort[update.key.client]
        if member.accepted is not None:
            return Receipt(update.key, Outcome.REFUSED, Reason.OTHER_BODY, _COUNTED)
        if member.ended:
            return Receipt(update.key, Outcome.LATE, Reason.STALE)
        if not self.takes_updates:
            return Receipt(update.key, Outcome.LATE, self._why_closed(member))
        limit_s = self.rules.deadline_s
        if self.rules.lockstep and limit_s is not None and update.modelled_s > limit_s:
            member.late = update
            receipt = Receipt(update.key, Outcome.LATE, Reason.DEADLINE)
        else:
            member.accepted = update
            if self.phase is RoundPhase.COLLECTING:
                self._arrived[update.key.client] = None
            receipt = Receipt(update.key, Outcome.ACCEPTED)
        self._mark_judged(member, update)
        return receipt

    def has_arrived(self, client: str) -> bool:
        """Whether the update of a client was accepted before the round closed."""
        return client in self._arrived

    def _mark_judged(self, member: CohortMember, update: Update) -> None:
        """Record that the update of a member was judged, so that nothing more is expected of it but
        perhaps its answer."""
        if member.spoke or not self.takes_updates:
            return
        if member.answer is None:  # the answer travels on the other channel and will arrive later
            member.answer = Answer(update.key, Decision.ACCEPT, update.modelled_s)
            member.overtaken = True
        if not (member.overtaken and self.rules.lockstep and self.rules.awaits_answers):
            self._mark_spoken(member)

    def _mark_spoken(self, member: CohortMember) -> None:
        """Record that nothing more is expected of a member, and close the round if that does it."""
        if member.spoke:
            return
        member.spoke = True
        if self.phase is not RoundPhase.COLLECTING:
            return
        self._unspoken -= 1
        if self._unspoken == 0:
            self.happen(RoundEvent.ALL_SPOKE)
        elif not self.rules.lockstep and self._goal_reached():
            self.happen(RoundEvent.GOAL_REACHED)

    def _goal_reached(self) -> bool:
        if self.rules.each and len(self._arrived) > self._brought:
            return True
        return self.rules.goal is not None and len(self._arrived) >= self.rules.goal

    def counted(self) -> list[str]:
        """The clients whose updates are folded, in the order of the cohort.

        In lockstep these are the first `goal` by modelled finish, ties by client, of those that met
        the deadline and finished in the window, or until the next finish. On the wall clock these
        are all whose updates were accepted before the round closed. A life record says who counts.
        """
        chosen = set(self.rules.life.counted(self.number, self._arrived, self._by_time))
        return [client for client in self.cohort if client in chosen]

    def _by_time(self) -> Collection[str]:
        """The clients whose updates count by the durations of their work."""
        rules, chosen = self.rules, list(self._arrived)
        if rules.lockstep and (rules.goal or rules.window_s or rules.sharing):
            chosen = self._first_finished(chosen)
        if len(chosen) < rules.least:
            return []
        return chosen

    def _first_finished(self, arrived: Collection[str]) -> list[str]:
        """In lockstep, the clients whose updates count in this round, in the order in which they
        finish."""
        slow, times = set(self.slow()), self.times()
        ends = {client: times[client].end_s for client in arrived if client not in slow}
        opened_s, end_s = self.scenario_s or 0.0, math.inf
        if self.rules.window_s is not None:
            end_s = opened_s + self.rules.window_s
        if self.rules.each:
            end_s = min((end for end in ends.values() if end > opened_s), default=opened_s)
        ends = {client: end for client, end in ends.items() if end <= end_s}
        return sorted(ends, key=lambda client: (ends[client], client))[: self.rules.goal]

    def times(self) -> Mapping[str, WorkTime]:
        """The time of the modelled work of every update that arrived, by client, in lockstep. They
        include what shared links add."""
        alone = times_alone(self.cohort)
        return alone if self.rules.sharing is None else self.rules.sharing(alone)

    def slow(self) -> list[str]:
        """Clients whose accepted updates miss the deadline only because of shared links. They are
        known when all devices have spoken."""
        limit = self.rules.deadline_s
        if self.rules.sharing is None or limit is None:
            return []
        times = self.times()
        return [c for c, m in self.cohort.items() if m.accepted and times[c].modelled_s > limit]

    def overdue(self) -> list[str]:
        """The `slow` clients whose deadline passes before the next round opens."""
        limit = self.rules.limit_s
        return [c for c in self.slow() if self.cohort[c].begun_s + limit <= self.next_s]

    def end(self) -> RoundEnd:
        """The end of the round in lockstep, from which its mode knows when the next one opens."""
        times, counted = self.times(), set(self.counted())
        finished = [times[client].end_s for client in self.cohort if client in counted]
        open = [
            time.end_s
            for client, time in times.items()
            if client not in counted and self.cohort[client].works
        ]
        opened_s = self.scenario_s or 0.0
        closed_s = closes_s(opened_s, self.rules, self.cohort, times, counted)
        return RoundEnd(self.number, opened_s, finished, self.untried, open, closed_s)

    def successor(
        self, counted: Collection[str], base_version: int
    ) -> "tuple[Round, dict[str, CohortMember]]":
        """The next round, which takes over the assignments that are still open; and those that end
        here (`is_stale`). Overdue ones end too.

        Args:
            counted: the clients whose updates counted in this round.
            base_version: the newest version when the next round opens.
        """
        next = Round(self.number + 1, base_version, self.rules)
        gone = {*counted, *self.overdue()}
        left = {c: m for c, m in self.cohort.items() if m.works and c not in gone}
        stale = {client: member for client, member in left.items() if next.is_stale(member)}
        next.take_over({client: m for client, m in left.items() if client not in stale})
        return next, stale

    def _why_foreign(self, key: Key) -> Reason | None:
        """Return why a key is not that of a call to the cohort, or None if it is."""
        member = self.cohort.get(key.client)
        if key.round != (self.number if member is None else member.round):
            return Reason.ROUND_CLOSED if key.round < self.number else Reason.WRONG_ROUND
        if member is None or not 1 <= key.attempt <= member.attempt:
            return Reason.NOT_CALLED
        return None

    def _describe_foreign(self, key: Key) -> str:
        """Return a sentence about a key that is not that of a call of this round."""
        member = self.cohort.get(key.client)
        called = f"called {member.attempt} times" if member else "not called"
        return (
            f"an update of round {key.round}, attempt {key.attempt}; round {self.number} is "
            f"{self.phase}, and {key.client} was {called} for it"
        )

    def _why_closed(self, member: CohortMember) -> Reason:
        """Why an update of a member comes too late. One that was judged before, and is sent again,
        missed neither the deadline nor the goal."""
        if self.phase is RoundPhase.DROPPED or member.spoke:
            return Reason.ROUND_CLOSED
        return Reason.GOAL_REACHED if self._goal_reached() else Reason.DEADLINE


_OTHER_BODY = "another body was received under this key; an attempt has one body"
_COUNTED = "another attempt of this device was accepted for this round; each device counts once"
