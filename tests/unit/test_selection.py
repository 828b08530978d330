import numpy as np
import pytest

from muster.common.seeds import stream
from muster.server.rounds.selection import (
    Candidate,
    SelectAll,
    Selection,
    UniformSelection,
    WeightedSelection,
)

CANDIDATES = [Candidate(f"c{i}", examples=1 + 9 * (i == 0)) for i in range(10)]


def chosen(policy: Selection, number: int) -> list[str]:
    return policy.select(CANDIDATES, lambda: stream(1, "selection", number))


def test_all_calls_everybody() -> None:
    assert chosen(SelectAll(), 1) == [candidate.client for candidate in CANDIDATES]


@pytest.mark.parametrize(
    "policy", [UniformSelection(k=3), WeightedSelection(k=3)], ids=["uniform", "weighted"]
)
def test_k_different_devices_are_drawn_and_the_same_seed_draws_the_same(policy: Selection) -> None:
    drawn = [chosen(policy, number) for number in range(50)]
    assert drawn == [chosen(policy, number) for number in range(50)]
    assert all(len(set(clients)) == 3 for clients in drawn)
    assert len({tuple(clients) for clients in drawn}) > 10


def test_uniform_calls_each_device_alike_and_weighted_by_its_examples() -> None:
    rounds = 4000
    first = {
        policy: np.mean([chosen(policy, number) == ["c0"] for number in range(rounds)])
        for policy in (UniformSelection(k=1), WeightedSelection(k=1))
    }
    # Binomial standard deviations: 0.0047 and 0.0079.
    assert first[UniformSelection(k=1)] == pytest.approx(1 / 10, abs=0.02)
    assert first[WeightedSelection(k=1)] == pytest.approx(10 / 19, abs=0.03)


def test_over_selection_calls_more_and_closes_with_k() -> None:
    policy = UniformSelection(k=5, over_selection=1.3)
    assert len(chosen(policy, 1)) == 7
    assert policy.goal() == 5
    assert UniformSelection(k=5).goal() is None


def test_over_selection_does_not_stumble_over_rounding() -> None:
    assert UniformSelection(k=10, over_selection=1.1).called(100) == 11


def test_with_fewer_devices_than_wanted_all_are_called() -> None:
    assert len(chosen(UniformSelection(k=30), 1)) == 10
