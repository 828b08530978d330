"""What the features of a scenario require of each other, and what they take away.

`muster.server.aggregators.combinations` has the table of what this excludes.
"""

from collections.abc import Iterator

from muster.client.faults import LifeFault
from muster.client.life.participation import UtilitySettings
from muster.client.training.optimizers import OPTIMIZERS, PLAIN
from muster.client.training.settings import Training
from muster.client.training.trainer import keeps_state
from muster.common.errors import ConfigError
from muster.common.requirements import Requirement
from muster.common.secure.graph import LEAST
from muster.common.tensors import Schema
from muster.common.withholders import Withholder
from muster.emulator.scenario.settings import Group, ScenarioSettings
from muster.server.aggregators.combinations import Required, Withheld, excluded, excludes
from muster.tasks.own_regression import OwnRegression
from muster.tasks.synthetic import Synthetic

_REPORTED = "threshold", "inflation", "points", "largest_weight", "dense_points"
"""Settings of the utility that a device reports."""

_KEPT = {"clip_update", "update_noise", "control_variates"}
"""Settings of training that act on the update and not on how it is made, or that the rule sets."""


def combination_refusals(scenario: ScenarioSettings) -> Iterator[str]:
    """Yield what the features of a scenario exclude, one sentence each; nothing if they fit."""
    required = list(required_by(scenario))
    return excluded(required, [*withheld_by(scenario), *_withheld_by_privacy(scenario, required)])


def require_fitting_model(scenario: ScenarioSettings, model: Schema) -> None:
    """Check that the features of a scenario work with its model.

    Raises:
        ConfigError: some do not.
    """
    if names := [tensor.name for tensor in model.tensors if tensor.counted]:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        withheld = [Withheld(Withholder.COUNTED, f"the buffers {shown}")]
        if reasons := [*excluded(required_by(scenario), withheld)]:
            raise ConfigError("\n".join(reasons))


def required_by(scenario: ScenarioSettings) -> Iterator[Required]:
    """Yield what the features of a scenario require."""
    server, rule = scenario.server, scenario.server.aggregator
    yield from _required_by_time(scenario)
    for requirement in sorted(rule.requires()):
        yield Required(requirement, rule.kind)
    if server.privacy is not None:
        for requirement in server.privacy.place.requires:
            yield Required(requirement, "server.privacy")
    if server.secure is not None:
        yield Required(Requirement.SECURE_SUMS, "server.secure")
    if server.keep_updates:
        yield Required(Requirement.KEPT_UPDATES, "server.keep_updates")
    if server.goal is not None:
        yield Required(Requirement.GOAL, str(server.goal))
    yield from _required_by_training(scenario.training)
    if scenario.task.parts is not None and scenario.task.parts.local:
        yield Required(Requirement.LOCAL_PARTS, "task.parts.local")
    if server.evaluate_on != "server":
        yield Required(Requirement.DEVICE_METRICS, server.evaluate_on)
    if scenario.task.hosted:
        yield Required(Requirement.APP, "task")
    if scenario.verify:
        yield Required(Requirement.MEASURED_LINKS, "verify")
    for number, group in enumerate(scenario.groups):
        if scenario.clock.lockstep and group.shared_link.slots is not None:
            yield Required(Requirement.SLOTS, "shared_link.slots", f"groups[{number}]")
        yield from _required_by_group(group, f"groups[{number}]")
        yield from _required_by_steps(scenario.training.of(group.training), f"groups[{number}]")


def _required_by_training(training: Training) -> Iterator[Required]:
    if training.control_variates:
        yield Required(Requirement.CONTROL, "training.control_variates")
    if training.gradient:
        yield Required(Requirement.GRADIENT, "training.gradient")
    if training.together > 1:
        yield Required(Requirement.TOGETHER, str(training.together))


