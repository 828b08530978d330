"""The scenario's time, as far as the server knows it."""

from muster.common.clock import Clock
from muster.common.errors import RunFailed
from muster.server.account.ledger import Ledger
from muster.server.rounds.steps import step_at

LAST_STEP = 2**32 - 1
"""The largest step of device life, because it travels in 32 bits (`Call.step`)."""


class ScenarioTime:
    """Seconds since the scenario began.

    In lockstep every round opens at the second that its mode and the clock give it (`Mode.next_s`).
    On the wall and scaled clocks they run from the moment at which the fleet had assembled. The
    ledger keeps both. The UNIX clock is only asked how long a server was away: it may be set anew
    during a run, which would let devices live an hour at once, or none for an hour.

    Attributes:
        next_s: in lockstep, the second at which the next round opens.

    Args:
        round_s: scenario seconds of a step of device life.
        scale: on clocks that run, scenario seconds per second.
    """

    def __init__(self, lockstep: bool, round_s: float, scale: float, clock: Clock) -> None:
        self._lockstep = lockstep
        self._round_s = round_s
        self._scale = scale
        self._clock = clock
        self._zero: float | None = None
        self.next_s = 0.0

    def load(self, ledger: Ledger) -> None:
        """Continue the time of an earlier incarnation, if it had begun."""
        self.next_s = ledger.next_s()
        if ledger.has_begun():
            self.begin(ledger)

    def begin(self, ledger: Ledger) -> None:
        """Begin at second 0, or where the ledger says that time began."""
        now, newest_s = self._clock.now(), ledger.newest_scenario_s()
        since = max(now - ledger.began_at(now), newest_s / self._scale, 0.0)
        self._zero = self._clock.monotonic() - since

    def now_s(self) -> float | None:
        """Scenario seconds now, on a clock that runs; None before it began, and in lockstep."""
        if self._zero is None:
            return None
        return (self._clock.monotonic() - self._zero) * self._scale

    def instant_of(self, step: int) -> float:
        """Monotonic seconds at which a step of device life begins, on a clock that runs."""
        left_s = step * self._round_s - (self.now_s() or 0.0)
        return self._clock.monotonic() + left_s / self._scale

    def opens_s(self) -> float | None:
        """Scenario seconds at which a round opens that opens now."""
        return self.next_s if self._lockstep else self.now_s()

    def step_at(self, scenario_s: float | None) -> int:
        """The step of device life that has begun at a second; 0 before scenario time began.

        Raises:
            RunFailed: it is larger than a call to a device can state.
        """
        step = step_at(scenario_s or 0.0, self._round_s)
        if step > LAST_STEP:
            raise RunFailed(
                f"the scenario has come to its second {scenario_s:g}, which is step {step:g} of "
                f"clock.round_s = {self._round_s:g} s; expected at most {LAST_STEP:,}. Choose a "
                f"longer clock.round_s, or devices whose work is shorter"
            )
        return step
