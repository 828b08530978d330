"""Fleets that live: planned and run alike, packed and alone, over crashes and on the wall clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from muster.client.availability.traces import AvailabilityTrace, write_traces
from muster.emulator import Run, run
from muster.emulator.planning import plan
from muster.emulator.scenario.scenario import Scenario

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

X = {"charge": "battery", "load": {"kind": "normal", "mean": 0.0, "sd": 1.0}}
GROUPS: list[dict[str, Any]] = [
    {
        "name": "phones",
        "count": 4,
        "device": {"profile": "phone", "examples_per_s": 0.2},
        "participation": {"require": ["unmetered"], "drop_out": 0.2},
        "covariates": {
            "z": {"os": {"kind": "categorical", "values": ["14", "15"]}, "age": 3.0},
            "x": X,
        },
        "enrollment": {"kind": "rule", "where": {"profile": ["phone"]}},
    },
    {
        "name": "tablets",
        "count": 6,
        "device": {"profile": "tablet", "time_zone": {"kind": "uniform", "low": 0, "high": 9}},
        "availability": {"kind": "markov", "mean_up_s": 7200, "mean_down_s": 3600},
        "enrollment": {"kind": "bernoulli", "probability": 0.7},
    },
    {"name": "gateways", "count": 2, "availability": {"kind": "bernoulli", "probability": 0.8}},
]
CLOCK = {"kind": "rounds", "round_s": 1800, "starts_at_h": 18}
SELECTION = {"kind": "uniform", "k": 8}


def a_day(scenario: MakeScenario, **changes: Any) -> Scenario:
    groups = [{**group, **changes} for group in GROUPS]
    server = {"rounds": 40, "selection": SELECTION, "evaluate_every": 40}
    return scenario(clock=CLOCK, server=server, groups=groups)


def answers(done: Run) -> pd.DataFrame:
    # Devices of a pack share the model that comes with their calls.
    # Devices of a pack do not announce how long they are away if they have a state to report.
    rows = done.ledger.answers.drop(columns=["at", "bytes_down", "away_steps"])
    return rows.astype(object).where(rows.notna(), None)


def test_a_run_does_what_its_plan_says_and_packs_change_nothing(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    alone = run(a_day(scenario), out=tmp_path / "alone")
    found = answers(alone)
    assert {"accept", "decline", "abort"} == set(found["decision"])
    planned = plan(a_day(scenario))
    for group in planned.groups:
        of_group = found[found["client"].str.startswith(group.name)]
        by_round = of_group.groupby("round")["decision"].value_counts().unstack(fill_value=0)
        by_round = by_round.reindex(range(1, 41), fill_value=0)
        assert list(by_round.get("accept", 0 * by_round.iloc[:, 0])) == list(group.delivered)
        for reason, counts in group.reasons.items():
            assert sum(of_group["reason"] == reason.value) == counts.sum(), reason
    written = pd.read_csv(alone.folder / "plan.csv")
    assert written["delivered"].sum() == sum(group.delivered.sum() for group in planned.groups)

    packed = run(a_day(scenario, devices_per_process=3), out=tmp_path / "packed")
    assert packed.summary["model_sha256"] == alone.summary["model_sha256"]
    pd.testing.assert_frame_equal(answers(packed), found)

    clients = alone.ledger.clients.set_index("client")
    assert clients["enrolled"].sum() == sum(group.enrolled for group in planned.groups)
    z = json.loads(str(clients.loc["phones-0000", "z"]))
    assert z["os=14"] + z["os=15"] == z["age"] - 2 == 1.0
    assert set(found["client"]) <= set(clients.index[clients["enrolled"] == 1])


def test_on_the_wall_clock_no_round_waits_for_the_dead(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    deadline_s, rounds = 3.0, 4
    # They are there when they are called, and away before their work of 14 scenario seconds ends.
    gone = tmp_path / "gone.json"
    write_traces(gone, {"any": AvailabilityTrace(start=True, toggles=(5.0,))})
    groups: list[dict[str, Any]] = [
        {
            "name": "closing",
            "count": 5,
            "device": {"examples_per_s": 30},
            "availability": {"kind": "markov", "mean_up_s": 30, "mean_down_s": 20},
            "participation": {"drop_out": 0.2},
        },
        {
            "name": "silent",
            "count": 2,
            "device": {"examples_per_s": 10},
            "availability": {"kind": "trace", "file": str(gone), "absence": "silent"},
        },
    ]
    done = run(
        scenario(
            clock={"kind": "scaled", "scale": 10, "round_s": 5},
            server={"rounds": rounds, "deadline_s": deadline_s, "heartbeat_s": 0.3},
            groups=groups,
        ),
        out=tmp_path / "run",
    )
    found = done.ledger.rounds
    assert len(found) == rounds
    assert (found["seconds"] <= deadline_s + 1).all()
    assert not done.ledger.answers.duplicated(["round", "client"]).any()
    absent = done.ledger.answers.query("decision == 'absent'")
    assert len(absent) > 0
    assert (absent["x_age_s"].dropna() >= 0).all()
    left = {event["client"]: event["why"] for event in done.ledger.events("left")}
    assert all("silent" in left[client] for client in ("silent-0000", "silent-0001"))
