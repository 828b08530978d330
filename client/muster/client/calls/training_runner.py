"""How the devices of a pack get models and train: downloads, training in a thread, and the time
that training takes on the scenario's clock."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import ParamSpec, TypeVar

from muster.client.calls.call_batch import CallBatch
from muster.client.connection.slots import Slots
from muster.client.device.learner import Learner
from muster.client.device.policy import Choice
from muster.client.device.training_config import DownloadTimes
from muster.client.life.settings import ClockSettings
from muster.client.training.local import training_thread
from muster.common.clock import Clock
from muster.common.exchange import Call

P = ParamSpec("P")
T = TypeVar("T")

_NONE = DownloadTimes()
"""The download of a model that came with the calls."""

_QUICK_S = 0.005
_QUICK_IN_LOCKSTEP_S = 0.25
"""If a device trained faster than this, the next training runs on the event loop instead of in a
thread. The loop can be blocked for that long, and a thread costs as much as a round of a tiny
model. In lockstep the limit is higher, because a blocked loop can only miss the goodbye, and
because training takes longer where many devices share a machine."""


class TrainingRunner:
    """Downloads models and trains for the devices of a pack, one after the other.

    Attributes:
        quick_s: seconds within which a training counts as quick.
    """

    def __init__(self, settings: ClockSettings, slots: Slots | None, clock: Clock) -> None:
        self._settings = settings
        self._lockstep = settings.lockstep
        self.quick_s = _QUICK_IN_LOCKSTEP_S if self._lockstep else _QUICK_S
        self._slots = slots
        self._clock = clock
        self._trainer = training_thread()
        self._trains_quickly = False

    def hold_slot(self, call: Call) -> AbstractAsyncContextManager[float]:
        """Hold a channel slot during a transfer; gives the seconds that it was waited for."""
        return nullcontext(0.0) if self._slots is None else self._slots.turn(call)

    async def download(self, call: Call, device: Learner, batch: CallBatch) -> DownloadTimes | None:
        """Get the model of the calls, if it is not here yet; return its download.

        None if the round was closed meanwhile. This happens outside lockstep only: in lockstep the
        server keeps a version until all devices that it called with it have spoken.
        """
        if batch.model is not None:
            return _NONE
        asked = self._clock.now(), self._clock.monotonic()
        async with self.hold_slot(call):
            length = device.download_bytes(call, batch.work)
            return await batch.fetch(call, length, self._clock, *asked)

    async def run(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Call a function that trains, in a thread unless training is quick."""
        began = self._clock.monotonic()
        if self._trains_quickly:
            result = function(*args, **named)
        else:
            call = partial(function, *args, **named)
            result = await asyncio.get_running_loop().run_in_executor(self._trainer, call)
        self._trains_quickly = self._clock.monotonic() - began < self.quick_s
        return result

    async def sleep_until_trained(
        self, device: Learner, choice: Choice, batch: CallBatch, began: float
    ) -> None:
        """Sleep until training has taken as long as modelled (outside lockstep only)."""
        modelled_s = device.train_s(batch.work) * choice.slowdown * choice.share
        if modelled_s > 0:
            await self._clock.sleep_until(began + modelled_s / self._settings.scale)
