"""Which node of a cluster carries which programs."""

from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.launch.ray.demand import bundles_of
from muster.emulator.launch.ray.placing import Bundle, Node, choose, place, total
from muster.emulator.scenario.scenario import Scenario


def node(name: str, cpus: float = 1.0, **labels: str) -> Node:
    return Node(name, f"10.0.0.{name}", {"CPU": cpus, "memory": 1000.0}, labels)


def packs(number: int, group: str = "dev", cpus: float = 0.1, **labels: str) -> list[Bundle]:
    return [Bundle(group, (f"{group}-{i}",), {"CPU": cpus}, labels) for i in range(number)]


def names(bundles: list[Bundle]) -> list[str]:
    return [name for bundle in bundles for name in bundle.programs]


def scenario(*groups: dict[str, Any], **cluster: Any) -> Scenario:
    values = {"name": "t", "task": "digits", "server": {"rounds": 1}, "groups": list(groups)}
    return validate(Scenario, {**values, "launch": {"cluster": cluster}}, "test")


def test_nodes_are_filled_by_their_size() -> None:
    placed = place(packs(9), [node("1", cpus=2), node("2", cpus=1)], {})
    assert (len(placed["1"]), len(placed["2"])) == (6, 3)


def test_what_a_node_carries_already_counts() -> None:
    placed = place(packs(4), [node("1"), node("2")], {"1": {"CPU": 0.6}})
    assert names(placed["2"]) == ["dev-0", "dev-1", "dev-2", "dev-3"]


def test_a_group_is_on_nodes_with_its_labels_only() -> None:
    nodes = [node("1", zone="a"), node("2", zone="b")]
    placed = place(packs(3, zone="b"), nodes, {})
    assert placed.keys() == {"2"}


def test_programs_that_belong_together_are_on_one_node() -> None:
    together = Bundle("phones", ("gateway-phones", "phones-0", "phones-1"), {"CPU": 0.9})
    placed = place([*packs(2), together], [node("1"), node("2")], {})
    assert sorted(len(names(bundles)) for bundles in placed.values()) == [2, 3]


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError) as refusal:
        place(packs(25, zone="a"), [node("1", zone="a"), node("2", zone="a"), node("3")], {})
    assert (
        "5 of 25 programs of the group dev find no room: they need 0.5 CPU; nodes with the "
        "labels zone=a have left: 0 CPU on 10.0.0.1, 0 CPU on 10.0.0.2"
    ) in str(refusal.value)


def test_a_node_without_the_resource_carries_nothing() -> None:
    with pytest.raises(ConfigError, match="they need 1 TPU; no node has it"):
        place([Bundle("dev", ("dev-0",), {"TPU": 1.0})], [node("1")], {})


def test_more_than_one_is_reserved_in_whole_numbers() -> None:
    assert total(packs(12))["CPU"] == 2
    assert total(packs(10))["CPU"] == pytest.approx(1.0)
    # Thirteen tenths would be two cores.
    with pytest.raises(ConfigError, match="too small"):
        place(packs(13), [node("1", cpus=1.5)], {})


def test_every_reservation_is_rounded_by_itself() -> None:
    # Two reservations of 1.2 cores are four cores, although 2.4 cores would be three.
    before = {"1": total(packs(12, "old"))}
    with pytest.raises(ConfigError, match="too small"):
        place(packs(12), [node("1", cpus=3)], before)
    assert len(place(packs(12), [node("1", cpus=4)], before)["1"]) == 12


def test_too_few_nodes_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected 3 nodes with the labels of a group, found 2"):
        choose([node("1"), node("2")], 3, packs(1))


def test_every_group_gets_a_node_before_one_gets_two() -> None:
    nodes = [node("1", zone="a"), node("2", zone="a"), node("3", zone="b")]
    bundles = [*packs(9, "many", zone="a"), *packs(1, "few", zone="b")]
    assert {each.id for each in choose(nodes, 2, bundles)} == {"1", "3"}


def test_a_group_with_a_gateway_is_one_bundle() -> None:
    phones = {"name": "phones", "count": 2, "link": {"profile": "3g"}}
    found = bundles_of(
        scenario(
            {"name": "dev", "count": 2}, phones, resources={"CPU": 0.5}, labels={"dev": {"a": "b"}}
        )
    )
    assert found == [
        Bundle("dev", ("dev-0000",), {"CPU": 0.5}, {"a": "b"}),
        Bundle("dev", ("dev-0001",), {"CPU": 0.5}, {"a": "b"}),
        Bundle("phones", ("gateway-phones", "phones-0000", "phones-0001"), {"CPU": 1.5}),
    ]


def test_labels_of_a_group_that_does_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"launch\.cluster\.labels: there is no group far"):
        scenario({"name": "dev", "count": 2}, labels={"far": {"zone": "a"}})
