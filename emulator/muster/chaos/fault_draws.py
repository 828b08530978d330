"""Draws faults: the kinds, with settings that a fleet survives, their targets and times.

Every kind of the catalogue has an entry in SETTINGS or in LEFT_OUT.
"""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from types import MappingProxyType
from typing import Any

from muster.chaos.fleets import Values
from muster.client.faults import LifeFault
from muster.common.faults import FaultKind, TracedFault
from muster.emulator.faults.registry import BUILT_IN
from muster.emulator.fleet.scenario_faults import run_time
from muster.emulator.scenario.fault_refusals import unfit
from muster.emulator.scenario.scenario import Scenario

Draw = Callable[[Random], Values]
"""Draws the settings of a kind."""


def _none(random: Random) -> Values:
    return {}


def _of(**choices: list[Any]) -> Draw:
    """Draws each setting from its choices."""
    return lambda random: {name: random.choice(values) for name, values in choices.items()}


SETTINGS: Mapping[str, Draw] = MappingProxyType(
    {
        "offline": _none,
        "slow": _of(factor=[2.0, 8.0]),
        "battery-drain": _of(share_per_h=[0.5, 50.0]),
        "unplug": _none,
        "metered": _none,
        "nan": _none,
        "huge": _of(size=[1e-3, 0.1]),
        "scaled": _of(factor=[-0.5, 0.1, 2.0]),
        "sign-flip": _none,
        "free-rider": _of(noise=[0.0, 1e-3]),
        "label-flip": _none,
        "false-examples": _of(factor=[0.5, 3.0]),
        "wrong-shape": _of(extra_bytes=[4, 1000]),
        "corrupt": _of(flipped_bytes=[1, 100], times=[1, 3]),
        "reordered": _of(pieces=[2, 8]),
        "duplicate": _of(times=[1, 3]),
        "replay": _none,
        "crash": _none,
        "stop": _none,
        "restart": _none,
        "pause": _none,
        "churn": _of(share_percent=[30.0, 60.0]),
        "cpu-limit": _of(share=[0.1, 0.5]),
        "memory-limit": _of(mib=[16.0, 2048.0]),
        "disk-full": _none,
        "blackhole": _none,
        "disconnect": _none,
        "partition": _of(way=["both", "up", "down"]),
        "reset": _none,
        "degrade": _of(factor=[0.2, 0.5]),
        "degrade-shared": _of(factor=[0.2, 0.5]),
        "delay": _of(rtt=["20 ms", "100 ms"]),
        "jitter": _of(jitter=["10 ms", "50 ms"]),
        "loss": _of(loss=[0.01, 0.1]),
        "limit-bytes": _of(bytes=[5_000, 100_000], way=["both", "up"], then=["reset", "silence"]),
        "flap": _of(down_s=[0.05, 0.2], up_s=[0.1], silent=[False, True]),
    }
)
"""The settings of each kind. They are mild, because a model that diverges ends its run early."""

LEFT_OUT: Mapping[str, str] = MappingProxyType({})
"""The kinds that are never drawn, each with the reason."""


def draw_fault(random: Random, scenario: Scenario) -> Values | None:
    """Draw a fault of a fleet, as a table of `[[faults]]`; None if the kind that was drawn cannot
    act on any group of the fleet."""
    kind = random.choice(sorted(SETTINGS))
    settings = SETTINGS[kind](random)
    fault = BUILT_IN[kind].model_validate({"kind": kind, **settings})
    role = random.choice(sorted(fault.roles))
    groups = list(_able_groups(fault, scenario))
    if not groups or (role == "gateway" and not any(g.gateway for g in scenario.groups)):
        return None
    target = _target(random, role, groups, scenario)
    return {"do": kind, **settings, "target": target, **_times(random, fault, scenario)}


def _able_groups(fault: FaultKind, scenario: Scenario) -> Iterator[str]:
    """The groups on which a fault can act."""
    for number, group in enumerate(scenario.groups):
        if not any(unfit(scenario, fault, [number], "faults")):
            yield group.name


def _target(random: Random, role: str, groups: list[str], scenario: Scenario) -> Values:
    if role == "server":
        return {"role": role}
    if role == "gateway":
        all_can = len(groups) == len(scenario.groups)
        return {"role": role} if all_can else {"role": role, "group": random.choice(groups)}
    found: Values = {}
    if len(groups) < len(scenario.groups) or random.random() < 0.3:
        found["group"] = random.choice(groups)
    return found | random.choice([{}, {"count": 1}, {"percent": 50}])


def _times(random: Random, fault: FaultKind, scenario: Scenario) -> Values:
    """When a fault begins, how often, and how long it lasts: always short, and with an end."""
    lockstep = scenario.clock.lockstep
    if isinstance(fault, TracedFault):
        fixed = run_time(scenario).fixed
        if isinstance(fault, LifeFault) and not fixed:
            return _by_scenario_time(random, scenario)
        return _by_rounds(random, scenario)
    if lockstep or not fault.lasts or random.random() < 0.5:
        return _injected(random, fault, scenario)
    return _by_scenario_time(random, scenario)


def _by_rounds(random: Random, scenario: Scenario) -> Values:
    rounds = scenario.server.rounds
    return {
        "when": {"round": random.randint(1, max(1, rounds // 2))},
        "for_rounds": random.randint(1, max(1, rounds // 3)),
    }


def _by_scenario_time(random: Random, scenario: Scenario) -> Values:
    round_s = scenario.clock.round_s
    return {
        "when": {"at_s": round(random.uniform(0, 3) * round_s, 3)},
        "for_s": round(random.uniform(1, 3) * round_s, 3),
    }


def _injected(random: Random, fault: FaultKind, scenario: Scenario) -> Values:
    """Times of a fault that the supervisor injects, at a round or at an event of the journal."""
    rounds = scenario.server.rounds
    when: Values = {"round": random.randint(1, max(1, rounds // 2))}
    how = random.random()
    if how < 0.2:
        when = {"event": random.choice(["evaluated", "attended", "round_committed"])}
    elif how < 0.4:
        when["every_rounds"] = max(2, rounds // 4)
    if not fault.lasts:
        return {"when": when}
    seconds = round(random.uniform(0.05, 0.6) * scenario.clock.scale, 3)
    return {"when": when, "for_s": seconds}
