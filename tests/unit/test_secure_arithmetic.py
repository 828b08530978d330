"""The arithmetic of secure sums: sharing of secrets, the graph, padded sums and steps as bytes."""

import math
from functools import partial
from itertools import combinations, product
from random import Random
from typing import Any

import numpy as np
import pytest

from muster.common.errors import RemoteProtocolError
from muster.common.exact_sum import BLOCK, ExactSum, Term
from muster.common.secure.graph import Sharing, neighbours_of, sharing_of, too_few_stay
from muster.common.secure.grid import MOST_BITS, Grid, bits_for, grid_of
from muster.common.secure.keys import PrivateKey, derived_key, pad_key, seal, unseal
from muster.common.secure.noise import TAIL, discrete_gaussian
from muster.common.secure.padded import ExactPaddedSum, padded_sum
from muster.common.secure.sharing import PRIME, joined, shares_of, split
from muster.common.secure.steps import StepRequest, SumStep, decode_step
from muster.common.seeds import stream
from muster.common.tensors import Vector
from muster.server.settings.privacy import Privacy
from muster.server.settings.secure import Secure

SECRET = bytes(range(32))


def test_shares_are_values_of_the_polynomial() -> None:
    shares = shares_of([7, 5, PRIME - 1], [1, 2, 3])  # 7 + 5x - x²
    assert [int.from_bytes(share, "big") for share in shares] == [11, 13, 13]
    assert joined(dict(zip([1, 2, 3], shares, strict=True))) == (7).to_bytes(32, "big")


def test_as_many_shares_as_the_threshold_give_the_secret_back() -> None:
    places = [1, 4, 9, 2**32]
    shares = dict(zip(places, split(SECRET, places, 3), strict=True))
    for some in combinations(places, 3):
        assert joined({place: shares[place] for place in some}) == SECRET
    for two in combinations(places, 2):
        assert joined({place: shares[place] for place in two}) != SECRET


def test_secrets_are_split_differently_every_time() -> None:
    assert split(SECRET, [1, 2], 2) != split(SECRET, [1, 2], 2)


def test_a_few_devices_are_all_neighbours() -> None:
    assert sharing_of(3, 0.1, 0.05) == Sharing(2, 2)
    assert sharing_of(10, 0.2, 0.2) == Sharing(9, 7)


@pytest.mark.parametrize("devices", [3, 10, 100, 1000, 10_000])
def test_no_server_gets_both_secrets_and_the_rest_can_open(devices: int) -> None:
    shape = sharing_of(devices, 0.1, 0.05)
    holders = shape.neighbours + 1
    assert holders < 2 * shape.threshold <= 2 * holders
    assert shape.neighbours < 200


def test_the_chance_that_too_few_stay_is_that_of_all_ways_to_drop_out() -> None:
    devices, drop_out, sharing = 8, 0.3, sharing_of(8, 0.3, 0.1)
    ways = product([0, 1], repeat=devices)
    fails = [stay for stay in map(sum, ways) if stay < sharing.threshold]
    expected = sum(0.7**stay * drop_out ** (devices - stay) for stay in fails)
    assert too_few_stay(devices, sharing, drop_out) == pytest.approx(expected)
    ring = Sharing(4, 3)  # of any of 100 devices
    assert too_few_stay(100, ring, 0.01) == pytest.approx(100 * too_few_stay(5, ring, 0.01))
    assert too_few_stay(100, ring, 0.5) == 1


def test_many_devices_have_few_neighbours_on_a_ring() -> None:
    found = neighbours_of(range(100), 6, Random(3))
    assert {len(others) for others in found.values()} == {6}
    for device, others in found.items():
        assert device not in others
        assert all(device in found[other] for other in others)


def test_pads_cancel_and_leave_the_exact_sum() -> None:
    draws = np.random.default_rng(1)
    parameters = 70_001  # more than a block
    terms = [draws.normal(size=parameters).astype(np.float32) * 1e-9 for _ in range(3)]
    exact, total = ExactSum(parameters), ExactPaddedSum(parameters)
    for term in terms:
        alone = ExactSum(parameters)
        alone.add(term, 3.7)
        exact.add(term, 3.7)
        one = ExactPaddedSum(parameters)
        one.add_exact(alone)
        total.add_encoded(one.encoded())
    plain = total.encoded()
    total.pad([(b"a" * 32, True), (b"b" * 32, False)])
    assert total.encoded() != plain
    total.pad([(b"a" * 32, False), (b"b" * 32, True)])
    assert total.encoded() == plain
    read, right = total.read(0, parameters), exact.pieces(0, 65_536)
    assert (read.coarse[:65_536] == right.coarse).all()
    assert (read.middle[:65_536] == right.middle).all()
    assert right.fine is not None
    assert read.fine is not None
    assert (read.fine[:65_536] == right.fine).all()


def block(vector: Vector, start: int, stop: int) -> Vector:
    return vector[start:stop]


