"""The events of injected faults. The supervisor writes them, or a simulated run at its end.

A fault may occur several times; `number` counts its occurrences from 1. `round` is the round that
was open, and `scenario_s` the scenario time at which it opened; both are null where they are not
known.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.common.events import Event


@dataclass(frozen=True)
class FaultPlanned(Event):
    """Before the run, for every fault of the scenario: its targets were drawn.

    Attributes:
        fault: the name of the fault.
        do: its kind.
        targets: the devices, gateways or "server" that it may strike.
        times: how often it is going to occur.
        round, scenario_s: when it begins first; null where that is not known.
    """

    fault: str
    do: str
    targets: Sequence[str]
    times: int
    round: int | None
    scenario_s: float | None


@dataclass(frozen=True)
class FaultApplied(Event):
    """A fault begins to act on its targets.

    Attributes:
        number: the number of the occurrence.
    """

    fault: str
    number: int
    targets: Sequence[str]
    round: int | None
    scenario_s: float | None


@dataclass(frozen=True)
class FaultObserved(Event):
    """The effect of a fault was measured for the first time since it was applied.

    Attributes:
        targets: those on which it was measured.
        seen: what was measured.
    """

    fault: str
    number: int
    targets: Sequence[str]
    round: int | None
    scenario_s: float | None
    seen: str


@dataclass(frozen=True)
class FaultHealed(Event):
    """A fault no longer acts.

    Attributes:
        with_run: whether it lasted until the run ended, so that no round shows what comes after it.
    """

    fault: str
    number: int
    targets: Sequence[str]
    round: int | None
    scenario_s: float | None
    with_run: bool = False


@dataclass(frozen=True)
class FaultVerified(Event):
    """After a fault was healed, all targets on which it had been observed were seen without its
    effect."""

    fault: str
    number: int
    targets: Sequence[str]
    round: int | None
    scenario_s: float | None
