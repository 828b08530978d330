"""What aggregators get to know of an update: what the device states, and what the server measures
of its body."""

from typing import Any, Protocol

from muster.common.exchange import Update
from muster.server.aggregators.facts import REPORTED, Contribution, Need
from muster.server.fleet.fleet import Fleet
from muster.server.knowledge.local_work import LocalWork
from muster.server.rounds.round import Round
from muster.server.settings.server import ServerSettings


class MeasuredBody(Protocol):
    """The vector of an update, whose norm can be measured."""

    def squared_norm(self, parameters: int) -> float: ...


class ContributionFacts:
    """Makes the contributions of updates.

    Args:
        work: what is known of local training.
        parameters: length of an update's vector.
    """

    def __init__(
        self, settings: ServerSettings, work: LocalWork, fleet: Fleet, parameters: int
    ) -> None:
        self._mode = settings.mode
        self._discounts = settings.mode.discounts()
        self._needs = settings.aggregator.needs()
        self._reported = [fact for need, fact in REPORTED.items() if need in self._needs]
        self._measures = Need.NORM in self._needs or settings.clip is not None
        self._work = work
        self._fleet = fleet
        self._parameters = parameters

    def of(self, update: Update, body: MeasuredBody, staleness: int) -> Contribution:
        """The contribution of an update that counts with this staleness.

        Args:
            body: the body of the update, whose norm may have to be measured.
        """
        device = self._fleet.devices[update.key.client]
        discount = self._mode.discount(staleness) if self._discounts else 1.0
        fixed = device.client, device.group, update.examples, staleness, discount
        if not self._needs and not self._measures:  # most rules: nothing more is computed
            return Contribution(*fixed)
        known: dict[str, Any] = {}
        if Need.STEPS in self._needs:
            known["effective_steps"] = self._work.effective_steps(update.steps, update.key.round)
        for fact in self._reported:
            if (value := getattr(update.facts, fact)) is not None:
                rate = self._work.learning_rate_at(update.key.round)
                known |= {fact: value, "learning_rate": rate}
        if self._measures:
            known["squared_norm"] = body.squared_norm(self._parameters)
        return Contribution(*fixed, **known)

    def aged(self, update: Update, known: Contribution, round: Round) -> Contribution:
        """The contribution of an update that counts in another round than was thought."""
        staleness = round.staleness_of(update.key.client)
        return known._replace(staleness=staleness, discount=self._mode.discount(staleness))
