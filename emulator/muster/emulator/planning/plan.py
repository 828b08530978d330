"""The plan of a scenario: the state of every device over time, computed by the devices' own code.

In lockstep, the plan is what will happen: the same draws, the same selection, the same work. On the
other clocks, it assumes that every round lasts its deadline.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from muster.client.faults.scheduled import DeviceFault, life_faults
from muster.client.life.effort import Effort
from muster.client.life.foresight import TICK_S
from muster.client.life.settings import Life, PackMember
from muster.client.life.states import VERDICTS, Decided
from muster.common import seeds
from muster.common.bounds import ROUNDS
from muster.common.errors import ConfigError
from muster.common.lines import LinkModel, extra_seconds
from muster.common.seeds import FloatArray, IntArray
from muster.emulator.fleet.lives import by_group, life_of, members_of
from muster.emulator.fleet.scenario_faults import ScenarioFaults
from muster.emulator.planning.group_lives import GroupLives, with_slots
from muster.emulator.planning.result import GroupPlan, Learning, Plan
from muster.emulator.planning.tally import GroupTally
from muster.emulator.planning.virtual_rounds import VirtualRounds
from muster.emulator.scenario.population import Resident, population
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group
from muster.server.rounds.selection import Candidate, SelectAll

_TOGETHER = 4096
"""Devices computed at once, so that their arrays fit into a core's cache."""

_MOST_STEPS = ROUNDS
"""The most steps of a device simulation; in lockstep, a step is a round."""

_AHEAD = 1024
"""The most steps whose random numbers are drawn at once."""

_PROGRESS_ROUNDS = 64
"""Rounds between two calls of the progress function, which may raise to end the plan."""

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
    if not can_plan(scenario):
        raise ConfigError(
            f"server.mode: in the mode {scenario.server.mode.kind!r} on the clock "
            f"{scenario.clock.kind!r}, updates count in the order in which they arrive, which a "
            f"plan cannot foresee; run the scenario, or plan it with --set clock.kind=rounds"
        )
    residents = population(scenario)
    faults = ScenarioFaults.of(scenario, residents)
    learning = learning or Learning.of(scenario)
    compute = _played if must_play(scenario) else _simulated
    found = compute(scenario, residents, learning, faults.inside, progress)
    undisturbed = None
    if life_faults(faults.inside):
        undisturbed = plan(scenario.model_copy(update={"faults": []}), learning)
    return replace(found, timeline=faults.timeline, undisturbed=undisturbed)


def can_plan(scenario: Scenario) -> bool:
    """Whether it is known before the run in which order updates count. If they may outlive their
    round, it is known in lockstep only."""
    return scenario.clock.lockstep or not scenario.server.mode.outlives_round()


def must_play(scenario: Scenario) -> bool:
    """Whether a plan has to play the server's rounds, because the time of a round, or whom it
    calls, depends on the rounds before it."""
    return scenario.server.mode.outlives_round() or scenario.clock.kind == "modelled"


def _simulated(
    scenario: Scenario,
    residents: Sequence[Resident],
    learning: Learning,
    faults: Sequence[DeviceFault],
    progress: Progress,
) -> Plan:
    """The plan of a scenario whose synchronous rounds begin at known times."""
    steps = _steps(scenario)
    enrolled = [resident for resident in residents if resident.enrolled]
    calls = _Calls(scenario, enrolled, learning.examples)
    done, of = 0, len(enrolled) * len(steps)
    groups = []
    for group, of_group in by_group(scenario, residents):
        members, life = members_of(scenario, group, of_group), life_of(scenario, group, faults)
        found = GroupPlan.without(group, [member.client for member in members], len(steps))
        # Devices that share a link have to be computed together.
        at_once = len(members) or 1 if group.shared_link.gateway else _TOGETHER
        for start in range(0, len(members), at_once):
            together = members[start : start + at_once]
            report = partial(_report, progress, done, of, len(together))
            part = slice(start, start + len(together))
            _simulate(found, part, scenario, group, life, together, learning, calls, steps, report)
            done += len(together) * len(steps)
            progress(done, of)
        found.charge /= max(1, len(members))
        groups.append(found)
    lockstep = scenario.clock.lockstep
    times_s = (steps * scenario.clock.round_s).astype(np.float64)
    return Plan(scenario, lockstep, residents, times_s, groups)


def _played(
    scenario: Scenario,
    residents: Sequence[Resident],
    learning: Learning,
    faults: Sequence[DeviceFault],
    progress: Progress,
) -> Plan:
    """The plan of a scenario whose rounds depend on those before them."""
    lives, tallies = {}, {}
    for group, of_group in by_group(scenario, residents):
        if members := members_of(scenario, group, of_group):
            life = life_of(scenario, group, faults)
            lives[group.name] = GroupLives.of(scenario, group, life, members, learning)
        tallies[group.name] = GroupTally(group, lives.get(group.name))
    devices = sum(len(of_group.members) for of_group in lives.values())
    of = devices * scenario.server.rounds
    report = partial(_report, progress, 0, of, devices)
    rounds = VirtualRounds(scenario, lives, tallies, learning.examples).play(report)
    progress(of, of)
    outlives = scenario.server.mode.outlives_round()
    groups = [tally.plan(outlives) for tally in tallies.values()]
    times_s = np.array(rounds.times_s)
    versions = np.array(rounds.versions) if outlives else None
    return Plan(scenario, True, residents, times_s, groups, versions, rounds.end_s)


def _report(progress: Progress, before: int, of: int, devices: int, rounds: int) -> None:
    """Report the rounds that are done for some devices of a group."""
    progress(before + devices * rounds, of)


