"""Settings with which devices cannot train with the code of an app (`muster.tasks.hosted`)."""

from collections.abc import Iterator

from muster.client.faults.label_flip import LabelFlip
from muster.client.training.settings import Training
from muster.emulator.scenario.settings import Group, ScenarioSettings
from muster.server.aggregators import Need

_KEPT = {"clip_update", "update_noise", "control_variates"}
"""Settings of training that act on the update and not on how it is made, or that the rule sets."""


def hosted_refusals(scenario: ScenarioSettings) -> Iterator[str]:
    """Yield what a hosted task cannot work with, one sentence each; nothing for other tasks."""
    if not scenario.task.hosted:
        return
    given, usual = scenario.training, Training()
    for name in Training.model_fields:
        if name not in _KEPT and getattr(given, name) != getattr(usual, name):
            yield f"training.{name}: the app trains; leave it out, and set task.run_config instead"
    yield from _of_server(scenario)
    for number, fault in enumerate(scenario.faults):
        if isinstance(fault.do, LabelFlip):
            yield f"faults[{number}].do: label-flip changes examples, and the app reads its own"
    for number, group in enumerate(scenario.groups):
        yield from (f"groups[{number}].{reason}" for reason in _of_group(group))


def _of_server(scenario: ScenarioSettings) -> Iterator[str]:
    server, rule = scenario.server, scenario.server.aggregator
    told = {Need.STEPS: "local steps", Need.LOSS: "initial losses"}
    if needed := [told[need] for need in told if need in rule.needs()]:
        yield (
            f"server.aggregator: {rule.kind!r} needs the {' and '.join(needed)} of devices, which "
            f"an app does not report; take a rule that needs only updates, for example fedavg"
        )
    if rule.control:
        yield (
            f"server.aggregator: {rule.kind!r} corrects local steps, which are the app's own; take "
            f"a rule without control variates, for example fedavg"
        )
    for name in ("evaluate_groups", "evaluate_devices"):
        if getattr(server, name):
            yield (
                f"server.{name}: the app evaluates, and muster has no examples to measure on; "
                f"leave it out"
            )


def _of_group(group: Group) -> Iterator[str]:
    if group.mask is not None:
        yield "mask: an app trains the whole model; leave mask out"
    if group.participation.rational is not None:
        yield (
            "participation: rational devices judge models on examples that muster knows; leave "
            "kind = 'rational' out"
        )
    if group.training.local_steps is not None or group.training.local_epochs is not None:
        yield "training: the app decides how long it trains; leave it out"
