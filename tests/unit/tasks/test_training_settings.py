import math
from itertools import pairwise
from typing import Any

import pytest

from muster.client.training.settings import Training
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.schedules import BUILT_IN, Exponential, Inverse, InverseSqrt, Schedule, rate_at


def parse(**values: Any) -> Training:
    return validate(Training, values, "scenario.toml")


def mistakes(**values: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse(**values)
    return [line.strip() for line in str(error.value).splitlines()[1:]]


def test_the_length_of_training_is_one_epoch_where_nothing_is_said() -> None:
    assert (parse().local_epochs, parse().local_steps) == (1, None)
    assert (parse(local_steps=0).local_epochs, parse(local_steps=0).local_steps) == (None, 0)
    assert parse(local_epochs=3).local_steps is None


def test_a_gradient_is_that_of_one_minibatch_where_nothing_is_said() -> None:
    assert (parse(gradient=True).local_epochs, parse(gradient=True).local_steps) == (None, 1)
    assert parse(gradient=True, local_epochs=2).local_steps is None


def test_steps_and_epochs_together_are_a_mistake() -> None:
    [mistake] = mistakes(local_steps=5, local_epochs=2)
    assert mistake.endswith("found 5 and 2, expected one of them")


def test_every_wrong_value_is_one_mistake_at_its_key() -> None:
    found = mistakes(
        optimizer="adagrad",
        learning_rate=0,
        local_steps=-1,
        batch_size="half",
        projection_radius=-1.0,
        proximal_mu=-0.5,
        gradient="yes",
    )
    assert [line.split(":")[0] for line in found] == [
        "optimizer",
        "learning_rate",
        "local_steps",
        "batch_size",
        "projection_radius",
        "proximal_mu",
        "gradient",
    ]
    assert found[3].endswith("from 1 to 100,000,000 or \"full\", found 'half'")


@pytest.mark.parametrize("rate", [0, -1, True, math.inf, math.nan])
def test_a_rate_that_is_not_a_positive_number_is_refused(rate: object) -> None:
    [mistake] = mistakes(learning_rate=rate)
    assert mistake.startswith("learning_rate: expected a number from")


def test_a_schedule_is_checked_with_its_path() -> None:
    assert mistakes(learning_rate={"kind": "inverse", "initial": 0.1, "shfit": 5}) == [
        "learning_rate.shfit: unknown key; did you mean 'shift'?"
    ]
    assert mistakes(learning_rate={"kind": "inverse"}) == [
        "learning_rate.initial: required, but missing"
    ]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"learning_rate": 1, "batch_size": "full", "local_steps": 5, "projection_radius": 30.0},
        {"learning_rate": {"kind": "inverse", "initial": 0.1, "shift": 50}, "gradient": True},
    ],
)
def test_what_is_written_into_the_run_folder_or_sent_reads_as_the_same_training(
    values: dict[str, Any],
) -> None:
    settings = parse(**values)
    assert parse(**settings.model_dump(exclude_none=True)) == settings
    assert Training.from_json(settings.to_json()) == settings


def test_a_bare_rate_is_the_same_in_every_round() -> None:
    assert [parse(learning_rate=0.2).learning_rate_at(round) for round in (1, 1000)] == [0.2, 0.2]


def test_schedules_follow_their_formulas() -> None:
    # t = round − 1, so round 4 is t = 3.
    assert rate_at(Inverse(initial=0.4, shift=3), 4) == pytest.approx(0.4 * 3 / 6)
    assert rate_at(InverseSqrt(initial=0.4), 4) == pytest.approx(0.4 / 2)
    assert rate_at(Exponential(initial=0.4, decay=0.5), 4) == pytest.approx(0.4 / 8)
    inverse = {"kind": "inverse", "initial": 0.4, "shift": 3}
    assert parse(learning_rate=inverse).learning_rate_at(4) == pytest.approx(0.2)


@pytest.mark.parametrize("schedule", BUILT_IN.values(), ids=BUILT_IN.keys())
def test_every_schedule_starts_at_its_initial_rate_and_never_rises(
    schedule: type[Schedule],
) -> None:
    rates = [schedule(initial=0.3).at(round) for round in range(1, 50)]
    assert rates[0] == 0.3
    assert all(later <= earlier for earlier, later in pairwise(rates))
