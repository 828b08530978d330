"""The table of the combinations that are refused."""

import string
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from muster.client.faults import LifeFault
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import (
    AGGREGATORS,
    BUILT_IN,
    Aggregator,
    Conditions,
    Remembering,
    Requirement,
    Withholder,
)
from muster.server.aggregators.combinations import (
    REFUSED,
    Required,
    Withheld,
    excluded,
    excludes,
)
from muster.server.aggregators.fedavg import FedAvg
from muster.server.rounds.modes.synchronous import Synchronous


def test_every_requirement_and_every_withholder_has_a_sentence() -> None:
    assert {requirement for requirement, _ in REFUSED} == set(Requirement)
    assert {withholder for _, withholder in REFUSED} == set(Withholder)


@pytest.mark.parametrize("pair", REFUSED, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_every_sentence_begins_with_a_key_and_says_what_to_do(
    pair: tuple[Requirement, Withholder],
) -> None:
    template = REFUSED[pair]
    key, said = template.split(": ", 1)
    assert " " not in key
    if pair[0] != Requirement.OWN_WEIGHTS:  # its advice ends with what was found
        assert not template.endswith((".", " "))
    fields = {name for _, name, _, _ in string.Formatter().parse(said) if name is not None}
    assert fields <= {"by", "found", "place"}


def test_a_sentence_is_said_once_though_two_groups_have_masks() -> None:
    required = [Required(Requirement.WHOLE_UPDATES, "median")]
    withheld = [Withheld(Withholder.MASK, name, f"groups[{name}]") for name in "01"]
    (said,) = excluded(required, withheld)
    assert said.startswith("server.aggregator: 'median' needs updates of the whole model")


def test_what_one_group_requires_another_cannot_withhold() -> None:
    required = [Required(Requirement.PARTIAL_SUMS, "partial_sums", "groups[0]")]
    withheld = [Withheld(Withholder.MASK, "dev", f"groups[{number}]") for number in (0, 1)]
    assert [said.split(": ")[0] for said in excluded(required, withheld)] == [
        "groups[0].partial_sums"
    ]
    assert not list(excluded(required, withheld[1:]))


class OwnMemory(Remembering, FedAvg):
    """A rule of a user, which says only how it changes the model."""


def test_what_a_rule_declares_says_what_it_requires() -> None:
    rule = OwnMemory(kind="own")
    assert rule.requires() == {
        Requirement.EACH_UPDATE,
        Requirement.WHOLE_UPDATES,
        Requirement.REMEMBERED,
    }
    assert excludes(rule.requires(), Withholder.PARTIAL_SUMS)
    assert not excludes(rule.requires(), Withholder.CODEC)
    assert not FedAvg(kind="fedavg").requires()


class Forgetful(FedAvg):
    """A rule of a user that takes whole updates, and whose `refusals` forget those of its base."""

    masks: ClassVar[bool] = False

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        yield from ()


class Lasting(Synchronous):
    """A mode of a user, which says only that updates may count in a later round."""

    def outlives_round(self) -> bool:
        return True


def test_a_mode_that_still_sets_carries_is_told_its_base() -> None:
    with pytest.raises(TypeError, match=r"derive it from .*\.Carrying, and leave carries out"):

        class Own(Synchronous):
            carries = True


GRADIENT = {"gradient": True}
MOMENTUM = {"kind": "sgd", "momentum": 0.9}
UNIFORM = {"kind": "uniform", "k": 3}


def refusal(
    server: dict[str, Any], values: Mapping[str, Any] = MappingProxyType({}), **group: Any
) -> str:
    """What is said of a scenario with this server and group; empty if it is accepted."""
    table = {
        "name": "test",
        "task": {"name": "linear", "dimension": 3},
        "server": {"rounds": 5, **server},
        "groups": [{"name": "dev", "count": 4, "devices_per_process": 2, **group}],
        **values,
    }
    try:
        validate(Scenario, table, "test")
    except ConfigError as error:
        return str(error)
    return ""


def test_a_rule_and_a_mode_of_ones_own_are_refused_as_built_in_ones() -> None:
    rule = {"aggregator": f"{__name__}:Forgetful"}
    assert refusal(rule) == ""
    assert "needs updates of the whole model" in refusal(rule, mask="random")
    mode = {"mode": f"{__name__}:Lasting", "deadline_s": 60}
    assert refusal(mode) == ""
    assert "a process holds the updates of one round" in refusal(mode, partial_sums=True)
    assert "by the control variate c" in refusal({**mode, "aggregator": "scaffold"})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"server": {"mode": {"kind": "buffered", "k": 1}, "selection": UNIFORM}}, "Leave the"),
        ({"clock": {"kind": "wall"}}, "server.deadline_s: required with clock.kind = 'wall'"),
        ({"clock": {"kind": "modelled"}}, "groups[0].device.examples_per_s: with clock.kind"),
        ({"group": {"link": {"rtt": "4 ms"}}}, "groups[0].devices_per_process: 2 devices of"),
        ({"verify": True}, "verify: no group has a link to measure"),
        (
            {"clock": {"kind": "wall"}, "group": {"shared_link": {"slots": 1}}},
            "groups[0].shared_link.slots: slots need clock.kind = 'rounds' or 'modelled'; found",
        ),
        ({"server": {"aggregator": "weighted"}}, "set training.projection_radius"),
        ({"training": {**GRADIENT, "optimizer": "adam"}}, "the optimizer has nothing to act on"),
        ({"training": {**GRADIENT, "optimizer": MOMENTUM}}, "expected optimizer = 'sgd' without"),
        ({"training": {**GRADIENT, "clip_norm": 1.0}}, "clips the gradient that a device returns"),
        ({"training": {**GRADIENT, "proximal_mu": 1.0}}, "so proximal_mu has nothing to act on"),
        ({"training": {**GRADIENT, "projection_radius": 1.0}}, "so projection_radius has nothing"),
    ],
)
def test_features_that_no_rule_has_exclude_each_other_too(
    values: dict[str, Any], said: str
) -> None:
    server, group = values.pop("server", {}), values.pop("group", {})
    assert said in refusal(server, values, **group)


