"""Rational devices as real processes: the same bits as in a simulation, whoever is killed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.system.test_crash import SOON_S, Killer

from muster.emulator import run
from muster.emulator.records.summary import read_summary
from muster.simulation.whole_run import simulate_run

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

TASK = {
    "name": "digits",
    "validation_ratio": 0.3,
    "partition": {"kind": "dirichlet", "alpha": 0.3},
}
FITTED = {"test": "fitted", "threshold": "weight"}


PHONE = {
    "device": {"profile": "phone"},
    "availability": {"kind": "bernoulli", "probability": 0.8},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("aggregator", "utility", "life"),
    [
        pytest.param(  # models travel by Fetch
            "fedavg", {"tolerance": 0.1}, {"link": {"rtt": "10 ms"}}, marks=pytest.mark.soak
        ),
        ({"kind": "feduca", "regularization": 0.0}, FITTED, {}),
        ("feduca", {"cost_per_mb": 1.0}, PHONE),
        pytest.param(
            {"kind": "incfl", "retention": "model"}, {"tolerance": 0.05}, {}, marks=pytest.mark.soak
        ),
    ],
    ids=["link", "feduca", "phones", "incfl"],
)
def test_kills_do_not_change_who_leaves(
    scenario: MakeScenario,
    tmp_path: Path,
    aggregator: str | dict[str, Any],
    utility: dict[str, Any],
    life: dict[str, Any],
) -> None:
    rules = {"kind": "rational", "utility": utility}
    planned = scenario(
        task=TASK,
        clock={"round_s": 3600, "starts_at_h": 20},
        groups=[{"name": "silo", "count": 4, "participation": rules, **life}],
        server={"rounds": 15, "evaluate_every": 20, "aggregator": aggregator},
        launch={"restarts": 1000},
    )
    assert simulate_run(planned, tmp_path / "undisturbed") == "completed"
    folder = tmp_path / "killed"
    killer = Killer(folder, "all", 3, 8)
    done = run(planned, out=folder, show=killer.show, show_every_s=SOON_S)
    assert killer.left == 0, "the run was over before the killer was done"
    undisturbed = read_summary(tmp_path / "undisturbed")
    assert done.summary["model_sha256"] == undisturbed["model_sha256"]
    reasons = set(done.ledger.answers["reason"].dropna())
    assert "no gain" in reasons
    assert ("offline" in reasons) == (life is PHONE)


def test_on_a_running_clock_a_device_answers_when_it_has_judged_the_model(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    slow = {"device": {"examples_per_s": 4000}, "participation": {"kind": "rational"}}
    groups = [
        {"name": "near", "count": 2, **slow},  # the model comes with the call
        {"name": "far", "count": 2, **slow, "link": {"rtt": "10 ms"}},
    ]
    planned = scenario(
        task=TASK,
        clock={"kind": "wall", "round_s": 60},
        groups=groups,
        server={"rounds": 5, "deadline_s": 60},
    )
    done = run(planned, out=tmp_path / "run")
    answers = done.ledger.answers.set_index(["round", "client"])
    with closing(sqlite3.connect(tmp_path / "run/ledger.sqlite")) as ledger:
        query = "SELECT round, client, gains, forced FROM valuations"
        found = {(r, c): (gains, forced) for r, c, gains, forced in ledger.execute(query)}
    assert done.summary["status"] == "completed"
    assert set(found) == set(answers.index), "a device did not judge the model"
    assert all(forced == (round_ == 1) for (round_, _), (_, forced) in found.items())
    decisions = {
        key: "accept" if gains in (1, None) else "decline" for key, (gains, _) in found.items()
    }
    assert answers["decision"].to_dict() == decisions
    assert set(decisions.values()) == {"accept", "decline"}


def test_devices_that_share_a_link_leave_as_if_each_had_one_of_its_own(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    group = {"name": "silo", "count": 4, "participation": {"kind": "rational"}}
    server = {"rounds": 6, "evaluate_every": 6}
    alone = scenario(task=TASK, groups=[group], server=server)
    assert simulate_run(alone, tmp_path / "alone") == "completed"
    shared = scenario(
        task=TASK,
        clock={"kind": "wall"},
        groups=[{**group, "shared_link": {"up": "4 Mbit/s", "down": "4 Mbit/s"}}],
        server={**server, "deadline_s": 60.0},
    )
    done = run(shared, out=tmp_path / "shared", report=False)
    assert done.summary["model_sha256"] == read_summary(tmp_path / "alone")["model_sha256"]
    assert "no gain" in set(done.ledger.answers["reason"].dropna())