def _required_by_steps(training: Training, place: str) -> Iterator[Required]:
    """Yield what settings that may differ by group require."""
    if keeps_state(training.trainer):
        yield Required(Requirement.KEPT_STATE, training.trainer.kind, place)
    if training.update_noise:
        yield Required(Requirement.NOISE, f"{training.update_noise:g}", place)
    for augmentation in training.augmentations:
        yield Required(Requirement.AUGMENTATIONS, augmentation.kind, place)
        if augmentation.pictures:
            yield Required(Requirement.PICTURES, augmentation.kind, place)


def _required_by_time(scenario: ScenarioSettings) -> Iterator[Required]:
    """Yield what the clock and the mode require."""
    clock, mode = scenario.clock, scenario.server.mode
    if not clock.lockstep:
        yield Required(Requirement.DEADLINE, clock.kind)
    if clock.kind == "modelled" and scenario.life is None:  # a record has durations
        yield Required(Requirement.MODELLED_WORK, clock.kind)
    if mode.draws_devices():
        yield Required(Requirement.DRAWN_CALLS, mode.kind)


def _required_by_group(group: Group, place: str) -> Iterator[Required]:
    if group.mask is not None:
        yield Required(Requirement.MASK, "mask", place)
    if group.partial_sums:
        yield Required(Requirement.PARTIAL_SUMS, "partial_sums", place)
    if group.gateway:
        yield Required(Requirement.OWN_LINK, "link", place)
    if group.shaped:
        yield Required(Requirement.WALL_TIME, "link")
    if group.shared_link.slots is not None:
        yield Required(Requirement.GRANTS, "shared_link.slots", place)
    if not group.participation.rational:
        return
    yield Required(Requirement.OWN_MODEL, "participation", place)
    yield Required(Requirement.JUDGED_MODELS, "participation", place)
    utility, usual = group.participation.utility or UtilitySettings(), UtilitySettings()
    if utility.test == "fitted":
        yield Required(Requirement.FITTED_UTILITY, "test", place)
    for key in _REPORTED:
        if getattr(utility, key) != getattr(usual, key):
            yield Required(Requirement.REPORTED_UTILITY, key, place)


def withheld_by(scenario: ScenarioSettings) -> Iterator[Withheld]:
    """Yield what the features of a scenario take away, without its privacy."""
    yield from _withheld_by_time(scenario)
    yield from _withheld_by_rounds(scenario)
    yield from _withheld_by_training(scenario)
    yield from _withheld_by_task(scenario)
    yield from _withheld_by_faults(scenario)
    for number, group in enumerate(scenario.groups):
        yield from _withheld_by_group(scenario, group, f"groups[{number}]")
        yield from _withheld_by_steps(scenario.training.of(group.training), f"groups[{number}]")


def _withheld_by_privacy(
    scenario: ScenarioSettings, required: list[Required]
) -> Iterator[Withheld]:
    """Yield what privacy takes away. With equal weights, its sentence recommends privacy on devices
    if nothing forbids that."""
    privacy = scenario.server.privacy
    if privacy is None:
        return
    forbidden = excludes((need.requirement for need in required), Withholder.DEVICE_PRIVACY)
    found = "" if forbidden else ", or set where = 'device'"
    for withholder in privacy.place.withholds:
        yield Withheld(withholder, found)


def _withheld_by_time(scenario: ScenarioSettings) -> Iterator[Withheld]:
    clock, server = scenario.clock, scenario.server
    if not clock.lockstep:
        yield Withheld(Withholder.RUNNING_CLOCK, clock.kind)
        if server.selection.kind != "all":
            yield Withheld(Withholder.PRESENT_SELECTION, server.selection.kind)
    if clock.scale != 1:
        yield Withheld(Withholder.SCALED_TIME, f"{clock.scale:g}")
    if server.deadline_s is None:
        yield Withheld(Withholder.NO_DEADLINE)


