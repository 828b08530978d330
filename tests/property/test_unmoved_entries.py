"""What an update does not move: no codec sends or remembers it."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.common.compression import BUILT_IN as CODEC_KINDS
from muster.common.compression import CODECS, Codec, compress
from muster.common.seeds import stream


@pytest.mark.parametrize("kind", sorted(CODEC_KINDS))
@given(seed=st.integers(0, 2**31), size=st.integers(1, 3000))
def test_no_codec_sends_or_remembers_what_did_not_move(kind: str, seed: int, size: int) -> None:
    draws = np.random.default_rng(seed)
    still = draws.random(size) < 0.5
    codec = CODECS.parse({"kind": kind})
    assert isinstance(codec, Codec)
    residual = None
    for number in range(3):
        delta = draws.standard_normal(size, np.float32)
        delta[still] = 0.0
        body, residual = compress(codec, delta, residual, partial(stream, seed, "c", number))
        assert not codec.decode(body, size)[still].any()
        assert residual is None or not residual[still].any()
