"""What every availability process keeps to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.client.availability import AVAILABILITIES, Availability, DeviceBatch
from muster.client.availability.traces import AvailabilityTrace, write_traces

MakeCast = Callable[..., DeviceBatch]

SIZE, STEPS = 6, 300
ZONES_H, AGES = (0, 1, -5, 5.5), (0.1, -1, 2)

SETTINGS: dict[str, dict[str, Any]] = {
    "always": {},
    "bernoulli": {"probability": 0.4},
    "diurnal": {},
    "group-event": {"probability": 0.6},
    "group-event latent": {"probability": 0.6, "form": "latent", "tau_s": 3000.0},
    "k-of-n": {"k": 2, "decay": 3.0},
    "logistic": {"intercept": 0.2, "z": {"age": 0.5}, "x": {"load": -1.0}},
    "markov": {"mean_up_s": 700.0, "mean_down_s": 400.0},
    "trace": {"file": "traces.csv"},
}


@pytest.fixture(params=SETTINGS)
def availability(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Availability:
    monkeypatch.chdir(tmp_path)
    write_traces(
        Path("traces.csv"),
        {
            "phones-1": AvailabilityTrace(True, (100.0, 5000.5, 7000.0), 10_000.0),
            "phones-4": AvailabilityTrace(False, (1234.5,)),
            "another": AvailabilityTrace(False, (20.0, 900.0, 3000.0), 3100.0),
        },
    )
    kind = request.param.split()[0]
    parsed = AVAILABILITIES.parse({"kind": kind, **SETTINGS[request.param]})
    assert isinstance(parsed, Availability)
    return parsed


def life(availability: Availability, cast: DeviceBatch) -> tuple[list[Any], ...]:
    """What its devices are at the beginning of every step, when their work ends, and the chance."""
    process = availability.process(cast)
    on, still_on, chance = [], [], []
    for step in range(STEPS):
        load = {"load": np.sin(step + cast.positions)}
        scene = cast.scene(step, load)
        on.append(process.on(scene))
        works_s = 1000.0 * (1 + np.cos(7 * step + cast.positions))
        still_on.append(process.still_on(scene, scene.time_s + works_s))
        chance.append(process.chance(scene))
    return on, still_on, chance


def test_every_built_in_kind_is_under_test() -> None:
    assert {name.split()[0] for name in SETTINGS} == AVAILABILITIES.built_in.keys()


def test_a_device_alone_lives_as_it_does_in_its_group(
    availability: Availability, make_cast: MakeCast
) -> None:
    whole = life(availability, make_cast(SIZE, zones_h=ZONES_H, ages=AGES))
    for i in range(SIZE):
        alone = life(availability, make_cast(SIZE, only=[i], zones_h=ZONES_H, ages=AGES))
        for together, own in zip(whole, alone, strict=True):
            np.testing.assert_array_equal(np.array(together)[:, i], np.array(own)[:, 0])


def test_a_device_more_changes_no_other_life_unless_a_fixed_number_is_drawn(
    availability: Availability, make_cast: MakeCast
) -> None:
    on, *_ = life(availability, make_cast(SIZE))
    on_beside_another, *_ = life(availability, make_cast(SIZE + 1))
    same = np.array_equal(np.array(on), np.array(on_beside_another)[:, :SIZE])
    assert same == (availability.kind != "k-of-n")


def test_another_seed_gives_another_life_where_anything_is_drawn(
    availability: Availability, make_cast: MakeCast
) -> None:
    on, *_ = life(availability, make_cast(SIZE))
    elsewhere, *_ = life(availability, make_cast(SIZE, seed=8))
    assert np.array_equal(on, elsewhere) == (availability.kind in ("always", "trace"))


def test_when_work_ends_it_is_as_at_the_beginning_of_that_step_or_at_that_instant(
    availability: Availability, make_cast: MakeCast
) -> None:
    cast = make_cast(SIZE)
    ahead, behind = availability.process(cast), availability.process(cast)
    x = {"load": np.zeros(SIZE)}
    for step in range(0, STEPS, 3):
        later = cast.scene(step + 2, x)
        until_s = np.full(SIZE, later.time_s)
        still_on = ahead.still_on(cast.scene(step, x), until_s)
        np.testing.assert_array_equal(still_on, behind.on(later))


def test_settings_survive_their_json(availability: Availability) -> None:
    assert type(availability).from_json(availability.to_json()) == availability


def test_the_settings_under_test_are_accepted(availability: Availability) -> None:
    availability.check("phones", SIZE, 600.0)
