"""The population: every device with its covariates Z, and whether it is enrolled.

The scenario and its seed determine all of it. The values of a device depend on no other device.
Only the emulator knows the true propensities: it writes them into the run folder, but never gives
them to an aggregator that did not ask for the oracle.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from muster.client.life.covariates import Covariates, z_columns
from muster.common.distributions import Distribution, Values
from muster.common.errors import ConfigError
from muster.common.files import write_atomic
from muster.common.per_device import PerDevice
from muster.common.seeds import Numbers
from muster.emulator.links.shape import Shape
from muster.emulator.scenario.enrollment import PROFILE, Enrollment

_DIRECT = Shape()


@dataclass(frozen=True, slots=True)
class Resident:
    """A device of the population.

    Attributes:
        index: position in the population, from 0.
        z: its covariates Z by name, numbers or words.
        propensity: the probability with which it was enrolled.
        shape: its link, as its gateway emulates it.
    """

    client: str
    group: str
    index: int
    z: Mapping[str, float | str]
    enrolled: bool
    propensity: float
    shape: Shape = _DIRECT


class Named(Protocol):
    """A group as `names_of` needs it."""

    @property
    def name(self) -> str: ...
    @property
    def count(self) -> int: ...


class _Device(Protocol):
    @property
    def profile(self) -> str: ...
    def looked_up(self) -> Mapping[str, tuple[Distribution, PerDevice]]: ...


class _Link(Protocol):
    def shapes_of(
        self, seed: int, clients: Sequence[str], positions: Sequence[int]
    ) -> Sequence[Shape]: ...


class _Group(Named, Protocol):
    @property
    def covariates(self) -> Covariates: ...
    @property
    def enrollment(self) -> Enrollment: ...
    @property
    def device(self) -> _Device: ...
    @property
    def link(self) -> _Link: ...


class _Scenario(Protocol):
    @property
    def seed(self) -> int: ...
    @property
    def groups(self) -> Sequence[_Group]: ...


def names_of(groups: Sequence[Named]) -> list[tuple[str, str]]:
    """The name of the client and of its group for every device, in the order of the population."""
    return [
        (f"{group.name}-{number:04d}", group.name)
        for group in groups
        for number in range(group.count)
    ]


def population(scenario: _Scenario) -> list[Resident]:
    """The population of a scenario: every device, in order.

    Raises:
        ConfigError: covariates or links cannot be drawn, a file lacks a property of a device,
            enrollment cannot be decided, or no device is enrolled.
    """
    residents: list[Resident] = []
    for number, group in enumerate(scenario.groups):
        try:
            residents.extend(_residents(scenario.seed, group, len(residents)))
        except ValueError as error:
            raise ConfigError(f"groups[{number}].{error}") from None
    _require_same_kind(residents)
    if not any(resident.enrolled for resident in residents):
        most = max(resident.propensity for resident in residents)
        raise ConfigError(
            f"no device is enrolled: none of {len(residents)} devices has a propensity above "
            f"{most:.3g}; expected groups.enrollment to enroll at least one"
        )
    return residents


def with_examples(residents: list[Resident], examples: Sequence[int]) -> list[Resident]:
    """Return the population once it is known what devices hold: those without examples have
    nothing to train on, so they are not enrolled.

    Args:
        examples: number of training examples of each device, in the order of the population.

    Raises:
        ConfigError: no enrolled device has examples.
    """
    if all(examples):
        return residents
    found = [
        resident if held else replace(resident, enrolled=False)
        for resident, held in zip(residents, examples, strict=True)
    ]
    if not any(resident.enrolled for resident in found):
        raise ConfigError(
            f"no enrolled device of {len(found)} has examples to train on; expected at least one"
        )
    return found


def _residents(seed: int, group: _Group, first: int) -> Iterator[Resident]:
    clients = [client for client, _ in names_of([group])]
    places = range(first, first + group.count)
    with np.errstate(over="ignore"):  # values that overflow are refused below, by name
        raw = group.covariates.draw(seed, clients, places)
    for name, values in raw.items():
        _require_finite(name, values, clients)
    _require_looked_up(group, seed, clients, places)
    try:
        shapes = group.link.shapes_of(seed, clients, places)
    except ValueError as error:
        raise ValueError(f"link.{error}") from None
    levels = group.covariates.levels()
    try:
        group.enrollment.check(levels)
    except ValueError as error:
        raise ValueError(f"enrollment.{error}") from None
    profile = np.full(group.count, group.device.profile)
    propensities = group.enrollment.propensity(
        z_columns(raw, levels), {**raw, PROFILE: profile}, group.count
    )
    enrolled = Numbers(seed, ("enrollment",), clients, ahead=1).at(0)[:, 0] < propensities
    columns = [values.tolist() for values in raw.values()]
    for number, client in enumerate(clients):
        yield Resident(
            client=client,
            group=group.name,
            index=first + number,
            z={name: column[number] for name, column in zip(raw, columns, strict=True)},
            enrolled=bool(enrolled[number]),
            propensity=float(propensities[number]),
            shape=shapes[number],
        )


def _require_finite(name: str, values: Values, clients: Sequence[str]) -> None:
    if values.dtype.kind == "U" or (finite := np.isfinite(values)).all():
        return
    first, count = int(np.argmin(finite)), np.count_nonzero(~finite)
    raise ValueError(
        f"covariates.z.{name}: expected finite numbers, but {count} of {len(values)} are not "
        f"({clients[first]}: {values[first]}); choose a distribution with smaller values"
    )


def _require_looked_up(
    group: _Group, seed: int, clients: Sequence[str], places: Sequence[int]
) -> None:
    for key, (setting, kind) in group.device.looked_up().items():
        try:
            kind.draw(setting, seed, clients, places, key)
        except ValueError as error:
            raise ValueError(f"device.{key}: {error}") from None


def _require_same_kind(residents: Sequence[Resident]) -> None:
    seen: dict[str, tuple[bool, str]] = {}
    for resident in residents:
        for name, value in resident.z.items():
            is_text, group = seen.setdefault(name, (isinstance(value, str), resident.group))
            if is_text != isinstance(value, str):
                words, numbers = (group, resident.group) if is_text else (resident.group, group)
                raise ConfigError(
                    f"covariate {name!r} is a word in group {words} and a number in group "
                    f"{numbers}; expected the same kind in all groups"
                )


def names_of_z(residents: Sequence[Resident]) -> list[str]:
    """The names of the covariates Z that any resident has."""
    return list(dict.fromkeys(name for resident in residents for name in resident.z))


def write_population(
    path: Path, residents: Sequence[Resident], participation: Sequence[float | None] | None
) -> None:
    """Write the population to a CSV file with a row for each device.

    Args:
        participation: each device's true propensity to take part, in the order of `residents`. A
            device without one gets an empty cell.
    """
    names = names_of_z(residents)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(
        ["client", "group", "enrolled", "enrollment_propensity", "participation_propensity", *names]
    )
    chances = [None] * len(residents) if participation is None else participation
    for resident, chance in zip(residents, chances, strict=True):
        rows.writerow(
            [
                resident.client,
                resident.group,
                int(resident.enrolled),
                resident.propensity,
                chance,
                *(resident.z.get(name, "") for name in names),
            ]
        )
    write_atomic(path, text.getvalue().encode())
