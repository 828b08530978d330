"""The server's view of a population: covariates Z, their means, and the oracle."""

import math
from collections.abc import Sequence

import numpy as np

from muster.common.bounds import DEVICES, RUNNING_DEVICES
from muster.common.errors import ConfigError
from muster.common.features import Feature
from muster.common.seeds import stream
from muster.emulator.fleet.lives import by_group, z_of, z_of_all
from muster.emulator.planning.oracle import oracle_of
from muster.emulator.scenario.contradictions import mode_refusals, too_many_wanted
from muster.emulator.scenario.population import Resident, population
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import Need
from muster.server.fleet.devices import EnrolledDevice
from muster.server.knowledge.population import Population


def moments_of(scenario: Scenario, residents: Sequence[Resident]) -> dict[str, float]:
    """The population means that the server gets, by feature: of every column of Z, and of the
    features that the aggregator asks for. `server.moments_noise` adds noise to the true means.

    If a device lacks a covariate, its columns count as 0 (for words, the columns of all levels).

    Raises:
        ConfigError: a mean is too large for a number.
    """
    settings, z = scenario.server, z_of_all(scenario, residents)
    features = [Feature(column) for column in z]
    features += [Feature.parse(text, z) for text in settings.aggregator.features()]
    with np.errstate(over="ignore", invalid="ignore"):
        found = {feature.text: float(feature.of(z).mean()) for feature in features}
    for name, mean in found.items():
        if not math.isfinite(mean):
            raise ConfigError(
                f"groups.covariates.z: the population's mean of {name!r} is {mean:g}, expected a "
                f"finite number; give the covariate smaller values, or do not ask for this feature"
            )
    if settings.moments_noise:
        for name in found:
            error = stream(scenario.seed, "moments", name).standard_normal()
            found[name] += settings.moments_noise * float(error)
    return found


def z_bounds_of(
    scenario: Scenario, residents: Sequence[Resident]
) -> dict[str, dict[str, list[float]]]:
    """The columns of covariates Z that devices of each group have, with the smallest and the
    largest value in the population."""
    of_groups = {g.name: z_of(g, devices) for g, devices in by_group(scenario, residents)}
    ends: dict[str, list[float]] = {}
    for columns in of_groups.values():
        for name, values in columns.items():
            ends.setdefault(name, []).extend((float(values.min()), float(values.max())))
    bounds = {name: [min(found), max(found)] for name, found in ends.items()}
    return {group: {name: bounds[name] for name in of_groups[group]} for group in of_groups}


def population_of(scenario: Scenario, residents: Sequence[Resident]) -> Population:
    """The population as the server knows it."""
    columns, z = scenario.z_columns, z_of_all(scenario, residents)
    full = scenario.server.information == "full"
    rows = [
        {column: float(z[column][resident.index]) for column in columns} for resident in residents
    ]
    return Population(
        [resident.client for resident in residents],
        columns,
        [row if full or r.enrolled else None for r, row in zip(residents, rows, strict=True)],
        {r.client: EnrolledDevice(r.client, r.group, r.index, 1) for r in residents if r.enrolled},
        moments_of(scenario, residents),
        oracle_of(scenario, residents),
    )


def require(scenario: Scenario) -> None:
    """Check that the scenario's population is possible and not too large for a run, and that its
    aggregator can work with it.

    Raises:
        ConfigError: it is not, or it cannot.
    """
    if scenario.devices > RUNNING_DEVICES:
        raise ConfigError(
            f"groups: {scenario.devices:,} devices in all, expected at most {RUNNING_DEVICES:,} in "
            f"a run; `muster plan` computes the lives of up to {DEVICES:,} without one"
        )
    residents = population(scenario)
    enrolled = sum(resident.enrolled for resident in residents)
    too_few = [*mode_refusals(scenario, enrolled), *too_many_wanted(scenario.server, enrolled)]
    if enrolled < scenario.devices and too_few:
        raise ConfigError(
            "\n".join(too_few) + f"; groups.enrollment enrols {enrolled} of {scenario.devices}"
        )
    rule = scenario.server.aggregator
    never = [resident.client for resident in residents if resident.propensity == 0]
    if never and rule.needs() & {Need.POPULATION, Need.PROPENSITIES}:
        shown = ", ".join(never[:3]) + (" …" if len(never) > 3 else "")
        raise ConfigError(
            f"server.aggregator: {rule.kind} lets enrolled devices also represent similar devices "
            f"that are not enrolled, but {len(never)} of {len(residents)} devices can never be "
            f"enrolled (propensity 0: {shown}), so no device can represent them. Give every device "
            f"a chance in groups.enrollment, or choose 'calibrated' with method = 'soft', which "
            f"comes as near to the population's means as it can"
        )
    if objections := list(rule.objections(population_of(scenario, residents))):
        raise ConfigError("\n".join(f"server.aggregator: {text}" for text in objections))
