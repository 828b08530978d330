"""Converts a scenario's description of its devices into the settings of the client's simulation.

A run passes these settings to the device processes, and the plan computes from the same settings.
So both simulate the same devices.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from muster.client.faults.scheduled import DeviceFault, faults_of, life_faults
from muster.client.life.covariates import z_columns
from muster.client.life.device_settings import CAPACITY_MAH, DeviceSettings
from muster.client.life.settings import Life, PackMember
from muster.common.distributions import Distribution, numbers_for_devices
from muster.common.seeds import FloatArray
from muster.emulator.gateway.rates import model_of_device
from muster.emulator.scenario.population import Resident, names_of
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group
from muster.server.aggregators import Need
from muster.tasks.task import Task

_ZONES_H = (-12.0, 14.0)
"""Range of the world's time zones, in hours."""


def by_group(
    scenario: Scenario, residents: Sequence[Resident]
) -> Iterator[tuple[Group, Sequence[Resident]]]:
    """Yield every group with its residents, enrolled or not."""
    start = 0
    for group in scenario.groups:
        yield group, residents[start : start + group.count]
        start += group.count


def life_of(scenario: Scenario, group: Group, faults: Sequence[DeviceFault] = ()) -> Life:
    """The simulation settings of a group's devices.

    Args:
        faults: the faults of all devices of the scenario.
    """
    clients = [client for client, _ in names_of([group])]
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
        faults=faults_of(life_faults(faults), clients),
    )


def members_of(scenario: Scenario, group: Group, residents: Sequence[Resident]) -> list[PackMember]:
    """The enrolled devices of a group as members of a pack, each with its own properties.

    Args:
        residents: all residents of the group, enrolled or not, in order.
    """
    clients = [resident.client for resident in residents]
    places = [resident.index for resident in residents]
    device = group.device
    who = scenario.seed, clients, places
    speeds = speeds_of(device, *who)
    zones = np.clip(numbers_for_devices(device.time_zone, *who, "time zone"), *_ZONES_H)
    charge = device.looked_up().get("battery.initial")
    charges = None if charge is None else numbers_for_devices(charge[0], *who, "charge")
    capacities = _capacities(device, *who)
    columns = z_of(group, residents)
    return [
        PackMember(
            client=resident.client,
            index=resident.index,
            position=position,
            examples_per_s=None if speeds is None else float(speeds[position]),
            zone_h=float(zones[position]),
            z={name: float(values[position]) for name, values in columns.items()},
            charge=None if charges is None else float(charges[position]),
            battery_mah=None if capacities is None else float(capacities[position]),
            line=model_of_device(resident.shape, scenario.seed, resident.client),
        )
        for position, resident in enumerate(residents)
        if resident.enrolled
    ]


def speeds_of(
    device: DeviceSettings, seed: int, clients: Sequence[str], positions: Sequence[int]
) -> FloatArray | None:
    """The modelled speed of each device of a group in examples per second, shape (clients,); None
    if the group models no speed.

    Args:
        positions: positions of the devices in the population, from 0.

    Raises:
        ValueError: a speed to look up is missing.
    """
    if device.examples_per_s is None:
        return None
    speeds = numbers_for_devices(device.examples_per_s, seed, clients, positions, "speed")
    return np.maximum(speeds, 1e-3)


def _capacities(
    device: DeviceSettings, seed: int, clients: Sequence[str], positions: Sequence[int]
) -> FloatArray | None:
    """The capacity of each device's battery in mAh; None: all have the same, or none has one."""
    battery = device.battery
    if battery is None or not isinstance(battery.capacity_mah, Distribution):
        return None
    purpose = "battery", "capacity_mah"
    return CAPACITY_MAH.draw(battery.capacity_mah, seed, clients, positions, *purpose)


def z_of(group: Group, residents: Sequence[Resident]) -> dict[str, np.ndarray]:
    """Covariates Z of a group's devices as numbers, by name, each of shape (residents,)."""
    values = {name: [resident.z[name] for resident in residents] for name in group.covariates.z}
    return dict(z_columns(values, group.covariates.levels()))


def z_of_all(scenario: Scenario, residents: Sequence[Resident]) -> dict[str, FloatArray]:
    """Covariates Z of the whole population as columns, each of shape (residents,). A device that
    lacks a covariate has 0."""
    found: dict[str, FloatArray] = {name: np.zeros(len(residents)) for name in scenario.z_columns}
    for group, devices in by_group(scenario, residents):
        rows = [resident.index for resident in devices]
        for name, values in z_of(group, devices).items():
            found[name][rows] = values
    return found


def task_of(scenario: Scenario, residents: Sequence[Resident]) -> Task:
    """The scenario's task, with the covariates Z that shape its clients' data. Every process of the
    run opens this task.

    Raises:
        ConfigError: the task needs a covariate that no device has.
    """
    if not scenario.task.needs():
        return scenario.task
    return scenario.task.with_covariates(z_of_all(scenario, residents))
