"""The schedule of evaluations: the versions of every `evaluate_every` rounds, the last version, and
those that a killed server left out.

It evaluates the model that the run would offer if it ended there (`Aggregator.result`). With
`server.evaluate_on = "devices"` devices evaluate, and the schedule enters what they report.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping

from muster.common.clock import Clock
from muster.common.events import Evaluated, Tell
from muster.common.tensors import Vector
from muster.server.account.columns import Statement
from muster.server.account.rows import ContributionRow
from muster.server.account.run_rows import (
    DeviceEvaluationRow,
    EvaluationRow,
    GroupEvaluationRow,
    all_metrics,
)
from muster.server.account.transaction import evaluation_statements, part_statements
from muster.server.evaluation.best import BestVersion, require_measured
from muster.server.evaluation.evaluator import Evaluator
from muster.server.evaluation.messages import EvaluationResult, Setup
from muster.server.evaluation.on_devices import evaluations_of
from muster.server.settings.process import ServerProcess
from muster.server.settings.server import ServerSettings

Enter = Callable[[EvaluationRow], Awaitable[None]]
"""Commits an evaluation to the ledger."""


def setup_of(config: ServerProcess) -> Setup:
    """Return the setup of a server's evaluation process."""
    server, members = config.server, config.population
    return Setup(
        task=config.task,
        population=len(members),
        seed=config.seed,
        groups=[member.group for member in members] if server.evaluate_groups else [],
        clients=[member.client for member in members] if server.evaluate_devices else [],
    )


class EvaluationSchedule:
    """Decides which versions of a run are evaluated, and records the results.

    Args:
        known: the metrics of the versions that were evaluated before, in their order.
        on_devices: the versions that devices have evaluated before.
        groups: the group of every device.
        offered: returns the model that the run would offer if it ended with a version.
        keep_best: writes this model as the best one.
        enter: commits a result to the ledger.
        tell: records an event.
    """

    def __init__(
        self,
        settings: ServerSettings,
        known: dict[int, dict[str, float]],
        on_devices: set[int],
        groups: Mapping[str, str],
        offered: Callable[[int], Vector],
        keep_best: Callable[[int], Awaitable[None]],
        enter: Enter,
        clock: Clock,
        tell: Tell,
    ) -> None:
        self._settings = settings
        self._known = known
        self._on_devices = on_devices
        self._groups = groups
        self._offered = offered
        self._keep_best = keep_best
        self._best = None if settings.best is None else BestVersion(settings.best)
        if self._best is not None:
            for version, metrics in known.items():
                self._best.enter(version, metrics)
        self._enter = enter
        self._clock = clock
        self._tell = tell
        self._evaluator: Evaluator | None = None

    def begin(self, evaluator: Evaluator) -> None:
        """Use `evaluator` from now on."""
        self._evaluator = evaluator

    @property
    def evaluator(self) -> Evaluator:
        assert self._evaluator is not None
        return self._evaluator

    def waiting(self) -> set[int]:
        """The versions whose bytes are still needed, because they wait for evaluation."""
        return self.evaluator.waiting()

    def missing(self, stored: Mapping[int, int]) -> set[int]:
        """The versions that `evaluate_every` names and that have no result yet.

        Args:
            stored: versions, each with the round that made it.
        """
        return {version for version, round in stored.items() if self._is_missing(version, round)}

    def _is_missing(self, version: int, round: int) -> bool:
        if self._settings.evaluate_on == "devices":
            return False
        count = version if self._settings.mode.counts_versions else round
        return count % self._settings.evaluate_every == 0 and version not in self._known

    async def after(self, round: int, version: int) -> None:
        """Evaluate the version that a round made, if `evaluate_every` says so."""
        if self._is_missing(version, round):
            await self._submit(version, round)

    async def finish(self, round: int, version: int) -> None:
        """Evaluate the last version if that was not done, and wait for all that are under way."""
        here = self._settings.evaluate_on != "devices"
        if here and version not in self._known and version not in self.waiting():
            await self._submit(version, round)
        await self.evaluator.drained()

    async def enough(self, version: int) -> str:
        """Return why the run is to end with a version, as a part of a sentence; empty if it is not.
        If evaluations may end it, wait for them."""
        if not self._settings.ends_early:
            return ""
        await self.evaluator.drained()
        if self._settings.evaluate_on == "devices":  # of the newest version that they trained from
            version = max(self._known, default=0)
        if self._settings.target.reached(self._known.get(version, {})):
            return "the target was reached"
        return self._best.exhausted if self._best else ""

    async def done(self, measured: EvaluationResult) -> None:
        """Record the result of a version."""
        version, round = measured.version, measured.round
        row = EvaluationRow(
            version,
            round,
            measured.loss,
            measured.accuracy,
            measured.metrics,
            measured.seconds,
            self._clock.now(),
            [GroupEvaluationRow(version, round, name, *p) for name, p in measured.groups.items()],
            [DeviceEvaluationRow(version, name, *part) for name, part in measured.devices.items()],
        )
        metrics = all_metrics(measured.loss, measured.accuracy, measured.metrics)
        require_measured(self._settings.target, metrics)
        # Before the evaluation is durable: a killed server then evaluates the version again.
        if self._best is not None and self._best.improves(metrics):
            await self._keep_best(version)
        await self._enter(row)
        self._known[version] = metrics
        if self._best is not None:
            self._best.enter(version, metrics)
        self._tell(Evaluated(version, round, measured.loss, measured.accuracy, measured.seconds))

    def reported(
        self, contributions: Iterable[ContributionRow], made: Mapping[int, int]
    ) -> list[EvaluationRow]:
        """The evaluations that devices report with the updates of a round.

        Args:
            made: the round that made each version.
        """
        if self._settings.evaluate_on == "server":
            return []
        given = self._groups, made, self._on_devices, self._clock.now()
        return [*evaluations_of(contributions, *given)]

    def statements(self, reported: Iterable[EvaluationRow]) -> list[Statement]:
        """What enters them in the ledger. The loss of the run is that of the server, if the server
        evaluates too."""
        alone = self._settings.evaluate_on == "devices"
        entering = evaluation_statements if alone else part_statements
        return [statement for row in reported for statement in entering(row)]

    def entered(self, reported: Iterable[EvaluationRow]) -> None:
        """Note that they are durable."""
        for row in reported:
            self._on_devices.add(row.version)
            if self._settings.evaluate_on == "devices":
                metrics = all_metrics(row.loss, row.accuracy, row.metrics)
                require_measured(self._settings.target, metrics)
                self._known[row.version] = metrics
                self._tell(Evaluated(row.version, row.round, row.loss, row.accuracy, row.seconds))

    async def _submit(self, version: int, round: int) -> None:
        await self.evaluator.submit(version, round, self._offered(version))
