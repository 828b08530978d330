"""Whole runs in virtual time: with partial sums, every rule makes the model that it makes of the
updates themselves, bit for bit, whatever dies."""

from typing import Any

import pytest

from muster.testing import KillAt, SimulatedFleet, assert_never_counted_twice, assert_same_model

RULES = "fedavg", "fednova", "q-fedavg", "agnostic", "fedadam"


def settings(holding: bool, **sections: Any) -> dict[str, Any]:
    """A fleet of two packs and a device alone, whose updates are compressed in one of them."""
    pack = {"count": 3, "devices_per_process": 3, "partial_sums": holding}
    return {
        "name": "sums",
        "seed": 7,
        "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0, "examples_per_client": 16},
        "training": {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
        "server": {"rounds": 6},
        "groups": [
            {"name": "plain", **pack},
            {"name": "small", **pack, "link": {"compression": {"kind": "top-k", "ratio": 0.4}}},
            {"name": "alone", "count": 1},
        ],
        **sections,
    }


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_makes_the_same_model_of_sums(rule: str, fleet: SimulatedFleet) -> None:
    server = {"rounds": 6, "aggregator": rule}
    of_updates = fleet.run(settings(False, server=server))
    of_sums = fleet.run(settings(True, server=server))
    assert_same_model(of_sums, of_updates)
    held = of_sums.ledger.contributions["client"].str.startswith(("plain", "small"))
    assert set(of_sums.ledger.contributions["bytes_up"][held]) == {0}
    assert set(of_sums.ledger.contributions["outcome"]) == {"folded"}


def test_two_vectors_in_an_update_give_the_same_model_of_sums(fleet: SimulatedFleet) -> None:
    server = {"rounds": 6, "aggregator": "scaffold"}
    models = []
    for holding in (False, True):
        planned = settings(holding, server=server)
        for group in planned["groups"]:
            group.pop("link", None)
        models.append(fleet.run(planned))
    assert_same_model(*models)


def test_clipping_with_noise_gives_the_same_model_of_sums(fleet: SimulatedFleet) -> None:
    server = {"rounds": 6, "privacy": {"clip": 0.1, "noise": 1.0}}
    of_updates = fleet.run(settings(False, server=server))
    assert_same_model(fleet.run(settings(True, server=server)), of_updates)


def test_a_goal_and_a_deadline_give_the_same_model_of_sums(fleet: SimulatedFleet) -> None:
    server = {"rounds": 6, "deadline_s": 20.0, "selection": {"kind": "uniform", "k": 4}}
    server |= {"goal": 3}
    of_updates = fleet.run(settings(False, server=server))
    of_sums = fleet.run(settings(True, server=server))
    assert_same_model(of_sums, of_updates)


def test_devices_with_lives_give_the_same_model_of_sums(fleet: SimulatedFleet) -> None:
    phones = {"count": 4, "devices_per_process": 2, "device": {"profile": "phone"}}
    models = [
        fleet.run(
            settings(
                holding,
                clock={"round_s": 3600},
                groups=[{"name": "phones", **phones, "partial_sums": holding}],
            )
        )
        for holding in (False, True)
    ]
    assert_same_model(*models)
    assert set(models[1].ledger.answers["decision"]) > {"accept"}, "some devices are away"


def test_a_run_that_diverges_says_so(fleet: SimulatedFleet) -> None:
    training = {"learning_rate": 3e4, "local_steps": 2, "batch_size": 8}
    statuses = [fleet.run(settings(holding, training=training)).status for holding in (False, True)]
    assert statuses == ["diverged", "diverged"]


@pytest.mark.parametrize("event", ["round_opened", "received", "round_committed"])
@pytest.mark.parametrize("process", ["server", "plain-0000..plain-0002"])
def test_a_death_changes_nothing(process: Any, event: Any, fleet: SimulatedFleet) -> None:
    undisturbed = fleet.run(settings(True))
    killed = fleet.run(settings(True), KillAt(process, event, 3))
    assert_same_model(killed, undisturbed)
    assert_never_counted_twice(killed)
