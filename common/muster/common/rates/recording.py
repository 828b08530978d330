"""What a recording of a link tells."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from muster.common.rates.over_time import RateOverTime

Direction = Literal["down", "up"]

DIRECTIONS: tuple[Direction, Direction] = ("up", "down")


class Recording(NamedTuple):
    """What a recording of a link tells.

    Attributes:
        down, up: the rates towards the device and from it. A recording that does not name the
            direction has the same for both; None: it only has the other.
        rtt_s: mean round trip in seconds; None: it has none.
        loss: share of the packets that were lost; None: it does not tell.
        unit: the unit of its rates.
        notes: what else a reader should know of it.
    """

    down: RateOverTime | None
    up: RateOverTime | None
    unit: str
    rtt_s: float | None = None
    loss: float | None = None
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, rate: RateOverTime, unit: str, notes: Sequence[str] = ()) -> "Recording":
        """A recording that does not name its direction."""
        return cls(rate, rate, unit, notes=notes)
