"""Which node of a cluster carries which programs."""

from collections import Counter
from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.launch.ray.demand import bundles_of
from muster.emulator.launch.ray.placing import (
    Bundle,
    Node,
    Reservation,
    choose,
    place,
    require_server_node,
    spread,
)
from muster.emulator.scenario.scenario import Scenario


def node(name: str, cpus: float = 1.0, gpus: int = 0, **labels: str) -> Node:
    has = {"CPU": cpus, "memory": 1000.0, **({"GPU": float(gpus)} if gpus else {})}
    return Node(name, f"10.0.0.{name}", has, labels)


def packs(number: int, group: str = "dev", cpus: float = 0.1, **labels: str) -> list[Bundle]:
    return [Bundle(group, (f"{group}-{i}",), {"CPU": cpus}, labels) for i in range(number)]


def on_gpus(number: int, per_gpu: int, group: str = "gpu") -> list[Bundle]:
    programs = [f"{group}-{i}" for i in range(number)]
    needs = {"CPU": 0.001, "GPU": 1 / per_gpu}
    return [Bundle(group, (name,), needs, {}, (name,)) for name in programs]


def names(bundles: list[Bundle]) -> list[str]:
    return [name for bundle in bundles for name in bundle.programs]


def carrying(bundles: list[Bundle]) -> Reservation:
    """What is reserved on a node on which bundles were placed at once."""
    nothing = Reservation()
    return nothing.with_more(nothing.lacks(bundles)).used_by(bundles)


def scenario(*groups: dict[str, Any], **cluster: Any) -> Scenario:
    values = {"name": "t", "task": "digits", "server": {"rounds": 1}, "groups": list(groups)}
    return validate(Scenario, {**values, "launch": {"cluster": cluster}}, "test")


def test_nodes_are_filled_by_their_size() -> None:
    placed = place(packs(9), [node("1", cpus=2), node("2", cpus=1)], {})
    assert (len(placed["1"]), len(placed["2"])) == (6, 3)


def test_what_a_node_carries_already_counts() -> None:
    placed = place(packs(4), [node("1"), node("2")], {"1": carrying(packs(6))})
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
    with pytest.raises(ConfigError, match="they need 1 TPU; no node has any TPU"):
        place([Bundle("dev", ("dev-0",), {"TPU": 1.0})], [node("1")], {})


def test_more_than_one_is_reserved_in_whole_numbers() -> None:
    assert Reservation().lacks(packs(12))["CPU"] == 2
    assert Reservation().lacks(packs(10))["CPU"] == pytest.approx(1.0)
    # Thirteen tenths would be two cores.
    with pytest.raises(ConfigError, match="too small"):
        place(packs(13), [node("1", cpus=1.5)], {})


def test_what_is_reserved_and_not_needed_is_used_before_more_is_reserved() -> None:
    # Two cores are reserved for 1.2. Another 1.2 need 0.4 besides, and 2.1 need 2, not 1.3.
    before = {"1": carrying(packs(12, "old"))}
    assert before["1"].lacks(packs(12))["CPU"] == pytest.approx(0.4)
    assert before["1"].lacks(packs(21)) == {"CPU": 2}
    assert len(place(packs(18), [node("1", cpus=3)], before)["1"]) == 18
    with pytest.raises(ConfigError, match=r"nodes have left: 0 CPU on 10\.0\.0\.1"):
        place(packs(19), [node("1", cpus=3)], before)


def test_the_reservation_of_an_actor_that_was_lost_is_used_again() -> None:
    full = carrying(on_gpus(8, per_gpu=4))
    assert full.unused().lacks(on_gpus(8, per_gpu=4)) == {}
    placed = place(on_gpus(8, per_gpu=4), [node("1", gpus=2)], {"1": full.unused()})
    assert len(placed["1"]) == 8


def test_gpus_are_reserved_whole() -> None:
    assert Reservation().lacks(on_gpus(1, per_gpu=8))["GPU"] == 1
    assert Reservation().lacks(on_gpus(7, per_gpu=7))["GPU"] == 1
    assert Reservation().lacks(on_gpus(8, per_gpu=7))["GPU"] == 2
    # Three of eight shares are taken, so five more need no GPU, and six need one.
    before = carrying(on_gpus(3, per_gpu=8))
    assert "GPU" not in before.lacks(on_gpus(5, per_gpu=8))
    assert before.lacks(on_gpus(6, per_gpu=8))["GPU"] == 1


def test_devices_on_a_gpu_are_on_nodes_with_gpus_and_the_others_are_not_in_their_way() -> None:
    # The node with the GPU has room for one program only.
    nodes = [node("1", cpus=0.1, gpus=1), node("2", cpus=0.2)]
    fast = Bundle("gpu", ("gpu-0",), {"CPU": 0.1, "GPU": 1.0}, {}, ("gpu-0",))
    placed = place([*packs(2), fast], nodes, {})
    assert names(placed["1"]) == ["gpu-0"]
    assert names(placed["2"]) == ["dev-0", "dev-1"]