GRIDS = [
    grid_of(1.5, bits, rounding, 5, heaviest)
    for bits, heaviest in [(8, 1.0), (13, 40.0), (None, 7.3), (53, 1e6), (53, 1e-9)]
    for rounding in ("nearest", "stochastic")
]


@pytest.mark.parametrize("grid", GRIDS, ids=lambda g: f"{g.entry_bytes}, 2^{g.exponent}")
def test_a_sum_on_a_grid_is_that_of_the_numbers_of_all_updates(grid: Grid) -> None:
    draws, parameters = np.random.default_rng(1), BLOCK + 7
    vectors = [draws.normal(size=parameters).astype(np.float32) for _ in range(5)]
    vectors[0][:] = 9.0  # all of them at the end of the range
    total, numbers = padded_sum(parameters, grid), [0] * parameters
    weight = (grid.most * 2.0**grid.exponent) / 1.5 * 0.7
    for place, vector in enumerate(vectors):
        one = padded_sum(parameters, grid)
        one.add_term(Term(partial(block, vector), weight, 9.0), stream(1, "x", place))
        assert len(one.encoded()) == grid.entry_bytes * parameters
        found = np.frombuffer(one.encoded(), f"<i{grid.entry_bytes}").astype(np.int64)
        steps = np.clip(vector.astype(np.float64), -1.5, 1.5) * weight * 2.0**-grid.exponent
        off = 0.5 if grid.rounding == "nearest" else 1
        assert np.max(np.abs(found - steps)) <= off
        assert np.max(np.abs(found)) <= grid.most
        numbers = [a + int(b) for a, b in zip(numbers, found, strict=True)]
        one.pad([(b"a" * 32, place % 2 == 0), (b"b" * 32, True)])
        total.add_encoded(one.encoded())
    total.pad([(b"a" * 32, False)] + [(b"b" * 32, False)] * 5)
    pieces = total.read(0, parameters)
    for at in (0, 1, BLOCK, parameters - 1):
        fine = 0 if pieces.fine is None else int(pieces.fine[at])
        read = (int(pieces.coarse[at]) << 64) + (int(pieces.middle[at]) << 32) + fine
        assert read == numbers[at] << (grid.exponent + 84)
    assert total.largest() == max(map(abs, numbers)) * 2.0**grid.exponent
    assert total.largest() <= 5 * grid.bound(weight, 9.0)


@pytest.mark.parametrize("devices", [1, 2, 3, 64, 65, 100_000])
@pytest.mark.parametrize("entry_bytes", [2, 4])
def test_no_sum_leaves_its_bytes(devices: int, entry_bytes: int) -> None:
    bits = bits_for(devices, entry_bytes)
    half = 2 ** (8 * entry_bytes - 1)
    assert devices * (2.0 ** (bits - 1) - 1) < half
    if 3 < bits < MOST_BITS and devices > 2:
        assert devices * (2**bits - 1) >= half  # it could have no bit more
        assert grid_of(1.0, bits, "nearest", devices, 1.0).entry_bytes == entry_bytes
        assert grid_of(1.0, bits + 1, "nearest", devices, 1.0).entry_bytes == 2 * entry_bytes


def test_the_heaviest_update_uses_all_bits() -> None:
    grid = grid_of(2.0, 10, "nearest", 8, 100.0)
    assert (grid.most, grid.entry_bytes) == (511, 2)
    assert 511 * 2.0**grid.exponent >= 200 > 511 * 2.0 ** (grid.exponent - 1)
    assert grid_of(1.0, 9, "nearest", 8, 255.0).exponent == 0  # 255 steps, exactly


def test_stochastic_rounding_is_right_on_average() -> None:
    grid = grid_of(1.0, 4, "stochastic", 3, 1.0)
    entries = np.full(20_000, 0.1, np.float32)
    steps = 0.1 * 2.0**-grid.exponent
    assert 0 < steps < 1
    found = grid.whole(entries, 1.0, stream(3, "x"))
    assert set(found) == {0.0, 1.0}
    assert found.mean() == pytest.approx(steps, abs=0.02)


def test_noise_has_the_probabilities_of_a_discrete_gaussian() -> None:
    deviation, size = 1.7, 400_000
    found = discrete_gaussian(deviation, size, stream(5, "x"))
    places = np.arange(-12, 13)
    shares = np.exp(-(places**2) / (2 * deviation**2))
    shares /= shares.sum()
    counts = np.array([np.count_nonzero(found == place) for place in places])
    assert counts.sum() == size
    often = shares * size > 20
    off = (counts - shares * size)[often] ** 2 / (shares * size)[often]
    assert off.sum() < often.sum() + 5 * math.sqrt(2 * often.sum())  # χ², five deviations


@pytest.mark.parametrize("deviation", [4.0, 2.0**20 + 0.3, 2.0**48])
def test_noise_has_its_variance(deviation: float) -> None:
    found = discrete_gaussian(deviation, 200_000, stream(6, "x")) / deviation
    assert found.std() == pytest.approx(1.0, abs=5 / math.sqrt(400_000))
    assert found.mean() == pytest.approx(0.0, abs=5 / math.sqrt(200_000))
    assert np.mean(found**4) == pytest.approx(3.0, abs=5 * math.sqrt(96 / 200_000))


