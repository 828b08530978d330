"""What a scenario says of its devices' lives, as the client's code takes it.

The run hands this to device processes, the plan computes from it: both lead the same lives.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from muster.client.config import PackMember
from muster.client.covariates import z_columns
from muster.client.life import Life
from muster.common.distributions import draw
from muster.common.lines import LinkModel
from muster.common.seeds import FloatArray, Numbers
from muster.emulator.fleet.population import Resident
from muster.emulator.scenario.scenario import Group, Scenario
from muster.server.aggregators import Need
from muster.tasks.task import Task

_ZONES_H = (-12.0, 14.0)
"""Time zones of the world."""


def by_group(
    scenario: Scenario, residents: Sequence[Resident]
) -> Iterator[tuple[Group, Sequence[Resident]]]:
    """Every group with its devices, enrolled or not."""
    start = 0
    for group in scenario.groups:
        yield group, residents[start : start + group.count]
        start += group.count


def life_of(scenario: Scenario, group: Group) -> Life:
    """The life of a group's devices."""
    return Life(
        group=group.name,
        size=group.count,
        device=group.device,
        availability=group.availability,
        participation=group.participation,
        covariates=group.covariates,
        tells_propensity=Need.PROPENSITIES in scenario.server.aggregator.needs(),
        step_s=scenario.clock.round_s,
        start_h=scenario.clock.starts_at_h,
    )


def line_of(scenario: Scenario, group: Group, client: str) -> LinkModel:
    """A device's link in the scenario's model."""
    return group.link.shape_of(scenario.seed, client).line() if group.link.shapes else LinkModel()


def members_of(scenario: Scenario, group: Group, residents: Sequence[Resident]) -> list[PackMember]:
    """The enrolled devices of a group, each with what differs from device to device.

    Args:
        residents: of the group, enrolled or not, in order.
    """
    clients = [resident.client for resident in residents]

    def numbers(purpose: str) -> np.ndarray:
        return Numbers(scenario.seed, (purpose,), clients, width=2, ahead=1).at(0)

    speed = group.device.examples_per_s
    speeds = None if speed is None else np.maximum(draw(speed, numbers("speed")), 1e-3)
    zones = np.clip(draw(group.device.time_zone, numbers("time zone")), *_ZONES_H)
    columns = z_of(group, residents)
    return [
        PackMember(
            client=resident.client,
            index=resident.index,
            position=position,
            examples_per_s=None if speeds is None else float(speeds[position]),
            zone_h=float(zones[position]),
            z={name: float(values[position]) for name, values in columns.items()},
        )
        for position, resident in enumerate(residents)
        if resident.enrolled
    ]


def z_of(group: Group, residents: Sequence[Resident]) -> dict[str, np.ndarray]:
    """Covariates Z of a group's devices as numbers, by name, each of shape (residents,)."""
    values = {name: [resident.z[name] for resident in residents] for name in group.covariates.z}
    return dict(z_columns(values, group.covariates.levels()))


def z_of_all(scenario: Scenario, residents: Sequence[Resident]) -> dict[str, FloatArray]:
    """Covariates Z of the whole population as columns, each of shape (residents,); 0 where a device
    lacks one."""
    found: dict[str, FloatArray] = {name: np.zeros(len(residents)) for name in scenario.z_columns}
    for group, devices in by_group(scenario, residents):
        rows = [resident.index for resident in devices]
        for name, values in z_of(group, devices).items():
            found[name][rows] = values
    return found


def task_of(scenario: Scenario, residents: Sequence[Resident]) -> Task:
    """The task with the covariates Z that shape its clients' data: what every process opens.

    Raises:
        ConfigError: it needs one that no device has.
    """
    if not scenario.task.needs():
        return scenario.task
    return scenario.task.with_covariates(z_of_all(scenario, residents))
