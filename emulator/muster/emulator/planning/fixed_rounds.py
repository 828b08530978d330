"""Synchronous rounds that begin at known times, played for some devices after the others.

Nothing in such a round depends on the rounds before it but the state of each device. So a plan need
not play the server's rounds (`virtual_rounds`), whose result would be the same: it calls whom the
selection draws, and goes through all rounds with a few thousand devices at once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from muster.client.faults.scheduled import DeviceFault
from muster.common import seeds
from muster.common.bounds import ROUNDS
from muster.common.errors import ConfigError
from muster.common.seeds import FloatArray, IntArray
from muster.common.shared_lines import BegunWork, extra_seconds
from muster.emulator.fleet.lives import by_group, life_of, members_of
from muster.emulator.planning.group_lives import CallResults, GroupLives
from muster.emulator.planning.result import Learning
from muster.emulator.planning.tally import GroupTally
from muster.emulator.scenario.population import Resident
from muster.emulator.scenario.scenario import Scenario
from muster.server.rounds.selection import Candidate, SelectAll

_TOGETHER = 4096
"""Devices computed at once, so that their arrays fit into a core's cache."""

_MOST_STEPS = ROUNDS
"""The most steps of a device simulation; in lockstep, a step is a round."""

_AHEAD = 1024
"""The most steps whose random numbers are drawn at once."""

_PROGRESS_ROUNDS = 64
"""Rounds between two calls of the progress function, which may raise to end the plan."""


class FixedRounds:
    """Plays the rounds of a scenario.

    Attributes:
        steps: the step at which each round opens.

    Args:
        faults: those that act on the lives of devices.
        tallies: count what becomes of the calls of every group, by its name.

    Raises:
        ConfigError: there are too many steps to compute.
    """

    def __init__(
        self,
        scenario: Scenario,
        residents: Sequence[Resident],
        learning: Learning,
        faults: Sequence[DeviceFault],
        tallies: Mapping[str, GroupTally],
    ) -> None:
        self.steps = _steps(scenario)
        self._scenario = scenario
        self._residents = residents
        self._learning = learning
        self._faults = faults
        self._tallies = tallies
        self._calls = _Calls(scenario, residents, learning.examples)
        rounds = scenario.clock.kind == "rounds"
        lasts_s = scenario.clock.round_s if rounds else scenario.longest_round_s
        self._lasts_s = lasts_s * (1.0 if rounds else scenario.clock.scale)

    def play(self, report: Callable[[int], None]) -> None:
        """Play all rounds.

        Args:
            report: called with the number of rounds of a device that are done; it may raise.
        """
        done = 0
        for group, of_group in by_group(self._scenario, self._residents):
            members = members_of(self._scenario, group, of_group)
            life, tally = life_of(self._scenario, group, self._faults), self._tallies[group.name]
            if not members:
                self._play(None, tally, report, done)
            # Devices that share a link have to be computed together.
            at_once = len(members) or 1 if group.shared_link.gateway else _TOGETHER
            for first in range(0, len(members), at_once):
                part = members[first : first + at_once]
                ahead = min(_AHEAD, int(self.steps[-1]) + 1)
                of_part = life, part, self._learning, ahead, first
                self._play(GroupLives.of(self._scenario, group, *of_part), tally, report, done)
                done += len(part) * len(self.steps)
                report(done)

    def _play(
        self, lives: GroupLives | None, tally: GroupTally, report: Callable[[int], None], done: int
    ) -> None:
        """Play all rounds for some devices of a group; None: it has none."""
        clients = [] if lives is None else lives.clients
        places = {client: place for place, client in enumerate(clients)}
        deadline_s = self._scenario.server.deadline_s or np.inf
        for number, step in enumerate(map(int, self.steps), start=1):
            if number % _PROGRESS_ROUNDS == 1:
                report(done + len(places) * (number - 1))
            tally.begin(number, step, lives)
            called = self._calls.of_round(number, places)
            if lives is None or not len(called):
                continue
            results = lives.call(number, step, called)
            tally.calls(number, lives, results)
            tally.end(number, self._lasts_s)
            took_s = results.effort.work_s[results.delivering] + _extra_s(
                lives, number, step * self._scenario.clock.round_s, results
            )
            tally.late(number, int(np.count_nonzero(took_s > deadline_s)))


def _extra_s(lives: GroupLives, round: int, at_s: float, results: CallResults) -> FloatArray:
    """Modelled seconds that sharing the link adds for each delivering device."""
    delivering = results.delivering
    if not lives.shared.delays:
        return np.zeros(len(delivering))
    lines = {lives.members[place].client: lives.members[place].line for place in delivering}
    traffic = dict.fromkeys(lines, (lives.effort.bytes_down, lives.effort.bytes_up))
    work = {
        client: BegunWork(at_s, float(results.effort.work_s[place]))
        for client, place in zip(lines, delivering, strict=True)
    }
    extra = extra_seconds(lives.shared, lives.seed, lives.name, round, lines, traffic, work)
    return np.array([extra[client] for client in lines])


class _Calls:
    """The devices that each round calls; as in lockstep, every enrolled device is a candidate."""

    def __init__(
        self, scenario: Scenario, residents: Sequence[Resident], examples: Sequence[int]
    ) -> None:
        self._selection = scenario.server.selection
        self._seed = scenario.seed
        self._candidates = [Candidate(r.client, examples[r.index]) for r in residents if r.enrolled]
        self._known: dict[int, set[str]] = {}

    def of_round(self, number: int, places: Mapping[str, int]) -> IntArray:
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


def step_of(scenario: Scenario, rounds: FloatArray) -> FloatArray:
    """The step after each number of rounds."""
    clock = scenario.clock
    if clock.kind == "rounds":
        return rounds
    return np.asarray(rounds * scenario.longest_round_s * clock.scale // clock.round_s)


def last_step(scenario: Scenario) -> float:
    """The step at which the last round opens."""
    return float(step_of(scenario, np.array(scenario.server.rounds - 1.0)))


def _steps(scenario: Scenario) -> IntArray:
    """The step at which each round opens.

    Raises:
        ConfigError: there are too many steps to compute.
    """
    if (steps := last_step(scenario) + 1) > _MOST_STEPS:
        raise ConfigError(
            f"server.deadline_s: a plan assumes that every round lasts its deadline, which makes "
            f"{steps:,.0f} steps of clock.round_s, expected at most {_MOST_STEPS:,}; take a "
            f"shorter deadline, fewer rounds or longer steps"
        )
    return step_of(scenario, np.arange(scenario.server.rounds, dtype=np.float64)).astype(np.int64)
