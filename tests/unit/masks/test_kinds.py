"""Every kind of mask with every schedule."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from muster.common.errors import ConfigError
from muster.common.masks import (
    BUILT_IN,
    MASKINGS,
    GroupMasks,
    Layout,
    Mask,
    Masking,
    UnitAxis,
    UnitLayer,
)
from muster.common.tensors import schema_of

SCHEDULES = ("static", "rotating", "drawn")
ALL = list(product(sorted(BUILT_IN), SCHEDULES))
CAPACITIES = (0.25, 0.5, 0.9, 1.0)


def perceptron(inputs: int, *widths: int) -> Layout:
    """The layout of a perceptron; the last width is that of the outputs."""
    tensors: dict[str, tuple[int, ...]] = {}
    layers = []
    for number, (before, width) in enumerate(zip((inputs, *widths), widths, strict=False), start=1):
        tensors |= {f"w{number}": (width, before), f"b{number}": (width,)}
    for number, width in enumerate(widths[:-1], start=1):
        places = (f"w{number}", 0), (f"b{number}", 0), (f"w{number + 1}", 1)
        axes = [UnitAxis(tensor=tensor, axis=axis) for tensor, axis in places]
        layers.append(UnitLayer(name=f"hidden{number}", units=width, axes=axes))
    return Layout(schema_of(tensors), layers)


LAYOUT = perceptron(3, 40, 20, 4)
EQUAL = Layout(schema_of({f"t{number}": (5, 2) for number in range(8)}))
"""Eight tensors of the same size, two of which are a quarter."""


def masking(kind: str, schedule: str = "static") -> Masking:
    found = MASKINGS.parse({"kind": kind, "schedule": schedule})
    assert isinstance(found, Masking)
    return found


def masks(
    kind: str,
    schedule: str = "static",
    capacity: float = 0.25,
    layout: Layout = LAYOUT,
    seed: int = 7,
) -> GroupMasks:
    return GroupMasks(masking(kind, schedule), layout, capacity, seed)


def of(group: GroupMasks, place: int, round: int = 1) -> Mask:
    return group.of(f"dev-{place}", place, round)


def times(found: list[Mask]) -> Any:
    """How many masks each coordinate is in."""
    return np.sum([mask.whole() for mask in found], axis=0)


@pytest.mark.parametrize(("kind", "schedule"), ALL)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_mask_is_as_large_as_the_capacity_allows(
    kind: str, schedule: str, capacity: float
) -> None:
    layout = EQUAL if kind == "tensors" else LAYOUT
    group = masks(kind, schedule, capacity, layout)
    sizes = [of(group, place, round).size for place in range(9) for round in (1, 2, 5)]
    assert max(sizes) <= group.largest <= capacity * layout.parameters
    # A slice shrinks in both directions at once, and so in larger steps.
    slack = 0.1 if kind == "width" else 0.06
    assert min(sizes) >= (capacity - slack) * layout.parameters
    if capacity == 1:
        assert min(sizes) == layout.parameters
    if schedule != "drawn":
        assert max(sizes) == group.largest


@pytest.mark.parametrize(("kind", "schedule"), ALL)
def test_server_and_device_make_the_same_mask(kind: str, schedule: str) -> None:
    layout = EQUAL if kind == "tensors" else LAYOUT
    server, device = masks(kind, schedule, 0.25, layout), masks(kind, schedule, 0.25, layout)
    before = [of(server, place, round).whole() for place in range(5) for round in (1, 2, 3)]
    after = [of(device, place, round).whole() for round in (3, 2, 1) for place in range(5)]
    wanted = [before[place * 3 + round - 1] for round in (3, 2, 1) for place in range(5)]
    assert np.array_equal(wanted, after)


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_schedules_are_what_their_names_say(kind: str) -> None:
    layout = EQUAL if kind == "tensors" else LAYOUT

    def rounds_of(schedule: str) -> list[list[bool]]:
        group = masks(kind, schedule, 0.25, layout)
        return [of(group, 2, round).whole().tolist() for round in range(1, 9)]

    static, rotating, drawn = map(rounds_of, SCHEDULES)
    assert all(mask == static[0] for mask in static)
    assert all(a != b for a, b in pairwise(rotating))
    assert len({tuple(mask) for mask in drawn}) >= 5
    other = masks(kind, "drawn", 0.25, layout, seed=8)
    assert [of(other, 2, round).whole().tolist() for round in range(1, 9)] != drawn


@pytest.mark.parametrize("kind", ["blocks", "random", "tensors"])
@pytest.mark.parametrize("capacity", [0.25, 0.3, 0.6])
def test_coverage_is_even_over_devices_and_over_rounds(kind: str, capacity: float) -> None:
    layout = EQUAL if kind == "tensors" else LAYOUT
    owned = np.ones(layout.parameters, bool)
    if kind == "blocks":
        owned = ~layout.owned_by(np.array([], int))  # without the bias of the outputs
    static, rotating = (masks(kind, schedule, capacity, layout) for schedule in SCHEDULES[:2])
    for devices in (4, 7, 30):
        over_devices = times([of(static, place) for place in range(devices)])[owned]
        assert over_devices.max() - over_devices.min() <= 1
        later = times([of(rotating, place, 6) for place in range(devices)])[owned]
        assert later.max() - later.min() <= 1
        over_rounds = times([of(rotating, 3, round) for round in range(1, devices + 1)])[owned]
        assert over_rounds.max() - over_rounds.min() <= 1


def test_a_block_mask_has_its_share_of_every_layer() -> None:
    group = masks("blocks", "static", 0.25)
    for place in range(8):
        named = LAYOUT.schema.unflatten(of(group, place).whole().astype(np.float32))
        assert 8 <= named["b1"].sum() <= 12  # of 40
        assert 4 <= named["b2"].sum() <= 6  # of 20
        assert (named["w1"].sum(axis=1) == 3 * named["b1"]).all()
        assert (named["w2"].sum(axis=1) == 40 * named["b2"]).all()
        assert (named["w3"] == named["b2"]).all()
        assert named["b3"].all()


def test_static_slices_are_nested_and_begin_with_the_first_unit() -> None:
    found = [of(masks("width", "static", c), 5).whole() for c in (0.1, 0.25, 0.5, 0.8, 1.0)]
    for small, large in pairwise(found):
        assert (large[small]).all()
        assert large.sum() > small.sum()
    named = LAYOUT.schema.unflatten(found[2].astype(np.float32))
    count = int(named["b1"].sum())
    assert named["b1"].tolist() == [1.0] * count + [0.0] * (40 - count)
    assert np.array_equal(named["w2"], np.outer(named["b2"], named["b1"]))
    assert named["b2"].sum() == count // 2  # the same share of both layers


def test_a_rotating_slice_moves_by_a_unit_in_every_round_and_comes_round() -> None:
    group = masks("width", "rotating", 0.25)
    first = of(group, 0, 1)
    assert np.array_equal(first.whole(), of(masks("width", "static", 0.25), 9).whole())
    assert of(group, 4, 1) is first  # the same for all devices
    shifted = LAYOUT.schema.unflatten(of(group, 0, 36).whole().astype(np.float32))
    before = LAYOUT.schema.unflatten(first.whole().astype(np.float32))
    for name, units in (("b1", 40), ("b2", 20)):
        assert np.array_equal(shifted[name], np.roll(before[name], 35 % units))
    assert np.array_equal(shifted["w2"], np.roll(before["w2"], (15, 35), (0, 1)))
    assert np.array_equal(of(group, 0, 41).whole(), first.whole())


def test_random_masks_have_exactly_the_capacity_and_tile_the_vector() -> None:
    group = masks("random", "static", 0.25)
    found = [of(group, place) for place in range(4)]
    size = int(0.25 * LAYOUT.parameters)
    assert [mask.size for mask in found] == [size] * 4
    assert times(found).max() == 1


def test_tensors_that_do_not_fit_are_never_trained() -> None:
    layout = Layout(schema_of({"large": (10, 9), "a": (4,), "b": (3,), "c": (3,)}))
    for schedule in SCHEDULES:
        group = masks("tensors", schedule, 0.08, layout)
        covered = times([of(group, place, round) for place in range(9) for round in range(1, 9)])
        assert (covered[:90] == 0).all()
        assert (covered[90:] > 0).all()


@pytest.mark.parametrize(
    ("kind", "layout", "capacity", "said"),
    [
        ("tensors", EQUAL, 0.1, "expected at least 0.125, the share of the smallest tensor"),
        ("blocks", LAYOUT, 0.01, "expected at least 0.04"),
        ("width", LAYOUT, 0.01, r"expected at least 0\.0\d+"),
        ("random", LAYOUT, 0.0001, "less than one of the model's 1,064 parameters"),
        ("blocks", EQUAL, 0.5, "the model declares none"),
        ("width", EQUAL, 0.5, "the model declares none"),
    ],
)
def test_a_mask_that_cannot_be_is_refused(
    kind: str, layout: Layout, capacity: float, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        masks(kind, "static", capacity, layout)
    if "at least" in said:
        least = float(str(caught.value).partition("at least ")[2].split(",")[0])
        assert of(masks(kind, "static", least * 1.001, layout), 0).size


def test_few_masks_are_kept_of_a_large_model() -> None:
    # Masks of tensors are made quickly also of a large model.
    layout = Layout(schema_of({"w": (10_000_000,), "a": (10,), "b": (10,)}))
    group = masks("tensors", "drawn", 1e-6, layout)
    first = of(group, 0)
    assert of(group, 0) is first
    for place in range(1, 28):
        of(group, place)
    assert of(group, 0) is not first
    assert np.array_equal(of(group, 0).within(0, 999_999), first.within(0, 999_999))
