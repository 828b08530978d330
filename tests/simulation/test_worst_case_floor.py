"""The floor for every algorithm: rules that cannot see a part of the devices do no better."""

import pytest

from muster.laboratory.worst_case import floor


@pytest.mark.parametrize("rule", ["fedavg", "fedavgm", "median"])
def test_a_rule_is_blind_to_devices_that_are_never_there_and_pays_for_it(rule: str) -> None:
    ends = [floor.never_there(floor.world(rule, side, 1, rounds=12)) for side in (1.0, -1.0)]
    assert ends[0].model == ends[1].model
    assert max(end.squared for end in ends) >= floor.FLOOR * (1 - 1e-5)
    assert floor.FLOOR > floor.PAPER


def test_a_search_finds_no_less_than_the_theorem_forces() -> None:
    ended, words = floor.found(floor.world("fedavg", 1.0, 1, rounds=12), 20, 1, 1)
    assert ended.squared >= floor.FLOOR * (1 - 1e-5)
    assert words
