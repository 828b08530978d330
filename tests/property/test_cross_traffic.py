"""What cross traffic leaves of a rate."""

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from muster.common.rates.cross_traffic import TrafficLoad, constant_rate, left_by
from muster.common.rates.over_time import RateOverTime

loads = st.builds(
    TrafficLoad,
    bps=st.floats(1e3, 2e6),
    on_s=st.floats(0.05, 5.0),
    off_s=st.floats(0.05, 5.0),
    seed=st.integers(0, 9),
    name=st.sampled_from("ab"),
)
recordings = st.lists(st.tuples(st.floats(0.1, 50.0), st.floats(0.0, 5e6)), min_size=1, max_size=8)


def recorded(pieces: list[tuple[float, float]]) -> RateOverTime:
    seconds, bps = np.array(pieces).T
    return RateOverTime.of_pieces(seconds, np.append(bps[:-1], 3e6))


@settings(max_examples=40)
@given(st.lists(loads, min_size=1, max_size=3), recordings)
def test_it_takes_its_rate_while_it_is_on_and_no_more_than_there_is(
    taken: list[TrafficLoad], pieces: list[tuple[float, float]]
) -> None:
    rate = recorded(pieces)
    try:
        left = left_by(taken, rate)
    except ValueError:
        reject()  # nothing is left
    instants = np.asarray((np.arange(59) + 0.618034) / 60.1234 * left.period_s, np.float64)
    own = np.array([rate.piece(float(each))[0] for each in instants])
    loaded = np.sum([each.at(instants, left.period_s) for each in taken], axis=0)
    found = np.array([left.piece(float(each))[0] for each in instants])
    near = np.abs(found - np.maximum(own - loaded, 0.0)) <= 1e-6 * own + 1e-3
    assert near.mean() > 0.8  # an instant may be where the rate turns
    assert left.total(left.period_s) <= rate.total(left.period_s) * (1 + 1e-9)


def test_a_load_that_is_always_on_leaves_a_constant_rate() -> None:
    left = left_by([TrafficLoad(bps=3e5), TrafficLoad(bps=2e5)], constant_rate(1e6))
    assert left.mean_bps == pytest.approx(5e5)
    assert left.least_bps == pytest.approx(left.peak_bps)


def test_a_load_has_its_mean_and_is_the_same_with_the_same_seed() -> None:
    load = TrafficLoad(bps=8e5, on_s=2.0, off_s=6.0, seed=3, name="x")
    assert load.mean_bps == 2e5
    left = left_by([load], constant_rate(1e6))
    assert left.mean_bps == pytest.approx(1e6 - load.mean_bps, rel=0.05)
    again = left_by([load.model_copy()], constant_rate(1e6))
    assert left.bits.tolist() == again.bits.tolist()
    other = left_by([load.model_copy(update={"seed": 4})], constant_rate(1e6))
    assert other.bits.tolist() != left.bits.tolist()
