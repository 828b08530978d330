"""What the scenario of a run says that the live page shows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.common.clock_kinds import is_lockstep
from muster.common.errors import ConfigError
from muster.common.files import os_reason
from muster.common.toml import parse_toml
from muster.emulator.records.scenario_time import outlives_round
from muster.emulator.records.shared_links import LinkPlace, link_places
from muster.emulator.run_folder.folder import SCENARIO, is_stack
from muster.emulator.scenario.population import names_of


@dataclass(frozen=True)
class GroupSetup:
    """A group of devices.

    Attributes:
        first: the position of its first device in the population.
    """

    name: str
    count: int
    first: int


@dataclass(frozen=True)
class RunSetup:
    """A run as its scenario describes it.

    Attributes:
        clock: the kind of the clock: "rounds", "modelled", "wall" or "scaled".
        outlives_round: whether updates may count in a later round than that of their call.
        deadline_s: of a round, in scenario seconds; None without one.
        clients: the names of all devices, in the order of the population.
        has_supervisor: whether a process outside of the fleet records the traffic of links, and
            can inject faults.
        scale: scenario seconds per wall second, on clocks that run.
        has_traffic: whether links are emulated for any group, and their traffic is recorded.
        links: the links of the groups.
    """

    name: str
    folder: str
    clock: str
    outlives_round: bool
    deadline_s: float | None
    groups: tuple[GroupSetup, ...]
    clients: tuple[str, ...]
    has_supervisor: bool = True
    has_traffic: bool = False
    scale: float = 1.0
    links: tuple[LinkPlace, ...] = ()

    @property
    def lockstep(self) -> bool:
        """Whether the durations of devices are modelled, and not measured on a clock."""
        return is_lockstep(self.clock)


def run_setup(folder: Path) -> RunSetup:
    """Read the resolved scenario of a run folder.

    Raises:
        ConfigError: it cannot be read.
    """
    path = folder / SCENARIO
    try:
        scenario = parse_toml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {os_reason(error)}") from error
    if not scenario.get("groups"):
        raise ConfigError(f"{path} has no groups")
    groups: list[GroupSetup] = []
    for table in scenario["groups"]:
        first = groups[-1].first + groups[-1].count if groups else 0
        groups.append(GroupSetup(str(table["name"]), int(table.get("count", 1)), first))
    server: dict[str, Any] = scenario.get("server", {})
    has_supervisor = not is_stack(folder)
    return RunSetup(
        name=str(scenario.get("name", folder.name)),
        folder=folder.name,
        clock=str(scenario.get("clock", {}).get("kind", "rounds")),
        outlives_round=outlives_round(scenario),
        deadline_s=server.get("deadline_s"),
        groups=tuple(groups),
        clients=tuple(client for client, _ in names_of(groups)),
        has_supervisor=has_supervisor,
        scale=float(scenario.get("clock", {}).get("scale", 1.0)),
        has_traffic=has_supervisor and any(map(_has_rates, scenario["groups"])),
        links=link_places(scenario),
    )


def _has_rates(group: dict[str, Any]) -> bool:
    tables = group.get("link", {}), group.get("shared_link", {})
    return any(key in table for table in tables for key in ("up", "down", "trace", "trace_up"))
