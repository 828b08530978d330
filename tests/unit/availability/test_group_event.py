import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from muster.client.availability import DeviceBatch
from muster.client.availability.group_event import GroupEvent

MakeCast = Callable[..., DeviceBatch]

# The setting of Harrak et al.: ten devices in three groups.
SIZES, EVENTS, GIVEN_EVENT = (3, 4, 3), (0.3, 0.6, 0.3), 0.95
EFFECTIVE, EMPTY = (0.0573964999, 0.1148995406, 0.0573964999), 0.1960228383


def event(probability: float) -> GroupEvent:
    return GroupEvent(kind="group-event", probability=probability)


def latent(probability: float, **settings: Any) -> GroupEvent:
    return GroupEvent(kind="group-event", form="latent", probability=probability, **settings)


def test_effective_weights_of_the_correlated_setting_by_enumeration() -> None:
    # How many of a group are available, by number.
    counts = []
    for size, probability in zip(SIZES, EVENTS, strict=True):
        given = [
            math.comb(size, a) * GIVEN_EVENT**a * (1 - GIVEN_EVENT) ** (size - a)
            for a in range(size + 1)
        ]
        counts.append(probability * np.array(given) + (1 - probability) * np.eye(1, size + 1)[0])
    effective, empty = np.zeros(3), 0.0
    for active in itertools.product(*(range(size + 1) for size in SIZES)):
        chance = math.prod(counts[g][a] for g, a in enumerate(active))
        if sum(active) == 0:
            empty += chance
        else:
            effective += chance * np.array(active) / SIZES / sum(active)
    np.testing.assert_allclose(effective, EFFECTIVE, atol=5e-11)
    assert empty == pytest.approx(EMPTY, abs=5e-11)


@pytest.mark.slow
def test_the_process_has_the_effective_weights_of_the_correlated_setting(
    make_cast: MakeCast,
) -> None:
    steps = 40_000
    on = []
    for g, (size, probability) in enumerate(zip(SIZES, EVENTS, strict=True)):
        cast = make_cast(size, group=f"group-{g}")
        process = event(probability).process(cast)
        np.testing.assert_allclose(process.chance(cast.scene(0)), probability * GIVEN_EVENT)
        on.append(np.array([process.on(cast.scene(step)) for step in range(steps)]))
    active = np.hstack(on)
    of_round = active.sum(axis=1)
    shares = active / np.maximum(of_round, 1)[:, np.newaxis]
    # 1{m in S}/|S| deviates by at most 0.15, so its mean by 0.0008: 4.5 deviations.
    np.testing.assert_allclose(shares.mean(axis=0), np.repeat(EFFECTIVE, SIZES), atol=0.0035)
    # Binomial deviation 0.002: 4 deviations.
    assert np.mean(of_round == 0) == pytest.approx(EMPTY, abs=0.008)


def test_groups_have_events_of_their_own(make_cast: MakeCast) -> None:
    both = [make_cast(200, group=group) for group in ("a", "b")]
    processes = [event(0.5).process(cast) for cast in both]
    happened = np.array(
        [
            [process.on(cast.scene(step)).any() for step in range(2000)]
            for process, cast in zip(processes, both, strict=True)
        ]
    )
    # The correlation of independent ones deviates by 1/√2000 = 0.022.
    assert abs(np.corrcoef(happened)[0, 1]) < 0.09


@pytest.mark.slow
def test_the_latent_factor_is_normal_and_fades_with_its_time_constant(make_cast: MakeCast) -> None:
    cast = make_cast(2000, step_s=600.0)
    process = latent(0.5, tau_s=1800.0).process(cast)
    share = np.array([process.on(cast.scene(step)).mean() for step in range(4000)])
    # So many devices show the factor, but for 0.05 of noise: logit of the share = beta · G.
    factor = np.log(share / (1 - share))
    # 4,000 steps are as good as 670 independent ones for the mean, 1,300 for the variance.
    assert factor.mean() == pytest.approx(0.0, abs=0.15)
    assert factor.var() == pytest.approx(1.0, abs=0.15)
    for lag in (1, 3, 6):
        correlation = np.corrcoef(factor[:-lag], factor[lag:])[0, 1]
        assert correlation == pytest.approx(math.exp(-lag * 600.0 / 1800.0), abs=0.12)


@pytest.mark.parametrize(("probability", "beta"), [(0.5, 1.0), (0.1, 2.0), (0.9, -4.0)])
def test_the_latent_chance_is_the_mean_over_the_factor(
    make_cast: MakeCast, probability: float, beta: float
) -> None:
    cast = make_cast(2)
    g = np.linspace(-12, 12, 100_001)
    density = np.exp(-(g**2) / 2) / math.sqrt(2 * math.pi)
    odds = probability / (1 - probability) * np.exp(beta * g)
    expected = np.trapezoid(density * odds / (1 + odds), g)
    chance = latent(probability, beta=beta).process(cast).chance(cast.scene(3))
    np.testing.assert_allclose(chance, np.full(2, expected), atol=1e-9)


@pytest.mark.slow
def test_the_latent_form_comes_as_often_as_its_chance(make_cast: MakeCast) -> None:
    casts = [make_cast(1, seed=seed) for seed in range(4000)]
    processes = [latent(0.2, beta=1.5).process(cast) for cast in casts]
    scene = casts[0].scene(1)
    on, chance = [process.on(scene)[0] for process in processes], processes[0].chance(scene)[0]
    deviation = math.sqrt(chance * (1 - chance) / 4000)
    assert np.mean(on) == pytest.approx(chance, abs=4 * deviation)


def test_a_setting_of_the_other_form_is_refused() -> None:
    with pytest.raises(ValueError, match='tau_s belongs to form = "latent", and the form is "ev'):
        GroupEvent(kind="group-event", probability=0.5, tau_s=5.0)
    with pytest.raises(ValueError, match='device_probability belongs to form = "event"'):
        latent(0.5, device_probability=0.5)
    with pytest.raises(ValueError, match="nothing to shift"):
        latent(1.0)
