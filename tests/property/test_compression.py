"""Updates as they travel: what a body keeps of a vector, and what a server refuses."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from muster.common.compression import BUILT_IN, CODECS, Codec, compress, pread_of
from muster.common.config import validate
from muster.common.errors import ConfigError, RemoteProtocolError
from muster.common.seeds import stream

KINDS = sorted(BUILT_IN)
LARGEST = float(np.finfo(np.float32).max)
VECTORS = arrays(np.float32, st.integers(1, 3000), elements=st.floats(-1e4, 1e4, width=32))
ANY_BITS = arrays(np.uint32, st.integers(1, 50)).map(lambda bits: bits.view(np.float32))


def codec(kind: str, **settings: float) -> Codec:
    found = CODECS.parse({"kind": kind, **settings})
    assert isinstance(found, Codec)
    return found


def draws(number: int = 0) -> np.random.Generator:
    return stream(7, "compression", "phones-0001", number)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def normal(size: int, seed: int = 0) -> np.ndarray:
    return stream(seed, "vector").standard_normal(size, np.float32)


def sent(kind: str, vector: np.ndarray, number: int = 0, **settings: float) -> np.ndarray:
    found = codec(kind, **settings)
    return found.decode(found.encode(vector, lambda: draws(number)), len(vector))


def steps_of(vector: np.ndarray) -> np.ndarray:
    """The step of each entry's block of 1,024."""
    return np.concatenate(
        [
            np.full(len(block), np.abs(block).max() / 127)
            for block in np.split(vector, range(1024, len(vector), 1024))
        ]
    )


@pytest.mark.parametrize("kind", KINDS)
@given(vector=VECTORS)
def test_a_body_has_the_length_that_is_known_before(kind: str, vector: np.ndarray) -> None:
    found = codec(kind)
    assert len(found.encode(vector, draws)) == found.length(len(vector))


def test_a_thousandth_of_a_million_is_eight_kilobytes() -> None:
    lengths = [codec(kind).length(1_000_000) for kind in ("none", "float16", "int8")]
    assert lengths == [4_000_000, 2_000_000, 1_000_000 + 977 * 4]
    assert codec("top-k", ratio=0.001).length(1_000_000) == 8_000


@given(VECTORS)
def test_without_compression_nothing_is_lost(vector: np.ndarray) -> None:
    np.testing.assert_array_equal(sent("none", vector), vector)


@given(VECTORS)
def test_half_precision_keeps_eleven_bits(vector: np.ndarray) -> None:
    error = np.abs(sent("float16", vector) - vector.astype(np.float64))
    normal = np.abs(vector) >= 2**-14
    assert (error[normal] <= 2**-11 * np.abs(vector[normal])).all()
    assert (error[~normal] <= 2**-25).all()


@given(VECTORS)
def test_a_byte_is_less_than_a_step_away(vector: np.ndarray) -> None:
    error = np.abs(sent("int8", vector).astype(np.float64) - vector)
    # A few roundings of float32; subnormal steps are whole multiples of 2^-149.
    assert (error <= steps_of(vector) * (1 + 2**-15) + 2**-142).all()


def test_rounding_to_a_byte_is_right_in_the_mean() -> None:
    vector, times = normal(2000), 400
    mean = np.mean([sent("int8", vector, number).astype(np.float64) for number in range(times)], 0)
    # One rounding has a variance of at most step²/4; five standard deviations of the mean.
    assert (np.abs(mean - vector) < 5 * steps_of(vector) / 2 / math.sqrt(times)).all()
    # Over all entries the deviations cancel.
    assert abs(np.mean((mean - vector) / steps_of(vector))) < 5 / 2 / math.sqrt(times * 2000)


def test_the_same_draws_give_the_same_body() -> None:
    bodies = [codec("int8").encode(normal(5000), partial(draws, n)) for n in (1, 1, 2)]
    assert bodies[0] == bodies[1] != bodies[2]


@given(arrays(np.float32, st.integers(1, 300), elements=st.sampled_from([-2, -1, 0, 0.5, 1, 2])),
       st.floats(0.001, 1))  # fmt: skip
