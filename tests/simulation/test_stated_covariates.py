"""Covariates that one of thirteen devices states, with rules that correct for who takes part."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any

import pytest
import torch
from tests.simulation.claims import Course, Liar, Times, course, places

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.programs import programs_of

Lie = Callable[[str, list[Any]], Course]
"""Plays a run in which the liar states these values of a field, given as "call.field"."""

_UNIFORM = {"kind": "uniform", "low": 0.0, "high": 1.0}
_OUTSIDE = [1e30, -0.001]


def _scenario(rule: str) -> Scenario:
    group = {
        "covariates": {"z": {"age": _UNIFORM}, "x": {"load": _UNIFORM}},
        "availability": {"kind": "logistic", "intercept": 1.0, "x": {"load": -1.0}},
    }
    settings = {
        "name": rule,
        "seed": 3,
        "task": {"name": "linear", "dimension": 2, "examples_per_client": 4},
        "training": {"learning_rate": 1e-3, "local_steps": 1, "batch_size": 4},
        "server": {"rounds": 4, "aggregator": rule, "information": "limited", "stall_s": 1000.0},
        "groups": [{"name": "liar", "count": 1, **group}, {"name": "dev", "count": 12, **group}],
    }
    return validate(Scenario, settings, rule)


@pytest.fixture(scope="module")
def lie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Lie]]:
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()

    @cache
    def of(rule: str) -> Lie:
        folder = tmp_path_factory.mktemp(rule)
        programs, folders = programs_of(_scenario(rule), folder / "programs"), count()

        def play(field: str, values: list[Any]) -> Course:
            run = folder / str(next(folders))
            run.mkdir()
            left = {place: list(values) for place in places() if str(place) == field}
            assert left or not field
            played = course(programs, run, Liar(left))
            shutil.rmtree(run)
            assert (played.status, played.wrong) == ("completed", [])
            return played

        return play

    yield of
    gc.unfreeze()


@pytest.mark.parametrize("value", _OUTSIDE)
def test_covariates_z_outside_the_population_count_as_not_known(
    lie: Callable[[str], Lie], value: float
) -> None:
    played = lie("calibrated")("Enroll.devices.z.value", [value])
    unknown = lie("calibrated")("Enroll.devices.z", [Times(0)])
    assert played.weights == pytest.approx(unknown.weights)
    _require_corrected_and_told(played, "Z")


@pytest.mark.parametrize("rule", ["participation-ipw", "calibrated"])
@pytest.mark.parametrize("value", _OUTSIDE)
def test_covariates_x_outside_their_distribution_count_as_not_known(
    lie: Callable[[str], Lie], rule: str, value: float
) -> None:
    played = lie(rule)("Attend.answers.x", 99 * [value])
    others = lie(rule)("Attend.answers.x", 99 * [-12.5])
    assert played.weights == pytest.approx(others.weights)
    _require_corrected_and_told(played, "X")


def _require_corrected_and_told(played: Course, kind: str) -> None:
    first = {round(weight, 3) for (number, _), weight in played.weights.items() if number == 1}
    assert len(first) > 4, "the correction is switched off"
    said = f"liar-0000 reports impossible covariates {kind}: "
    assert any(warning.startswith(said) for warning in played.warned)


def test_covariates_within_their_bounds_are_believed(lie: Callable[[str], Lie]) -> None:
    played = lie("calibrated")("Enroll.devices.z.value", [0.5])
    assert not played.warned