def test_devices_on_gpus_are_divided_by_the_numbers_of_gpus() -> None:
    nodes = [node("1", gpus=1), node("2", gpus=3), node("3")]
    placed = place(on_gpus(8, per_gpu=8), nodes, {})
    assert {id: len(bundles) for id, bundles in placed.items()} == {"1": 2, "2": 6}


def test_what_is_missing_of_gpus_is_said() -> None:
    nodes = [node("1", gpus=1), node("2", gpus=1), node("3")]
    with pytest.raises(ConfigError) as refusal:
        place(on_gpus(11, per_gpu=4), nodes, {})
    assert (
        "3 of 11 programs of the group gpu find no room: they need 0.003 CPU, 1 GPU; nodes have "
        "left: 0.996 CPU, 0 GPU on 10.0.0.1, 0.996 CPU, 0 GPU on 10.0.0.2. Add nodes, lower "
        "launch.cluster.resources, raise launch.devices_per_gpu, or put"
    ) in str(refusal.value)


def test_a_cluster_without_a_gpu_is_refused_by_name() -> None:
    bundles = on_gpus(2, per_gpu=8)
    with pytest.raises(ConfigError, match=r"they need 0\.002 CPU, 1 GPU; no node has any GPU"):
        place(bundles, choose([node("1"), node("2")], None, bundles), {})


@pytest.mark.parametrize("per_gpu", [1, 3, 7])
def test_no_gpu_gets_more_programs_than_it_may(per_gpu: int) -> None:
    first, second = on_gpus(2 * per_gpu - 1, per_gpu), on_gpus(per_gpu + 1, per_gpu, "more")
    given = dict(spread(names(first), 2, {}))
    assert Counter(given.values()) == Counter({0: per_gpu, 1: per_gpu - 1})
    # One share is left, so the others need one GPU more.
    given |= spread(names(second), 3, given)
    assert Counter(given.values()) == dict.fromkeys(range(3), per_gpu)


def test_too_few_nodes_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected 3 nodes that can carry a group, found 2"):
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
        ),
        [node("1")],
    )
    assert found == [
        Bundle("dev", ("dev-0000",), {"CPU": 0.5}, {"a": "b"}),
        Bundle("dev", ("dev-0001",), {"CPU": 0.5}, {"a": "b"}),
        Bundle("phones", ("gateway-phones", "phones-0000", "phones-0001"), {"CPU": 1.5}),
    ]


def test_labels_of_a_group_that_does_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"launch\.cluster\.labels: there is no group far"):
        scenario({"name": "dev", "count": 2}, labels={"far": {"zone": "a"}})


def test_devices_on_a_gpu_need_a_share_of_one_and_their_gateway_needs_none() -> None:
    fast = {"torch_device": "cuda"}
    phones = {"name": "phones", "count": 2, "link": {"profile": "3g"}, "device": fast}
    planned = scenario({"name": "dev", "count": 1, "device": fast}, phones, resources={"CPU": 0.5})
    assert bundles_of(planned, []) == [
        Bundle("dev", ("dev-0000",), {"CPU": 0.5, "GPU": 0.125}, {}, ("dev-0000",)),
        Bundle(
            "phones",
            ("gateway-phones", "phones-0000", "phones-0001"),
            {"CPU": 1.5, "GPU": 0.25},
            {},
            ("phones-0000", "phones-0001"),
        ),
    ]


def test_auto_is_a_gpu_if_a_node_with_the_labels_of_the_group_has_one() -> None:
    auto = {"name": "dev", "count": 1, "device": {"torch_device": "auto"}}
    nodes = [node("1", gpus=1, zone="a"), node("2", zone="b")]
    for labels, on_gpu in (({}, True), ({"zone": "a"}, True), ({"zone": "b"}, False)):
        (bundle,) = bundles_of(scenario(auto, labels={"dev": labels}), nodes)
        assert bool(bundle.on_gpu) is on_gpu is ("GPU" in bundle.resources)
    (bundle,) = bundles_of(scenario(auto), nodes[1:])
    assert not bundle.on_gpu


def test_the_server_is_on_a_node_with_its_labels() -> None:
    nodes = [node("1"), node("2", place="server", zone="a"), node("3", place="server")]
    require_server_node({}, "1", nodes)
    require_server_node({"place": "server"}, "3", nodes)
    with pytest.raises(ConfigError) as elsewhere:
        require_server_node({"place": "server"}, "1", nodes)
    assert (
        "needs the labels place=server. It does not have them, but these nodes do: 10.0.0.2, "
        "10.0.0.3. Start the command there, for example with ray job submit "
        """--entrypoint-label-selector '{"place": "server"}'"""
    ) in str(elsewhere.value)
    with pytest.raises(ConfigError, match=r"No node has them\. Start .* --labels=place=b"):
        require_server_node({"place": "b"}, "1", nodes)


def test_gpus_are_no_resource_of_the_cluster_settings() -> None:
    with pytest.raises(ConfigError, match=r"launch\.cluster\.resources: GPU is reserved for"):
        scenario({"name": "dev", "count": 2}, resources={"CPU": 0.5, "GPU": 0.5})
