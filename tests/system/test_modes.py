"""Modes in which updates outlive their round: the same bits, whoever is killed how often."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tests.system.test_crash import KILLS, SOON_S, Killer

from muster.emulator import run
from muster.emulator.planning import plan
from muster.emulator.records.summary import read_summary
from muster.simulation.whole_run import simulate_run

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

    from muster.emulator import Run

pytestmark = pytest.mark.usefixtures("nothing_left")

MODES: dict[str, dict[str, Any]] = {
    "buffered": {"mode": {"kind": "buffered", "k": 3, "concurrency": 6}},
    "opportunistic": {
        "deadline_s": 4.0,
        "mode": {"kind": "opportunistic", "max_staleness": 4},
    },
    "fedvarp": {
        "deadline_s": 4.0,
        "mode": {"kind": "opportunistic", "max_staleness": 4},
        "aggregator": "fedvarp",
    },
}
SHARED: dict[str, Any] = {"kind": "buffered", "k": 2, "concurrency": 5}
GROUPS: list[dict[str, Any]] = [
    {"name": "dev", "count": 4, "device": {"examples_per_s": 20}},
    {
        "name": "dev-slow",
        "count": 4,
        "devices_per_process": 2,
        "device": {"examples_per_s": {"kind": "log-normal", "median": 2, "sigma": 0.5}},
        "availability": {"kind": "bernoulli", "probability": 0.8},
        "link": {"compression": {"kind": "top-k", "ratio": 0.4}},
    },
]


def assert_the_account_is_right(done: Run) -> None:
    contributions, rounds = done.ledger.contributions, done.ledger.rounds
    folded = contributions[contributions["outcome"] == "folded"]
    assert not folded.duplicated(["call_round", "client"]).any(), "work that counts twice"
    bases = rounds.set_index("round")["base_version"]
    staleness = folded["round"].map(bases) - folded["base_version"]
    assert (staleness == folded["staleness"]).all()
    assert (folded["call_round"].map(bases) == folded["base_version"]).all()
    assert folded["staleness"].max() >= 1, "no update outlived its round"
    sizes = folded.groupby("round").size().reindex(rounds["round"], fill_value=0)
    assert sizes.tolist() == rounds["folded"].tolist()


MASKS: dict[str, list[dict[str, Any]]] = {
    "whole model": [{}, {}],
    "masks": [
        {"mask": {"kind": "blocks", "schedule": "rotating"}},
        {"mask": {"kind": "width", "schedule": "drawn"}},
    ],
}
PARTS = {"task": {"name": "linear", "model": "mlp", "hidden": [8]}}
"""A model with hidden units."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("mode", "masks"),
    [
        pytest.param("buffered", "whole model", marks=pytest.mark.soak),
        ("opportunistic", "whole model"),
        pytest.param("fedvarp", "whole model", marks=pytest.mark.soak),
        ("buffered", "masks"),
    ],
)
def test_kills_of_servers_and_devices_change_nothing(
    scenario: MakeScenario, tmp_path: Path, mode: str, masks: str
) -> None:
    groups: list[dict[str, Any]] = [
        {**group, **mask, "device": {**group["device"], "capacity": 0.4 if mask else 1.0}}
        for group, mask in zip(GROUPS, MASKS[masks], strict=True)
    ]
    planned = scenario(
        clock={"round_s": 4.0},
        groups=groups,
        **(PARTS if masks == "masks" else {}),
        server={"rounds": 20 * KILLS, "evaluate_every": 20, **MODES[mode]},
        launch={"restarts": 1000},
    )
    assert simulate_run(planned, tmp_path / "undisturbed") == "completed"
    folder = tmp_path / "killed"
    killer = Killer(folder, "all", KILLS, 60)
    done = run(planned, out=folder, show=killer.show, show_every_s=SOON_S)
    assert killer.left == 0, "the run was over before the killer was done"
    assert MODES[mode].get("aggregator") is None or (folder / "memory.bin").exists()
    undisturbed = read_summary(tmp_path / "undisturbed")
    assert done.summary["model_sha256"] == undisturbed["model_sha256"]
    assert_the_account_is_right(done)
    ratios = done.ledger.contributions["mask_ratio"]
    assert ((ratios < 0.5) if masks == "masks" else (ratios == 1)).all()


