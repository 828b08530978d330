"""The fleets that `make simulate` draws."""

from collections.abc import Iterator

import pytest

from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import BUILT_IN
from muster.server.rounds.modes import BUILT_IN as MODES
from muster.simulation.drawn_fleets import LARGE, LEFT_OUT, drawn_fleet


@pytest.fixture(scope="module")
def fleets() -> list[Scenario]:
    return [drawn_fleet(number) for number in range(95)]


def _features(fleet: Scenario) -> Iterator[str]:
    server = fleet.server
    yield f"{server.aggregator.kind} (rule)"
    yield f"{server.mode.kind} (mode)"
    yield f"{fleet.clock.kind} (clock)"
    for group in fleet.groups:
        yield f"{group.availability.kind} (availability)"
        yield f"{group.participation.kind} (participation)"
        yield f"{group.link.compression.kind} (codec)"
        for what, there in {
            "pack": group.devices_per_process > 1,
            "partial sums": group.partial_sums,
            "partial sums on the wall clock": group.partial_sums and fleet.clock.kind == "wall",
            "mask": group.mask is not None,
            "slices": group.mask is not None and group.mask.narrows(),
            "link": group.link.shapes,
            "shared link": group.shared_link.gateway,
            "slots": group.shared_link.slots is not None,
            "battery": group.device.lives,
            "accident": bool(group.participation.drop_out),
        }.items():
            if there:
                yield what
    for what, there in {
        "goal": server.goal is not None,
        "deadline": server.deadline_s is not None,
        "selection": server.selection.kind != "all",
        "privacy": server.privacy is not None,
        "noise in sums": server.privacy is not None and server.privacy.place.in_sums,
        "kept updates": server.keep_updates,
        "secure sums": server.secure is not None,
        "fault": bool(fleet.faults),
        "large": getattr(fleet.task, "dimension", 0) == LARGE,
    }.items():
        if there:
            yield what


def test_every_rule_and_feature_is_drawn(fleets: list[Scenario]) -> None:
    found = {feature for fleet in fleets for feature in _features(fleet)}
    assert {f"{rule} (rule)" for rule in BUILT_IN} - found == {
        f"{rule} (rule)" for rule in LEFT_OUT
    }
    assert {f"{mode} (mode)" for mode in MODES} <= found
    expected = {
        "partial sums",
        "partial sums on the wall clock",
        "secure sums",
        "noise in sums",
        "mask",
        "slices",
        "slots",
        "battery",
        "kept updates",
        "large",
        "fault",
    }
    assert expected <= found


def test_a_number_is_always_the_same_fleet(fleets: list[Scenario]) -> None:
    assert [drawn_fleet(number) for number in (3, 1, 2)] == [fleets[3], fleets[1], fleets[2]]
