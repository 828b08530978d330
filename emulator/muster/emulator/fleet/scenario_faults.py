"""The timeline of a scenario's faults, and the file of a run folder that keeps it."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from muster.client.faults.scheduled import DeviceFault
from muster.common.errors import ConfigError
from muster.common.files import write_atomic
from muster.emulator.faults.times import RunTime
from muster.emulator.fleet.device_faults import device_faults
from muster.emulator.fleet.fault_timeline import FaultTimeline, resolve
from muster.emulator.gateway.config import gateway_name
from muster.emulator.scenario.fault_targets import GatewayGroup
from muster.emulator.scenario.population import Resident
from muster.emulator.scenario.scenario import Scenario

FAULTS = "faults.json"
"""The file with the resolved timeline, in the run folder. A run without faults has none."""


class ScenarioFaults(NamedTuple):
    """The faults of a scenario, with everything that follows from its seed.

    Attributes:
        inside: the faults that act inside devices.
    """

    timeline: FaultTimeline
    time: RunTime
    inside: Sequence[DeviceFault]

    @classmethod
    def of(cls, scenario: Scenario, residents: Sequence[Resident]) -> Self:
        """Resolve the faults of a scenario.

        Raises:
            ConfigError: a fault has no target, or acts in no round.
        """
        time = run_time(scenario)
        gateways = gateway_groups(scenario)
        timeline = resolve(scenario.faults, scenario.seed, time, residents, gateways)
        return cls(timeline, time, device_faults(timeline, time))

    def require_targets(self, without: Collection[str]) -> None:
        """Check that every fault has a target beside the devices without examples.

        Raises:
            ConfigError: a fault has none.
        """
        for fault in self.timeline.faults:
            if without and set(fault.targets) <= set(without):
                raise ConfigError(
                    f"faults: {fault.name} strikes only devices without examples, which are not "
                    f"called ({', '.join(sorted(fault.targets)[:3])}); give it another target"
                )


def gateway_groups(scenario: Scenario) -> list[GatewayGroup]:
    """The groups of a scenario that have a gateway, with its name."""
    return [
        GatewayGroup(g.name, gateway_name(g.gateway_group)) for g in scenario.groups if g.gateway
    ]


def run_time(scenario: Scenario) -> RunTime:
    """The time of a scenario's run, as far as it is known."""
    clock, server = scenario.clock, scenario.server
    lockstep = clock.lockstep
    fixed = clock.kind == "rounds" and not server.mode.counts_versions
    longest_s = scenario.longest_round_s * clock.scale
    round_s = clock.round_s if clock.kind == "rounds" else longest_s
    return RunTime(lockstep, fixed, clock.round_s, server.rounds, server.rounds * round_s)


def write_timeline(folder: Path, timeline: FaultTimeline) -> None:
    """Write the timeline of a run with faults into its folder."""
    if timeline:
        write_atomic(
            folder / FAULTS, timeline.model_dump_json(exclude_none=True, indent=1).encode()
        )
