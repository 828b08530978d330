"""Sums of some terms that are added to each other: the same bits as one sum of all terms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from muster.common.compression.contract import pread_of
from muster.common.errors import Diverged, RemoteProtocolError
from muster.common.exact_sum import BLOCK, ExactSum
from muster.common.partial_sums import EncodedSum, encode_partial_sum, partial_sum_lengths
from muster.common.seeds import stream

TERMS = 8
VALUES = st.one_of(
    st.floats(-1e6, 1e6, width=32),
    # Half-way between two places of a grid, where rounding depends on what is there already.
    st.builds(math.ldexp, st.integers(-9, 9), st.sampled_from([-21, -53, -54, -84, -90])),
)


def sum_of(vectors: np.ndarray, weights: np.ndarray) -> ExactSum:
    found = ExactSum(vectors.shape[1])
    for vector, weight in zip(vectors, weights, strict=True):
        found.add(vector, float(weight))
    return found


def bounds_of(vectors: np.ndarray, weights: np.ndarray) -> list[float]:
    largest = np.abs(vectors).max(axis=1, initial=0.0).astype(np.float64)
    return [float(bound) for bound in weights * largest]


def add_encoded(whole: ExactSum, part: ExactSum, bounds: list[float]) -> None:
    body = encode_partial_sum(part)
    assert len(body) == partial_sum_lengths(part.parameters)[part.fine]
    whole.add_part(EncodedSum(pread_of(body), part.parameters, part.fine).read, bounds)


def total_of_parts(vectors: np.ndarray, weights: np.ndarray, parts: list[int]) -> np.ndarray:
    """The total of a sum to which the terms of part 0 are added one by one, in the order of the
    parts, and those of the other parts as partial sums."""
    whole = ExactSum(vectors.shape[1])
    for part in dict.fromkeys(parts):
        chosen = [index for index, of in enumerate(parts) if of == part]
        if part == 0:
            for index in chosen:
                whole.add(vectors[index], float(weights[index]))
        else:
            terms = vectors[chosen], weights[chosen]
            add_encoded(whole, sum_of(*terms), bounds_of(*terms))
    return whole.total()


@given(
    arrays(np.float32, (TERMS, 3), elements=VALUES),
    arrays(np.float64, TERMS, elements=st.sampled_from([1.0, 3.0, 0.1, 7.7])),
    st.lists(st.integers(0, 3), min_size=TERMS, max_size=TERMS),
)
def test_any_split_into_parts_gives_the_same_bits(
    vectors: np.ndarray, weights: np.ndarray, parts: list[int]
) -> None:
    whole = sum_of(vectors, weights).total()
    assert total_of_parts(vectors, weights, parts).tobytes() == whole.tobytes()


def test_parts_of_vectors_of_several_blocks_give_the_same_bits() -> None:
    draws = stream(0, "partial sums")
    scale = 10.0 ** draws.uniform(-36, 3, size=(40, BLOCK + 5))
    vectors = (draws.normal(size=scale.shape) * scale).astype(np.float32)
    weights = draws.uniform(0, 100, size=len(vectors))
    parts = draws.integers(0, 5, size=len(vectors)).tolist()
    whole = sum_of(vectors, weights).total()
    assert total_of_parts(vectors, weights, parts).tobytes() == whole.tobytes()


def test_a_sum_without_small_pieces_is_a_third_longer_than_its_coarse_grid() -> None:
    part = sum_of(np.ones((2, 4), np.float32), np.ones(2))
    assert not part.fine
    assert len(encode_partial_sum(part)) == 4 * 12


def test_the_range_is_that_of_all_parts_together() -> None:
    vectors, weights = np.full((2, 1), 2.0**30, np.float32), np.ones(2)
    whole = sum_of(vectors[:1], weights[:1])
    part = sum_of(vectors[1:], weights[1:])
    with pytest.raises(Diverged):
        add_encoded(whole, part, bounds_of(vectors[1:], weights[1:]))


def test_the_largest_entry_of_a_sum_is_found_in_every_block() -> None:
    vector = np.zeros((1, BLOCK + 5), np.float32)
    vector[0, BLOCK + 2] = -3.5
    body = encode_partial_sum(sum_of(vector, np.ones(1)))
    assert EncodedSum(pread_of(body), BLOCK + 5, fine=False).extent() == (3.5, 3.5)


def test_a_body_that_ends_early_is_refused() -> None:
    body = encode_partial_sum(sum_of(np.ones((1, 4), np.float32), np.ones(1)))
    with pytest.raises(RemoteProtocolError, match="ends 4 bytes early"):
        EncodedSum(pread_of(body[:-4]), 4, fine=False).read(0, 4)
