"""The calls of a run in lockstep, played again: what every device answers, and whose updates count.

The plan plays them from the scenario and its seed (`planning/virtual_rounds`). Nothing is trained,
so this says nothing of what devices learn, and ends where that decides who is called.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.client.faults.scheduled import DeviceFault
from muster.client.life.states import Look
from muster.common.errors import MusterError
from muster.common.exchange import Decision, Reason
from muster.emulator.fleet.lives import by_group, life_of, members_of
from muster.emulator.fleet.masks import layout_of
from muster.emulator.planning.group_lives import CallResults, GroupLives
from muster.emulator.planning.result import Learning
from muster.emulator.planning.tally import GroupTally
from muster.emulator.planning.virtual_rounds import PlayedRounds, VirtualRounds
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.promises import prepared_by, promised_faults
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group
from muster.server.settings.process import ServerProcess

MOST_CALLS = 2_000_000
"""Most rounds, over all devices, that an audit plays again; it takes about a minute."""


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """What a device answers to a call.

    Attributes:
        state, x: its state and its covariates X by name; None: it has none.
        modelled_s: seconds of its modelled work; of a device that declines 0.
        away_steps: for how many further steps it says that it is offline; None: not known.
    """

    decision: str
    reason: str | None
    state: Mapping[str, Any] | None
    x: Mapping[str, float] | None
    modelled_s: float
    away_steps: int | None


_NOTHING = PlayedRounds((), (), 0.0)


@dataclass
class Replayed:
    """The rounds of a run, played again.

    Attributes:
        calls: by round and client.
        folded: the staleness of the updates that count, by round and client.
    """

    calls: dict[int, dict[str, ReplayedCall]] = field(default_factory=dict)
    folded: dict[int, dict[str, int]] = field(default_factory=dict)
    played: PlayedRounds = _NOTHING


class _Recorder(GroupTally):
    """Records what becomes of the calls of a group, one by one.

    Args:
        names: the covariates X that its devices report.
    """

    def __init__(
        self, group: Group, clients: Sequence[str], names: Sequence[str], into: Replayed
    ) -> None:
        super().__init__(group, clients)
        self._names = names
        self._into = into
        self._look: Look | None = None
        self._away: Sequence[int] | None = None

    def begin(self, round: int, step: int, lives: GroupLives | None) -> None:
        super().begin(round, step, lives)
        self._look = None if lives is None else lives.devices.look(step)
        away = None if lives is None else lives.devices.away_steps(step)
        self._away = None if away is None else away.tolist()

    def calls(self, round: int, lives: GroupLives, results: CallResults) -> None:
        super().calls(round, lives, results)
        assert self._look is not None
        of_round = self._into.calls.setdefault(round, {})
        for place in map(int, results.called):
            of_round[lives.clients[place]] = self._call(place, self._look, results)

    def _call(self, place: int, look: Look, results: CallResults) -> ReplayedCall:
        reason = results.verdict.reason(place)
        accepted = bool(results.verdict.accepted[place])
        worked_s = float(results.effort.work_s[place]) * float(results.verdict.share[place])
        state, x = look.state(place), look.covariates(place)
        return ReplayedCall(
            _decision(accepted, reason),
            None if reason is None else reason.value,
            None if state is None else state._asdict(),
            dict(zip(self._names, x, strict=True)) if x else None,
            worked_s if accepted else 0.0,
            self._away_steps(place, reason),
        )

    def _away_steps(self, place: int, reason: Reason | None) -> int | None:
        if reason is not Reason.OFFLINE:
            return 0
        return None if self._away is None else int(self._away[place])

    def fold(self, round: int, client: str, staleness: int) -> None:
        super().fold(round, client, staleness)
        self._into.folded.setdefault(round, {})[client] = staleness


def _decision(accepted: bool, reason: Reason | None) -> str:
    if not accepted:
        return Decision.DECLINE.value
    return (Decision.ACCEPT if reason is None else Decision.ABORT).value


def replayed(evidence: Evidence) -> Replayed | str:
    """Play the rounds of a run again, as many as are committed; a sentence if that is not
    possible."""
    config = evidence.config
    if isinstance(config, str) or isinstance(evidence.planned, str):
        return config if isinstance(config, str) else str(evidence.planned)
    if reason := _why_not(evidence, evidence.planned):
        return reason
    faults = promised_faults(evidence)
    try:
        return _played(evidence, evidence.planned, config, () if faults is None else faults.inside)
    except (MusterError, ValueError, KeyError, IndexError) as error:
        return f"the lives of the devices cannot be played again: {error}"


def _why_not(evidence: Evidence, scenario: Scenario) -> str:
    """Why the calls of a run do not follow from its scenario alone; empty if they do."""
    if scenario.life is not None:
        return "the life record says it"
    if not scenario.clock.lockstep:
        return "real time decides who answers what on this clock"
    if scenario.server.aggregator.runs_strategy():
        return "the strategy of an app decides who is called"
    if any(map(_follows_training, scenario.groups)) or (
        rational(scenario)
        and (scenario.server.mode.outlives_round() or scenario.clock.kind == "modelled")
    ):
        return "rational devices decide by models that they have trained"
    queues = [
        g for g in scenario.groups if g.shared_link.slots and g.shared_link.overflow == "queue"
    ]
    if queues:
        return "devices wait for channel slots in real time"
    if scenario.devices * len(evidence.base_versions) > MOST_CALLS:
        return f"the run has more than {MOST_CALLS:,} calls"
    return ""


def rational(scenario: Scenario) -> bool:
    """Whether any device decides by the models that it has trained."""
    return any(group.participation.rational for group in scenario.groups)


def _follows_training(group: Group) -> bool:
    """Whether the lives of a group's rational devices depend on what they decide."""
    stateful = group.device.battery is not None or "recent" in group.covariates.x.values()
    return group.participation.rational is not None and stateful


def _played(
    evidence: Evidence, scenario: Scenario, config: ServerProcess, faults: Sequence[DeviceFault]
) -> Replayed:
    prepared, into = prepared_by(config), Replayed()
    learning = Learning.with_layout(scenario, prepared["examples"], layout_of(prepared))
    lives, tallies = dict[str, GroupLives](), dict[str, GroupTally]()
    for group, residents in by_group(scenario, evidence.residents):
        members = members_of(scenario, group, residents)
        clients = [member.client for member in members]
        tallies[group.name] = _Recorder(group, clients, config.x.get(group.name, ()), into)
        if members:
            life = life_of(scenario, group, faults)
            lives[group.name] = GroupLives.of(scenario, group, life, members, learning)
    most = len(evidence.base_versions)
    into.played = VirtualRounds(scenario, lives, tallies, learning.examples).play(_quietly, most)
    return into


def _quietly(done: int) -> None:
    """Report no progress."""
