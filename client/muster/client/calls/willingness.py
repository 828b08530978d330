"""Willingness, the last step of a device's decision: does the model serve the device?

A rational device fetches the model of a call, judges it, and declines if it has no gain. In either
case it trains: from the received model if it accepts, otherwise from its own.
"""

from collections.abc import Mapping, Sequence

from muster.client.calls.call_batch import CallBatch
from muster.client.calls.training_runner import TrainingRunner
from muster.client.device.learner import Learner
from muster.client.device.policy import AlwaysAccept, Choice, DevicePolicy
from muster.client.device.rational import ModelJudgement
from muster.client.training.trainer import TrainingError
from muster.common.clock import Clock
from muster.common.exchange import Call, Decision


class Willingness:
    """Lets the rational devices of a pack judge the models of calls.

    Args:
        lockstep: whether a round waits for every device that it called.
    """

    def __init__(
        self,
        devices: Mapping[str, Learner],
        policy: DevicePolicy | AlwaysAccept,
        runner: TrainingRunner,
        lockstep: bool,
        clock: Clock,
    ) -> None:
        self._devices = devices
        self._rational = {client for client, device in devices.items() if device.rational}
        self._policy = policy
        self._runner = runner
        self._lockstep = lockstep
        self._clock = clock

    async def judge(self, batch: CallBatch, choices: Sequence[Choice]) -> Sequence[Choice]:
        """Return the choices after rational devices have judged the model of the calls.

        The choice of a device whose model did not come, because its round was closed meanwhile, has
        no judgement.
        """
        return [
            await self._judged(call, choice, batch)
            if call.key.client in self._rational and choice.decision is not Decision.DECLINE
            else choice
            for call, choice in zip(batch.calls, choices, strict=True)
        ]

    async def _judged(self, call: Call, choice: Choice, batch: CallBatch) -> Choice:
        device = self._devices[call.key.client]
        if (judgement := device.judgement_of(call)) is None:
            download = await self._runner.download(call, device, batch)
            if batch.model is None or download is None:
                return choice
            order = call, batch.model, batch.work, choice.before, choice.metered
            judgement = await self._runner.run(device.judge, *order)
            choice = choice._replace(download=download)
        choice = choice._replace(judgement=judgement)
        if not judgement.accepts:
            choice = self._policy.declined(call, choice)
        # With a weight, the answer has a curve that the device fits after training. In lockstep a
        # device that declined might be killed after its answer, and nobody would call it again.
        if call.weight is not None or (self._lockstep and not judgement.accepts):
            choice = await self._trained(call, choice, batch)
        return choice

    async def train_own(self, batch: CallBatch, choices: Sequence[Choice]) -> None:
        """Train the models of devices that had no gain and have not trained before they answered.
        This happens outside lockstep only, where the server should hear of it at once."""
        if self._lockstep:
            return
        for call, choice in zip(batch.calls, choices, strict=True):
            if choice.judgement is not None and choice.decision is Decision.DECLINE:
                await self._trained(call, choice, batch)

    async def _trained(self, call: Call, choice: Choice, batch: CallBatch) -> Choice:
        """Train after the device has judged, unless it has done so; return the choice with the
        device's judgement after training. A device whose work is lost does not train."""
        device, judgement = self._devices[call.key.client], choice.judgement
        assert judgement is not None
        if choice.decision is Decision.ABORT:
            return choice
        if (known := device.judgement_of(call)) is not None:
            return choice._replace(judgement=known)
        try:
            return await self._trained_once(call, choice, judgement, batch)
        except TrainingError as error:
            if choice.decision is not Decision.DECLINE:
                return choice.failed(error)
            device.give_up(call, choice.before, choice.life, judgement)
            return choice

    async def _trained_once(
        self, call: Call, choice: Choice, judgement: ModelJudgement, batch: CallBatch
    ) -> Choice:
        device, began = self._devices[call.key.client], self._clock.monotonic()
        if choice.lost:
            device.give_up(call, choice.before, choice.life, judgement)
        elif judgement.accepts:
            assert batch.model is not None
            await self._runner.run(
                device.train,
                call,
                batch.model,
                batch.work,
                choice.before,
                choice.life,
                choice.download,
                choice.step,
                choice.slowdown,
                judgement,
            )
        else:
            order = call, batch.work, choice.before, choice.life, judgement, choice.step
            await self._runner.run(device.train_own, *order)
        if not self._lockstep:
            await self._runner.sleep_until_trained(device, choice, batch, began)
        return choice._replace(judgement=device.judgement_of(call))
