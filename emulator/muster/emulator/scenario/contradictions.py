"""Settings that are right by themselves and contradict each other."""

from collections.abc import Iterator, Sequence

from muster.client.availability.logistic import Logit
from muster.client.life.covariates import column_names
from muster.common.bounds import DEVICES
from muster.common.secure.graph import LEAST
from muster.common.secure.grid import FEWEST_BITS, MOST_BYTES, USUAL_BYTES, bits_for, grid_of
from muster.common.secure.noise import FEWEST_STEPS, MOST_STEPS
from muster.emulator.expectations.settings import KnownNames
from muster.emulator.scenario.combinations import combination_refusals
from muster.emulator.scenario.fault_refusals import endless_faults, fault_refusals
from muster.emulator.scenario.settings import Group, ScenarioSettings
from muster.emulator.scenario.slow_links import slow_link_refusals
from muster.server.rounds.modes.contract import ModeConditions
from muster.server.settings.secure import EQUAL_WEIGHT
from muster.server.settings.server import ServerSettings

_LEAST_STALL_S = 1.0

_STEPS_PER_S = 100
"""Most steps of a device's simulation in a second of wall time. One step takes a device up to a
millisecond."""


def contradictions(scenario: ScenarioSettings) -> Sequence[str]:
    found = []
    names = [group.name for group in scenario.groups]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        found.append(
            f"groups: two groups are called {', '.join(twice)}; expected a different name for each"
        )
    if scenario.devices > DEVICES:
        found.append(f"groups: {scenario.devices:,} devices in all, expected at most {DEVICES:,}")
    wanted = getattr(scenario.server.selection, "k", None)
    if wanted is not None and wanted > scenario.devices:
        found.append(
            f"server.selection.k: {wanted} devices per round, but the population has only "
            f"{scenario.devices}"
        )
    goal = scenario.server.round_goal()
    if goal is not None and goal > scenario.devices:
        found.append(
            f"server.goal: {goal} updates, but the population has only {scenario.devices} devices"
        )
    found += mode_refusals(scenario, scenario.devices)
    found += too_many_wanted(scenario.server, scenario.devices)
    if scenario.server.stall_s < _LEAST_STALL_S:
        found.append(
            f"server.stall_s: {scenario.server.stall_s:g} s are not enough for a process to start, "
            f"expected at least {_LEAST_STALL_S:g}"
        )
    if scenario.server.metrics_port is not None and (
        scenario.server.metrics_port == scenario.server.port
    ):
        found.append(
            f"server.metrics_port: {scenario.server.port} is server.port; choose another port"
        )
    steps_per_s = scenario.clock.scale / scenario.clock.round_s
    if not scenario.clock.lockstep and steps_per_s > _STEPS_PER_S:
        found.append(
            f"clock.round_s: devices would simulate {steps_per_s:,.0f} steps per second of wall "
            f"time, expected at most {_STEPS_PER_S}; choose a longer clock.round_s or a smaller "
            f"clock.scale"
        )
    if unknown := sorted(scenario.launch.cluster.labels.keys() - set(names)):
        found.append(
            f"launch.cluster.labels: there is no group {', '.join(unknown)}; expected the name of "
            f"a group: {', '.join(names)}"
        )
    if "GPU" in scenario.launch.cluster.resources:
        found.append(
            "launch.cluster.resources: GPU is reserved for the devices with torch_device cuda or "
            "auto, as many as launch.devices_per_gpu says; leave it out here"
        )
    found += _impossible_expectations(scenario)
    found += fault_refusals(scenario)
    found += combination_refusals(scenario)
    found += _too_many_bits(scenario)
    found += _impossible_noise(scenario)
    found += slow_link_refusals(scenario)
    mistakes = len(found)
    for number, group in enumerate(scenario.groups):
        found += [f"groups[{number}].{mistake}" for mistake in _impossible(scenario, group)]
    if len(found) == mistakes:  # otherwise the covariates that exist are not known
        found += _missing_covariates(scenario)
        reasons = scenario.server.aggregator.refusals(scenario.conditions)
        found += [f"server.aggregator: {reason}" for reason in reasons]
    return found


def _too_many_bits(scenario: ScenarioSettings) -> Iterator[str]:
    secure, most = scenario.server.secure, scenario.server.round_sizes(scenario.devices)[1]
    if secure is not None and secure.bits is not None and secure.bits > bits_for(most, MOST_BYTES):
        yield (
            f"server.secure.bits: a sum of {most:,} updates with entries of {secure.bits} bits is "
            f"longer than {8 * MOST_BYTES} bits; expected at most {bits_for(most, MOST_BYTES)}"
        )


