"""The truth about who takes part, which only an emulator knows."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from muster.client.availability.always import Always
from muster.client.availability.bernoulli import Bernoulli
from muster.client.availability.group_event import GroupEvent
from muster.client.availability.k_of_n import KOfN, effective_weights
from muster.common.errors import ConfigError
from muster.common.seeds import FloatArray
from muster.emulator.exact import EventGroup, shares_of_groups
from muster.emulator.lives import by_group, life_of
from muster.emulator.population import Resident
from muster.emulator.scenario import Group, Scenario
from muster.server.aggregators import Need
from muster.server.population import Oracle


def oracle_of(scenario: Scenario, residents: Sequence[Resident]) -> Oracle:
    """The truth, as far as the aggregator asks for it.

    Raises:
        ConfigError: it is not known in closed form.
    """
    needs = scenario.server.aggregator.needs()
    return Oracle(
        enrollment=[resident.propensity for resident in residents]
        if Need.PROPENSITIES in needs
        else None,
        shares=shares_of(scenario, residents).tolist() if Need.SHARES in needs else None,
    )


def shares_of(scenario: Scenario, residents: Sequence[Resident]) -> FloatArray:
    """c_i = E[1{i in S}/|S|] of every device when all are called, exactly; 0 for those who are not
    enrolled.

    Raises:
        ConfigError: something but availability in a known form, or slots, decides who takes part.
    """
    server, sizes = scenario.server, []
    if server.selection.kind != "all":
        raise _unknown("server.selection", server.selection.kind)
    if server.deadline_s is not None or server.round_goal() is not None:
        raise _unknown("server", "a deadline or a goal")
    for number, (group, of_group) in enumerate(by_group(scenario, residents)):
        life = life_of(scenario, group)
        if life.device.lives or life.drop_out > 0 or group.participation.willing != 1.0:
            raise _unknown(f"groups[{number}]", "batteries and the like, a will, or drop-outs")
        sizes.append(sum(resident.enrolled for resident in of_group))
    if isinstance(only := scenario.groups[0].availability, KOfN) and len(scenario.groups) == 1:
        if sizes[0] < len(residents):
            raise _unknown("groups[0].enrollment", "devices that are not enrolled")
        return effective_weights(only.weights_of(len(residents)), only.k)
    groups = [
        _events(number, group, size)
        for number, (group, size) in enumerate(zip(scenario.groups, sizes, strict=True))
    ]
    shares, _ = shares_of_groups(groups)
    of_group_ = dict(zip((group.name for group in scenario.groups), shares, strict=True))
    return np.array([of_group_[r.group] if r.enrolled else 0.0 for r in residents])


def _events(number: int, group: Group, size: int) -> EventGroup:
    availability, shared = group.availability, group.shared_link
    slots = None if shared.overflow == "queue" else shared.slots
    overflow: Literal["collide", "subset"] = "collide" if shared.overflow == "collide" else "subset"
    if isinstance(availability, Always):
        chances = (1.0, 1.0)
    elif isinstance(availability, Bernoulli):
        chances = (1.0, availability.probability)
    elif isinstance(availability, GroupEvent) and availability.form == "event":
        chances = (availability.probability, availability.device_probability)
    else:
        raise _unknown(f"groups[{number}].availability", availability.kind)
    return EventGroup(size, *chances, slots, overflow)


def _unknown(where: str, what: str) -> ConfigError:
    return ConfigError(
        f"{where}: the exact shares c_i of who takes part are not known with {what}; they are for "
        f"availability always, bernoulli, group-event (form 'event') and slots, and for one group "
        f"with k-of-n. Let the aggregator estimate them"
    )
