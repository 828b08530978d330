"""Settings with which devices cannot be rational (`groups.participation`)."""

from collections.abc import Iterator

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
    announces = scenario.server.aggregator.announces
    for number, group in rational:
        yield from (f"groups[{number}].{reason}" for reason in _of_group(group, announces))


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


def _of_group(group: Group, announces: bool) -> Iterator[str]:
    instead = "or participation.kind = 'compliant'"
    rules = group.participation
    if rules.utility is not None and rules.utility.test == "fitted" and not announces:
        yield (
            "participation.utility.test: 'fitted' compares utilities at the weight that a device "
            "is told, but the aggregator tells none; expected 'measured', or server.aggregator = "
            "'feduca'"
        )
    if group.mask is not None:
        yield (
            f"mask: rational devices judge whole models, but a mask gives them parts; leave mask "
            f"out, {instead}"
        )
    line = group.shared_link.line()
    if line.delays or line.slots is not None:
        yield (
            f"shared_link: a rational device uses the link before it declines, which the model of "
            f"shared links does not count; leave shared_link out, {instead}"
        )
    if group.device.torch_device != "cpu":
        yield (
            f"device.torch_device: rational devices judge models on the CPU; expected 'cpu', "
            f"found {group.device.torch_device!r}"
        )
