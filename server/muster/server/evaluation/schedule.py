"""What is evaluated and when: every so many rounds, the last version, and what a crash left out.

What is measured is the model that the run would offer if it ended there (`Aggregator.result`).
"""

from collections.abc import Awaitable, Callable

from muster.common.clock import Clock
from muster.common.events import Evaluated, Tell
from muster.common.tensors import Vector
from muster.server.account.rows import DeviceEvaluationRow, EvaluationRow, GroupEvaluationRow
from muster.server.config import ServerProcess, ServerSettings
from muster.server.evaluation.evaluator import Evaluator
from muster.server.evaluation.process import EvaluationResult, Setup

Enter = Callable[[EvaluationRow], Awaitable[None]]
"""Makes an evaluation durable."""


def setup_of(config: ServerProcess) -> Setup:
    """What the evaluation process of a server is started with."""
    server, members = config.server, config.population
    return Setup(
        task=config.task,
        population=len(members),
        seed=config.seed,
        groups=[member.group for member in members] if server.evaluate_groups else [],
        clients=[member.client for member in members] if server.evaluate_devices else [],
    )


class EvaluationSchedule:
    """The evaluations of one run.

    Args:
        known: (loss, accuracy) of the versions that were evaluated before.
        offered: the model that the run would offer at a version.
        enter: makes a result durable.
        tell: records an event.
    """

    def __init__(
        self,
        settings: ServerSettings,
        known: dict[int, tuple[float, float | None]],
        offered: Callable[[int], Vector],
        enter: Enter,
        clock: Clock,
        tell: Tell,
    ) -> None:
        self._settings = settings
        self._known = known
        self._offered = offered
        self._enter = enter
        self._clock = clock
        self._tell = tell
        self._evaluator: Evaluator | None = None

    def begin(self, evaluator: Evaluator) -> None:
        """Use `evaluator` from here on."""
        self._evaluator = evaluator

    @property
    def evaluator(self) -> Evaluator:
        assert self._evaluator is not None
        return self._evaluator

    def waiting(self) -> set[int]:
        """Versions whose bytes are still needed."""
        return self.evaluator.waiting()

    async def after(self, round: int, version: int) -> None:
        """A round made a version: evaluate it if it is its turn."""
        if round % self._settings.evaluate_every == 0 and version not in self._known:
            await self._submit(version, round)

    async def finish(self, round: int, version: int) -> None:
        """Evaluate the last version whatever its turn, and wait for all that are under way."""
        if version not in self._known and version not in self.waiting():
            await self._submit(version, round)
        await self.evaluator.drained()

    async def target_reached(self, version: int) -> bool:
        """Whether the run's target is met; waits for the evaluation where there is a target."""
        target = self._settings.target
        if not target.given:
            return False
        await self.evaluator.drained()
        found = self._known.get(version)
        return found is not None and target.reached(*found)

    async def done(self, measured: EvaluationResult) -> None:
        """The evaluation's word on a version."""
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
        await self._enter(row)
        self._known[version] = (measured.loss, measured.accuracy)
        self._tell(Evaluated(version, round, measured.loss, measured.accuracy, measured.seconds))

    async def _submit(self, version: int, round: int) -> None:
        await self.evaluator.submit(version, round, self._offered(version))