def test_top_k_keeps_the_largest_and_of_equals_the_first(vector: np.ndarray, ratio: float) -> None:
    count = max(1, math.ceil(round(ratio * len(vector), 6)))
    kept = sorted(range(len(vector)), key=lambda i: (-abs(vector[i]), i))[:count]
    expected = np.zeros_like(vector)
    expected[kept] = vector[kept]
    np.testing.assert_array_equal(sent("top-k", vector, ratio=ratio), expected)


def test_a_share_that_is_whole_is_not_rounded_up() -> None:
    assert 0.07 * 100 > 7
    assert codec("top-k", ratio=0.07).length(100) == 7 * 8


@pytest.mark.parametrize("kind", KINDS)
@given(vector=VECTORS, cuts=st.lists(st.integers(0, 3000), max_size=5))
def test_pieces_are_what_the_whole_is(kind: str, vector: np.ndarray, cuts: list[int]) -> None:
    found = codec(kind, **({"ratio": 0.2} if kind == "top-k" else {}))
    body = found.encode(vector, draws)
    edges = sorted({0, len(vector), *(min(cut, len(vector)) for cut in cuts)})
    pieces = [
        found.read(pread_of(body), start, stop, len(vector)) for start, stop in pairwise(edges)
    ]
    whole = found.decode(body, len(vector))
    assert np.concatenate(pieces).tobytes() == whole.tobytes()
    assert whole.dtype == np.float32


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 1023, 1025, 70_000, 200_000])
def test_a_body_says_how_large_its_entries_are(kind: str, size: int) -> None:
    found, vector = codec(kind), normal(size)
    body = found.encode(vector, draws)
    decoded = found.decode(body, size).astype(np.float64)
    extent = found.check(pread_of(body), size)
    assert extent.largest == np.abs(decoded).max()
    assert extent.squares == pytest.approx(np.sum(decoded**2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_so(kind: str, value: float) -> None:
    vector = normal(5000)
    vector[3333] = value
    body = codec(kind).encode(vector, draws)
    assert not math.isfinite(codec(kind).check(pread_of(body), 5000).largest)


@pytest.mark.parametrize("kind", KINDS)
@given(vector=ANY_BITS)
def test_any_vector_is_written_and_read(kind: str, vector: np.ndarray) -> None:
    body = codec(kind).encode(vector, draws)
    extent = codec(kind).check(pread_of(body), len(vector))
    if not np.isfinite(vector).all():
        assert not math.isfinite(extent.largest)


def test_a_value_too_large_for_half_precision_is_not_finite() -> None:
    assert sent("float16", floats(65504, 65519))[1] == 65504
    assert sent("float16", floats(65520))[0] == math.inf


@pytest.mark.parametrize("scale", [1e-45, 3e-45, 1e-43, 1e-38, 1.0, LARGEST / 2])
def test_a_byte_serves_numbers_of_any_size(scale: float) -> None:
    vector = np.linspace(-1, 1, 1500).astype(np.float32) * np.float32(scale)
    error = np.abs(sent("int8", vector).astype(np.float64) - vector)
    assert (error <= steps_of(vector) * (1 + 2**-15) + 2**-142).all()
    assert not sent("int8", np.zeros(1500, np.float32)).any()


# --- what a server refuses ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_of_another_length_is_refused(kind: str) -> None:
    found = codec(kind)
    body = found.encode(normal(3000), draws)
    with pytest.raises(RemoteProtocolError, match=f"{kind}' writes 3000 parameters in"):
        found.decode(body[:-1], 3000)
    with pytest.raises(RemoteProtocolError, match="ends 1 bytes early"):
        found.check(pread_of(body[:-1]), 3000)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([5, 5], "do not ascend"),
        ([6, 5], "do not ascend"),
        ([5, 200], "for place 200; the vector has 200"),
        ([5, 2**32 - 1], "for place 4294967295"),
    ],
)
def test_places_that_no_device_writes_are_refused(places: list[int], message: str) -> None:
    body = np.array(places, "<u4").tobytes() + np.array([1, 2], "<f4").tobytes()
    with pytest.raises(RemoteProtocolError, match=message):
        codec("top-k").check(pread_of(body), 200)