def test_kills_change_nothing_where_rounds_last_as_long_as_their_work(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    """The plan, the simulation, and real processes agree on every round's time, to the bit."""
    planned = scenario(
        clock={"kind": "modelled", "round_s": 4.0},
        groups=GROUPS,
        server={
            "rounds": 20 * KILLS,
            "evaluate_every": 20,
            "deadline_s": 8.0,
            "selection": {"kind": "uniform", "k": 3, "over_selection": 1.5},
        },
        launch={"restarts": 1000},
    )
    assert simulate_run(planned, tmp_path / "undisturbed") == "completed"
    folder = tmp_path / "killed"
    killer = Killer(folder, "all", KILLS, 60)
    done = run(planned, out=folder, show=killer.show, show_every_s=SOON_S)
    assert killer.left == 0, "the run was over before the killer was done"
    undisturbed, found = read_summary(tmp_path / "undisturbed"), plan(planned)
    assert done.summary["model_sha256"] == undisturbed["model_sha256"]
    assert done.summary["scenario_s"] == undisturbed["scenario_s"] == found.end_s
    assert found.times_s.tolist() == done.ledger.rounds["scenario_s"].tolist()


def test_kills_change_nothing_if_the_late_updates_share_a_link(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    """The plan, the simulation, and real processes behind a gateway agree to the bit."""
    valley: dict[str, Any] = {
        "name": "dev",
        "count": 4,
        "device": {"examples_per_s": {"kind": "log-normal", "median": 60, "sigma": 0.5}},
        "availability": {"kind": "bernoulli", "probability": 0.8},
        "link": {"rtt": "20 ms"},
        "shared_link": {"up": "400 kbit/s", "down": "800 kbit/s"},
    }
    planned = scenario(
        task={"name": "linear", "dimension": 2000},
        training={"learning_rate": 1e-5, "local_steps": 3, "batch_size": 8},
        clock={"round_s": 1.0},
        groups=[valley, {"name": "town", "count": 2, "device": {"examples_per_s": 40}}],
        server={"rounds": 6 * KILLS, "evaluate_every": 20, "mode": SHARED},
        launch={"restarts": 1000},
    )
    assert simulate_run(planned, tmp_path / "undisturbed") == "completed"
    folder = tmp_path / "killed"
    killer = Killer(folder, "all", KILLS, 20)
    done = run(planned, out=folder, show=killer.show, show_every_s=SOON_S)
    assert killer.left == 0, "the run was over before the killer was done"
    undisturbed = read_summary(tmp_path / "undisturbed")
    assert done.summary["model_sha256"] == undisturbed["model_sha256"]
    assert_the_account_is_right(done)
    found = plan(planned)
    assert found.times_s.tolist() == done.ledger.rounds["scenario_s"].tolist()
    written = pd.read_csv(folder / "plan.csv")
    assert written["counted"].sum() == done.summary["updates_folded"]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_thousand_asynchronous_updates_are_accounted_for_through_kills(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = scenario(
        clock={"round_s": 4.0},
        groups=GROUPS,
        server={
            "rounds": 2000,
            "evaluate_every": 500,
            "mode": {**MODES["buffered"]["mode"], "k": 5},
        },
        launch={"restarts": 1000},
    )
    folder = tmp_path / "killed"
    killer = Killer(folder, "all", 20, 60)
    done = run(planned, out=folder, show=killer.show, show_every_s=SOON_S, report=False)
    assert killer.left == 0, "the run was over before the killer was done"
    assert done.summary["updates_folded"] == 10_000
    assert_the_account_is_right(done)
