import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from muster.common.errors import Diverged
from muster.common.exact_sum import BLOCK, ExactSum, apply
from muster.common.seeds import stream

FINITE = st.floats(-1e3, 1e3, width=32)
WEIGHTS = st.floats(0, 1e3)
SMALLEST = 2.0**-85


def terms(count: int, size: int = 7, spread: float = 30) -> tuple[np.ndarray, np.ndarray]:
    """Vectors whose entries differ by many orders of magnitude, where float64 sums would differ."""
    draws = stream(0, "accumulator", count, size)
    scale = 10 ** draws.uniform(-spread / 2, 3, size=(count, size))
    vectors = (draws.normal(size=(count, size)) * scale).astype(np.float32)
    return vectors, draws.uniform(0, 100, size=count)


def total(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    sums = ExactSum(vectors.shape[1])
    for vector, weight in zip(vectors, weights, strict=True):
        sums.add(vector, float(weight))
    return sums.total()


@given(arrays(np.float32, (6, 3), elements=FINITE), arrays(np.float64, 6, elements=WEIGHTS),
       st.permutations(range(6)))  # fmt: skip
def test_any_order_gives_the_same_bits(
    vectors: np.ndarray, weights: np.ndarray, order: list[int]
) -> None:
    assert total(vectors, weights).tobytes() == total(vectors[order], weights[order]).tobytes()


TIES = st.builds(math.ldexp, st.integers(-9, 9), st.sampled_from([-21, -53, -54, -84]))
"""Half-way between two places of a grid, where rounding depends on what is there already."""


@given(arrays(np.float32, (8, 3), elements=TIES), st.permutations(range(8)))
def test_ties_give_the_same_bits_in_any_order_and_lose_nothing(
    vectors: np.ndarray, order: list[int]
) -> None:
    ones = np.ones(len(vectors))
    found = total(vectors, ones)
    assert found.tobytes() == total(vectors[order], ones).tobytes()
    exact = [math.fsum(vectors[:, i].astype(np.float64)) for i in range(3)]
    np.testing.assert_array_equal(found, exact)


def test_a_tie_that_decides_how_the_total_is_rounded_is_decided_alike_in_any_order() -> None:
    # Half-way between two float64, but for 3·2^-78. The last four are nothing; in this order they
    # move 2^-52 from the middle sum to the last, in the other they do not.
    entries = [
        2.0**30,
        2.0**-22,
        2.0**-23,
        -3 * 2.0**-78,
        2.0**-53,
        2.0**-52,
        -(2.0**-53),
        -(2.0**-52),
    ]
    vectors, ones = np.array(entries, np.float32)[:, None], np.ones(len(entries))
    order = [0, 1, 2, 3, 4, 6, 5, 7]
    assert total(vectors, ones).tobytes() == total(vectors[order], ones).tobytes()


def test_two_thousand_vectors_give_the_same_bits_in_any_order() -> None:
    vectors, weights = terms(2000)
    order = stream(0, "order").permutation(len(weights))
    assert total(vectors, weights).tobytes() == total(vectors[order], weights[order]).tobytes()


def test_a_plain_float64_sum_would_not() -> None:
    vectors, weights = terms(2000)
    order = stream(0, "order").permutation(len(weights))
    scaled = vectors * weights[:, None]
    assert sum(scaled).tobytes() != sum(scaled[order]).tobytes()


@given(arrays(np.float32, (5, 4), elements=FINITE), arrays(np.float64, 5, elements=WEIGHTS))
def test_it_agrees_with_fsum(vectors: np.ndarray, weights: np.ndarray) -> None:
    exact = [math.fsum(weights * vectors[:, i].astype(np.float64)) for i in range(4)]
    # Each term loses less than 2^-85; joining the three grids rounds once.
    np.testing.assert_allclose(total(vectors, weights), exact, rtol=2**-51, atol=5 * SMALLEST)


def test_it_agrees_with_fsum_where_terms_cancel() -> None:
    vectors, weights = terms(500)
    vectors, weights = np.vstack([vectors, -vectors]), np.concatenate([weights, weights])
    vectors[0] += np.float32(1)
    exact = [math.fsum(weights * vectors[:, i].astype(np.float64)) for i in range(7)]
    np.testing.assert_allclose(total(vectors, weights), exact, rtol=1e-12, atol=1000 * SMALLEST)


def test_what_was_added_can_be_taken_away_without_a_trace() -> None:
    vectors, weights = terms(100)
    sums = ExactSum(7)
    for vector, weight in zip(vectors, weights, strict=True):
        sums.add(vector, float(weight))
    for vector, weight in zip(vectors[50:], weights[50:], strict=True):
        sums.add(vector, -float(weight))
    assert sums.total().tobytes() == total(vectors[:50], weights[:50]).tobytes()


def test_blocks_do_not_change_the_sum() -> None:
    vectors, weights = terms(3, size=BLOCK + 17)
    whole = total(vectors, weights)
    pieces = [total(vectors[:, part], weights) for part in (slice(0, 1000), slice(1000, None))]
    assert whole.tobytes() == np.concatenate(pieces).tobytes()


def test_a_cleared_sum_is_empty() -> None:
    vectors, weights = terms(3)
    sums = ExactSum(7)
    sums.add(vectors[0], 2.0)
    sums.clear()
    assert not sums.total().any()
    sums.add(vectors[1], float(weights[1]))
    assert sums.total().tobytes() == total(vectors[1:2], weights[1:2]).tobytes()


def test_leaving_the_range_is_divergence() -> None:
    sums = ExactSum(1)
    sums.add(np.array([1], np.float32), 2.0**30)
    with pytest.raises(Diverged, match="sums are exact below"):
        sums.add(np.array([-1], np.float32), 2.0**30)


def test_applying_divides_and_rounds_once() -> None:
    sums = ExactSum(2)
    sums.add(np.array([1, 2], np.float32), 1.0)
    sums.add(np.array([2, 6], np.float32), 1.0)
    model = np.array([10, 20], np.float32)
    stepped = apply(model, sums, keep=1.0, scale=1.0, normaliser=2.0)
    np.testing.assert_array_equal(stepped, np.array([11.5, 24], np.float32))
    descended = apply(model, sums, keep=1.0, scale=-0.5, normaliser=2.0)
    np.testing.assert_array_equal(descended, np.array([9.25, 18], np.float32))


def test_a_model_from_one_end_of_float32_to_the_other_is_none() -> None:
    model = np.array([3e38, -3e38], np.float32)
    sums = ExactSum(2)
    sums.add(np.zeros(2, np.float32), 1.0)
    assert (apply(model, sums, keep=1.0, scale=1.0, normaliser=1.0) == model).all()


def test_a_model_that_float32_cannot_hold_is_divergence() -> None:
    sums = ExactSum(1)
    sums.add(np.array([2.0**30], np.float32), 1.0)
    with pytest.raises(Diverged, match="float32 cannot hold"):
        apply(np.array([3e38], np.float32), sums, keep=2.0, scale=1.0, normaliser=1.0)


@given(
    arrays(np.float32, (12, 3), elements=TIES | FINITE), st.lists(st.integers(0, 11), max_size=60)
)
def test_a_sum_from_which_terms_are_taken_back_has_the_bits_of_those_that_are_left(
    vectors: np.ndarray, course: list[int]
) -> None:
    """Each number of the course adds its vector if it is not in the sum, and else subtracts it."""
    sums, there = ExactSum(3), set[int]()
    sums.add(np.zeros(3, np.float32), 1.0)
    for number in course:
        sums.add(vectors[number], -1.0 if number in there else 1.0)
        there ^= {number}
        sums.settle([0.0, *(float(np.abs(vectors[i]).max()) for i in there)])
    fresh = total(vectors[sorted(there)], np.ones(len(there)))
    assert (sums.total() + 0.0).tobytes() == (fresh + 0.0).tobytes()


def test_a_settled_sum_takes_terms_without_end() -> None:
    # Half of a grid's place: each addition may round to the coarser sum, each subtraction back.
    sums, odd = ExactSum(1), np.array([2.0**-20], np.float32)
    half = np.array([2.0**-21], np.float32)
    sums.add(odd, 1.0)
    for _ in range(5000):
        sums.add(half, 1.0)
        sums.add(half, -1.0)
        sums.settle([2.0**-20])
    assert sums.total() == [2.0**-20]
