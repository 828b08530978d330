"""The plan of a scenario: the state of every device over time, computed by the devices' own code.

In lockstep, the plan is what will happen: the same draws, the same selection, the same work. On the
other clocks, it assumes that every round lasts its deadline.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from muster.client.faults.scheduled import DeviceFault, life_faults
from muster.client.life.foresight import TICK_S
from muster.common.errors import ConfigError
from muster.emulator.fleet.lives import by_group, life_of, members_of
from muster.emulator.fleet.scenario_faults import ScenarioFaults
from muster.emulator.planning.fixed_rounds import FixedRounds, last_step
from muster.emulator.planning.group_lives import GroupLives
from muster.emulator.planning.result import Learning, Plan
from muster.emulator.planning.tally import GroupTally
from muster.emulator.planning.virtual_rounds import VirtualRounds
from muster.emulator.scenario.population import Resident, population, with_examples
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario

Progress = Callable[[int, int], None]
"""Called with the number of device-rounds that are done, and with their total."""


def plan(
    scenario: Scenario | Path | str,
    learning: Learning | None = None,
    progress: Progress = lambda done, of: None,
) -> Plan:
    """Simulate all enrolled devices over a scenario's rounds.

    Args:
        scenario: a scenario, or the path of its TOML file.
        learning: facts of the task; None: they are read from the task if the plan needs them.
        progress: called from time to time; it may raise to end the plan.

    Raises:
        ConfigError: no device is enrolled, data is missing, the plan would have too many steps, or
            the order in which updates count is not known before the run.
    """
    if not isinstance(scenario, Scenario):
        scenario = read_scenario(Path(scenario))
    if scenario.life is not None:
        raise ConfigError(
            "life.record: who takes part in which round is in the record, so there is nothing to "
            "plan; `muster life show` draws it"
        )
    if not can_plan(scenario):
        raise ConfigError(
            f"server.mode: in the mode {scenario.server.mode.kind!r} on the clock "
            f"{scenario.clock.kind!r}, updates count in the order in which they arrive, which a "
            f"plan cannot foresee; run the scenario, or plan it with --set clock.kind=rounds"
        )
    residents = population(scenario)
    faults = ScenarioFaults.of(scenario, residents)
    learning = learning or Learning.of(scenario)
    residents = with_examples(residents, learning.examples)
    found = _played(scenario, residents, learning, faults.inside, progress)
    undisturbed = None
    if life_faults(faults.inside):
        undisturbed = plan(scenario.model_copy(update={"faults": []}), learning)
    without = sum(not held for held in learning.examples)
    return replace(
        found,
        timeline=faults.timeline,
        undisturbed=undisturbed,
        without_examples=without,
        left_out=learning.left_out,
        sums=learning.sums,
    )


def can_plan(scenario: Scenario) -> bool:
    """Whether it is known before the run in which order updates count. If they may outlive their
    round, it is known in lockstep only."""
    return scenario.clock.lockstep or not scenario.server.mode.outlives_round()


def must_play(scenario: Scenario) -> bool:
    """Whether a plan has to play the server's rounds, because the time of a round, or whom it
    calls, depends on the rounds before it, or because devices of several groups share a link."""
    named = any(group.shared_link.name is not None for group in scenario.groups)
    return scenario.server.mode.outlives_round() or scenario.clock.kind == "modelled" or named


def _played(
    scenario: Scenario,
    residents: Sequence[Resident],
    learning: Learning,
    faults: Sequence[DeviceFault],
    progress: Progress,
) -> Plan:
    """The plan that counts what becomes of the calls of all rounds."""
    members = {
        group.name: [resident.client for resident in of_group if resident.enrolled]
        for group, of_group in by_group(scenario, residents)
    }
    voltage = scenario.energy.voltage if scenario.energy is not None else None
    tallies = {
        group.name: GroupTally(group, members[group.name], voltage) for group in scenario.groups
    }
    devices = sum(map(len, members.values()))
    of = devices * scenario.server.rounds
    versions = end_s = None
    outlives = scenario.server.mode.outlives_round()
    if must_play(scenario):
        lives = _lives(scenario, residents, learning, faults)
        rounds = VirtualRounds(scenario, lives, tallies, learning.examples)
        played = rounds.play(lambda done: progress(devices * done, of))
        times_s, end_s = np.array(played.times_s), played.end_s
        versions = np.array(played.versions) if outlives else None
    else:
        fixed = FixedRounds(scenario, residents, learning, faults, tallies)
        fixed.play(lambda done: progress(done, of))
        times_s = (fixed.steps * scenario.clock.round_s).astype(np.float64)
    progress(of, of)
    groups = [tally.plan(outlives) for tally in tallies.values()]
    return Plan(scenario, scenario.clock.lockstep, residents, times_s, groups, versions, end_s)


def _lives(
    scenario: Scenario,
    residents: Sequence[Resident],
    learning: Learning,
    faults: Sequence[DeviceFault],
) -> dict[str, GroupLives]:
    """The enrolled devices of every group that has some, by its name."""
    found = {}
    for group, of_group in by_group(scenario, residents):
        if members := members_of(scenario, group, of_group):
            life = life_of(scenario, group, faults)
            found[group.name] = GroupLives.of(scenario, group, life, members, learning)
    return found


def instants(scenario: Scenario) -> float:
    """The number of instants that a plan computes for a device, one after the other."""
    ticks = math.ceil(scenario.clock.round_s / TICK_S)
    return ticks * (last_step(scenario) + 1)