def _impossible_noise(scenario: ScenarioSettings) -> Iterator[str]:
    """Yield why the devices cannot add the noise of privacy to secure sums."""
    server, most = scenario.server, scenario.server.round_sizes(scenario.devices)[1]
    secure, privacy = server.secure, server.privacy
    if secure is None or secure.range is None or privacy is None or not privacy.place.in_sums:
        return
    if (certain := secure.noisy_devices(most, server.minimum)) < 1:
        colluding = max(server.minimum, LEAST) - certain
        yield (
            f"server.minimum: in a sum of {server.minimum:,} updates, noise of nobody would be "
            f"certain, because {colluding:,} of {most:,} devices may collude; expected at least "
            f"{colluding + 1:,}, or a smaller server.secure.collusion"
        )
        return
    noise = secure.noise_of(privacy, most, server.minimum)
    assert noise is not None
    heaviest = secure.largest_weight or EQUAL_WEIGHT
    if heaviest < EQUAL_WEIGHT:
        yield (
            f"server.secure.largest_weight: with noise in sums every update has the weight "
            f"{EQUAL_WEIGHT:g}, found {heaviest:g}; leave it out"
        )
        return
    room = most + noise.counts_as(most, heaviest * secure.range)
    bits = bits_for(room, USUAL_BYTES if secure.bits is None else MOST_BYTES)
    if bits < (secure.bits or FEWEST_BITS):
        yield (
            f"server.privacy.noise: the sum of {most:,} updates and their noise leaves {bits} bits "
            f"to an entry of up to server.secure.range = {secure.range:g}; expected at least "
            f"{secure.bits or FEWEST_BITS}. Take less noise, a larger range, or "
            f"{'server.secure.bits' if secure.bits is None else 'fewer bits'}"
        )
        return
    grid = grid_of(secure.range, secure.bits, "nearest", most, heaviest, noise)
    steps = grid.deviation / grid.step
    if privacy.noise and not FEWEST_STEPS <= steps <= MOST_STEPS:
        few = steps < FEWEST_STEPS
        yield (
            f"server.secure.bits: the noise of a device has a standard deviation of {steps:.3g} "
            f"steps of the grid; expected {FEWEST_STEPS} to {MOST_STEPS:,}. Take "
            f"{'more' if few else 'fewer'} bits"
        )


def mode_refusals(scenario: ScenarioSettings, devices: int) -> Iterator[str]:
    """Yield what the mode cannot work with, one sentence each.

    Args:
        devices: the number of devices that may take part.
    """
    server, mode = scenario.server, scenario.server.mode
    lines = [group.shared_line(scenario.seed) for group in scenario.groups]
    conditions = ModeConditions(
        server.selection,
        devices,
        scenario.clock.lockstep,
        server.minimum,
        server.deadline_s,
        scenario.clock.round_s,
        shared=any(line.delays for line in lines),
        slots=any(line.slots is not None for line in lines),
        modelled=scenario.clock.kind == "modelled",
    )
    for reason in mode.refusals(conditions):
        yield f"server.mode: {reason}"


def too_many_wanted(server: ServerSettings, devices: int) -> Iterator[str]:
    """Report a minimum of updates that no round can reach, so that every round would be empty.

    Args:
        devices: the number of devices that may take part.
    """
    goal, called = server.round_goal(), getattr(server.selection, "k", None)
    limits = [(devices, f"the {devices} devices that may take part")]
    if goal is not None:
        limits.insert(0, (goal, f"the goal of {goal}"))
    elif called is not None:
        limits.insert(0, (called, f"the {called} devices that a round calls"))
    exceeded = next((why for most, why in limits if server.minimum > most), None)
    if exceeded is not None:
        yield f"server.minimum: {server.minimum} is more than {exceeded}"


def _impossible_expectations(scenario: ScenarioSettings) -> Iterator[str]:
    """Report expectations about what the scenario does not have."""
    known = KnownNames(
        groups=[group.name for group in scenario.groups],
        faults=[fault.name for fault in scenario.faults if fault.name is not None],
        endless=dict(endless_faults(scenario)),
        accuracy=scenario.task.has_accuracy,
        of_groups=scenario.server.evaluate_groups or scenario.server.evaluate_on != "server",
        energy=scenario.energy is not None,
        carbon=scenario.energy is not None and scenario.energy.intensity is not None,
    )
    for number, expectation in enumerate(scenario.expect):
        yield from (f"expect[{number}].{mistake}" for mistake in expectation.mistakes(known))


def _missing_covariates(scenario: ScenarioSettings) -> Iterator[str]:
    """Report covariates Z that the task needs for the clients' data but that no group has."""
    known = ", ".join(scenario.z_columns) or "none"
    for name in sorted(scenario.task.needs().difference(scenario.z_columns)):
        yield f"task.covariates: no group has a covariate Z {name!r}; there are: {known}"


def _impossible(scenario: ScenarioSettings, group: Group) -> Iterator[str]:
    """Report settings of a group that contradict each other or the rest of the scenario."""
    if group.shared_link.slots is None and group.shared_link.overflow != "queue":
        yield f"shared_link.overflow: {group.shared_link.overflow!r} needs slots; found none"
    try:
        group.availability.check(group.name, group.count, scenario.clock.round_s)
    except ValueError as error:
        yield f"availability: {error}"
    willing = group.participation.willing
    wanted = {"availability": group.availability.needs()}
    if isinstance(willing, Logit):
        wanted["participation.willing"] = set(willing.z), set(willing.x)
    try:
        levels = group.covariates.levels()
    except ValueError as error:
        yield f"covariates: {error}"
        return
    there = {"z": set(column_names(levels)), "x": set(group.covariates.x)}
    for path, (z, x) in wanted.items():
        for kind, names in (("z", z), ("x", x)):
            for name in sorted(names - there[kind]):
                known = ", ".join(sorted(there[kind])) or "none"
                yield f"{path}.{kind}.{name}: there is no such covariate; there are: {known}"
