"""What a verification found, as data."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Quantity = Literal[
    "rate up",
    "rate down",
    "rtt",
    "fairness up",
    "fairness down",
    "grpc up",
    "grpc down",
    "grpc rtt",
]

SHARED = "shared"
"""In place of a device: what all devices of the group share."""


def unit_of(quantity: Quantity) -> str:
    """Unit of what is asked and measured: "bit/s", "s", or "1" of an index."""
    if quantity in ("rtt", "grpc rtt"):
        return "s"
    return "1" if quantity.startswith("fairness") else "bit/s"


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How far a link may be from what was asked of it."""

    rate: float = 0.05
    """Relative."""

    rtt: float = 0.05
    """Relative; `rtt_s` if that is more."""

    rtt_s: float = 0.005

    fairness: float = 0.95
    """Least index of fairness."""

    @property
    def unfairness(self) -> float:
        """How far the index of fairness may be from 1."""
        return 1 - self.fairness


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    Attributes:
        link: a device, or SHARED.
        asked: what should be measured; None: nothing in particular.
        measured: None: it could not be measured, `note` says why.
        deviation: relative to `asked` of a rate; measured minus asked of everything else.
        tolerance: the largest absolute deviation that is inside.
        ok: inside; None where there is nothing to compare, or for information only.
    """

    group: str
    link: str
    quantity: Quantity
    asked: float | None
    measured: float | None
    deviation: float | None = None
    tolerance: float | None = None
    ok: bool | None = None
    note: str = ""


def compared(
    group: str,
    link: str,
    quantity: Quantity,
    asked: float | None,
    measured: float | None,
    tolerance: float | None,
    note: str = "",
) -> Row:
    """The row of a measurement, judged; without a tolerance it is for information."""
    deviation = None
    if asked is not None and measured is not None:
        deviation = measured - asked
        if unit_of(quantity) == "bit/s":
            deviation = deviation / asked if asked else None
    ok = None
    if asked is not None and tolerance is not None:
        ok = deviation is not None and abs(deviation) <= tolerance
    return Row(group, link, quantity, asked, measured, deviation, tolerance, ok, note)


@dataclass(frozen=True, slots=True)
class Verification:
    """Every measurement of a verification.

    Attributes:
        scenario: its name.
        seconds: over which each rate was measured.
    """

    scenario: str
    seconds: float
    tolerances: Tolerances
    rows: Sequence[Row]

    @property
    def ok(self) -> bool:
        """Nothing that was compared is outside its tolerance."""
        return not self.outside

    @property
    def outside(self) -> Sequence[Row]:
        """What is outside its tolerance."""
        return [row for row in self.rows if row.ok is False]

    def to_json(self) -> dict[str, Any]:
        """As `muster verify --json` writes it; rates in bit/s, times in seconds."""
        return {
            "scenario": self.scenario,
            "ok": self.ok,
            "seconds": self.seconds,
            "tolerances": asdict(self.tolerances),
            "rows": [{**asdict(row), "unit": unit_of(row.quantity)} for row in self.rows],
        }
