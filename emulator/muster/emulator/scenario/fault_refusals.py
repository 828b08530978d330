"""Finds faults that cannot happen in their scenario, before anything starts."""

import math
from collections.abc import Iterator, Sequence

import muster.common.fault_events  # noqa: F401 (its classes are events)
from muster.client.faults import LifeFault
from muster.common.events import event_kinds
from muster.common.faults import FaultConditions, FaultKind, TargetGroup, TracedFault
from muster.emulator.faults.injection import InjectedFault
from muster.emulator.faults.settings import ScheduledFault
from muster.emulator.scenario.combinations import withheld_by
from muster.emulator.scenario.population import names_of
from muster.emulator.scenario.settings import Group, ScenarioSettings
from muster.server.aggregators.combinations import Required, excluded
from muster.tasks.synthetic import Synthetic


def fault_refusals(scenario: ScenarioSettings) -> Iterator[str]:
    """Yield a sentence for every fault that cannot happen, or cannot take effect."""
    for number, fault in enumerate(scenario.faults):
        found = [*_impossible_target(scenario, fault), *_impossible_time(scenario, fault)]
        yield from (f"faults[{number}].{mistake}" for mistake in found)
        if not found:
            yield from unfit(scenario, fault.do, _groups(scenario, fault), f"faults[{number}]")


def unfit(
    scenario: ScenarioSettings, fault: FaultKind, numbers: Sequence[int], key: str
) -> Iterator[str]:
    """Yield a sentence for everything that keeps a fault from taking effect.

    Args:
        numbers: the places of the groups that it may strike.
        key: of the fault, with which a sentence begins.
    """
    required = (
        Required(requirement, fault.kind, f"groups[{number}]", key)
        for number in numbers
        for requirement in sorted(fault.requires)
    )
    yield from excluded(required, withheld_by(scenario))
    able = [_target_group(scenario.groups[number]) for number in numbers]
    labels = False if isinstance(scenario.task, Synthetic) else None
    conditions = FaultConditions(scenario.clock.lockstep, able, labels)
    yield from (f"{key}.do: {why}" for why in fault.refusals(conditions))


def endless_faults(scenario: ScenarioSettings) -> Iterator[tuple[str, str]]:
    """Yield the name of every fault that is sure to last to the end of the run, with the reason in
    words. A fault that the supervisor injects is not: `muster heal` may end it."""
    rounds, versions = scenario.server.rounds, scenario.server.mode.counts_versions
    for fault in scenario.faults:
        when, name = fault.when, str(fault.name)
        if not fault.do.lasts or isinstance(fault.do, InjectedFault) or when.mean_up_s is not None:
            continue
        ends = f"the fault {name!r} is never healed, because it"
        if fault.for_rounds is None and fault.for_s is None:
            yield name, f"{ends} has neither for_rounds nor for_s"
        elif fault.for_rounds is not None and when.round is not None and not versions:
            last = when.round + fault.for_rounds - 1
            if last >= rounds:
                yield name, f"{ends} lasts up to round {last} and the run has {rounds}"


def _impossible_target(scenario: ScenarioSettings, fault: ScheduledFault) -> Iterator[str]:
    target = fault.target
    groups = [group.name for group in scenario.groups]
    if target.group is not None and target.group not in groups:
        yield f"target.group: there is no group {target.group!r}; there are: {', '.join(groups)}"
        return
    if target.role == "gateway" and not any(
        group.gateway and target.group in (None, group.name) for group in scenario.groups
    ):
        yield "target.role: no such group has a gateway; set groups.link"
    if target.names is not None:
        known = dict(names_of(scenario.groups))
        for name in target.names:
            if name not in known:
                meant = f"; for the group, give target.group = {name!r}" if name in groups else ""
                yield f"target.names: there is no device {name!r}{meant}"
            elif target.group not in (None, known[name]):
                yield f"target.names: {name!r} is not in group {target.group!r}"
    devices = sum(g.count for g in scenario.groups if target.group in (None, g.name))
    if target.count is not None and target.count > devices:
        yield f"target.count: {target.count} devices, but the target has only {devices}"


