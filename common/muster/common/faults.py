"""What every injected fault has: whom it can strike, and how its effect is recognised.

A fault is a plug-in. `[[faults]]` of a scenario names it as `do`, and has its settings beside it.
When it strikes, and whom, is not its business: `muster.emulator.faults` resolves that.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from muster.common.plugins import Plugin
from muster.common.requirements import Requirement

Role = Literal["device", "server", "gateway"]
"""What a fault strikes."""


NO_ANSWER = ("", "absent", "silent")
"""Decisions of devices that sent no answer."""


class LedgerTrace(NamedTuple):
    """What one commit has entered in the ledger of a device's call.

    Attributes:
        decision: of the answer: accept, decline, abort, absent, silent; "" without an answer.
        reason: why the device declined or gave up; "" if it gave no reason.
        state: the device's reported state by name, as in the ledger; empty if it reports none.
        modelled_s: modelled seconds of its work; None without any.
        usual_s: median of its modelled seconds in rounds outside of the fault; None without any.
        updates: outcome and reason of each of its updates for the call.
        earlier: of each update of an earlier call that came once more after it had counted.
    """

    decision: str = ""
    reason: str = ""
    state: Mapping[str, Any] = MappingProxyType({})
    modelled_s: float | None = None
    usual_s: float | None = None
    updates: Sequence[tuple[str, str]] = ()
    earlier: Sequence[tuple[str, str]] = ()


class TargetGroup(NamedTuple):
    """A group of devices that a fault may strike.

    Attributes:
        battery: whether its devices have a battery.
        speed: whether their training has a modelled speed.
        gateway: whether they reach the server through a gateway.
        rates: whether their own links have rates.
        shared_rates: whether the link that they share has rates.
    """

    name: str
    battery: bool
    speed: bool
    gateway: bool
    rates: bool
    shared_rates: bool


class FaultConditions(NamedTuple):
    """The conditions under which a fault shall act.

    Attributes:
        groups: the groups that it may strike.
        labels: whether the task classifies; None if that is not known before the task is open.
    """

    lockstep: bool
    groups: Sequence[TargetGroup]
    labels: bool | None


class FaultKind(Plugin):
    """A kind of fault, with its settings.

    Attributes:
        roles: what it can strike.
        lasts: whether it has a duration. A fault without one happens at one moment.
        needs_end: whether a run in lockstep cannot go on while it lasts.
        requires: what it requires of the groups that it may strike, and of the task.
    """

    roles: ClassVar[frozenset[Role]] = frozenset({"device"})
    lasts: ClassVar[bool] = True
    needs_end: ClassVar[bool] = False
    requires: ClassVar[frozenset[Requirement]] = frozenset()

    def each_percent(self) -> float | None:
        """The share of the targets, in percent, that is drawn anew for every occurrence; None: all
        targets are struck every time."""
        return None

    def refusals(self, conditions: FaultConditions) -> Iterator[str]:
        """Yield reasons of its own why the fault cannot take effect under these conditions. What
        `requires` names is refused without it."""
        yield from ()


class TracedFault(FaultKind):
    """A fault that acts inside devices, and whose effect is read from the ledger. The supervisor
    injects all other faults.

    Attributes:
        compares: whether `observed` needs `usual_s`, which costs a look at earlier rounds.
    """

    compares: ClassVar[bool] = False

    def observed(self, trace: LedgerTrace) -> bool:
        """Whether this trace of a device shows the effect of the fault."""
        raise NotImplementedError

    def gone(self, trace: LedgerTrace) -> bool:
        """Whether this trace, of a round after the fault, shows that the effect is gone."""
        return trace.decision not in NO_ANSWER and not self.observed(trace)

    def seen(self, traces: Sequence[LedgerTrace]) -> str:
        """What was measured, for people, of traces that show the effect."""
        said = Counter(
            f"update {outcome}{f' ({reason})' if reason else ''}"
            for trace in traces
            for outcome, reason in trace.updates
        )
        said += Counter(
            f"{trace.decision} ({trace.reason})" if trace.reason else trace.decision
            for trace in traces
            if not trace.updates
        )
        return ", ".join(f"{count} × {what}" for what, count in sorted(said.items()))
