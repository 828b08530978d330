"""What the rounds of a run need and what follows from the configuration: the rules of every round,
the population as aggregators see it, the masks, and the covariates X."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.common.masks import GroupMasks, Layout
from muster.common.tensors import Schema
from muster.server.config import ServerProcess
from muster.server.fleet import Fleet
from muster.server.knowledge.population import Population
from muster.server.rounds.rules import Rules
from muster.server.rounds.shared_flows import SharedFlows
from muster.server.rounds.shared_links import SharedLinkModel, SharedLinks
from muster.server.updates.memory import MEMORY, UpdateMemory


def rules_of(config: ServerProcess) -> Rules:
    """The rules of every round."""
    settings, lockstep = config.server, config.clock == "rounds"
    limits = settings.round_goal(), settings.deadline_s
    return Rules.of(settings.mode, *limits, lockstep, awaits_answers=bool(config.x))


def links_of(
    config: ServerProcess, fleet: Fleet, bytes_down: int, bytes_up: Mapping[str, int]
) -> SharedLinks:
    """The model of the shared links.

    Args:
        bytes_down: length of a model's body.
        bytes_up: largest length of an update's body, by group.
    """
    if config.server.mode.carries:
        sizes = {group: (bytes_down, of_group) for group, of_group in bytes_up.items()}
        return SharedFlows(config.shared, fleet.devices, sizes)
    return SharedLinkModel(config.shared, fleet, config.seed, bytes_down, bytes_up)


def calls_ahead(config: ServerProcess) -> bool:
    """Whether the next round's devices may be called before a closed round is durable."""
    settings = config.server
    # With a target, it is known only after a round's evaluation whether there is a next round.
    waits = bool(config.shared) or settings.target.given or settings.mode.carries
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
    """The memory of the last updates, if the aggregator remembers them.

    Args:
        parameters: length of an update.
    """
    if not config.server.aggregator.remembers:
        return None
    return UpdateMemory(run_folder / MEMORY, parameters, list(fleet.devices))


def masks_of(config: ServerProcess, schema: Schema) -> dict[str, GroupMasks]:
    """The masks of each group whose devices train parts of the model."""
    layout = Layout(schema, config.units)
    return {
        group: GroupMasks(of_group.masking, layout, of_group.capacity, config.seed)
        for group, of_group in config.masks.items()
    }


def columns_of(names: Mapping[str, Sequence[str]]) -> list[str]:
    """The names of the covariates X of all groups, without repetition, in the groups' order."""
    return list(dict.fromkeys(name for of_group in names.values() for name in of_group))
