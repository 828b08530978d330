"""When a rule counts as broken in the way that is known."""

import dataclasses

import pytest

from muster.laboratory.worst_case.finding import WorstCase
from muster.laboratory.worst_case.proof import Weakness, as_expected

FOUND = WorstCase(
    "plain", "median", "groups", "loss", 0.1, 24.0, 31.0, 7.0, 7.0, 7.0, 0.5, 0.3, 2.0, 30, 9, 10,
    ("often-0000", "often-0003"), "without 9 calls of 2 devices", "0" * 64,
)  # fmt: skip
GROUPS = Weakness("median", "plain.toml", "groups", "loss", 40, (), one_group=True)


@pytest.mark.parametrize(
    ("devices", "harm", "broken"),
    [
        (("often-0000", "often-0003"), 7.0, True),
        (("often-0000", "seldom-0003"), 7.0, False),
        (("often-0000", "often-0003"), 4.0, False),
    ],
)
def test_a_group_is_struck_and_more_than_twice_as_hard_as_at_random(
    devices: tuple[str, ...], harm: float, broken: bool
) -> None:
    found = dataclasses.replace(FOUND, devices=devices, harm=harm)
    assert as_expected(GROUPS, found) is broken


def test_words_say_how_a_rule_is_broken() -> None:
    labels = Weakness("fedavg", "plain.toml", "classes", "accuracy", 60, (), words=("class",))
    assert not as_expected(labels, FOUND)
    assert as_expected(labels, dataclasses.replace(FOUND, words="without the devices with class 1"))
