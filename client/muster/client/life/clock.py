"""The clock of a device's simulated life, for runs in which rounds do not advance time."""

import asyncio

from muster.client.life.settings import ClockSettings
from muster.common.clock import Clock

_HAIR_S = 1e-6


class LifeClock:
    """Converts the wall clock, scaled if the settings say so, to steps of device life.

    Attributes:
        begun: set when the server has said that scenario time runs.
    """

    def __init__(self, settings: ClockSettings, clock: Clock) -> None:
        self.begun = asyncio.Event()
        self._settings = settings
        self._clock = clock
        self._zero = 0.0

    @property
    def runs(self) -> bool:
        """Whether scenario time has begun."""
        return self.begun.is_set()

    def begin(self, scenario_s: float) -> None:
        """Start the clock at `scenario_s`. Only the first call counts, so time never goes back."""
        if not self.runs:
            self._zero = self._clock.monotonic() - scenario_s / self._settings.scale
            self.begun.set()

    def step(self) -> int:
        """The current step; 0 before scenario time has begun."""
        if not self.runs:
            return 0
        elapsed_s = (self._clock.monotonic() - self._zero) * self._settings.scale
        return int(elapsed_s // self._settings.round_s)

    async def until(self, step: int) -> None:
        """Return when `step` has begun."""
        instant = self._zero + step * self._settings.round_s / self._settings.scale
        await self._clock.sleep_until(instant)
        while self.step() < step:  # because of rounding, `instant` was just before the step
            instant += _HAIR_S
            await self._clock.sleep_until(instant)
