"""Named streams of random numbers."""

import hashlib

import numpy as np

from muster.common.seeds import stream


def test_a_stream_is_that_of_philox_with_the_digest_of_its_name_as_key() -> None:
    digest = hashlib.blake2b(b"1:77:batches4:d-012:12", digest_size=16).digest()
    philox = np.random.Philox(key=int.from_bytes(digest, "little"))
    expected = np.random.Generator(philox)
    found = stream(7, "batches", "d-01", 12)
    np.testing.assert_array_equal(found.permutation(50), expected.permutation(50))
    np.testing.assert_array_equal(found.normal(size=5), expected.normal(size=5))
