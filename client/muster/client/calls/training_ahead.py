"""Trains several devices of a pack at the same time, before each of them sends its update."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

from torch import nn

from muster.client.calls.call_batch import CallBatch
from muster.client.calls.training_runner import TrainingRunner
from muster.client.device.learner import Learner
from muster.client.device.policy import Choice
from muster.client.training.settings import Training
from muster.client.training.together import Ahead, Job, most_together, train_together
from muster.client.training.trainer import TrainingError, training_errors
from muster.common.clock import Clock
from muster.common.exchange import Call, Decision
from muster.tasks.task import OpenTask
from muster.wire.bodies import decode_vector


class TrainingAhead:
    """Trains for the calls of one message after the other, `training.together` at the same time.

    Args:
        module: the pack's scratch module.
        devices: the devices of the pack, by name.
    """

    def __init__(
        self,
        task: OpenTask,
        module: nn.Module,
        devices: Mapping[str, Learner],
        runner: TrainingRunner,
        clock: Clock,
    ) -> None:
        self._task, self._module = task, module
        self._devices = devices
        self._runner = runner
        self._clock = clock
        self._accepted = deque[tuple[Call, int]]()
        self._trained: dict[str, Ahead | TrainingError] = {}

    def begin(self, batch: CallBatch, choices: Sequence[Choice]) -> None:
        """Note the calls of a message for which devices will train, and forget those before."""
        self._trained.clear()
        self._accepted.clear()
        if batch.work.training.together > 1:
            self._accepted.extend(
                (call, choice.step)
                for call, choice in zip(batch.calls, choices, strict=True)
                if choice.decision is Decision.ACCEPT
                and self._devices[call.key.client].memory.update_for(call) is None
            )

    async def trained(self, call: Call, batch: CallBatch) -> Ahead:
        """Return the training for a call.

        Raises:
            TrainingError: training raised an error.
        """
        client = call.key.client
        while client not in self._trained:  # the calls before it may have become outdated
            await self._train_next(batch)
        trained = self._trained.pop(client)
        if isinstance(trained, TrainingError):
            raise trained
        return trained

    async def _train_next(self, batch: CallBatch) -> None:
        """Train for the next calls at the same time; if that raises an error, one after the other,
        because it may be the error of one device."""
        settings, width = batch.work.training, self._width(batch.work.training)
        next_calls = islice(self._accepted, settings.together)
        jobs = [self._devices[call.key.client].job(call, step) for call, step in next_calls]
        jobs = jobs[: most_together(settings, jobs, width)]
        await self._enter(jobs, batch, width)
        for _ in jobs:
            self._accepted.popleft()

    async def _enter(self, jobs: Sequence[Job], batch: CallBatch, width: int) -> None:
        try:
            self._trained |= await self._train(jobs, batch, width)
        except TrainingError as error:
            if len(jobs) == 1:
                self._trained[jobs[0].client] = error
            for job in jobs if len(jobs) > 1 else ():
                await self._enter([job], batch, width)

    async def _train(self, jobs: Sequence[Job], batch: CallBatch, width: int) -> dict[str, Ahead]:
        """Do the next jobs at the same time.

        Raises:
            TrainingError: training raised an error.
        """
        assert batch.model is not None
        began = self._clock.monotonic()
        with training_errors(*(job.client for job in jobs)):
            results = await self._runner.run(
                train_together,
                self._task,
                self._module,
                decode_vector(batch.model, batch.work.entries),
                jobs,
                batch.work.training,
                width=width,
                seed=batch.work.seed,
                round=self._accepted[0][0].key.round,
            )
        seconds = (self._clock.monotonic() - began) / len(jobs)
        return {
            job.client: Ahead(trained, seconds) for job, trained in zip(jobs, results, strict=True)
        }

    def _width(self, settings: Training) -> int:
        """The examples of the largest minibatch in the pack."""
        return max(settings.minibatch(each.held) for each in self._devices.values())