def instants(scenario: Scenario) -> float:
    """The number of instants that a plan computes for a device, one after the other."""
    ticks = math.ceil(scenario.clock.round_s / TICK_S)
    return ticks * (_last_step(scenario) + 1)


def _last_step(scenario: Scenario) -> float:
    """The step at which the last round opens."""
    return float(_step_of(scenario, scenario.server.rounds - 1))


def _step_of(scenario: Scenario, rounds: Any) -> Any:
    """The step after some number of rounds; both may be arrays."""
    clock = scenario.clock
    if clock.kind == "rounds":
        return rounds
    deadline_s = scenario.server.deadline_s or clock.round_s
    return rounds * deadline_s * clock.scale // clock.round_s


def _steps(scenario: Scenario) -> IntArray:
    """The step at which each round opens.

    Raises:
        ConfigError: there are too many steps to compute.
    """
    if (steps := _last_step(scenario) + 1) > _MOST_STEPS:
        raise ConfigError(
            f"server.deadline_s: a plan assumes that every round lasts its deadline, which makes "
            f"{steps:,.0f} steps of clock.round_s, expected at most {_MOST_STEPS:,}; take a "
            f"shorter deadline, fewer rounds or longer steps"
        )
    found: IntArray = _step_of(scenario, np.arange(scenario.server.rounds)).astype(np.int64)
    return found


class _Calls:
    """The devices that each round calls; as in lockstep, every enrolled device is a candidate."""

    def __init__(
        self, scenario: Scenario, enrolled: Sequence[Resident], examples: Sequence[int]
    ) -> None:
        self._selection = scenario.server.selection
        self._seed = scenario.seed
        self._candidates = [Candidate(r.client, examples[r.index]) for r in enrolled]
        self._known: dict[int, set[str]] = {}

    def of_round(self, number: int, places: dict[str, int]) -> IntArray:
        """The places of the called devices, ascending.

        Args:
            number: number of the round.
            places: the place of each device, by client.
        """
        if isinstance(self._selection, SelectAll):
            return np.arange(len(places))
        called = self._known.get(number)
        if called is None:
            draws = partial(seeds.stream, self._seed, "selection", number)
            called = self._known[number] = set(self._selection.select(self._candidates, draws))
        here = called & places.keys() if len(called) < len(places) else places.keys() & called
        return np.array(sorted(places[client] for client in here), dtype=np.int64)


def _simulate(
    found: GroupPlan,
    part: slice,
    scenario: Scenario,
    group: Group,
    life: Life,
    members: Sequence[PackMember],
    learning: Learning,
    calls: _Calls,
    steps: IntArray,
    report: Callable[[int], None],
) -> None:
    """Simulate some devices of a group and add them to the group's plan.

    Args:
        part: the places of these devices among those of the group.
        report: called with the number of rounds that are done; it may raise to end the plan.
    """
    n, rounds = len(members), len(steps)
    ahead = min(_AHEAD, int(steps[-1]) + 1)
    _, lives, lines, usual = GroupLives.of(scenario, group, life, members, learning, ahead)
    places = {member.client: place for place, member in enumerate(members)}
    sharing = _Sharing(scenario, group, dict(zip(places, lines, strict=True)), usual)
    chance = np.zeros(n)
    fates = np.zeros((n, len(VERDICTS)), dtype=np.int64)
    deadline_s = scenario.server.deadline_s or np.inf
    for place, step in enumerate(map(int, steps)):
        if place % _PROGRESS_ROUNDS == 0:
            report(place)
        look = lives.look(step)
        found.available[place] += np.count_nonzero(look.available)
        found.charge[place] += look.charge.sum()
        chance += lives.chance(step)
        called = calls.of_round(place + 1, places)
        if not len(called):
            continue
        effort = lives.slowed(step, usual)
        verdict = sharing.granted(place + 1, called, lives.decide(step, effort))
        codes = verdict.code[called]
        found.called[place] += len(called)
        accepted = called[verdict.accepted[called]]
        found.accepted[place] += len(accepted)
        by_code = np.bincount(codes, minlength=len(VERDICTS))
        found.delivered[place] += by_code[0]
        for code, reason in enumerate(VERDICTS):
            if reason is not None:
                found.reasons[reason][place] += by_code[code]
        delivering = called[codes == 0]
        took_s = effort.work_s[delivering] + sharing.extra_s(place + 1, delivering)
        found.late[place] += np.count_nonzero(took_s > deadline_s)
        fates[called, codes] += 1
        lives.take_part(accepted, verdict, effort)
    found.chance[part] = chance / rounds
    found.fates[part] = fates


class _Sharing:
    """The shared link of a group, and its effect on a round.

    Args:
        lines: the devices' links by client, in the order of their places.
    """

    def __init__(
        self,
        scenario: Scenario,
        group: Group,
        lines: Mapping[str, LinkModel],
        effort: Effort,
    ) -> None:
        self._shared = group.shared_link.line()
        self._name = scenario.seed, group.name
        self._lines = lines
        self._clients = list(lines)
        self._traffic = effort.bytes_down, effort.bytes_up

    def granted(self, round: int, called: IntArray, verdict: Decided) -> Decided:
        """The verdict after channel slots were assigned."""
        return with_slots(self._shared, *self._name, self._clients, round, called, verdict)

    def extra_s(self, round: int, delivering: IntArray) -> FloatArray:
        """Modelled seconds that sharing the link adds for each delivering device."""
        if not self._shared.delays:
            return np.zeros(len(delivering))
        clients = [self._clients[place] for place in delivering]
        lines = {client: self._lines[client] for client in clients}
        extra = extra_seconds(self._shared, *self._name, round, lines, *self._traffic)
        return np.array([extra[client] for client in clients])
