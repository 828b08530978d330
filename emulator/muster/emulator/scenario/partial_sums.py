"""Settings with which processes cannot send sums of their devices' updates
(`groups.partial_sums`)."""

from collections.abc import Iterator

from muster.emulator.scenario.settings import Group, ScenarioSettings
from muster.server.aggregators import Need


def partial_sum_refusals(scenario: ScenarioSettings) -> Iterator[str]:
    """Yield what partial sums cannot work with, one sentence each; nothing without any."""
    holding = [(n, group) for n, group in enumerate(scenario.groups) if group.partial_sums]
    if not holding:
        return
    for number, group in holding:
        yield from (f"groups[{number}].{reason}" for reason in _of_group(group))
    yield from _of_server(scenario)


def _of_group(group: Group) -> Iterator[str]:
    if group.devices_per_process == 1:
        yield (
            "partial_sums: a process adds up the updates of its devices, but has only one; "
            "expected more than 1 in devices_per_process, or partial_sums = false"
        )
    if group.mask is not None:
        yield (
            "partial_sums: a sum of whole updates is sent, but devices with groups.mask train "
            "different parts of the model; leave one of them out"
        )
    if group.participation.rational:
        yield (
            "partial_sums: rational devices judge the model anew if their process is restarted, "
            "and might then withhold an update that the server counts; leave one of them out"
        )


def _of_server(scenario: ScenarioSettings) -> Iterator[str]:
    server, rule = scenario.server, scenario.server.aggregator
    if server.keep_updates:
        yield (
            "server.keep_updates: with groups.partial_sums the server gets sums in place of "
            "updates; expected false"
        )
    if server.mode.carries:
        yield (
            f"server.mode: with {server.mode.kind!r} an update may count in a later round, but a "
            f"process holds the updates of one round for its sum; expected the synchronous mode"
        )
    if rule.change not in ("sum", "step") or Need.DISTANCES in rule.needs():
        yield (
            f"server.aggregator: {rule.kind!r} needs the updates themselves, but with "
            f"groups.partial_sums the server gets weighted sums; take a rule that weighs updates, "
            f"for example fedavg, fednova, fedadam or scaffold"
        )
    if Need.PARTICIPATION in rule.needs() and not scenario.clock.lockstep:
        yield (
            f"server.aggregator: {rule.kind!r} learns from who took part, which is decided before "
            f"a sum may turn out to be missing; expected clock.kind = 'rounds' with "
            f"groups.partial_sums"
        )
