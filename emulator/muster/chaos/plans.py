"""Draws what one seed plays: a fleet, a timeline of faults, and kills."""

from random import Random
from typing import NamedTuple

from muster.chaos.fault_draws import draw_fault
from muster.chaos.fleets import Values, draw_fleet
from muster.chaos.killer import PlannedKill, Victim
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.fleet.scenario_faults import ScenarioFaults
from muster.emulator.planning import server_view
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario

_MOST_FAULTS = 5
_MOST_KILLS = 4
_ATTEMPTS = 50
"""Fleets, and faults of a fleet, that are tried at most."""


class ChaosPlan(NamedTuple):
    """What a seed plays.

    Attributes:
        kills: in the order in which they happen.
        drawn: how many fleets and faults were drawn for it.
        refused: how many of them the scenario's validation refused.
    """

    seed: int
    scenario: Scenario
    kills: list[PlannedKill]
    drawn: int
    refused: int


def draw_plan(seed: int, lockstep: bool = False) -> ChaosPlan:
    """Draw the plan of a seed. The same seed gives the same plan, until a kind of fault is added.

    Args:
        lockstep: whether to draw only fleets in lockstep, whose end does not depend on the speed of
            the machine.

    Raises:
        ConfigError: every fleet that was drawn is refused.
    """
    random = Random(f"chaos {seed}")
    drawn = refused = 0
    for _ in range(_ATTEMPTS):
        drawn += 1
        values = draw_fleet(random, seed, lockstep)
        scenario = _accepted(values)
        if scenario is not None:
            break
        refused += 1
    else:
        raise ConfigError(f"seed {seed}: all of {_ATTEMPTS} fleets that were drawn were refused")
    wanted, faults = random.randint(2, _MOST_FAULTS), list[Values]()
    for _ in range(_ATTEMPTS):
        if len(faults) == wanted:
            break
        fault = draw_fault(random, scenario)
        if fault is None:
            continue
        drawn += 1
        with_fault = _accepted({**values, "faults": [*faults, fault]})
        if with_fault is None:
            refused += 1
        else:
            faults, scenario = [*faults, fault], with_fault
    return ChaosPlan(seed, scenario, _kills(random, scenario), drawn, refused)


def _accepted(values: Values) -> Scenario | None:
    """The scenario of these values; None if it is refused."""
    try:
        scenario = validate(Scenario, values, "chaos")
        ScenarioFaults.of(scenario, population(scenario))
        server_view.require(scenario)
    except ConfigError:
        return None
    return scenario


def _kills(random: Random, scenario: Scenario) -> list[PlannedKill]:
    victims: list[Victim] = ["server", "device", "device", "supervisor"]
    if any(group.gateway for group in scenario.groups):
        victims.append("gateway")
    latest = max(1, 2 * scenario.server.rounds // 3)
    found = [
        PlannedKill(random.choice(victims), random.randint(1, latest), random.randint(0, 12))
        for _ in range(random.randint(0, _MOST_KILLS))
    ]
    return sorted(found, key=lambda kill: (kill.round, kill.lines))
