"""Scenario time as a device reads it, where it is not the rounds'."""

import asyncio

from muster.client.config import ClockSettings as ClockSettings
from muster.common.clock import Clock

_HAIR_S = 1e-6


class LifeClock:
    """Steps of device life on the wall clock, or on a scaled one.

    Attributes:
        begun: set once the server has said that scenario time runs.
    """

    def __init__(self, settings: ClockSettings, clock: Clock) -> None:
        self.begun = asyncio.Event()
        self._settings = settings
        self._clock = clock
        self._zero = 0.0

    @property
    def runs(self) -> bool:
        """Whether there is a scenario time apart from the rounds, and it has begun."""
        return self.begun.is_set()

    def begin(self, scenario_s: float) -> None:
        """It is `scenario_s` now; only the first word counts, so that time never goes back."""
        if not self.runs:
            self._zero = self._clock.monotonic() - scenario_s / self._settings.scale
            self.begun.set()

    def step(self) -> int:
        """The step that it is; 0 before time runs."""
        if not self.runs:
            return 0
        elapsed_s = (self._clock.monotonic() - self._zero) * self._settings.scale
        return int(elapsed_s // self._settings.round_s)

    async def until(self, step: int) -> None:
        """Return when a step has begun."""
        instant = self._zero + step * self._settings.round_s / self._settings.scale
        await self._clock.sleep_until(instant)
        while self.step() < step:  # rounding has put the instant a hair before the step
            instant += _HAIR_S
            await self._clock.sleep_until(instant)