def _withheld_by_rounds(scenario: ScenarioSettings) -> Iterator[Withheld]:
    server = scenario.server
    least, _ = server.round_sizes(scenario.devices)
    if server.mode.outlives_round():
        yield Withheld(Withholder.LATER_ROUNDS, server.mode.kind)
    if server.mode.counts_versions:
        yield Withheld(Withholder.COUNTED_VERSIONS, server.mode.kind)
    if server.mode.discounts():
        yield Withheld(Withholder.STALENESS_WEIGHT)
    if server.selection.kind != "all":
        yield Withheld(Withholder.SELECTION, server.selection.kind)
    if server.selection.prefers():
        yield Withheld(Withholder.PREFERENCE, server.selection.kind)
    if least < LEAST:
        yield Withheld(Withholder.SMALL_ROUNDS, str(least))
    if least > 1:
        yield Withheld(Withholder.MINIMUM, str(least))
    if server.guard.max_norm is not None:
        yield Withheld(Withholder.NORM_LIMIT, f"{server.guard.max_norm:g}")
    if server.secure is None:
        yield Withheld(Withholder.NO_SECURE_SUMS)
    else:
        yield Withheld(Withholder.SECURE_SUMS)
        if server.secure.range is None:
            yield Withheld(Withholder.EXACT_SUMS)
    if server.information == "limited":
        yield Withheld(Withholder.LIMITED_INFORMATION)
    if not server.aggregator.control:
        yield Withheld(Withholder.NO_CONTROL, server.aggregator.kind)
    if not server.aggregator.announces:
        yield Withheld(Withholder.UNTOLD_WEIGHTS)
    if server.evaluate_on == "server":
        yield Withheld(Withholder.SERVER_EVALUATION)
    for name in ("evaluate_groups", "evaluate_devices"):
        if getattr(server, name):
            yield Withheld(Withholder.MEASUREMENTS, name)


def _withheld_by_training(scenario: ScenarioSettings) -> Iterator[Withheld]:
    training, work = scenario.training, scenario.local_work
    if training.gradient:
        yield Withheld(Withholder.GRADIENT)
    if training.together > 1:
        yield Withheld(Withholder.TOGETHER, str(training.together))
    for setting in work.other:
        yield Withheld(Withholder.OTHER_STEPS, setting)
    if work.momentum:
        yield Withheld(Withholder.WEIGHTED_STEPS, "training.optimizer.momentum")
    if work.proximal_mu:
        yield Withheld(Withholder.WEIGHTED_STEPS, "training.proximal_mu")
    usual = Training()
    for name in Training.model_fields:
        if name not in _KEPT and getattr(training, name) != getattr(usual, name):
            yield Withheld(Withholder.TRAINING_SETTINGS, name)


def _withheld_by_steps(training: Training, place: str) -> Iterator[Withheld]:
    """Yield what settings that may differ by group take away."""
    if training.trainer is not None:
        yield Withheld(Withholder.TRAINER, training.trainer.kind, place)
    if training.by_device is not None:
        yield Withheld(Withholder.BY_DEVICE, training.by_device.kind, place)
    if training.projection_radius is not None:
        yield Withheld(Withholder.PROJECTION, f"{training.projection_radius:g}", place)
    else:
        yield Withheld(Withholder.NO_PROJECTION, "", place)
    if training.optimizer != PLAIN:
        yield Withheld(Withholder.OPTIMIZER, str(training.optimizer.to_json()), place)
    if type(training.optimizer) not in OPTIMIZERS.built_in.values():
        yield Withheld(Withholder.OWN_OPTIMIZER, training.optimizer.kind, place)
    if training.proximal_mu:
        yield Withheld(Withholder.PROXIMAL, "", place)
    if training.clip_norm is not None:
        yield Withheld(Withholder.CLIPPED_STEPS, "", place)
    if training.clip_update is not None:
        yield Withheld(Withholder.CLIPPED_UPDATES, "", place)
    elif training.update_noise:
        yield Withheld(Withholder.UNCLIPPED_UPDATES, "", place)
    if training.update_noise:
        yield Withheld(Withholder.NOISY_UPDATES, "", place)


