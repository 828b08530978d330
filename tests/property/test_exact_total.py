"""The audit's sums by integers: against fractions, and against the server's sums."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.exact_total import ExactTotal, exact_sum_of

from muster.common.exact_sum import ExactSum

_ENTRIES = st.lists(
    st.floats(-1000, 1000, width=32) | st.floats(-(2.0**-60), 2.0**-60, width=32),
    min_size=3,
    max_size=3,
)
_WEIGHTS = st.floats(0, 1000) | st.floats(0, 2.0**-40)
TERMS = st.lists(st.tuples(_ENTRIES, _WEIGHTS), min_size=1, max_size=12)
GRID = 2**84


def _term(entry: float, weight: float) -> Fraction:
    """w·x as the pages define it: a float64 product, rounded to a multiple of 2^-84."""
    product = Fraction(float(np.float64(np.float32(entry)) * np.float64(weight)))
    return Fraction(round(product * GRID), GRID)


@given(TERMS)
def test_a_total_is_the_sum_of_the_fractions_rounded_once_or_twice(
    terms: list[tuple[list[float], float]],
) -> None:
    vectors = [np.array(entries, np.float32) for entries, _ in terms]
    found = exact_sum_of(vectors, [weight for _, weight in terms], 3)
    for place in range(3):
        exact = sum((_term(entries[place], weight) for entries, weight in terms), Fraction())
        # The higher part is rounded, and then the whole: at most one bit apart.
        nearest = float(exact)
        assert abs(found[place] - nearest) <= np.spacing(abs(nearest))


@given(TERMS)
def test_a_total_has_the_bits_of_the_servers_sum(terms: list[tuple[list[float], float]]) -> None:
    server, total = ExactSum(3), ExactTotal(3)
    for entries, weight in terms:
        vector = np.array(entries, np.float32)
        server.add(vector, weight)
        total.add(vector, weight)
    assert total.value().tobytes() == server.total().tobytes()


@given(TERMS, TERMS)
def test_what_is_subtracted_leaves_no_trace(
    terms: list[tuple[list[float], float]], more: list[tuple[list[float], float]]
) -> None:
    total = ExactTotal(3)
    for entries, weight in [*terms, *more]:
        total.add(np.array(entries, np.float32), weight)
    for entries, weight in more:
        total.add(np.array(entries, np.float32), weight, times=-1)
    vectors = [np.array(entries, np.float32) for entries, _ in terms]
    alone = exact_sum_of(vectors, [weight for _, weight in terms], 3)
    assert total.value().tobytes() == alone.tobytes()
