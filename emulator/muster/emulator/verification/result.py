"""The result of a verification, as data."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Quantity = Literal[
    "rate up",
    "rate down",
    "rtt",
    "fairness up",
    "fairness down",
    "cross up",
    "cross down",
    "delay up",
    "delay down",
    "jitter",
    "late echoes",
    "queue up",
    "queue down",
    "start up",
    "start down",
    "gap up",
    "gap down",
    "grpc up",
    "grpc down",
    "grpc rtt",
]

SHARED = "shared"
"""Name of the link that all devices of a group share, used in place of a device's name."""


def unit_of(quantity: Quantity) -> str:
    """Unit of a quantity: "bit/s", "s", or "1" for an index or a share."""
    if quantity.startswith(("rate", "grpc", "cross")) and quantity != "grpc rtt":
        return "bit/s"
    return "1" if quantity.startswith(("fairness", "late")) else "s"


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How far measurements may deviate from a link's settings."""

    rate: float = 0.05
    """Relative deviation of a rate."""

    rtt: float = 0.05
    """Relative deviation of a round trip; `rtt_s` applies if it is more."""

    rtt_s: float = 0.005
    """Deviation of a round trip in seconds."""

    fairness: float = 0.95
    """Least index of fairness."""

    @property
    def unfairness(self) -> float:
        """Largest deviation of the index of fairness from 1."""
        return 1 - self.fairness


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    Attributes:
        link: the name of a device, or SHARED.
        asked: the expected value; None: there is none.
        measured: the measured value; None: it could not be measured, and `note` says why.
        deviation: measured minus asked; for a rate, divided by asked.
        tolerance: the largest absolute deviation that counts as inside.
        ok: whether the deviation is inside the tolerance; None if there is nothing to compare, or
            if the row is only for information.
        loaded: whether the machine was too loaded to judge it, so that `ok` says nothing.
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
    loaded: bool = False


def compared(
    group: str,
    link: str,
    quantity: Quantity,
    asked: float | None,
    measured: float | None,
    tolerance: float | None,
    note: str = "",
) -> Row:
    """The row of a measurement, judged; without a tolerance it is only for information."""
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
    """All measurements of a verification.

    Attributes:
        scenario: name of the scenario.
        seconds: how long each rate was measured.
    """

    scenario: str
    seconds: float
    tolerances: Tolerances
    rows: Sequence[Row]

    @property
    def ok(self) -> bool:
        """Whether everything that has a tolerance is known to be inside."""
        return not (self.outside or self.unjudged)

    @property
    def outside(self) -> Sequence[Row]:
        """The rows that are outside their tolerances."""
        return [row for row in self.rows if row.ok is False and not row.loaded]

    @property
    def unjudged(self) -> Sequence[Row]:
        """The rows that the machine was too loaded to judge."""
        return [row for row in self.rows if row.loaded]

    def to_json(self) -> dict[str, Any]:
        """The values that `muster verify --json` writes; rates in bit/s, times in seconds."""
        return {
            "scenario": self.scenario,
            "ok": self.ok,
            "seconds": self.seconds,
            "tolerances": asdict(self.tolerances),
            "rows": [{**asdict(row), "unit": unit_of(row.quantity)} for row in self.rows],
        }