@pytest.mark.parametrize("number", [0, 1])
def test_settings_that_differ_by_group_exclude_only_what_the_same_group_has(number: int) -> None:
    groups: list[dict[str, Any]] = [{"name": name, "count": 2} for name in "ab"]
    groups[0]["mask"] = "random"
    groups[number]["training"] = {"projection_radius": 1.0}
    values = {
        "name": "two",
        "seed": 1,
        "task": {"name": "digits"},
        "server": {"rounds": 1, "aggregator": "fedplt"},
        "groups": groups,
    }
    if number == 1:
        validate(Scenario, values, "two")
        return
    with pytest.raises(ConfigError, match=r"groups\[0\].mask: training.projection_radius = 1 "):
        validate(Scenario, values, "two")


class Storm(LifeFault):
    """A fault of a user, which says only what it requires."""

    requires: ClassVar[frozenset[Requirement]] = frozenset({Requirement.BATTERY})


@pytest.mark.parametrize(("group", "refused"), [("dev", True), ("phones", False)])
def test_a_fault_is_judged_by_the_groups_that_it_strikes(group: str, refused: bool) -> None:
    table = {"name": "dev", "count": 2}
    phones = {"name": "phones", "count": 2, "device": {"profile": "phone"}}
    fault = {"do": f"{__name__}:Storm", "target": {"group": group}, "when": {"round": 2}}
    said = refusal({}, {"groups": [table, phones], "faults": [{**fault, "for_rounds": 1}]})
    sentence = "faults[0].do: tests.unit.test_combinations:Storm needs a battery, but the devices"
    assert (sentence in said) == refused
    assert refused or not said


def test_no_built_in_rule_requires_what_is_not_its_own_to_require() -> None:
    """Requirements of settings, for example of masks, belong to the scenario."""
    of_rules = set[Requirement]()
    for kind in BUILT_IN:
        rule = AGGREGATORS.parse(kind)
        assert isinstance(rule, Aggregator)
        of_rules |= rule.requires()
    assert max(list(Requirement).index(requirement) for requirement in of_rules) < list(
        Requirement
    ).index(Requirement.MASK)