PRIVACY = Privacy(clip=0.5, noise=1.5, where="sum")
CERTAIN = 18
"""A sum of up to 40 updates, of which 2 may be of devices that collude, has at least 20."""


def noisy_numbers(place: int, vector: Vector, weight: float, **secure: Any) -> Any:
    """The numbers of a device, and the length of a step."""
    settings = Secure(range=0.5, **secure)
    grid = settings.format(40, 16, PRIVACY, 20).grid
    assert grid is not None
    one = padded_sum(len(vector), grid)
    one.add_term(Term(partial(block, vector), weight, 9.0), stream(1, "x", place))
    return np.frombuffer(one.encoded(), f"<i{grid.entry_bytes}").astype(np.float64), grid.step


@pytest.mark.parametrize("bits", [None, 12])
@pytest.mark.parametrize("devices", [CERTAIN, 20, 40])
def test_a_sum_has_the_noise_of_its_devices(devices: int, bits: int | None) -> None:
    """z·C if it has those that are certain alone, and more if more stay."""
    zeros, total = np.zeros(50_000, np.float32), np.zeros(50_000)
    for place in range(devices):
        numbers, step = noisy_numbers(place, zeros, 1.0, bits=bits)
        total += numbers * step
    expected = 0.75 * math.sqrt(devices / CERTAIN)
    assert total.std() == pytest.approx(expected, rel=5 / math.sqrt(100_000))


@pytest.mark.parametrize(
    ("bits", "rounding"), [(None, "nearest"), (9, "nearest"), (9, "stochastic")]
)
@pytest.mark.parametrize("weight", [1.0, 7.0])
def test_numbers_are_no_longer_than_the_clip_before_noise(
    bits: int | None, rounding: str, weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if rounding makes them longer, and whatever weight the server says."""
    vector = np.random.default_rng(3).normal(size=BLOCK + 9).astype(np.float32)
    silent = PRIVACY.model_copy(update={"noise": 0.0})
    monkeypatch.setitem(globals(), "PRIVACY", silent)
    for length in (0.1, 0.4999, 0.6, 3.0):
        scaled = vector * np.float32(length / np.linalg.norm(vector))
        numbers, step = noisy_numbers(0, scaled, weight, bits=bits, rounding=rounding)
        assert np.linalg.norm(numbers) * step <= 0.5
        if bits is None:  # the rounding is small
            expected = min(0.5, weight * length)
            assert np.linalg.norm(numbers) * step == pytest.approx(expected, rel=1e-4)


def test_a_sum_with_all_its_noise_stays_in_its_bytes_and_bounds() -> None:
    format = Secure(range=0.5, bits=10).format(40, 16, PRIVACY, 20)
    assert format.grid is not None
    assert format.grid.entry_bytes == 4
    assert Secure(range=0.5, bits=10).format(40, 16).entry_bytes == 2  # without noise
    most = 40 * (format.grid.most + TAIL * format.grid.deviation / format.grid.step / math.sqrt(40))
    assert most < 2**31
    total = padded_sum(1000, format.grid)
    ones = np.full(1000, 0.01, np.float32)
    for place in range(40):
        total.add_term(Term(partial(block, ones), 1.0, 0.01), stream(1, "x", place))
    assert total.largest() <= 40 * format.bound(1.0, 0.01)


def test_two_devices_agree_on_a_key_for_each_attempt_and_purpose() -> None:
    a, b = PrivateKey(b"a" * 32), PrivateKey(b"b" * 32)
    agreed = a.agree(b.public)
    assert agreed is not None
    assert agreed == b.agree(a.public)
    key = derived_key(agreed, "pad", b"1")
    assert len({key, derived_key(agreed, "pad", b"2"), derived_key(agreed, "other", b"1")}) == 3
    assert key == pad_key(agreed, b"1")
    assert a.agree(bytes(32)) is None  # no point of the curve


def test_sealed_shares_that_were_changed_are_not_taken() -> None:
    sealed = seal(b"k" * 32, b"shares")
    assert unseal(b"k" * 32, sealed) == b"shares"
    assert unseal(b"j" * 32, sealed) is None
    assert unseal(b"k" * 32, sealed[:-1] + bytes([sealed[-1] ^ 1])) is None


def test_steps_come_back_from_their_bytes() -> None:
    request = StepRequest(SumStep.OPENING, b"a" * 16, 5, 3, [(1, b"\1"), (7, b"\0")])
    assert decode_step(request.encoded()) == request


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x09" + bytes(24),
        StepRequest(SumStep.KEYS, bytes(16), 0).encoded() + b"x",
        StepRequest(SumStep.OPENING, bytes(16), 5, 3, [(1, b"\1"), (1, b"\0")]).encoded(),
        StepRequest(SumStep.OPENING, bytes(16), 5, 3, [(5, b"\1")]).encoded(),
    ],
)
def test_bytes_that_are_no_step_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_step(data)