def _impossible_time(scenario: ScenarioSettings, fault: ScheduledFault) -> Iterator[str]:
    when, kind = fault.when, fault.do.kind
    rounds, lockstep = scenario.server.rounds, scenario.clock.lockstep
    versions = scenario.server.mode.counts_versions
    if when.round is not None and when.round > rounds:
        sure = " that are sure to come" if versions else ""
        yield f"when.round: the run has only {rounds} rounds{sure}, found {when.round}"
    events = {kind.name for kind in event_kinds()}
    if when.event is not None and when.event not in events:
        yield f"when.event: there is no event {when.event!r} (docs/results.md lists all events)"
    if not isinstance(fault.do, TracedFault):
        yield from _impossible_injection(scenario, fault)
        return
    if when.event is not None:
        yield (
            f"when.event: {kind} acts inside devices, which do not see the journal; give "
            f"when.round or when.at_s"
        )
    if scenario.clock.kind == "rounds" and not versions:
        return
    buffered = lockstep and versions
    clock = "in the buffered mode" if buffered else f"with clock.kind = {scenario.clock.kind!r}"
    if when.round is not None and isinstance(fault.do, LifeFault):
        yield (
            f"when.round: {kind} acts on the lives of devices, and {clock} the scenario time at "
            f"which a round opens is not known before; give when.at_s"
        )
    elif (when.round is not None and fault.for_s is not None) or (
        when.at_s is not None and fault.for_rounds is not None
    ):
        yield (
            f"when: {clock} rounds have no known scenario time; give when.round with for_rounds, "
            f"or when.at_s with for_s"
        )


def _impossible_injection(scenario: ScenarioSettings, fault: ScheduledFault) -> Iterator[str]:
    """Report times that would make a round wait for ever."""
    stall_s = scenario.server.stall_s
    if fault.do.kind == "disk-full" and not scenario.clock.lockstep:
        wall_s = math.inf if fault.for_s is None else fault.for_s / scenario.clock.scale
        if wall_s >= stall_s:
            yield (
                f"for_s: the server gives up when it has waited for room for server.stall_s = "
                f"{stall_s:g} s of wall time, found {wall_s:g} s; expected less"
            )
    if not scenario.clock.lockstep or not fault.do.lasts:
        return
    if fault.for_rounds is not None:
        yield (
            f"for_rounds: in lockstep a round waits for every device, so no round passes while "
            f"{fault.do.kind} lasts; give for_s, in seconds of wall time"
        )
    elif fault.for_s is None and fault.when.mean_up_s is None and fault.do.needs_end:
        yield (
            f"for_s: in lockstep a round waits for every device, so {fault.do.kind} needs for_s, "
            f"in seconds of wall time"
        )
    elif (down_s := fault.when.mean_down_s) is not None and 10 * down_s > stall_s:
        yield (
            f"when.mean_down_s: {down_s:g} s, but a run in lockstep fails after server.stall_s = "
            f"{stall_s:g} s without progress, and random times are sometimes ten times as long as "
            f"their mean; expected at most {stall_s / 10:g}"
        )
    elif fault.for_s is not None and fault.for_s >= stall_s:
        yield (
            f"for_s: {fault.for_s:g} s, but a run in lockstep fails after server.stall_s = "
            f"{stall_s:g} s without progress; expected less"
        )


def _groups(scenario: ScenarioSettings, fault: ScheduledFault) -> list[int]:
    """The places of the groups that a fault may strike."""
    target, names = fault.target, set(fault.target.names or ())
    known = names_of(scenario.groups)
    named_groups = {group for client, group in known if client in names}
    return [
        number
        for number, group in enumerate(scenario.groups)
        if target.group in (None, group.name) and (not names or group.name in named_groups)
    ]


def _target_group(group: Group) -> TargetGroup:
    """A group as faults see it."""
    return TargetGroup(
        name=group.name,
        battery=group.device.battery is not None,
        speed=group.device.examples_per_s is not None,
        gateway=group.gateway,
        rates=group.link.has_rates,
        shared_rates=group.shared_link.limited,
    )
