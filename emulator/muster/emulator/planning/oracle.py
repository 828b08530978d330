"""The oracle: true enrollment propensities and participation shares, which only an emulator
knows."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from muster.client.availability.contract import FixedDraws, GroupEvents
from muster.client.availability.k_of_n import effective_weights
from muster.common.errors import ConfigError
from muster.common.seeds import FloatArray
from muster.emulator.fleet.group_shares import EventGroup, shares_of_groups
from muster.emulator.fleet.lives import by_group, life_of, members_of
from muster.emulator.planning.result import Learning
from muster.emulator.scenario.population import Resident
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group
from muster.server.aggregators import Need
from muster.server.knowledge.population import Oracle


def oracle_of(scenario: Scenario, residents: Sequence[Resident]) -> Oracle:
    """The oracle with the quantities that the scenario's aggregator needs.

    Raises:
        ConfigError: one of them is not known in closed form.
    """
    needs = scenario.server.aggregator.needs()
    return Oracle(
        enrollment=[resident.propensity for resident in residents]
        if Need.PROPENSITIES in needs
        else None,
        shares=shares_of(scenario, residents).tolist() if Need.SHARES in needs else None,
    )


def shares_of(scenario: Scenario, residents: Sequence[Resident]) -> FloatArray:
    """The exact share c_i = E[1{i in S}/|S|] of every device if all devices are called; 0 for
    devices that are not enrolled.

    Raises:
        ConfigError: participation depends on something other than slots and availability of a
            known form. The message names every such setting.
    """
    if unknown := [*_of_rounds(scenario), *_of_groups(scenario, residents)]:
        raise ConfigError(
            "\n  ".join(
                [
                    "server.aggregator: the exact participation shares c_i are not known:",
                    *unknown,
                ]
            )
            + "\nLet the rule estimate them (importance with shares = 'estimated'), or give them "
            "yourself (setting p of weighted and weighted-normalised)"
        )
    if isinstance(form := scenario.groups[0].availability.closed_form(), FixedDraws):
        return effective_weights(form.weights(len(residents)), form.k)
    shares, _ = shares_of_groups(
        [_events(group, _enrolled(of_group)) for group, of_group in by_group(scenario, residents)]
    )
    of_group_ = dict(zip((group.name for group in scenario.groups), shares, strict=True))
    return np.array([of_group_[r.group] if r.enrolled else 0.0 for r in residents])


def _events(group: Group, size: int) -> EventGroup:
    shared, form = group.shared_link, group.availability.closed_form()
    assert isinstance(form, GroupEvents)  # other forms were refused before
    slots = None if shared.overflow == "queue" else shared.slots
    overflow: Literal["collide", "subset"] = "collide" if shared.overflow == "collide" else "subset"
    return EventGroup(size, form.event, form.device, slots, overflow)


def _enrolled(residents: Sequence[Resident]) -> int:
    return sum(resident.enrolled for resident in residents)


# --- settings without a closed form --------------------------------------------------------------


def _of_rounds(scenario: Scenario) -> Iterator[str]:
    server = scenario.server
    if server.selection.kind != "all":
        yield f"server.selection: expected 'all', found {server.selection.kind!r}"
    if server.deadline_s is not None:
        yield f"server.deadline_s: expected none, found {server.deadline_s:g}"
    if (goal := server.round_goal()) is not None:
        yield f"server.goal: expected none, found {goal}"
    if server.minimum > 1:
        yield (
            f"server.minimum: expected 1, found {server.minimum}, which makes smaller rounds empty"
        )
    if (most := server.guard.max_norm) is not None:
        yield f"server.guard.max_norm: expected none, found {most:g}, which refuses updates"


def _of_groups(scenario: Scenario, residents: Sequence[Resident]) -> Iterator[str]:
    learning: Learning | None = None
    for number, (group, of_group) in enumerate(by_group(scenario, residents)):
        mistakes = [*_of_devices(scenario, group), *_of_availability(scenario, group, of_group)]
        timed = group.device.examples_per_s is not None or group.link.shapes
        if timed and group.availability.closed_form() != GroupEvents(event=1.0, device=1.0):
            learning = learning or Learning.of(scenario)  # only when needed: this opens the task
            mistakes += _of_work(scenario, group, of_group, learning)
        yield from (f"groups[{number}].{mistake}" for mistake in mistakes)


def _of_devices(scenario: Scenario, group: Group) -> Iterator[str]:
    device, rules = group.device, group.participation
    if device.lives:
        yield (
            "device: expected one whose state never changes, found a battery, use or a mobile "
            "network"
        )
    elif "unmetered" in rules.require and device.connectivity.metered:
        yield (
            "participation.require: expected conditions that always hold, found 'unmetered' on a "
            "metered network"
        )
    if rules.rational:
        yield "participation.kind: expected 'compliant', found 'rational'"
    if rules.willing != 1.0:
        yield "participation.willing: expected 1, found another willingness"
    if (drop_out := life_of(scenario, group).drop_out) > 0:
        yield f"participation.drop_out: expected 0, found {drop_out:g}"


def _of_availability(
    scenario: Scenario, group: Group, of_group: Sequence[Resident]
) -> Iterator[str]:
    form, shared = group.availability.closed_form(), group.shared_link
    if form is None:
        yield (
            f"availability: expected always, bernoulli, group-event (form 'event') or k-of-n, "
            f"found {group.availability.kind!r}"
        )
    if not isinstance(form, FixedDraws):
        return
    if len(scenario.groups) > 1:
        yield "availability: with k-of-n expected a single group, found several"
    if (enrolled := _enrolled(of_group)) < group.count:
        yield f"enrollment: with k-of-n expected all {group.count} devices, found {enrolled}"
    if shared.overflow != "queue" and shared.slots is not None and shared.slots < form.k:
        yield (
            f"shared_link.slots: with k-of-n expected at least k = {form.k}, found {shared.slots}"
        )


def _of_work(
    scenario: Scenario, group: Group, of_group: Sequence[Resident], learning: Learning
) -> Iterator[str]:
    """Report work that lasts into the next round, because it is interrupted if its device is not
    available then."""
    members = members_of(scenario, group, of_group)
    longest_s = learning.effort(scenario, group, members).longest_s
    if longest_s >= scenario.clock.round_s:
        yield (
            f"device, link: expected work that ends within a round (clock.round_s = "
            f"{scenario.clock.round_s:g}), found {longest_s:.3g} s"
        )
