"""The events of injected faults. The supervisor writes them, or a simulated run at its end.

A fault may occur several times; `number` counts its occurrences from 1. `round` is the round that
was open, and `scenario_s` the scenario time at which it opened; both are null where they are not
known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.common.events import Event


@dataclass(frozen=True)
class FaultPlanned(Event):
    """Before the run, for every fault of the scenario, and after `fault_injected`: its targets were
    drawn.

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
class FaultInjected(Event):
    """A fault was injected by hand (`muster inject`). Its other events follow.

    Attributes:
        fault: the name of the fault.
        table: the fault as a table of `[[faults]]`, with its settings, without its times.
        targets: what it strikes.
        lasts: whether it has a duration.
        round: the round that was open.
        scenario_s: the scenario time at that moment; in lockstep, that at which the round opened.
    """

    fault: str
    table: Mapping[str, Any]
    targets: Sequence[str]
    lasts: bool
    round: int
    scenario_s: float | None


@dataclass(frozen=True)
class FaultEvent(Event):
    """An occurrence of a fault reached a state; the base of the events below.

    Attributes:
        number: the number of the occurrence.
        targets: those that the fault strikes.
    """

    fault: str
    number: int
    targets: Sequence[str]
    round: int | None
    scenario_s: float | None


@dataclass(frozen=True)
class FaultApplied(FaultEvent):
    """A fault begins to act on its targets."""


@dataclass(frozen=True)
class FaultObserved(FaultEvent):
    """The effect of a fault was measured for the first time since it was applied. For a fault that
    acts inside devices, `round` is that of the call in which it showed.

    Attributes:
        targets: those on which it was measured.
        seen: what was measured.
    """

    seen: str


@dataclass(frozen=True)
class FaultHealed(FaultEvent):
    """A fault no longer acts.

    Attributes:
        with_run: whether it lasted until the run ended, so that no round shows what comes after it.
    """

    with_run: bool = False


@dataclass(frozen=True)
class FaultVerified(FaultEvent):
    """After a fault was healed, all targets on which it had been observed were seen without its
    effect. `round` is as for `fault_observed`."""
