"""Admission of updates by their headers: decides, before a body is read, whether an update can
count at all."""

import math
from collections.abc import Collection

from muster.common.exchange import Answer, Key, Outcome, Reason, Receipt, Update
from muster.common.facts import FACTS, LOSSES
from muster.server.aggregators.facts import REPORTED, Need
from muster.server.fleet.devices import ConnectedPack, EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.rounds.cohort import CohortMember
from muster.server.rounds.round import Round
from muster.server.updates.formats import UpdateFormats


class Admission:
    """Judges updates by their headers, against the open round and the one before it. This may close
    the open round.

    Attributes:
        round: the open round; None between two rounds.
        past: the round that was open before; devices still get its receipts.
        newest_round: the number of the newest round that was opened.
        formats: the formats that updates must have.

    Args:
        needs: what the aggregator needs to know of updates.
        max_loss: the largest loss that a device may report.
    """

    def __init__(
        self,
        formats: UpdateFormats,
        fleet: Fleet,
        needs: Collection[Need] = (),
        max_loss: float = math.inf,
    ) -> None:
        self.round: Round | None = None
        self.past: Round | None = None
        self.newest_round = 0
        self.formats = formats
        self._fleet = fleet
        self._least_steps = int(Need.STEPS in needs)
        needed = [fact for need, fact in REPORTED.items() if need in needs]
        self._needed = {
            fact: FACTS[fact].up_to(max_loss if fact in LOSSES else math.inf) for fact in needed
        }

    def open(self, round: Round) -> None:
        """Judge updates against this round from now on."""
        self.round, self.newest_round = round, round.number

    def take_over(self, round: Round) -> None:
        """Judge updates of the assignments that this round has taken over, before it opens."""
        self.round = round

    def close(self) -> None:
        """Accept nothing more for the open round; its receipts stay until the next one closes."""
        self.past, self.round = self.round or self.past, None

    def known_receipt(self, pack: ConnectedPack, update: Update) -> Receipt | None:
        """The receipt of an update if its header decides it; None if its body must be read."""
        device = pack.devices.get(update.key.client)
        if device is None:
            first, *others = pack.devices
            whose = f"{first} and {len(others)} more" if others else first
            detail = f"this session belongs to {whose}"
            return Receipt(update.key, Outcome.REFUSED, Reason.UNKNOWN_CLIENT, detail)
        round = self.round_of(update.key)
        if round is None:
            return Receipt(update.key, Outcome.LATE, Reason.ROUND_CLOSED)
        if known := round.judge(update):
            return known
        # Refused by the round, so that it does not wait for another update: training again would
        # give the same one.
        if fault := self._fault(update, device, round.cohort[device.client].answer):
            return round.refuse(update, *fault)
        return None if round.takes_updates else round.admit(update)

    def _fault(
        self, update: Update, device: EnrolledDevice, answer: Answer | None
    ) -> tuple[Reason, str] | None:
        """Return why an update for a call to a device cannot count, or None if it can.

        Args:
            answer: the device's answer to the call, if it has arrived.
        """
        format = self.formats.of(update.key)
        if update.length != format.length:
            expected = f"{format.length} bytes: {format.parameters} parameters"
            detail = f"the schema asks for {expected}, {format.codec.kind}"
            return Reason.LENGTH, f"{update.length} bytes; {detail}"
        if not 0 < update.examples <= device.examples:
            return Reason.EXAMPLES, f"{update.examples} examples; it holds {device.examples}"
        if answer is not None and answer.reason is Reason.VALUATION:
            return Reason.VALUATION, answer.fault
        # What the aggregator needs to know of an update.
        if not self._least_steps <= update.steps <= device.most_steps:
            expected = "expected at least 1" if not update.steps else f"at most {device.most_steps}"
            return Reason.STEPS, f"{update.steps} local steps; {expected}"
        for fact, said in self._needed.items():
            value = getattr(update.facts, fact)
            if not said.allows(value):
                expected = f"expected a number from {said.least:g} to {said.most:g}"
                return Reason(said.reason), f"{fact} is {value}; {expected}"
        return None

    def round_of(self, key: Key) -> Round | None:
        """The round that judges an update: the past round if its key names it and the open round
        has not taken the assignment over, else the open one."""
        past, open = self.past, self.round
        if past is None or key.round != past.number or (open and open.has_call(key)):
            return open
        return past

    def member_of(self, key: Key) -> CohortMember | None:
        """The device's entry in the cohort of the round that its update is for; None if the device
        is not in it or the server no longer keeps that round."""
        round = self.round_of(key)
        return round.cohort[key.client] if round and round.has_call(key) else None

    def newest_call(self, pack: ConnectedPack) -> Key:
        """The newest call of a device of this pack. A device that the round still waits for comes
        before the others."""
        for round in (self.round, self.past):
            cohort = round.cohort if round is not None else {}
            called = [client for client in pack.devices if client in cohort]
            if round is not None and called:
                client = next((each for each in called if not cohort[each].spoke), called[0])
                return Key(client, cohort[client].round, cohort[client].attempt)
        return Key(next(iter(pack.devices)), 0, 0)