def test_places_ascend_also_from_one_block_to_the_next() -> None:
    found, count = codec("top-k", ratio=1.0), 65_536 + 10
    places = np.arange(count, dtype="<u4")
    values = np.ones(count, "<f4").tobytes()
    assert found.check(pread_of(places.tobytes() + values), count).squares == count
    places[65_536] = 65_535
    with pytest.raises(RemoteProtocolError, match="do not ascend"):
        found.check(pread_of(places.tobytes() + values), count)


def test_a_negative_step_is_refused_and_one_that_is_no_number_is_not_finite() -> None:
    levels = bytes(1500)
    with pytest.raises(RemoteProtocolError, match=r"block 1 has the step -1\.0; expected >= 0"):
        codec("int8").check(pread_of(np.array([1, -1], "<f4").tobytes() + levels), 1500)
    for step in (math.nan, math.inf):
        body = np.array([1, step], "<f4").tobytes() + levels
        assert not math.isfinite(codec("int8").check(pread_of(body), 1500).largest)


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="ratio: expected more than 0"):
        validate(BUILT_IN["top-k"], {"kind": "top-k", "ratio": 0.0}, "test")
    with pytest.raises(ValueError, match="no codec called 'gzip'; there are: float16, int8, none"):
        codec("gzip")


# --- error feedback -------------------------------------------------------------------------------


def test_what_is_left_out_is_sent_later() -> None:
    found = codec("top-k", ratio=0.5)
    body, residual = compress(found, floats(4, 1, 3, 2), None, draws)
    np.testing.assert_array_equal(found.decode(body, 4), [4, 0, 3, 0])
    np.testing.assert_array_equal(residual, [0, 1, 0, 2])
    body, residual = compress(found, floats(1, 1, 1, 1), residual, draws)
    np.testing.assert_array_equal(found.decode(body, 4), [0, 2, 0, 3])
    np.testing.assert_array_equal(residual, [1, 0, 1, 0])


@pytest.mark.parametrize("kind", ["none", "float16", "int8"])
def test_others_remember_nothing(kind: str) -> None:
    vector = normal(10)
    body, residual = compress(codec(kind), vector, None, draws)
    assert residual is None
    assert body == codec(kind).encode(vector, draws)


def test_an_update_that_diverged_leaves_the_memory_alone() -> None:
    before = floats(0, 1)
    body, after = compress(codec("top-k"), floats(math.nan, 0), before, draws)
    assert after is before
    assert math.isnan(codec("top-k").check(pread_of(body), 2).largest)


def descend(feedback: bool, rounds: int = 2000, devices: int = 5, size: int = 20) -> float:
    """Distance to the optimum after federated descent on Σ ‖θ − θ_i‖²/2, one entry sent of 20.

    Every device's own optimum is far away in a place of its own: the largest entry of its gradient
    is always that one. In the mean over the devices these cancel, and the others decide.
    """
    optima = stream(0, "optima").normal(size=(devices, size)).astype(np.float32)
    far = np.zeros((devices, size), np.float32)
    far[np.arange(devices), np.arange(devices)] = 100
    optima += far - far.mean(axis=0)
    found = codec("top-k", ratio=1 / size)
    model = np.zeros(size, np.float32)
    residuals: list[np.ndarray | None] = [None] * devices
    for _ in range(rounds):
        updates = []
        for device, optimum in enumerate(optima):
            delta = np.float32(0.01) * (optimum - model)
            body, residual = compress(found, delta, residuals[device], draws)
            residuals[device] = residual if feedback else None
            updates.append(found.decode(body, size))
        model = model + np.mean(updates, axis=0)
    return float(np.linalg.norm(model - optima.mean(axis=0)))


def test_with_feedback_top_k_arrives_where_without_it_does_not() -> None:
    with_feedback, without = descend(feedback=True), descend(feedback=False)
    assert with_feedback < 1
    assert without > 5 * with_feedback
