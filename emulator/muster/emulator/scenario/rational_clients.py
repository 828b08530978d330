"""Settings with which devices cannot be rational (`groups.participation`)."""

from collections.abc import Iterator

from muster.client.life.participation import UtilitySettings
from muster.emulator.scenario.settings import Group, ScenarioSettings
from muster.server.aggregators import Need


def rational_refusals(scenario: ScenarioSettings) -> Iterator[str]:
    """Yield what rational devices cannot work with, one sentence each; nothing without any."""
    rational = [
        (n, group) for n, group in enumerate(scenario.groups) if group.participation.rational
    ]
    if not rational:
        return
    yield from _of_scenario(scenario)
    announces, lockstep = scenario.server.aggregator.announces, scenario.clock.lockstep
    for number, group in rational:
        reasons = _of_group(group, announces, lockstep)
        yield from (f"groups[{number}].{reason}" for reason in reasons)


def _of_scenario(scenario: ScenarioSettings) -> Iterator[str]:
    training, rule = scenario.training, scenario.server.aggregator
    if not scenario.task.has_accuracy:
        yield (
            f"task: rational devices compare accuracies, which {scenario.task.kind!r} has not; "
            f"take a classification task, or participation.kind = 'compliant'"
        )
    elif scenario.task.validation_ratio == 0:
        yield (
            "task.validation_ratio: rational devices judge models on examples that they hold out, "
            "but hold out none; expected more than 0, for example 0.2"
        )
    own = "rational devices go on training from a model of their own"
    if training.gradient:
        yield f"training.gradient: {own}, but with gradient = true they train none; leave it out"
    if rule.control:
        yield (
            f"server.aggregator: {own}, for which {rule.kind!r} has no control variate; take a "
            f"rule without control variates, for example fedavg"
        )
    privacy = scenario.server.privacy
    hidden = privacy is not None and privacy.where == "device"
    if hidden or training.clip_update is not None:
        cause = "server.privacy" if hidden else "training.clip_update"
        yield (f"{cause}: {own}, which would be clipped with the update; leave {cause} out")
    if unknown := rule.needs() & {Need.SHARES, Need.PROPENSITIES}:
        yield (
            f"server.aggregator: {rule.kind!r} needs the true {' and '.join(sorted(unknown))}, "
            f"which nobody knows of rational devices; take a rule that needs none"
        )


_REPORTED = "threshold", "inflation", "points", "largest_weight", "dense_points"
"""Settings of the utility that a device reports."""


def _without_weights(utility: UtilitySettings) -> Iterator[str]:
    """Report settings that have no effect if devices are told no weights."""
    if utility.test == "fitted":
        yield (
            "participation.utility.test: 'fitted' compares utilities at the weight that a device "
            "is told, but the aggregator tells none; expected 'measured', or server.aggregator = "
            "'feduca'"
        )
    usual = UtilitySettings()
    for key in _REPORTED:
        if getattr(utility, key) != getattr(usual, key):
            yield (
                f"participation.utility.{key}: a device reports no utility, because the aggregator "
                f"tells it no weight; leave {key} out, or take server.aggregator = 'feduca'"
            )


def _of_group(group: Group, announces: bool, lockstep: bool) -> Iterator[str]:
    instead = "or participation.kind = 'compliant'"
    if group.participation.utility is not None and not announces:
        yield from _without_weights(group.participation.utility)
    if group.mask is not None:
        yield (
            f"mask: rational devices judge whole models, but a mask gives them parts; leave mask "
            f"out, {instead}"
        )
    line = group.shared_link.line()
    if line.slots is not None:
        yield (
            f"shared_link.slots: a rational device would take a slot before it declines; leave "
            f"slots out, {instead}"
        )
    elif line.delays and lockstep:
        yield (
            f"shared_link: a rational device uses the link before it declines, which the model of "
            f"shared links, by which rounds in lockstep are judged, does not count; set clock.kind "
            f"= 'wall', leave shared_link out, {instead}"
        )
    if group.device.torch_device != "cpu":
        yield (
            f"device.torch_device: rational devices judge models on the CPU; expected 'cpu', "
            f"found {group.device.torch_device!r}"
        )
