"""Rounds that depend on those before them, played in virtual time: those of the modes in which
updates may outlive their round, and those of the clock `modelled`.

In lockstep, whom a round calls and what completes a version follow from modelled durations. The
plan therefore plays the server's own rounds (`Round`, the mode, and what the server notes of its
devices) with the answers of simulated devices. Nothing is trained. It is what a run does, as long
as the run refuses no update, and neither reaches a target nor diverges, because these depend on
what devices learn.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from muster.common import seeds
from muster.common.clock_kinds import idle_s
from muster.common.errors import ConfigError
from muster.common.exchange import Answer, Decision, Outcome, Reason, Update
from muster.emulator.planning.group_lives import CallResults, GroupLives
from muster.emulator.planning.tally import GroupTally
from muster.emulator.scenario.scenario import Scenario
from muster.server.coordination.shared_flows import links_of
from muster.server.fleet.devices import EnrolledDevice
from muster.server.rounds.candidates import choose, note_answer
from muster.server.rounds.modes import contract
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Rules
from muster.server.rounds.steps import step_at


class PlayedRounds(NamedTuple):
    """The rounds that were played.

    Attributes:
        times_s: scenario seconds at which each round opens.
        versions: the newest version after each round.
        end_s: scenario seconds at which the next round would open.
    """

    times_s: Sequence[float]
    versions: Sequence[int]
    end_s: float


class VirtualRounds:
    """Plays the rounds of a scenario.

    Args:
        lives: the enrolled devices of every group that has some, by its name.
        tallies: count what becomes of the calls of every group, by its name.
        examples: number of training examples of each device of the population.
    """

    def __init__(
        self,
        scenario: Scenario,
        lives: Mapping[str, GroupLives],
        tallies: Mapping[str, GroupTally],
        examples: Sequence[int],
    ) -> None:
        server = scenario.server
        self._scenario = scenario
        self._lives = lives
        self._tallies = tallies
        limits = server.round_goal(), server.deadline_s
        self._places = {
            client: place
            for of_group in lives.values()
            for place, client in enumerate(of_group.clients)
        }
        self._devices = {
            member.client: EnrolledDevice(
                member.client, name, member.index, examples[member.index], line=member.line
            )
            for name, of_group in lives.items()
            for member in of_group.members
        }
        lines = {name: of_group.shared for name, of_group in lives.items()}
        sizes = {name: (g.effort.bytes_down, g.effort.bytes_up) for name, g in lives.items()}
        step_s = scenario.clock.round_s
        self._links = links_of(server.mode, lines, self._devices, scenario.seed, sizes, step_s)
        idle = idle_s(scenario.clock.kind, scenario.clock.round_s)
        self._rules = Rules.of(server.mode, *limits, lockstep=True, idle_s=idle)

    def play(self, report: Callable[[int], None], most: float = math.inf) -> PlayedRounds:
        """Play all rounds.

        Args:
            report: called with the number of rounds (or versions) that are done; it may raise.
            most: at most so many rounds.

        Raises:
            ConfigError: so many rounds in a row make no version that the run would fail.
        """
        server, round_s = self._scenario.server, self._scenario.clock.round_s
        times_s, versions = list[float](), list[int]()
        round, next_s, barren = Round(1, 0, self._rules), 0.0, 0
        by_version = server.mode.counts_versions
        while (count := round.base_version if by_version else len(versions)) < server.rounds:
            if len(versions) >= most:
                break
            report(count)
            round.scenario_s, round.step = next_s, step_at(next_s, round_s)
            if self._links.delays:
                round.rules = replace(self._rules, sharing=self._links.sharing_of(round.number))
            self._call(round)
            folded = self._folded(round)
            times_s.append(next_s)
            versions.append(round.base_version + bool(folded))
            next_s = server.mode.next_s(round.end(), round_s)
            for tally in self._tallies.values():
                tally.end(round.number, next_s - round.scenario_s)
            if server.mode.outlives_round():
                self._links.settle(round, next_s)
                round.next_s = next_s
            round = self._close(round, folded, versions[-1])
            barren = 0 if folded else barren + 1
            if by_version and barren >= contract.MOST_BARREN:
                raise ConfigError(
                    f"server.mode: {barren:,} rounds in a row would make no version, and the run "
                    f"would fail, because too few devices take part; lower server.mode.k"
                )
        for client in round.cohort:
            self._tally(client).open += 1
        return PlayedRounds(times_s, versions, next_s)

    def _tally(self, client: str) -> GroupTally:
        return self._tallies[self._devices[client].group]

    def _call(self, round: Round) -> None:
        """Call devices, and take their answers and updates."""
        server = self._scenario.server
        draws = partial(seeds.stream, self._scenario.seed, "selection", round.number)
        devices = list(self._devices.values())
        round.select(choose(round, devices, server.mode, server.selection, draws))
        called: dict[str, list[int]] = {name: [] for name in self._tallies}
        for client in round.own():
            called[self._devices[client].group].append(self._places[client])
        for name, places in called.items():
            tally, lives = self._tallies[name], self._lives.get(name)
            tally.begin(round.number, round.step, lives)
            if lives is not None and places:
                results = lives.call(round.number, round.step, np.array(sorted(places)))
                tally.calls(round.number, lives, results)
                self._answer(round, lives, results, tally)

    def _answer(
        self, round: Round, lives: GroupLives, results: CallResults, tally: GroupTally
    ) -> None:
        """Let the called devices of a group answer, and send their updates."""
        verdict, work_s = results.verdict, results.effort.work_s
        away = lives.devices.away_steps(round.step)
        for place in map(int, results.called):
            client, reason = lives.members[place].client, verdict.reason(place)
            key = round.call(client)
            modelled_s = float(work_s[place]) * float(verdict.share[place])
            if verdict.accepted[place]:
                decision = Decision.ABORT if reason else Decision.ACCEPT
                answer = Answer(key, decision, modelled_s, reason)
            else:
                steps = int(away[place]) if away is not None and reason is Reason.OFFLINE else 0
                answer = Answer(key, Decision.DECLINE, reason=reason, away_steps=steps)
            round.answer(answer)
            note_answer(self._devices[client], answer, round)
            if reason is None:
                update = Update(key, 1, b"", 0, 0.0, 0.0, math.nan, modelled_s)
                if round.receive(update).outcome is Outcome.LATE:
                    tally.late(round.number)

    def _folded(self, round: Round) -> Sequence[str]:
        """The clients whose updates make the round's version; none if there are too few."""
        server, counted = self._scenario.server, round.counted()
        enough = len(counted) >= server.minimum and server.aggregator.suffices(len(counted))
        return counted if enough else ()

    def _close(self, round: Round, folded: Collection[str], version: int) -> Round:
        """Count what becomes of the updates, and return the next round."""
        for client in folded:
            self._tally(client).fold(round.number, client, round.staleness_of(client))
        outlives = round.rules.outlives_round
        for client in round.overdue() if outlives else round.slow():
            self._tally(client).late(round.cohort[client].round)
        if not outlives:
            return Round(round.number + 1, version, self._rules)
        next, stale = round.successor(folded, version)
        for client, member in stale.items():
            self._tally(client).too_stale(member.round)
        return next
