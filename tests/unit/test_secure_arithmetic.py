"""The arithmetic of secure sums: sharing of secrets, the graph, padded sums and steps as bytes."""

from itertools import combinations, product
from random import Random

import numpy as np
import pytest

from muster.common.errors import RemoteProtocolError
from muster.common.exact_sum import ExactSum
from muster.common.secure.graph import Sharing, neighbours_of, sharing_of, too_few_stay
from muster.common.secure.keys import PrivateKey, derived_key, pad_key, seal, unseal
from muster.common.secure.padded import PaddedSum
from muster.common.secure.sharing import PRIME, joined, shares_of, split
from muster.common.secure.steps import StepRequest, SumStep, decode_step

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
    exact, total = ExactSum(parameters), PaddedSum(parameters)
    for term in terms:
        alone = ExactSum(parameters)
        alone.add(term, 3.7)
        exact.add(term, 3.7)
        one = PaddedSum(parameters)
        one.add_exact(alone)
        total.add_encoded(one.encoded())
    plain = total.encoded()
    total.pad(b"a" * 32, True)
    total.pad(b"b" * 32, False)
    assert total.encoded() != plain
    total.pad(b"a" * 32, False)
    total.pad(b"b" * 32, True)
    assert total.encoded() == plain
    read, right = total.read(0, parameters), exact.pieces(0, 65_536)
    assert (read.coarse[:65_536] == right.coarse).all()
    assert (read.middle[:65_536] == right.middle).all()
    assert right.fine is not None
    assert read.fine is not None
    assert (read.fine[:65_536] == right.fine).all()


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
