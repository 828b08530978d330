"""Scenarios that are played from a life record: the record takes the place of availability,
participation, links, batteries and deadlines."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from muster.client.availability.always import Always
from muster.client.faults.contract import UpdateFault
from muster.client.life.device_settings import DeviceSettings
from muster.client.life.participation import ParticipationSettings
from muster.client.training.trainer import keeps_state
from muster.common.errors import ConfigError
from muster.common.life_record import LifeRecord, read_life
from muster.emulator.links.settings import LinkSettings
from muster.emulator.links.shared import SharedLink
from muster.emulator.scenario.population import names_of
from muster.emulator.scenario.settings import Group, ScenarioSettings

S = TypeVar("S", bound=ScenarioSettings)


def as_played(scenario: S) -> S:
    """The scenario as its programs play it. With a life record these are devices that are always
    there, without links and batteries, and only the faults that change updates, with what is
    expected of these; and without deadlines, if the record says which updates count."""
    if scenario.life is None:
        return scenario
    deadline_s = None if scenario.life.grade == "arrivals" else scenario.server.deadline_s
    faults = [fault for fault in scenario.faults if isinstance(fault.do, UpdateFault)]
    left_out = {fault.name for fault in scenario.faults} - {fault.name for fault in faults}
    return scenario.model_copy(
        update={
            "groups": [_always_there(group) for group in scenario.groups],
            "server": scenario.server.model_copy(update={"deadline_s": deadline_s}),
            "faults": faults,
            "expect": [
                each
                for each in scenario.expect
                if each.fault not in left_out and (faults or each.within is None)
            ],
            "verify": False,
        }
    )


def record_refusals(scenario: ScenarioSettings) -> Iterator[str]:
    """Yield why a scenario cannot be played from a record; none without a record."""
    if scenario.life is None:
        return
    clocks = ["rounds"] if scenario.life.grade == "arrivals" else ["rounds", "modelled"]
    if scenario.clock.kind not in clocks:
        yield (
            f"clock.kind: a life record is played in lockstep; expected {' or '.join(clocks)}, "
            f"found {scenario.clock.kind}"
        )
    if scenario.task.hosted:
        yield (
            "life.record: the strategy of a Flower app chooses its devices itself, so no record "
            "can say who is called; expected a task of muster"
        )


def _always_there(group: Group) -> Group:
    device = group.device
    return group.model_copy(
        update={
            "device": DeviceSettings(capacity=device.capacity, torch_device=device.torch_device),
            "availability": Always(kind="always"),
            "participation": ParticipationSettings(),
            "link": LinkSettings(compression=group.link.compression),
            "shared_link": SharedLink(),
        }
    )


def record_of(scenario: ScenarioSettings) -> LifeRecord | None:
    """The record from which a scenario is played; None: it has none.

    Raises:
        ConfigError: it cannot be read, or is one of another population.
    """
    if scenario.life is None:
        return None
    record = read_life(Path(scenario.life.record))
    require_population(record, scenario)
    return record


def require_population(record: LifeRecord, scenario: ScenarioSettings) -> None:
    """Check that a record is one of the devices of a scenario.

    Raises:
        ConfigError: it is not.
    """
    recorded = [device.client for device in record.header.devices]
    clients = [client for client, _ in names_of(scenario.groups)]
    if recorded == clients:
        return
    pairs = zip(recorded, clients, strict=False)
    found, expected = next(
        ((one, other) for one, other in pairs if one != other),
        (f"{len(recorded)} devices", f"{len(clients)} devices"),
    )
    raise ConfigError(
        f"life.record: the record of {record.header.source} is of another population: expected "
        f"{expected}, found {found}; use the groups of the scenario that was recorded, or "
        f"play it with `muster what-if --grade resimulated`"
    )


def trains_from_state(scenario: ScenarioSettings) -> bool:
    """Whether what a device keeps from its training decides how it trains next: a residual of its
    codec, a control variate, local entries, or the state of a trainer of the user's own."""
    parts = scenario.task.parts
    return (
        any(group.link.compression.feedback for group in scenario.groups)
        or scenario.server.aggregator.control
        or any(keeps_state(each.trainer) for each in scenario.trainings)
        or bool(parts is not None and parts.local)
    )
