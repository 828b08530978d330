"""The weighing of a run, repeated from its ledger with the code of the run's own rule.

The rule gets what it got in the run: the contributions that the ledger records, what the server
knew of population and participation, and the state that it returned for the round before. If the
run has kept its updates, the rule also makes every version again. Without them, what follows from
the updates is unknown, and a rule that asks for it cannot be repeated.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import orjson

from muster.common.exact_sum import ExactSum
from muster.common.exchange import Update, UtilityCurve, Valuation
from muster.common.facts import FACTS, Facts
from muster.common.schedules import rate_at
from muster.common.tensors import Vector
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.vectors import KeptBody, UnknownBody, UnknownState, key_of
from muster.server.aggregation.next_model import NextModel
from muster.server.aggregators import (
    Aggregator,
    Cohort,
    Combining,
    Contribution,
    Need,
    Recalling,
    Remembering,
    State,
    Weighing,
)
from muster.server.aggregators.blocks import squared_distances
from muster.server.aggregators.values import MadeModel
from muster.server.coordination.preparation import columns_of, formats_of, population_of
from muster.server.fleet.devices import EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.knowledge.participation import ParticipationHistory, Seen
from muster.server.settings.process import ServerProcess
from muster.server.updates.contributions import ContributionFacts
from muster.server.updates.formats import UpdateFormats
from muster.server.updates.memory import MEMORY, UpdateMemory
from muster.server.updates.privacy import clipped_weights
from muster.server.updates.secure_sums import OpenedSum


class CountedUpdate:
    """An update that counts in a round, as a rule and its base see it."""

    def __init__(self, row: Row, contribution: Contribution, body: KeptBody | UnknownBody) -> None:
        self.row = row
        self.contribution = contribution
        self.body = body


class RepeatedRule:
    """Repeats the rounds of a run that made a version, in their order.

    Attributes:
        rule: the rule of the run.
        formats: of the updates of the run.
        state: what it has returned for the newest round.

    Args:
        initial: the initial model.
        folder: where what all devices have sent last is kept meanwhile; None: models are not made.
    """

    def __init__(
        self, evidence: Evidence, config: ServerProcess, initial: Vector, folder: Path | None
    ) -> None:
        self.rule: Aggregator = config.server.aggregator
        self.state: State = self.rule.initial_state(initial)
        self._evidence = evidence
        self._config = config
        fleet = Fleet(devices_of(evidence, config))
        self.formats = formats_of(config, config.tensors, fleet)
        self._entries = self.formats.entries
        self._devices = fleet.devices
        self._population = population_of(config, fleet)
        settings = config.server, config.local_work, fleet, self._entries
        self._facts = ContributionFacts(*settings)
        self._participation = ParticipationHistory(columns_of(config.x))
        self._heard = set[str]()
        self._newest = 0
        self._versions = {0: initial}
        self._sum = ExactSum(self._entries)
        self._next = None if folder is None else self._next_model(folder)

    @property
    def keeps_state(self) -> bool:
        """Whether making a version estimates nothing and leaves the state of the weighing."""
        return _keeps_state(self.rule) and not self.formats.masked

    @property
    def newest(self) -> Vector:
        """The version that was made last."""
        return self._versions[max(self._versions)]

    def counted(self, row: Row, body: KeptBody | UnknownBody) -> CountedUpdate:
        """An update that counts, from its row of `contributions`."""
        facts = Facts(**{fact: row[fact] for fact in FACTS})
        nothing = b"", 0, 0.0, 0.0, math.nan
        update = Update(key_of(row), row["examples"], *nothing, steps=row["steps"], facts=facts)
        return CountedUpdate(row, self._facts.of(update, body, row["staleness"]), body)

    def weigh(self, round: int, counted: Sequence[CountedUpdate]) -> Weighing:
        """Weigh the updates of a round with the rule's own code.

        Raises:
            Unknown: it asks for something that the run folder does not have.
        """
        self._learn(round)
        contributions = [update.contribution for update in counted]
        self._heard.update(contribution.client for contribution in contributions)
        needs, clip = self.rule.needs(), self._config.server.clip
        if clip is not None:
            return clipped_weights(contributions, self.rule, self.state, clip)
        reads = [update.body.read for update in counted]
        cohort = Cohort(
            round,
            contributions,
            self._population,
            self._participation,
            distances=squared_distances(reads, self._entries) if Need.DISTANCES in needs else None,
            remembered=len(self._heard),
            valuations=self._valuations(round) if Need.VALUATIONS in needs else {},
            seed=self._config.seed,
        )
        return self.rule.weigh(cohort, self.state)

    def pass_over(self, weighing: Weighing) -> None:
        """Go on to the next round without the model of this one."""
        self.state = weighing.state if _keeps_state(self.rule) else UnknownState()

    def make(
        self,
        round: int,
        counted: Sequence[CountedUpdate],
        weighing: Weighing,
        sums: Sequence[OpenedSum] | None = None,
    ) -> MadeModel:
        """Make the version of a round from its updates, and go on to the next round.

        Args:
            weighing: the weights of the rule, with those of the ledger for the updates.
            sums: the secure sums of the updates, which are unknown.
        """
        assert self._next is not None
        self._sum.clear()
        if sums is not None:
            for sum in sums:
                sum.add_to(self._sum)
        elif self.rule.adds_up():
            self._add(counted, weighing.weights)
        rate = self._config.gradient_step
        scale = 1.0 if rate is None else -rate_at(rate, round)
        masks = None
        if self.formats.masked:
            masks = [self.formats.mask_of(key_of(update.row)) for update in counted]
        made = self._next.make(self.newest, round, counted, weighing, scale, masks)
        self.state = made.state
        self._versions[max(self._versions) + 1] = made.model
        oldest = max(self._versions) - (self._config.server.mode.oldest() or 0) - 1
        self._versions = {v: model for v, model in self._versions.items() if v >= oldest}
        return made

    def _add(self, counted: Sequence[CountedUpdate], weights: Sequence[float]) -> None:
        bases = defaultdict[int, list[float]](list)
        for update, weight in zip(counted, weights, strict=True):
            self._sum.add(update.body.read(0, self._entries), weight)
            bases[update.row["base_version"]].append(weight)
        if self._adds_bases:
            for version, of_base in bases.items():
                self._sum.add(self._versions[version], math.fsum(of_base))

    @property
    def _adds_bases(self) -> bool:
        return self.rule.weighs == "parameters" and self._config.server.mode.outlives_round()

    def _next_model(self, folder: Path) -> NextModel:
        memory, counted = None, self._config.tensors.counted
        if self.rule.remembers():
            memory = UpdateMemory(folder / MEMORY, self._entries, list(self._devices))
            memory.load([])
        of_run = self._sum, self._population, memory, self._adds_bases, counted
        return NextModel(self.rule, *of_run)

    def _learn(self, round: int) -> None:
        """Enter the rounds up to this one in the history of participation, if the rule needs it."""
        if Need.PARTICIPATION not in self.rule.needs():
            return
        for number in range(self._newest + 1, round + 1):
            query = (
                "SELECT a.client, c.client IS NOT NULL, a.x, a.x_age_s FROM answers a "
                "LEFT JOIN contributions c ON c.round = a.round AND c.client = a.client "
                "AND c.outcome = 'folded' WHERE a.round = ?"
            )
            rows = self._evidence.rows(query, number)
            self._participation.enter([self._seen(*row) for row in rows])
        self._newest = round

    def _seen(self, client: str, took_part: int, x: str | None, age_s: float | None) -> Seen:
        device = self._devices[client]
        known = orjson.loads(x) if x else None
        if known is None and not self._config.x.get(device.group):
            known = {}  # the group has no covariates X
        return Seen(device.index, bool(took_part), known, age_s or 0.0)

    def _valuations(self, round: int) -> Mapping[str, Valuation]:
        query = (
            "SELECT client, received_accuracy, own_accuracy, a, b, c, threshold, gains, forced, "
            "fitted_utility, r_squared, received_loss, own_loss FROM valuations WHERE round = ?"
        )
        found = {}
        for client, received, own, *rest in self._evidence.rows(query, round):
            curve = None if rest[0] is None else UtilityCurve(*rest[:4])
            gains = None if rest[4] is None else bool(rest[4])
            found[client] = Valuation(received, own, curve, gains, bool(rest[5]), *rest[6:])
        return MappingProxyType(found)


def devices_of(evidence: Evidence, config: ServerProcess) -> Iterator[EnrolledDevice]:
    """The devices that may train, with the covariates that they have reported."""
    query = "SELECT client, z FROM clients WHERE z IS NOT NULL"
    known = {client: orjson.loads(z) for client, z in evidence.rows(query)}
    for place, member in enumerate(config.population):
        if member.enrolled:
            z = known.get(member.client)
            of_device = member.client, member.group, place, member.examples
            yield EnrolledDevice(*of_device, z=z)


def formats_of_run(evidence: Evidence, config: ServerProcess) -> UpdateFormats:
    """The formats of the updates of a run."""
    return formats_of(config, config.tensors, Fleet(devices_of(evidence, config)))


def _keeps_state(rule: Aggregator) -> bool:
    """Whether making a version leaves the state of the weighing as it is."""
    kept = Aggregator.make, Combining.make, Remembering.make, Recalling.make
    return type(rule).make in kept and type(rule).next_state is Aggregator.next_state
