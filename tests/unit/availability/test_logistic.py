import math
from collections.abc import Callable

import numpy as np
import pytest

from muster.client.availability import DeviceBatch
from muster.client.availability.logistic import LogisticAvailability, sigmoid

MakeCast = Callable[..., DeviceBatch]

LOGISTIC = LogisticAvailability(kind="logistic", intercept=-0.5, z={"age": 2.0}, x={"load": -1.0})


def test_the_chance_is_that_of_the_covariates(make_cast: MakeCast) -> None:
    cast = make_cast(2, ages=(0.0, 1.0))
    scene = cast.scene(4, {"load": np.array([0.0, 3.0])})
    # Log-odds −0.5, and −0.5 + 2 − 3 = −1.5.
    expected = [1 / (1 + math.exp(0.5)), 1 / (1 + math.exp(1.5))]
    np.testing.assert_allclose(LOGISTIC.process(cast).chance(scene), expected, rtol=1e-15)


def test_as_many_come_as_the_chance_says(make_cast: MakeCast) -> None:
    cast = make_cast(20_000, ages=(0.0, 1.0))
    scene = cast.scene(4, {"load": np.zeros(20_000)})
    process = LOGISTIC.process(cast)
    on, chance = process.on(scene), process.chance(scene)
    for kind in (0, 1):
        # Binomial deviation of at most 0.005.
        assert on[kind::2].mean() == pytest.approx(chance[kind], abs=0.02)


def test_it_says_which_covariates_it_reads() -> None:
    assert LOGISTIC.needs() == ({"age"}, {"load"})


def test_the_ends_of_the_scale_are_exact_and_quiet() -> None:
    log_odds = np.array([-1000.0, -600.0, 0.0, 40.0, 1000.0])
    # exp(−600) itself has lost two of its digits to the size of its argument.
    np.testing.assert_allclose(sigmoid(log_odds), [0, math.exp(-600), 0.5, 1, 1], rtol=1e-13)
