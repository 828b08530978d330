"""The scenario's time, as far as the server knows it."""

from muster.common.clock import Clock
from muster.server.account.ledger import Ledger


class ScenarioTime:
    """Seconds since the scenario began.

    In lockstep they follow from the number of the round; on the wall and scaled clocks they run
    from the moment at which the fleet had assembled, which the ledger keeps.

    Args:
        round_s: in lockstep, scenario seconds of a round.
        scale: on clocks that run, scenario seconds per second.
    """

    def __init__(self, lockstep: bool, round_s: float, scale: float, clock: Clock) -> None:
        self._lockstep = lockstep
        self._round_s = round_s
        self._scale = scale
        self._clock = clock
        self._began_at: float | None = None

    def load(self, ledger: Ledger) -> None:
        """Continue the time of an earlier incarnation, if it had begun."""
        if ledger.has_begun():
            self.begin(ledger)

    def begin(self, ledger: Ledger) -> None:
        """Begin at second 0, or where the ledger says that time began."""
        self._began_at = ledger.began_at(self._clock.now())

    def now_s(self) -> float | None:
        """Scenario seconds now, on a clock that runs; None before it began, and in lockstep."""
        if self._began_at is None:
            return None
        return max(0.0, self._clock.now() - self._began_at) * self._scale

    def of_round_s(self, number: int) -> float | None:
        """Scenario seconds at which round `number` opens, if it opens now."""
        return (number - 1) * self._round_s if self._lockstep else self.now_s()
