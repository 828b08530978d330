"""What the rounds of a run need and what follows from the configuration: the rules of every round,
the population as aggregators see it, the formats of updates, and the covariates X. After a restart,
also the assignments that an earlier incarnation of the server has left open."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.common.clock_kinds import idle_s
from muster.common.life_record import read_life
from muster.common.masks import GroupMasks, Layout
from muster.common.tensors import Schema
from muster.server.account.ledger import Ledger
from muster.server.aggregators import Need
from muster.server.coordination.scenario_time import ScenarioTime
from muster.server.coordination.shared_links import SharedLinks
from muster.server.fleet.fleet import Fleet
from muster.server.knowledge.population import Population
from muster.server.rounds.cohort import CohortMember
from muster.server.rounds.grades import GRADES
from muster.server.rounds.life import LIVE, FleetLife
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Rules
from muster.server.settings.process import ServerProcess
from muster.server.updates.formats import UpdateFormats
from muster.server.updates.memory import MEMORY, UpdateMemory


def rules_of(config: ServerProcess, run_folder: Path) -> Rules:
    """The rules of every round.

    Raises:
        ConfigError: the life record that the run is played from cannot be read.
    """
    settings, lockstep = config.server, config.lockstep
    limits = settings.round_goal(), settings.deadline_s
    # Answers have covariates X, and the valuations of rational devices.
    awaits_answers = bool(config.x) or Need.VALUATIONS in settings.aggregator.needs()
    idle = idle_s(config.clock, config.round_s)
    return Rules.of(
        settings.mode, *limits, lockstep, awaits_answers, idle, life_of(config, run_folder)
    )


def life_of(config: ServerProcess, run_folder: Path) -> FleetLife:
    """The life of the fleet, which is recorded if the run is played from a life record."""
    if config.life is None:
        return LIVE
    record = read_life(run_folder / config.life)
    return GRADES[config.grade](record, config.server.mode.outlives_round())


def calls_ahead(config: ServerProcess) -> bool:
    """Whether the next round's devices may be called before a closed round is durable."""
    settings = config.server
    # With a target, it is known only after a round's evaluation whether there is a next round; and
    # a restarted server must leave out the same devices, which the ledger tells it.
    waits = bool(config.shared) or settings.ends_early or bool(config.errors_in_a_row)
    return config.calls_ahead and not waits


def population_of(config: ServerProcess, fleet: Fleet) -> Population:
    members = config.population
    return Population(
        [member.client for member in members],
        config.z,
        [member.z for member in members],
        fleet.devices,
        config.moments,
        config.oracle,
    )


def memory_of(
    config: ServerProcess, parameters: int, fleet: Fleet, run_folder: Path
) -> UpdateMemory | None:
    """The memory of the last updates, if the aggregator needs them.

    Args:
        parameters: length of an update.
    """
    if not config.server.aggregator.remembers():
        return None
    return UpdateMemory(run_folder / MEMORY, parameters, list(fleet.devices))


def formats_of(config: ServerProcess, schema: Schema, fleet: Fleet) -> UpdateFormats:
    """The formats of the updates, which follow from the codec and the mask of each group."""
    layout = Layout(schema, config.units)
    masks = {
        group: GroupMasks(of_group.masking, layout, of_group.capacity, config.seed)
        for group, of_group in config.masks.items()
    }
    limit = config.server.guard.max_norm
    entries = schema.parameters * config.server.aggregator.vectors()
    return UpdateFormats(config.compression, masks, entries, limit, fleet, config.sum_format)


def columns_of(names: Mapping[str, Sequence[str]]) -> list[str]:
    """The names of the covariates X of all groups, without repetition, in the groups' order."""
    return list(dict.fromkeys(name for of_group in names.values() for name in of_group))


def restore_assignments(
    round: Round,
    ledger: Ledger,
    time: ScenarioTime,
    fleet: Fleet,
    links: SharedLinks,
    lockstep: bool,
) -> None:
    """Let a round take over the assignments that outlive the round of their call, which the ledger
    has as open. In lockstep, also restore what is known of devices that are not called again."""
    members = {}
    # The order in which the server that made them had called them, so that everything that is in
    # the order of the cohort is the same after a restart.
    places = {client: device.index for client, device in fleet.devices.items()}
    for row in sorted(ledger.open_assignments(), key=lambda r: (r.round, places[r.client])):
        step = time.step_at(row.begun_s)
        member = CohortMember(row.round, row.base_version, row.begun_s or 0.0, step)
        member.model_bytes = member.entered_bytes = row.bytes_down
        member.entered = True
        members[row.client] = member
    round.take_over(members)
    if not lockstep:
        return
    links.load(ledger.shared_work(), time.next_s)
    for client, until_s in ledger.busy_until_s():
        fleet.devices[client].busy_until_s = until_s
    for client, declined_s, away_steps in ledger.declined():
        fleet.devices[client].away_until = time.step_at(declined_s) + away_steps
