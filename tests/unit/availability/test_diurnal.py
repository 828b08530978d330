import math
from collections.abc import Callable

import numpy as np
import pytest

from muster.client.availability import DeviceBatch
from muster.client.availability.diurnal import Diurnal

MakeCast = Callable[..., DeviceBatch]

HOURLY = 3600.0
PEAK, TROUGH = 2, 14


def test_peak_over_trough_is_the_ratio_and_the_mean_is_that_of_a_day(make_cast: MakeCast) -> None:
    cast = make_cast(3, step_s=HOURLY)
    process = Diurnal(kind="diurnal", ratio=6.0, mean=0.4).process(cast)
    day = np.array([process.chance(cast.scene(hour)) for hour in range(24)])
    np.testing.assert_array_equal(day.argmax(axis=0), PEAK)
    np.testing.assert_array_equal(day.argmin(axis=0), TROUGH)
    np.testing.assert_allclose(day[PEAK] / day[TROUGH], 6.0, rtol=1e-14)
    # The trapezoidal rule is exact on a whole period of a smooth function.
    np.testing.assert_allclose(day.mean(axis=0), 0.4, rtol=1e-14)


def test_as_many_come_as_the_hour_says(make_cast: MakeCast) -> None:
    cast = make_cast(20_000, step_s=HOURLY)
    process = Diurnal(kind="diurnal").process(cast)
    shares = {}
    for hour in (PEAK, 8, TROUGH):
        scene = cast.scene(hour)
        chance, shares[hour] = process.chance(scene)[0], process.on(scene).mean()
        deviation = math.sqrt(chance * (1 - chance) / 20_000)
        assert shares[hour] == pytest.approx(chance, abs=4 * deviation)
    # Relative deviation of the quotient: √((1 − .89)/.89 + (1 − .222)/.222) / √20,000 = 1.3 %.
    assert shares[PEAK] / shares[TROUGH] == pytest.approx(4.0, rel=0.05)


def test_the_peak_comes_by_local_time(make_cast: MakeCast) -> None:
    cast = make_cast(3, step_s=HOURLY, zones_h=(0, 1, -5))
    process = Diurnal(kind="diurnal", peak_h=22.0).process(cast)
    day = np.array([process.chance(cast.scene(hour)) for hour in range(24)])
    np.testing.assert_array_equal(day.argmax(axis=0), [22, 21, 3])


def test_a_mean_that_asks_too_much_of_the_peak_is_refused_with_the_largest() -> None:
    with pytest.raises(ValueError, match=r"peak 1\.07, expected at most 1; .* at most 0\.5618"):
        Diurnal(kind="diurnal", mean=0.6).check("phones", 5, HOURLY)
    Diurnal(kind="diurnal", mean=0.5618).check("phones", 5, HOURLY)
    Diurnal(kind="diurnal", mean=1.0, ratio=1.0).check("phones", 5, HOURLY)
