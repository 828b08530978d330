"""The life of the fleet: who is called, what is known of devices, and whose updates count.

In an ordinary run, selection, devices and durations decide. A method of `FleetLife` gets what they
say, or a function that computes it (`usual`), and returns what happens. A run that is played from a
life record has a class of its own for each grade of playing (`grades.py`).
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence

from muster.common.life_record import LifeRow, Report


class FleetLife:
    """The life of a fleet whose devices decide for themselves.

    Attributes:
        rounds: the number of rounds after which it ends.
        decides_last: in lockstep, whether it is known only when all devices have spoken whose
            updates count.
        recorded: whether it says how long devices work and what they report; an ordinary run does
            not ask it for every device.
    """

    rounds: float = math.inf
    decides_last: bool = False
    recorded: bool = False

    def opening(self, round: int, opened_s: float | None, step: int) -> tuple[float | None, int]:
        """The scenario seconds and the step of device life at which a round opens."""
        return opened_s, step

    def selected(
        self,
        round: int,
        reachable: Collection[str],
        usual: Callable[[Collection[str]], Sequence[str]],
    ) -> Sequence[str]:
        """The clients that a round calls, in the order of the population.

        Args:
            usual: selects from those that can be reached.
        """
        return usual(reachable)

    def called(self, round: int, usual: int) -> int:
        """How many devices a round has called."""
        return usual

    def accepted(self, round: int, usual: int) -> int:
        """How many devices have accepted the call, including those that then gave up."""
        return usual

    def counted(
        self, round: int, arrived: Collection[str], usual: Callable[[], Collection[str]]
    ) -> Collection[str]:
        """The clients whose updates count, of those that have arrived."""
        return usual()

    def next_s(self, round: int, usual: Callable[[], float]) -> float:
        """In lockstep, scenario seconds at which the next round opens."""
        return usual()

    def modelled_s(self, round: int, client: str, usual: float) -> float:
        """In lockstep, the modelled seconds of the work for which a round has called a device."""
        return usual

    def reported(self, names: Sequence[str]) -> Sequence[str]:
        """The covariates X that a device reports, of those that its group has."""
        return names

    def report(self, round: int, client: str) -> Report | None:
        """What is known of a device's state and covariates X; None: what it says itself."""
        return None

    def uncalled(self, round: int, called: Collection[str]) -> Iterator[LifeRow]:
        """Yield what is known of other devices than those that a round has called."""
        yield from ()


LIVE = FleetLife()
"""The life of an ordinary run."""
