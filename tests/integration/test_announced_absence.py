"""Offline devices that report in advance what they would report if they were called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from muster.testing import KillAt, SimulatedFleet, assert_same_model

if TYPE_CHECKING:
    import pandas as pd

    from muster.emulator.runs.running import Run

COLUMNS = ["round", "client", "decision", "reason", "state", "x", "x_age_s"]


MODELLED = {"kind": "modelled", "round_s": 1800}
"""With 32 examples at 0.05 a second, about three rounds open in a step of device life."""


def settings(together: int, clock: Any = None, **device: Any) -> dict[str, Any]:
    """A fleet of phones that are often offline, with covariates X."""
    return {
        "name": "absence",
        "seed": 5,
        "task": {"name": "linear", "dimension": 5, "examples_per_client": 16},
        "training": {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
        "server": {"rounds": 24},
        "clock": clock or {"round_s": 1800},
        "groups": [
            {
                "name": "phones",
                "count": 4,
                "devices_per_process": together,
                "device": {"profile": "phone", **device},
                "availability": {"kind": "markov", "mean_up_s": 5400, "mean_down_s": 7200},
                "covariates": {
                    "x": {
                        "charge": "battery",
                        "lately": "recent",
                        "load": {"kind": "normal", "mean": 0.0, "sd": 1.0},
                    }
                },
            }
        ],
    }


def answers(run: Run) -> pd.DataFrame:
    """What the ledger knows of every answer, whether the device was called for it or not."""
    return run.ledger.answers[COLUMNS].sort_values(["round", "client"]).reset_index(drop=True)


def test_devices_that_announce_their_absence_report_the_same_in_rounds_of_one_step(
    fleet: SimulatedFleet,
) -> None:
    slow = {"clock": MODELLED, "examples_per_s": 0.05}
    announcing, asked = fleet.run(settings(1, **slow)), fleet.run(settings(4, **slow))
    assert answers(announcing).equals(answers(asked))
    steps = announcing.ledger.rounds["scenario_s"] // 1800
    assert steps.duplicated().sum() > 5, "several rounds open in a step"
    assert (announcing.ledger.answers["away_steps"] > 0).any()
    assert_same_model(announcing, asked)


def test_the_ledger_is_that_of_devices_that_are_called_every_time(fleet: SimulatedFleet) -> None:
    announcing, asked = fleet.run(settings(1)), fleet.run(settings(4))
    assert answers(announcing).equals(answers(asked))
    assert (announcing.ledger.answers["away_steps"] > 0).any()
    assert (asked.ledger.answers["away_steps"] == 0).all()
    offline = announcing.ledger.answers.query("reason == 'offline'")
    assert offline["state"].notna().all()
    assert_same_model(announcing, asked)


def test_a_phone_whose_battery_runs_out_while_it_is_offline_says_so(fleet: SimulatedFleet) -> None:
    poor = {
        "battery": {"initial": 0.1, "idle_ma": 100.0},
        "charging": {"forced_probability": 0.0, "night_probability": 0.3, "top_ups_per_day": 0.5},
    }
    announcing, asked = fleet.run(settings(1, **poor)), fleet.run(settings(4, **poor))
    assert answers(announcing).equals(answers(asked))
    assert {"offline", "powered off"} <= set(announcing.ledger.answers["reason"])


@pytest.mark.parametrize("round", [3, 7, 12, 20])
@pytest.mark.parametrize("process", ["server", "phones-0001"])
def test_a_death_changes_no_answer(process: Any, round: int, fleet: SimulatedFleet) -> None:
    undisturbed = fleet.run(settings(1))
    killed = fleet.run(settings(1), KillAt(process, "round_opened", round))
    assert answers(killed).equals(answers(undisturbed))
    away = [run.ledger.answers["away_steps"].sum() for run in (killed, undisturbed)]
    assert away[0] == away[1], "a restarted server asks again, and hears the same"
    assert_same_model(killed, undisturbed)
