"""Faults that a person injects while a run goes on, as the supervisor handles them.

They take the same path as those of a scenario: they are validated by the same code, they are
injected and observed by the same injector, and the journal has the same events.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field

from muster.common.config import Section, validate
from muster.common.errors import ConfigError
from muster.common.events import Tell
from muster.common.fault_events import FaultInjected, FaultPlanned
from muster.emulator.faults.catalogue import INJECTED
from muster.emulator.faults.injection import FaultSite, InjectedFault
from muster.emulator.faults.settings import ScheduledFault, named
from muster.emulator.fleet.fault_timeline import Occurrence, struck_targets
from muster.emulator.fleet.scenario_faults import gateway_groups
from muster.emulator.injection.injector import FaultInjector
from muster.emulator.injection.waiting_injections import PlannedInjection
from muster.emulator.scenario.fault_refusals import fault_refusals
from muster.emulator.scenario.fault_targets import targets_of
from muster.emulator.scenario.population import Resident
from muster.emulator.scenario.scenario import Scenario

LEASE_S = 5.0
"""Wall seconds for which a fault lasts if the person gives no duration."""

_SOURCE = "the fault"


class FaultRequest(Section):
    """A request to inject a fault now.

    Attributes:
        kind: a kind of the catalogue, or `module:Class`.
        settings: the settings of the fault itself.
    """

    kind: str
    target: dict[str, Any] = Field(default_factory=dict)
    for_s: float | None = None
    until_healed: bool = False
    name: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


class HealRequest(Section):
    """A request to end faults that act.

    Attributes:
        name: only the fault of this name.
        kind: only faults of this kind.
    """

    name: str | None = None
    kind: str | None = None


class ManualFaults:
    """Injects and heals faults at request.

    Args:
        taken: names of the faults that the run has had before.
    """

    def __init__(
        self,
        scenario: Scenario,
        residents: Sequence[Resident],
        site: FaultSite,
        injector: FaultInjector,
        record: Tell,
        taken: Iterable[str],
    ) -> None:
        self._scenario = scenario
        self._residents = residents
        self._site = site
        self._injector = injector
        self._record = record
        self._taken = set(taken)

    async def inject(self, request: FaultRequest) -> dict[str, Any]:
        """Inject a fault now. Return its name, its targets, and the seconds for which it lasts.

        Raises:
            ConfigError: it is wrong, or cannot happen now; nothing was changed.
        """
        round = self._injector.round
        if self._injector.ended:
            raise ConfigError("the run is over; no fault can begin any more")
        if round is None:
            raise ConfigError("no round has opened yet; inject faults when the run goes on")
        fault = self._validated(request, round)
        do = fault.do
        assert isinstance(do, InjectedFault)
        try:
            possible = targets_of(
                fault, self._scenario.seed, self._residents, gateway_groups(self._scenario)
            )
        except ValueError as error:
            raise ConfigError(str(error)) from None
        targets = struck_targets(fault, self._scenario.seed, 1, possible)
        if not self._site.ready(targets):
            raise ConfigError(
                f"none of the targets runs at the moment: {_some(targets)}; try again later"
            )
        name = str(fault.name)
        self._taken.add(name)
        scenario_s = self._injector.scenario_s
        self._record(FaultInjected(name, _table(fault), targets, do.lasts, round, scenario_s))
        self._record(FaultPlanned(name, do.kind, possible, 1, round, scenario_s))
        occurrence = Occurrence(
            number=1,
            targets=targets,
            first_round=round,
            begin_s=scenario_s,
            lasts_s=fault.for_s,
        )
        if not await self._injector.inject(PlannedInjection(name, do, occurrence)):
            raise ConfigError(f"{name} could not begin: the run is over, or its targets died")
        return {
            "name": name,
            "targets": targets,
            "for_s": fault.for_s if do.lasts else 0.0,
        }

    def _validated(self, request: FaultRequest, round: int) -> ScheduledFault:
        """The fault of a request, after all checks that a fault of a scenario passes.

        Raises:
            ConfigError: it is wrong, or cannot take effect.
        """
        values: dict[str, Any] = {
            **request.settings,
            "do": request.kind,
            "target": request.target,
            "when": {"round": round},
        }
        if strange := sorted({"when", "for_rounds", "for_s", "name"} & request.settings.keys()):
            raise ConfigError(
                f"{strange[0]}: a fault that is injected by hand begins now; it lasts for the "
                f"seconds of --for-s, and --name names it"
            )
        if strange := sorted({"do", "target"} & request.settings.keys()):
            raise ConfigError(
                f"{strange[0]}: expected a setting of {request.kind} itself; its target is given "
                f"with --target"
            )
        if request.until_healed and request.for_s is not None:
            raise ConfigError("for_s and until_healed both say how long the fault lasts; give one")
        if request.name is not None:
            values["name"] = request.name
        if request.for_s is not None:
            values["for_s"] = request.for_s
        fault = validate(ScheduledFault, values, _SOURCE)
        if not isinstance(fault.do, InjectedFault):
            raise ConfigError(
                f"{request.kind} acts inside devices, which get their faults when they start; name "
                f"it in [[faults]] of a scenario. By hand: {', '.join(INJECTED)}"
            )
        if fault.do.lasts and fault.for_s is None and not request.until_healed:
            fault = fault.model_copy(update={"for_s": self._lease_s()})
        scenario = self._scenario.model_copy(update={"faults": [fault]})
        for why in fault_refusals(scenario):
            raise ConfigError(why.removeprefix("faults[0]."))
        try:
            others = [fault.model_copy(update={"name": name}) for name in sorted(self._taken)]
            return named([*others, fault], skips=True)[-1]
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def _lease_s(self) -> float:
        """The default duration, in the seconds of `for_s`."""
        if not self._scenario.clock.lockstep:
            return LEASE_S * self._scenario.clock.scale
        return min(LEASE_S, self._scenario.server.stall_s / 2)

    async def heal(self, request: HealRequest) -> list[str]:
        """End the faults that act, or those that the request chooses; return their names.

        Raises:
            ConfigError: no such fault acts.
        """

        def chosen(planned: PlannedInjection) -> bool:
            right_name = request.name in (None, planned.fault)
            return right_name and request.kind in (None, planned.do.kind)

        healed = await self._injector.heal(chosen)
        if not healed:
            acting = ", ".join(self._injector.acting())
            what = request.name or request.kind
            raise ConfigError(
                f"no fault{f' {what!r}' if what else ''} of programs or links acts now; "
                + (f"these do: {acting}" if acting else "nothing has to be healed")
            )
        return healed


def _table(fault: ScheduledFault) -> Mapping[str, Any]:
    """A fault as a table of a scenario, without its name and its times."""
    settings = fault.do.model_dump(exclude_unset=True, exclude={"kind"})
    target = fault.target.model_dump(exclude_none=True, exclude_unset=True)
    return {"do": fault.do.kind, **settings, **({"target": target} if target else {})}


def _some(targets: Sequence[str]) -> str:
    return ", ".join(targets[:5]) + (f" and {len(targets) - 5} more" if len(targets) > 5 else "")
