import math
from collections.abc import Callable

import numpy as np
import pytest

from muster.client.availability import DeviceBatch
from muster.client.availability.markov import Markov

MakeCast = Callable[..., DeviceBatch]

MARKOV = Markov(kind="markov", mean_up_s=900.0, mean_down_s=300.0)
SHARE = 0.75


def test_it_is_stationary_from_the_first_instant(make_cast: MakeCast) -> None:
    cast = make_cast(10_000)
    process = MARKOV.process(cast)
    deviation = math.sqrt(SHARE * (1 - SHARE) / 10_000)
    for step in (0, 1, 5, 500):
        on = process.on(cast.scene(step)).mean()
        assert on == pytest.approx(SHARE, abs=4.5 * deviation)
    np.testing.assert_array_equal(process.chance(cast.scene(0)), np.full(10_000, SHARE))


def test_it_stays_up_and_down_as_long_as_it_should(make_cast: MakeCast) -> None:
    cast = make_cast(300, step_s=10.0)
    process = MARKOV.process(cast)
    on = np.array([process.on(cast.scene(step)) for step in range(3000)])
    # Looked at every 10 s, a stay has a geometric length, with this probability to end:
    ends = (1 - math.exp(-10.0 * (1 / 900 + 1 / 300))) * np.array([SHARE, 1 - SHARE])
    for state, probability in enumerate(ends):
        steps_there = (on[:-1] == state).sum()
        changes = ((on[:-1] == state) & (on[1:] != state)).sum()
        # Binomial deviation, 1 to 2 % here.
        deviation = math.sqrt(probability * (1 - probability) / steps_there)
        assert changes / steps_there == pytest.approx(probability, abs=4 * deviation)


def test_it_toggles_at_the_sums_of_its_dwells(make_cast: MakeCast) -> None:
    cast = make_cast(20, only=[3])
    numbers = cast.numbers("availability")
    on, instant = bool(numbers.at(0)[0, 0] < SHARE), 0.0
    process = MARKOV.process(cast)
    for i in range(1, 500):
        mean_s = 900.0 if on else 300.0
        instant -= mean_s * np.log1p(-numbers.at(i))[0, 0]
        # Looked at from the last step before: the very instant decides.
        scene = cast.scene(int(instant // cast.step_s))
        before, after = np.nextafter(instant, 0.0), instant
        assert process.still_on(scene, np.array([before])) == on
        assert process.still_on(scene, np.array([after])) != on
        on = not on


@pytest.mark.slow
def test_a_life_does_not_depend_on_how_it_is_looked_at(make_cast: MakeCast) -> None:
    cast = make_cast(50)
    patient, hasty, restless = (MARKOV.process(cast) for _ in range(3))
    for step in range(401):
        scene = cast.scene(step)
        on = patient.on(scene)
        # Up to a hundred steps ahead, which is 100 dwells.
        restless.still_on(scene, scene.time_s + np.linspace(0, 100, 50) * cast.step_s)
        np.testing.assert_array_equal(restless.on(scene), on)
        if step % 100 == 0:
            np.testing.assert_array_equal(hasty.on(scene), on)
            np.testing.assert_array_equal(MARKOV.process(cast).on(scene), on)


def test_the_past_can_be_asked_for_again(make_cast: MakeCast) -> None:
    cast = make_cast(50)
    process = MARKOV.process(cast)
    first = [process.on(cast.scene(step)) for step in range(0, 300, 10)]
    again = [process.on(cast.scene(step)) for step in reversed(range(0, 300, 10))]
    np.testing.assert_array_equal(first, again[::-1])