def _withheld_by_device(group: Group, place: str) -> Iterator[Withheld]:
    """Yield what devices of a group and their links have not."""
    if group.device.battery is None:
        yield Withheld(Withholder.NO_BATTERY, group.name, place)
    if group.device.examples_per_s is None:
        yield Withheld(Withholder.NO_SPEED, group.name, place)
    if not group.gateway:
        yield Withheld(Withholder.NO_GATEWAY, group.name, place)
    elif not group.link.has_rates:
        yield Withheld(Withholder.NO_RATES, group.name, place)


def _withheld_by_task(scenario: ScenarioSettings) -> Iterator[Withheld]:
    task = scenario.task
    if isinstance(task, Synthetic | OwnRegression):
        yield Withheld(Withholder.NUMBERS, task.kind)
    if not task.pictures:
        yield Withheld(Withholder.NO_PICTURES, task.kind)
    yield Withheld(Withholder.APP if task.hosted else Withholder.NO_APP)
    if not task.has_accuracy:
        yield Withheld(Withholder.NO_ACCURACY, task.kind)
    elif task.validation_ratio == 0:
        yield Withheld(Withholder.NO_VALIDATION)
    if task.parts is not None:
        yield Withheld(Withholder.PARTS)
        if task.parts.frozen:
            named = ", ".join(map(repr, task.parts.frozen[:3]))
            yield Withheld(Withholder.FROZEN_PARTS, named)
        if task.parts.local:
            shown = f"the entries {', '.join(map(repr, task.parts.local[:3]))}"
            yield Withheld(Withholder.LOCAL_PARTS, shown)
    if not any(group.gateway for group in scenario.groups):
        yield Withheld(Withholder.NO_LINKS)
    if not any(group.covariates.z for group in scenario.groups):
        yield Withheld(Withholder.NO_COVARIATES)


def _withheld_by_faults(scenario: ScenarioSettings) -> Iterator[Withheld]:
    for number, fault in enumerate(scenario.faults):
        if isinstance(fault.do, LifeFault):
            yield Withheld(Withholder.LIFE_FAULTS)
        if Requirement.LABELS in fault.do.requires:
            yield Withheld(Withholder.LABEL_FAULTS, f"faults[{number}]")


def _withheld_by_group(scenario: ScenarioSettings, group: Group, place: str) -> Iterator[Withheld]:
    lockstep, line = scenario.clock.lockstep, group.shared_line(scenario.seed)
    yield from _withheld_by_device(group, place)
    if group.training.given:
        yield Withheld(Withholder.GROUP_TRAINING, "", place)
    if (rate := group.training.learning_rate) is not None:
        yield Withheld(Withholder.GROUP_RATES, str(rate), place)
    if group.mask is not None:
        yield Withheld(Withholder.MASK, group.name, place)
        if group.mask.schedule == "drawn":
            yield Withheld(Withholder.DRAWN_MASK, group.name, place)
    if group.partial_sums:
        yield Withheld(Withholder.PARTIAL_SUMS, group.name, place)
        if not lockstep:
            yield Withheld(Withholder.LATE_SUMS, "", place)
    packed = group.devices_per_process
    yield Withheld(Withholder.PACKED if packed > 1 else Withholder.ONE_DEVICE, str(packed), place)
    if group.device.examples_per_s is None and not group.link.shapes:
        yield Withheld(Withholder.NO_DURATION, "", place)
    if group.link.compression.kind != "none":
        yield Withheld(Withholder.CODEC, group.link.compression.kind, place)
    rational = group.participation.rational
    yield Withheld(Withholder.RATIONAL if rational else Withholder.COMPLIANT, "", place)
    if line.slots is not None:
        yield Withheld(Withholder.SLOTS, "", place)
    elif line.delays and lockstep:
        yield Withheld(Withholder.SHARED_RATE, "", place)
    if group.device.torch_device != "cpu":
        yield Withheld(Withholder.GPU, group.device.torch_device, place)
