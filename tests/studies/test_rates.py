"""The rates at which the claims of a study hold."""

import pytest

from muster.studies.rates import Rates

EARLIER = Rates(1001, 1041, 2, 40, {"a": 40, "b": 37})


def test_further_repetitions_are_added_to_those_before() -> None:
    later = Rates(EARLIER.next_first, 1101, 2, 60, {"b": 59, "a": 60})
    assert EARLIER.joined(later) == Rates(1001, 1101, 2, 100, {"a": 100, "b": 96})


@pytest.mark.parametrize(
    ("later", "problem"),
    [
        (Rates(1040, 1100, 2, 60, {"a": 60, "b": 60}), "do not follow"),
        (Rates(1041, 1102, 3, 60, {"a": 60, "b": 60}), "do not follow"),
        (Rates(1041, 1101, 2, 60, {"a": 60, "c": 60}), "the claims have changed"),
    ],
)
def test_repetitions_of_other_seeds_or_claims_are_not_added(later: Rates, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        EARLIER.joined(later)
